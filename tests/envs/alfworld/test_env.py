"""The episode and the factory: contract, wording, limits, lists of tasks, refusals."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from agentrl.core.errors import ConfigError, DataError, EnvError
from agentrl.core.message import Message
from agentrl.core.task import Task
from agentrl.core.trajectory import Observation, StepResult
from agentrl.envs.alfworld import AlfworldFactory, Game, split_of
from agentrl.envs.alfworld.files import list_games
from agentrl.testing.contract import assert_contract
from agentrl.testing.contracts.env import CHECKS

FEW = {"train": 30, "validation": 10, "test": 10}


def run(
    factory: AlfworldFactory, task: Task, *commands: str
) -> tuple[Observation, list[StepResult]]:
    async def episode() -> tuple[Observation, list[StepResult]]:
        env = await factory.make(task, seed=0)
        first = await env.reset()
        results = [await env.step(Message("assistant", command)) for command in commands]
        await env.aclose()
        return first, results

    return asyncio.run(episode())


def shown(observation: Observation) -> str:
    (message,) = observation.messages
    assert message.role == "user"
    return message.content


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"text": "compact", "difficulty": {"preset": "tiny", "shared": 0.5}},
        {"difficulty": "full", "show_admissible": True, "expert": "oracle"},
    ],
)
def test_generated_games_keep_the_contract(options: dict[str, Any]) -> None:
    assert_contract(CHECKS, lambda: AlfworldFactory(tasks_per_split=FEW, **options))


def test_real_games_keep_the_contract(data: Path) -> None:
    assert_contract(CHECKS, lambda: AlfworldFactory(source=data, max_steps=100))


def test_full_text_is_alfworlds_after_the_rules() -> None:
    factory = AlfworldFactory(tasks_per_split=FEW, action_format="bare")
    task = factory.tasks("train")[0]
    first, (result,) = run(factory, task, "inventory")
    rules, _, intro = shown(first).partition("\n\n")
    assert rules.endswith("Answer with the command and nothing else.")
    assert intro.startswith(
        "-= Welcome to TextWorld, ALFRED! =-\n\nYou are in the middle of a room."
    )
    assert first.anchor == intro
    assert (
        shown(result.observation) == result.observation.anchor == ("You are not carrying anything.")
    )
    tagged, _ = run(AlfworldFactory(tasks_per_split=FEW), task)
    assert "<action>" in shown(tagged).partition("\n\n")[0]


def test_compact_text_is_the_state_without_history() -> None:
    factory = AlfworldFactory(tasks_per_split=FEW, text="compact")
    task = next(one for one in factory.tasks("train") if one.kind.startswith("pick_clean"))
    steps = list(factory.demonstrate(task, seed=0, noise=0.0))
    opening = shown(steps[0].observation)
    goal = Game.from_data(task.payload["game"]).goal
    assert opening.startswith(f"task put clean {goal.thing} in {goal.target} . room ")
    after = {step.action.content.split()[0]: shown(later.observation)
             for step, later in pairwise(steps)}  # fmt: skip
    assert f" hold {goal.thing} " in after["take"] + " "
    assert f" hold clean {goal.thing} " in after["clean"]
    for step in steps[1:]:
        assert shown(step.observation) == step.observation.anchor
        assert not set(",.;:") & set(shown(step.observation))
    first, (result,) = run(factory, task, "fly")
    assert shown(result.observation) == f"invalid {first.anchor}"
    assert result.observation.anchor == first.anchor  # nothing changed


@pytest.mark.parametrize(
    ("kind", "word"),
    [("pick_heat_then_place_in_recep", "hot"), ("pick_cool_then_place_in_recep", "cool")],
)
def test_compact_text_names_the_state_of_what_is_held(kind: str, word: str) -> None:
    factory = AlfworldFactory(tasks_per_split=FEW, text="compact", task_types=[kind])
    steps = list(factory.demonstrate(factory.tasks("train")[0], seed=0, noise=0.0))
    assert f" hold {word} " in shown(steps[-1].observation)
    assert f"task put {word} " in shown(steps[0].observation)


def test_compact_text_shows_a_lit_lamp() -> None:
    factory = AlfworldFactory(
        tasks_per_split=FEW, text="compact", task_types=["look_at_obj_in_light"]
    )
    task = factory.tasks("train")[0]
    commands = [step.action.content for step in factory.demonstrate(task, seed=0, noise=0.0)]
    _, results = run(factory, task, *commands)
    assert " desklamp 1 on" in shown(results[-1].observation)


def test_admissible_commands_are_shown_on_demand() -> None:
    for text, divider in (("full", "; "), ("compact", " | ")):
        factory = AlfworldFactory(tasks_per_split=FEW, text=text, show_admissible=True)  # type: ignore[arg-type]
        first, _ = run(factory, factory.tasks("train")[0])
        assert first.admissible is not None
        assert divider.join(first.admissible) in shown(first)
        assert divider.join(first.admissible) not in first.anchor


def test_success_pays_once_and_ends_the_episode() -> None:
    factory = AlfworldFactory(tasks_per_split=FEW, reward_success=10)
    task = factory.tasks("test")[0]
    commands = [step.action.content for step in factory.demonstrate(task, seed=0, noise=0.0)]
    _, results = run(factory, task, *commands)
    *before, last = results
    assert {(one.reward, one.terminated, one.success) for one in before} == {(0.0, False, False)}
    assert (last.reward, last.terminated, last.truncated, last.success) == (10.0, True, False, True)
    with pytest.raises(EnvError, match="over or closed"):
        run(factory, task, *commands, "look")


def test_success_on_the_last_step_is_no_truncation() -> None:
    task = AlfworldFactory(tasks_per_split=FEW).tasks("test")[0]
    commands = [
        step.action.content
        for step in AlfworldFactory(tasks_per_split=FEW).demonstrate(task, seed=0, noise=0.0)
    ]
    _, results = run(AlfworldFactory(max_steps=len(commands)), task, *commands)
    assert (results[-1].terminated, results[-1].truncated) == (True, False)


def test_the_step_limit_truncates() -> None:
    factory = AlfworldFactory(tasks_per_split=FEW, max_steps=3)
    _, results = run(factory, factory.tasks("test")[0], "look", "", "nonsense")
    assert [one.truncated for one in results] == [False, False, True]
    assert [one.action_valid for one in results] == [True, False, False]
    assert results[-1].success is False
    assert not results[-1].terminated
    assert len(list(factory.demonstrate(factory.tasks("test")[0], seed=0, noise=1.0))) == 3


def test_an_episode_is_reset_once_and_before_steps() -> None:
    async def misuse() -> None:
        factory = AlfworldFactory(tasks_per_split=FEW)
        env = await factory.make(factory.tasks("train")[0], seed=0)
        with pytest.raises(EnvError, match="was not reset"):
            await env.step(Message("assistant", "look"))
        await env.reset()
        with pytest.raises(EnvError, match="begun or closed before"):
            await env.reset()

    asyncio.run(misuse())


def test_splits_never_share_a_task_and_lists_grow_by_appending() -> None:
    few, many = (
        {split: [task.id for task in AlfworldFactory(
            tasks_per_split={"train": number, "validation": number // 3, "test": number // 3}
        ).tasks(split)] for split in ("train", "validation", "test")}
        for number in (60, 900)
    )  # fmt: skip
    for split, ids in many.items():
        assert ids[: len(few[split])] == few[split]
        assert {split_of(one) for one in ids} == {split}
        assert len(set(ids)) == len(ids)
    assert not set(many["train"]) & set(many["validation"])
    assert not set(many["train"]) & set(many["test"])
    assert not set(many["validation"]) & set(many["test"])


def test_the_order_of_asking_does_not_matter() -> None:
    one, other = (AlfworldFactory(tasks_per_split=FEW, seed=8) for _ in range(2))
    ids = {split: [task.id for task in one.tasks(split)] for split in ("train", "test")}
    assert other.tasks("test")[9].id == ids["test"][9]
    assert other.tasks("train")[-1].id == ids["train"][-1]
    assert [task.id for task in other.tasks("train")[2:5]] == ids["train"][2:5]
    with pytest.raises(IndexError):
        one.tasks("train")[30]


def test_a_task_is_its_content_and_plain_data() -> None:
    task = AlfworldFactory(tasks_per_split=FEW).tasks("train")[0]
    payload = json.loads(json.dumps(dict(task.payload)))
    assert Game.from_data(payload["game"]).id == task.id
    assert task.kind == payload["game"]["goal"][0]


def test_too_many_tasks_for_the_settings_are_refused() -> None:
    factory = AlfworldFactory(
        difficulty={"thing_types": 2, "receptacles": [4, 4], "things": [2, 2], "openable": 0,
                    "receptacle_types": 4, "task_types": ["pick_and_place_simple"]},
        tasks_per_split={"train": 100_000},
    )  # fmt: skip
    with pytest.raises(ConfigError, match=r"allows for only .* different games"):
        list(factory.tasks("train"))


def test_creation_order_and_place_do_not_matter(root: Path, tmp_path: Path) -> None:
    # E7: the same folders, made in opposite orders, in two places.
    folders = list_games(root, "valid_unseen")[:12]
    listed = []
    for name, order in (("a", folders), ("deep/er/b", folders[::-1])):
        for folder in order:
            shutil.copytree(root / folder, tmp_path / name / folder)
        tasks = AlfworldFactory(source=str(tmp_path / name)).tasks("valid_unseen")
        listed.append([(task.id, dict(task.payload), task.kind) for task in tasks])
    assert listed[0] == listed[1]
    assert sorted(payload["folder"] for _, payload, _ in listed[0]) == sorted(folders)
    # By content, so that the first tasks are no longer those of one kind.
    task_ids = [task_id for task_id, _, _ in listed[0]]
    assert task_ids == sorted(task_ids)


def test_every_game_is_one_task(data: Path, root: Path) -> None:
    # E8: 134 games are 134 tasks, whoever lists them; both spellings of the source agree.
    lists = [
        [task.id for task in AlfworldFactory(source=source).tasks("valid_unseen")]
        for source in (data, root, data)
    ]
    assert len(set(lists[0])) == len(lists[0]) == 134
    assert lists[0] == lists[1] == lists[2]


def test_a_copied_game_is_not_a_second_task(root: Path, tmp_path: Path) -> None:
    folder = list_games(root, "valid_unseen")[0]
    for trial in ("one", "two"):
        shutil.copytree(root / folder, tmp_path / Path(folder).parent / trial)
    assert len(AlfworldFactory(source=tmp_path).tasks("valid_unseen")) == 1


def test_the_data_directory_is_only_read(root: Path, tmp_path: Path) -> None:
    folder = list_games(root, "valid_unseen")[0]
    shutil.copytree(root / folder, tmp_path / folder)
    before = sorted(os.walk(tmp_path))
    factory = AlfworldFactory(source=tmp_path)
    run(factory, factory.tasks("valid_unseen")[0], "look")
    assert sorted(os.walk(tmp_path)) == before


def test_real_games_can_be_chosen_by_task_type(data: Path) -> None:
    factory = AlfworldFactory(source=data, task_types=["look_at_obj_in_light"])
    tasks = factory.tasks("valid_unseen")
    assert len(tasks) == 18
    assert {task.kind for task in tasks} == {"look_at_obj_in_light"}


def test_a_split_without_the_task_type_is_refused(root: Path, tmp_path: Path) -> None:
    folder = next(one for one in list_games(root, "valid_unseen") if "/look" in one)
    shutil.copytree(root / folder, tmp_path / folder)
    factory = AlfworldFactory(source=tmp_path, task_types=["pick_two_obj_and_place"])
    with pytest.raises(DataError, match="no games of the task types pick_two"):
        factory.tasks("valid_unseen")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"text": "ful"}, "unknown text 'ful'; did you mean 'full'?"),
        ({"action_format": "xml"}, "unknown action_format 'xml'. It may be: bare, tagged."),
        ({"expert": "oracel"}, "unknown expert 'oracel'; did you mean 'oracle'?"),
        ({"task_types": ["look_at_obj"]}, "did you mean 'look_at_obj_in_light'?"),
        ({"max_steps": 0}, "max_steps must be a whole number of at least 1, got 0"),
        ({"tasks_per_split": {"trian": 3}}, "did you mean 'train'?"),
        ({"tasks_per_split": {"train": 0}}, "tasks_per_split.train must be"),
        ({"source": ".", "difficulty": "tiny"}, "difficulty shapes generated games"),
        ({"source": ".", "tasks_per_split": {}}, "tasks_per_split shapes generated games"),
    ],
)
def test_wrong_options_are_refused_in_words(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        AlfworldFactory(**options)
    assert said in str(caught.value)


def test_an_unknown_split_names_the_nearest(data: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean 'validation'"):
        AlfworldFactory().tasks("valdation")
    with pytest.raises(ConfigError, match="did you mean 'valid_seen'"):
        AlfworldFactory(source=data).tasks("valid_sen")


@pytest.mark.parametrize("payload", [{}, {"folder": "train/a/b"}, {"game": {"goal": []}}])
def test_a_foreign_task_is_refused(payload: dict[str, Any]) -> None:
    factory = AlfworldFactory(tasks_per_split=FEW)
    with pytest.raises(DataError):
        asyncio.run(factory.make(Task("x", "alfworld", "train", payload), seed=0))


def test_a_game_that_vanished_is_refused(root: Path, tmp_path: Path) -> None:
    folder = list_games(root, "valid_unseen")[0]
    shutil.copytree(root / folder, tmp_path / folder)
    factory = AlfworldFactory(source=tmp_path)
    (task,) = factory.tasks("valid_unseen")
    shutil.rmtree(tmp_path / folder)
    with pytest.raises(DataError, match="no game at"):
        asyncio.run(factory.make(task, seed=0))
