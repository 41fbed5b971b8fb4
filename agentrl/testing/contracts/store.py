"""What every store must do. The subject opens the store of a run's directory, new or not.

``assert_contract(CHECKS, lambda directory: MyStore(directory))``.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

from agentrl.core.errors import AgentRLError
from agentrl.core.message import Message, ToolCall
from agentrl.core.protocols import Store
from agentrl.core.trajectory import (
    CreditResult,
    Failure,
    Group,
    Observation,
    Sample,
    Step,
    StepResult,
    StopReason,
    Timings,
    Trajectory,
)
from agentrl.testing.contract import ContractViolation, require
from agentrl.testing.episodes import episode, failed_episode, group, summary

__all__ = ["CHECKS", "OpenStore", "rich_group"]

OpenStore = Callable[[Path], Store]


def rich_group(name: str = "rich") -> Group:
    """A group with everything a record may hold: tools, forks, failures, odd text and numbers."""
    first = Step(
        index=0,
        shown=(Message("system", "Be terse."), Message("user", "Grüße 🔑\x00\u202e")),
        anchor={"room": "kitchen", "held": ("mug", 1), "open": [True, None, 0.1]},
        prompt_ids=(1, 2, 3),
        sample=Sample((7, 8, 9), (-0.1, -1e-300, -0.0), ((0, 4), (2, 5)), "stop"),
        action=Message(
            "assistant",
            "",
            reasoning="look first",
            tool_calls=(
                ToolCall("c1", "search", {"q": "cat", "n": 3, "deep": {"$tuple": [1]}}),
                ToolCall("c2", "", {}, problem="invalid JSON: a comma too many"),
            ),
        ),
        action_key="search q=cat",
        parse_status="ok",
        result=StepResult(
            Observation((Message("tool", "3 hits", tool_call_id="c1"),), ("kitchen", 2), ("go",)),
            reward=0.1 + 0.2,
            terminated=False,
            metrics={"hits": 3.0},
        ),
        timings=Timings(0.25, 1 / 3, tool_s=0.1, wait_s=2.5),
    )
    second = replace(
        first,
        index=1,
        shown=(Message("tool", "3 hits", tool_call_id="c1"),),
        anchor=("kitchen", 2),
        prompt_ids=(1, 2, 3, 7, 8, 9, 4),
        sample=Sample((5,), (-2.5,), ((0, 5),), "length"),
        action=Message("assistant", "lone \ud800 surrogate"),
        parse_status="truncated",
        result=StepResult(
            Observation(()), None, terminated=False, truncated=True, action_valid=False
        ),
    )
    forked = replace(second, index=2, prompt_ids=(1, 9), anchor=None, result=None, kind="summary")
    played = Trajectory(
        id="rich",
        group_id="",
        task_id="",
        trial=0,
        attempt=0,
        seed=2**63 - 1,
        steps=(first, second, forked),
        stop_reason=StopReason.ENV_TRUNCATED,
        close_failure=Failure("close", "SandboxDiedError", "gone"),
        success=False,
        final_shown=(Message("user", "Time is up."),),
        wall_s=12.5,
    )
    broken = failed_episode("broken", ("hall", -0.0), summary())
    nothing = replace(failed_episode("nothing"), final_shown=())
    return group(name, played, broken, nothing, episode("plain", ("hall", 1.0), ("attic", 0.0)))


@contextmanager
def _directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="store-contract-") as path:
        yield Path(path) / "run"


def _append(store: Store, *groups: Group, purpose: str = "train", iteration: int = 0) -> None:
    for one in groups:
        for trajectory in one.trajectories:
            store.append(trajectory, task=one.task, iteration=iteration, purpose=purpose)


def _require_groups(store: Store, expected: Sequence[Group], purpose: str | None = None) -> None:
    found = list(store.groups(purpose=purpose))
    ids = [one.id for one in found]
    wanted = [one.id for one in expected]
    require(ids == wanted, f"groups(purpose={purpose!r}) gave {ids}, expected {wanted}")
    for got, want in zip(found, expected, strict=True):
        require(got.task == want.task, f"task of group '{got.id}' came back as {got.task}")
        members = [one.id for one in got.trajectories]
        require(
            members == [one.id for one in want.trajectories],
            f"group '{got.id}' came back with trajectories {members}",
        )
        for one, other in zip(got.trajectories, want.trajectories, strict=True):
            require(one == other, f"trajectory '{one.id}' changed: {_difference(one, other)}")


def _difference(got: Trajectory, want: Trajectory) -> str:
    for mine, wanted in zip(got.steps, want.steps, strict=False):
        for name in Step.__dataclass_fields__:
            if getattr(mine, name) != getattr(wanted, name):
                return (
                    f"step {wanted.index}, {name}: got {getattr(mine, name)!r}, "
                    f"expected {getattr(wanted, name)!r}"
                )
    return f"got {got!r}, expected {want!r}"


def _require_refused(call: Callable[[], object], what: str) -> None:
    try:
        call()
    except AgentRLError:
        return
    raise ContractViolation(f"{what} was accepted; raise StoreError that says what to do")


def records_come_back_equal(open_store: OpenStore) -> None:
    """What is read equals what was appended, whatever a record may hold."""
    with _directory() as directory, closing(open_store(directory)) as store:
        _append(store, rich_group())
        _require_groups(store, [rich_group()])


def groups_come_in_order(open_store: OpenStore) -> None:
    """Groups come in the order of their first trajectory, trajectories in the order of trials."""
    one = group("one", episode("a", ("x", 0.0)), episode("b", ("x", 1.0)))
    two = group("two", episode("c", ("x", 0.0)), episode("d", ("x", 1.0)))
    with _directory() as directory, closing(open_store(directory)) as store:
        for owner, place in ((two, 1), (one, 0), (one, 1), (two, 0)):
            store.append(owner.trajectories[place], task=owner.task, iteration=0, purpose="train")
        _require_groups(store, [two, one])


def the_last_attempt_stands_for_a_trial(open_store: OpenStore) -> None:
    """A group holds of every trial the last attempt, not those that were played again."""
    whole = group("g", episode("a", ("x", 1.0)))
    again = replace(whole.trajectories[0], attempt=1)
    failed = replace(failed_episode("first"), id="g/first", group_id="g", task_id=whole.task.id)
    with _directory() as directory, closing(open_store(directory)) as store:
        for one in (failed, again):
            store.append(one, task=whole.task, iteration=0, purpose="train")
        _require_groups(store, [replace(whole, trajectories=(again,))])


def purposes_are_apart(open_store: OpenStore) -> None:
    """groups(purpose=...) gives that purpose and what lies beneath it, and None gives all."""
    groups = [group(name, episode("a", ("x", 0.0))) for name in ("b", "t", "v", "w")]
    with _directory() as directory, closing(open_store(directory)) as store:
        for one, purpose in zip(groups, ("before", "train", "train/stage1", "trains"), strict=True):
            _append(store, one, purpose=purpose)
        _require_groups(store, groups)
        _require_groups(store, groups[:1], "before")
        _require_groups(store, groups[1:3], "train")
        _require_groups(store, groups[2:3], "train/stage1")
        _require_groups(store, [], "after")


def a_trajectory_counts_once(open_store: OpenStore) -> None:
    """Appending an id again is refused, and the first record stays."""
    whole = group("g", episode("a", ("x", 1.0)))
    other = replace(whole.trajectories[0], seed=99)
    with _directory() as directory, closing(open_store(directory)) as store:
        _append(store, whole)
        _require_refused(
            lambda: store.append(other, task=whole.task, iteration=0, purpose="train"),
            "the same trajectory id, appended twice,",
        )
        _require_groups(store, [whole])


def a_refused_record_leaves_nothing(open_store: OpenStore) -> None:
    """A record that cannot be stored is refused with an AgentRLError, and nothing of it is kept."""
    good = group("good", episode("a", ("x", 1.0)))
    bad = group("bad", episode("a", ("x", 1.0), (object(), 0.0)))
    with _directory() as directory, closing(open_store(directory)) as store:
        _append(store, good)
        _require_refused(lambda: _append(store, bad), "an anchor that is no JSON-like data")
        _require_groups(store, [good])
        _append(store, group("next", episode("a", ("x", 1.0))))


def a_stranger_is_refused(open_store: OpenStore) -> None:
    """A trajectory is refused with another task, and credit is refused for an unknown one."""
    one, two = (group(name, episode("a", ("x", 1.0))) for name in ("one", "two"))
    with _directory() as directory, closing(open_store(directory)) as store:
        _require_refused(
            lambda: store.append(one.trajectories[0], task=two.task, iteration=0, purpose="train"),
            "a trajectory with the task of another",
        )
        _append(store, one)
        _require_refused(
            lambda: store.add_credit([two], CreditResult([[0.5]])),
            "credit for a trajectory never appended",
        )


def credit_is_taken_once_and_aligned(open_store: OpenStore) -> None:
    """Credit is taken for what was appended, once, and only if it is aligned."""
    whole = group("g", episode("a", ("x", 1.0), ("y", 0.0)), failed_episode("b"))
    credit = CreditResult([[0.5, -0.5], None], parts={"episode": [[0.5, 0.5], None]})
    with _directory() as directory, closing(open_store(directory)) as store:
        _append(store, whole)
        for wrong in (CreditResult([[0.5, -0.5]]), CreditResult([[0.5], None])):
            _require_refused(lambda one=wrong: store.add_credit([whole], one), "unaligned credit")  # type: ignore[misc]
        store.add_credit([whole], credit)
        _require_refused(lambda: store.add_credit([whole], credit), "credit given twice")
        _require_groups(store, [whole])


def acknowledged_is_with_the_system(open_store: OpenStore) -> None:
    """What append returned for is in the files at once: a killed process loses nothing."""
    with _directory() as directory, closing(open_store(directory)) as store:
        _append(store, rich_group())
        # What the kernel holds now is what a SIGKILL would leave. Another process copies it: to
        # close a second handle here would drop this process's file locks.
        copy = directory.with_name("copy")
        subprocess.run(["cp", "-r", str(directory), str(copy)], check=True)
        with closing(open_store(copy)) as survivor:
            _require_groups(survivor, [rich_group()])


def a_run_goes_on(open_store: OpenStore) -> None:
    """A closed store opens again with all it held, and takes more. Closing twice is fine."""
    more = group("more", episode("a", ("x", 1.0)))
    with _directory() as directory:
        store = open_store(directory)
        _append(store, rich_group())
        store.close()
        store.close()
        with closing(open_store(directory)) as again:
            _append(again, more)
            _require_groups(again, [rich_group(), more])


CHECKS: tuple[Callable[[OpenStore], None], ...] = (
    records_come_back_equal,
    groups_come_in_order,
    the_last_attempt_stands_for_a_trial,
    purposes_are_apart,
    a_trajectory_counts_once,
    a_refused_record_leaves_nothing,
    a_stranger_is_refused,
    credit_is_taken_once_and_aligned,
    acknowledged_is_with_the_system,
    a_run_goes_on,
)
