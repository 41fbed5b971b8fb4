"""What every environment must do. The subject is what makes its EnvFactory.

``assert_contract(CHECKS, lambda: MyFactory(option=1))``; a factory class without arguments is a
subject too. Checks play the first tasks of each split with admissible commands (or ``look`` where
the environment names none) and, if the factory is a Demonstrator, with its solutions.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from agentrl.core.errors import AgentRLError, EnvError
from agentrl.core.message import Message, ToolCall
from agentrl.core.protocols import Demonstrator, EnvFactory
from agentrl.core.task import Task
from agentrl.testing.contract import ContractViolation, require
from agentrl.testing.contracts.playing import (
    PLAY_STEPS,
    SEED,
    MakeFactory,
    Record,
    check_observation,
    check_result,
    first_task,
    json_hash,
    opened,
    play,
    play_alone,
    require_refused,
    require_same,
    solution,
)

__all__ = ["CHECKS", "ODD_TEXTS", "MakeFactory"]

END_STEPS = 500
COMMANDS = 24
SOLVED_TASKS = 2
ODD_TEXTS = (
    "",
    " \n\t ",
    "\x00",
    "no such command",
    "</action>x<action>",
    '{"name": "look", "arguments": {}}',
    "\u202ego \U0001f511\ud7ff",
    "%s{0}\\",
    "x" * 100_000,
)


def splits_list_their_tasks(make: MakeFactory) -> None:
    """Every split lists tasks that carry its name, one env name and unique content ids."""
    factory = make()
    require(bool(factory.splits), "splits is empty; name at least one split")
    names = set()
    for split in factory.splits:
        tasks = factory.tasks(split)
        require(bool(tasks), f"split '{split}' is empty; remove it from splits or give it tasks")
        for task in tasks:
            require(bool(task.id), f"a task of split '{split}' has an empty id; use content_hash")
            require(
                task.split == split,
                f"tasks('{split}') lists task '{task.id}' whose split is '{task.split}'",
            )
            names.add(task.env)
        repeated = len(tasks) - len({task.id for task in tasks})
        require(
            repeated == 0, f"split '{split}' lists {repeated} tasks twice; every id once a split"
        )
    require(len(names) == 1, f"tasks name several environments: {sorted(names)}; one factory, one")


def unknown_splits_are_refused(make: MakeFactory) -> None:
    """An unknown split is refused with an AgentRLError, never an empty list."""
    factory = make()
    try:
        tasks = factory.tasks("no-such-split")
    except AgentRLError:
        return
    raise ContractViolation(
        f"tasks('no-such-split') returned {len(tasks)} tasks; raise ConfigError naming the splits"
    )


def splits_are_disjoint_by_content(make: MakeFactory) -> None:
    """No problem is in two splits, and equal content means equal id."""
    factory = make()
    seen: dict[str, Task] = {}
    by_id: dict[str, str] = {}
    for split in factory.splits:
        for task in factory.tasks(split):
            content = json_hash(task.payload, f"the payload of task '{task.id}'")
            twin = seen.setdefault(f"{task.kind}:{content}", task)
            require(
                twin.split == split,
                f"task '{task.id}' of '{split}' has the same payload as task '{twin.id}' of "
                f"'{twin.split}'; assign splits by content hash",
            )
            require(
                twin.id == task.id,
                f"tasks '{twin.id}' and '{task.id}' have equal payloads; an id is content_hash of "
                "the problem, never an index or a path",
            )
            home = by_id.setdefault(task.id, split)
            require(home == split, f"task '{task.id}' is in '{home}' and in '{split}'")


def tasks_are_stable(make: MakeFactory) -> None:
    """Ids and their order are equal in two factories and in two calls."""
    factory = make()
    for split in factory.splits:
        first = [task.id for task in factory.tasks(split)]
        for again, which in ((factory, "a second call"), (make(), "a second factory")):
            other = [task.id for task in again.tasks(split)]
            if other == first:
                continue
            what = "another order" if sorted(other) == sorted(first) else "other ids"
            raise ContractViolation(
                f"{which} of tasks('{split}') gave {what}; sort what comes from folders, sets or "
                "dicts, and draw from a seeded random.Random"
            )


async def an_episode_is_reset_once(make: MakeFactory) -> None:
    """Step before reset and a second reset raise EnvError."""
    factory, task = first_task(make)
    async with opened(factory, task) as env:
        await require_refused(env.step(Message("assistant", "look")), "step before reset")
    async with opened(factory, task) as env:
        await env.reset()
        await require_refused(env.reset(), "a second reset")


async def an_episode_ends_once(make: MakeFactory) -> None:
    """A step after the episode is over raises EnvError."""
    factory, task = first_task(make)
    async with opened(factory, task) as env:
        record = await play(env, solution(factory, task), END_STEPS)
        if record.over:
            await require_refused(env.step(Message("assistant", "look")), "step after the end")


async def closing_is_idempotent(make: MakeFactory) -> None:
    """Env.aclose may be called before reset, in mid-episode and again."""
    factory, task = first_task(make)
    for steps in (None, 0, 1):
        async with opened(factory, task) as env:
            if steps is not None:
                await play(env, None, steps)
            try:
                await env.aclose()
                await env.aclose()
            except Exception as error:
                when = "before reset" if steps is None else f"after {steps} steps"
                raise ContractViolation(
                    f"aclose called twice {when} raised {type(error).__name__}: {error}"
                ) from error


async def equal_seeds_play_equally(make: MakeFactory) -> None:
    """The same task, seed and actions give the same observations and rewards."""
    factory = make()
    for split in factory.splits:
        task = factory.tasks(split)[0]
        actions, first = await play_alone(factory, task)
        for again in (factory, make()):
            async with opened(again, task) as env:
                second = await play(env, actions, PLAY_STEPS)
            require_same(
                first, second, "derive all that is random from the seed that make receives"
            )


async def episodes_share_nothing(make: MakeFactory) -> None:
    """Two environments at once do not see each other, whatever one of them reaches."""
    factory, task = first_task(make)
    actions, alone = await play_alone(factory, task)
    advice = (
        "another episode was played meanwhile: keep state on the instance, not on the class, the "
        "factory or a module"
    )
    async with opened(factory, task) as rival, opened(factory, task) as env:
        record = Record([await env.reset()])
        await play(rival, solution(factory, task), END_STEPS)
        for number, action in enumerate(actions):
            try:
                record.results.append(await env.step(action))
            except EnvError as error:
                raise ContractViolation(f"step {number} raised '{error}'; {advice}") from error
    require_same(alone, record, advice)


async def global_randomness_is_left_alone(make: MakeFactory) -> None:
    """Playing does not touch the global random generator."""
    factory, task = first_task(make)
    before = random.getstate()
    async with opened(factory, task) as env:
        await play(env, None, PLAY_STEPS)
    require(
        random.getstate() == before,
        "the state of the global random module changed; use random.Random(seed)",
    )


async def odd_actions_are_answered(make: MakeFactory) -> None:
    """Empty, huge or senseless actions never raise; they are flagged and solve nothing."""
    factory, task = first_task(make)
    odd = [Message("assistant", text) for text in ODD_TEXTS]
    odd.append(Message("assistant", "", tool_calls=(ToolCall("1", "no_such_tool", {"a": None}),)))
    for action in odd:
        async with opened(factory, task) as env:
            known = (await env.reset()).admissible
            shown = repr(action.content[:40]) + (" with a tool call" if action.tool_calls else "")
            try:
                result = await env.step(action)
            except Exception as error:
                raise ContractViolation(
                    f"the action {shown} raised {type(error).__name__}: {error}; what a model "
                    "says is never an error: answer it with an observation and action_valid=False"
                ) from error
            check_result(result)
            require(not result.success, f"the action {shown} solved the task")
            if known is not None or not action.content.strip():
                require(
                    not result.action_valid, f"the action {shown} came back with action_valid=True"
                )


async def observations_and_rewards_are_well_formed(make: MakeFactory) -> None:
    """Messages, anchors, rewards and the ways to end are what the records promise."""
    factory = make()
    for split in factory.splits:
        task = factory.tasks(split)[0]
        for actions in (None, solution(factory, task)):
            async with opened(factory, task) as env:
                record = await play(env, actions, PLAY_STEPS if actions is None else END_STEPS)
            check_observation(record.observations[0], over=False)
            for result in record.results:
                check_result(result)


async def admissible_commands_are_valid(make: MakeFactory) -> None:
    """Every command that the environment offers is accepted as valid."""
    factory = make()
    for split in factory.splits:
        task = factory.tasks(split)[0]
        best = solution(factory, task) or []
        for prefix in (best[:0], best[: len(best) // 2]):
            async with opened(factory, task) as env:
                offered = (await play(env, prefix, len(prefix))).observations[-1].admissible
            for command in (offered or ())[:COMMANDS]:
                async with opened(factory, task) as env:
                    await play(env, prefix, len(prefix))
                    result = await env.step(Message("assistant", command))
                require(
                    result.action_valid,
                    f"'{command}' was offered as admissible but came back with action_valid=False",
                )


async def demonstrations_solve_their_tasks(make: MakeFactory) -> None:
    """A Demonstrator's solutions reach success, and show what the environment shows."""
    factory = make()
    if not isinstance(factory, Demonstrator):
        return
    for split in factory.splits:
        for task in factory.tasks(split)[:SOLVED_TASKS]:
            for noise in (0.0, 0.5):
                await _check_demonstration(factory, task, noise)


async def _check_demonstration(factory: EnvFactory, task: Task, noise: float) -> None:
    assert isinstance(factory, Demonstrator)
    where = f"the demonstration of task '{task.id}' (noise {noise:g})"
    steps = list(factory.demonstrate(task, seed=SEED, noise=noise))
    require(bool(steps), f"{where} is empty")
    async with opened(factory, task) as env:
        record = await play(env, [step.action for step in steps], len(steps))
    require(len(record.results) == len(steps), f"{where} goes on after the episode is over")
    for number, step in enumerate(steps):
        require(
            step.observation.messages == record.observations[number].messages,
            f"step {number} of {where} shows other messages than the environment; what is cloned "
            "must be what the policy will see",
        )
        require(
            record.results[number].action_valid,
            f"step {number} of {where} plays {step.action.content!r}, which is not valid there",
        )
    if noise == 0:
        require(record.results[-1].success is True, f"{where} ends without success")
        require(
            all(step.trainable for step in steps),
            f"{where} has steps that are not trainable; without noise all are the expert's",
        )


CHECKS: tuple[Callable[[MakeFactory], Any], ...] = (
    splits_list_their_tasks,
    unknown_splits_are_refused,
    splits_are_disjoint_by_content,
    tasks_are_stable,
    an_episode_is_reset_once,
    an_episode_ends_once,
    closing_is_idempotent,
    equal_seeds_play_equally,
    episodes_share_nothing,
    global_randomness_is_left_alone,
    odd_actions_are_answered,
    observations_and_rewards_are_well_formed,
    admissible_commands_are_valid,
    demonstrations_solve_their_tasks,
)
