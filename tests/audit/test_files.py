"""Run files: splits and panels before anything is played; and the lesson about index splits."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from agentrl.audit.auditing import audit_config
from agentrl.audit.findings import Audit, Finding
from agentrl.audit.lesson import by_content, by_index, goals, lesson, share_out
from agentrl.audit.shown import NAMED, show_audit
from agentrl.audit.splits import content_of, overlaps
from agentrl.config import load_config
from agentrl.core.errors import ConfigError, DataError
from agentrl.core.task import Task
from agentrl.testing.tiny_runs import tiny_run_data


def audit(tmp_path: Path, name: str, *overrides: str) -> Audit:
    data = tiny_run_data(tmp_path / "run")
    data["env"] = {"name": name if name == "toy" else f"tests.audit.factories:{name}"}
    data["env"]["options"] = {} if name == "Unmade" else {"max_rooms": 3, "max_steps": 6}
    return audit_config(load_config(data, overrides), name="run.yaml")


def test_a_sound_run_file_passes(tmp_path: Path) -> None:
    done = audit(tmp_path, "toy")
    assert [one.check for one in done.findings] == ["listing", "splits", "panels"]
    assert not done.violated
    assert not done.unchecked
    listing, splits, panels = done.findings
    # 2^3 + 3^3 corridors of 2 and 3 rooms, shared out by their hashes
    assert listing.counts["train tasks"] + 7 + 4 == 8 + 27
    assert splits.counts["shared"] == 0
    assert panels.counts == {
        "before": 4,
        "before/greedy": 4,
        "after": 4,
        "after/greedy": 4,
        "validation": 3,
    }
    assert not (tmp_path / "run").exists(), "an audit writes nothing"


@pytest.mark.parametrize(
    ("name", "check", "words"),
    [
        ("Leaky", "splits", "the test task 'test-0' is the train task"),
        ("Doubled", "panels", "lists task"),
        ("Unsorted", "listing", "the same tasks in another order"),
        ("Shuffled", "listing", "a second process lists"),
    ],
)
def test_what_an_environment_gets_wrong_is_found(
    name: str, check: str, words: str, tmp_path: Path
) -> None:
    # Unsorted is E7 in another process, Shuffled E6: each process looks sound by itself
    done = audit(tmp_path, name)
    (violated,) = done.violated
    assert violated.check == check
    assert any(words in one for one in violated.offenders), violated.offenders


def test_every_leaked_task_is_named(tmp_path: Path) -> None:
    (violated,) = audit(tmp_path, "Leaky").violated
    assert violated.counts["shared"] == len(violated.offenders) == 4


def test_a_panel_larger_than_its_split(tmp_path: Path) -> None:
    (violated,) = audit(tmp_path, "toy", "evaluation.tasks=5", "evaluation.greedy=false").violated
    assert violated.offenders == tuple(
        f"'{name}' wants 5 tasks, and its split has 4" for name in ("before", "after")
    )


def test_tasks_without_payload_are_counted(tmp_path: Path) -> None:
    done = audit(tmp_path, "Nameless")
    assert not done.violated
    assert "35 have no payload, so that their id alone could be compared" in done.findings[1].found


def test_an_environment_that_cannot_be_made_proves_nothing(tmp_path: Path) -> None:
    done = audit(tmp_path, "Unmade")
    assert [one.check for one in done.unchecked] == ["listing", "splits", "panels"]


def test_a_split_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"no split 'tests', which env\.test_split names; did you"
    ):
        audit(tmp_path, "toy", "env.test_split=tests")


def test_only_what_a_run_uses_is_looked_at(tmp_path: Path) -> None:
    done = audit(tmp_path, "toy", "stages=[]", "env.validation_split=other")
    assert "validation tasks" not in done.findings[0].counts
    assert set(done.findings[2].counts) == {"before", "before/greedy"}


# Content


def test_a_problem_is_known_by_what_it_is_built_from() -> None:
    one = Task("a", "shop", "train", {"item": 1, "bids": (1, 2)}, "buy")
    same = Task("b", "shop", "test", {"bids": [1, 2], "item": 1}, "buy")
    other = Task("c", "shop", "test", {"bids": [2, 1], "item": 1}, "buy")
    (found,) = overlaps({"train": [one], "test": [same, other]})
    assert (found.ids, found.same_id) == (("a", "b"), False)


def test_an_id_in_two_splits_is_found_whatever_it_holds() -> None:
    tasks = {
        "train": [Task("a", "shop", "train", {"item": 1})],
        "validation": [Task("b", "shop", "validation", {"item": 2})],
        "test": [Task("a", "shop", "test", {"item": 3}), Task("x", "shop", "test", {"item": 2})],
    }
    assert [(one.roles, one.ids, one.same_id) for one in overlaps(tasks)] == [
        (("train", "test"), ("a", "a"), True),
        (("validation", "test"), ("b", "x"), False),
    ]


def test_ids_that_repeat_hide_no_content() -> None:
    # Two problems under one id: both are looked for.
    train = [Task("0", "shop", "train", {"item": 1}), Task("0", "shop", "train", {"item": 2})]
    test = [Task("1", "shop", "test", {"item": one}) for one in (1, 2, 3)]
    assert len(overlaps({"train": train, "test": test})) == 2


def test_a_payload_that_is_no_plain_data_is_refused() -> None:
    with pytest.raises(DataError, match="task 'a' of env 'shop' is not JSON-like"):
        content_of(Task("a", "shop", "train", {"item": object()}))


# E6: a list of goals, workers seeded 0..15 and 1000..1127, an index split at 500


def test_index_splits_over_per_worker_shuffles_leak_entirely() -> None:
    told = lesson()
    leaky = told.by_index
    assert (told.goals, told.trainers, told.testers) == (2000, 16, 128)
    # 16 workers leave out a goal with 1/4^16; 128 miss one with 3/4^128
    assert (leaky.trained, leaky.tested, leaky.both) == (2000, 2000, 2000)
    assert leaky.leak == 1.0
    assert leaky.in_one_worker == 0, "one worker looks sound"
    assert leaky.by_id == 0, "and ids that are places say nothing"
    assert leaky.test_splits == 16 + 128
    sound = told.by_content
    assert (sound.both, sound.test_splits) == (0, 1)
    assert sound.trained + sound.tested == 2000
    assert abs(sound.tested - 500) < 5 * (2000 * 0.25 * 0.75) ** 0.5


@pytest.mark.parametrize("workers", [1, 3, 16])
def test_a_split_by_content_is_the_same_for_any_number_of_workers(workers: int) -> None:
    problems = goals(200)
    seeds = range(7, 7 + workers)
    shared = share_out("content", by_content, problems, seeds, seeds)
    alone = share_out("content", by_content, problems, (0,), (0,))
    assert (shared.trained, shared.tested, shared.both) == (alone.trained, alone.tested, 0)


def test_the_leak_grows_with_the_workers() -> None:
    problems = goals(1000)
    leaks = [
        share_out("index", by_index, problems, range(count), (1000,)).leak for count in (1, 2, 8)
    ]
    # of a test split of half the goals a trainer leaves out half: about 1/2, 3/4, 255/256
    assert leaks == pytest.approx([1 / 2, 3 / 4, 255 / 256], abs=0.06)


def test_offenders_beyond_a_few_are_counted() -> None:
    named = tuple(f"task '{one}'" for one in range(NAMED + 2))
    finding = Finding("splits", "no task is shared", "violated", "7 shared", {}, named)
    console = Console(record=True, width=100, file=io.StringIO())
    show_audit(Audit("run", "finished", (finding,)), console)
    shown = console.export_text()
    assert "task '4'" in shown
    assert "task '5'" not in shown
    assert "and 2 more (--json names all)" in shown
