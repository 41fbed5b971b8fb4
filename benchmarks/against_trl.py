"""Episodes a second against TRL's own multi-turn loop, on the same model and environment.

    python benchmarks/against_trl.py [--json] [--episodes N] [--turns N] [--repeats N] ...

TRL plays with ``GRPOTrainer(environment_factory=...)`` and ``model.generate`` (what it has without
a vLLM server), agentrl with its runner and ``HfEngine``; one process, one thread, no accelerator.
Equal on both sides: the weights, the tokenizer and its chat template, the tool, what is shown, the
number of turns, the sampling (temperature 1, nothing filtered), the learner's settings. The random
model is wired so that it answers with one certain tool call, token by token: so all episodes have
the same length on both sides, which favours the loop that waits for the slowest. The output states
the sampled tokens of both.

Measured in turn, after a warm-up, for an environment that answers at once and for one whose answers
take 5 to 50 ms (heavy-tailed, the same latencies on both sides, waited for with ``await``):

- rollout: ``GRPOTrainer._generate`` against ``Runner.run`` (made and reset environments included);
- step: all of a training step, one optimiser update of the same rows included.

TRL's own loop ends an episode after a number of tool calls and has the model say one thing more; so
here agentrl plays as many answers, and one environment step more.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import copy
import itertools
import json
import logging
import math
import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from agentrl.agents.loop import Agent, Budgets
from agentrl.config import LearnerConfig
from agentrl.core.message import Message, ToolSpec
from agentrl.core.task import Task, content_hash, derive_seed
from agentrl.core.trajectory import Group, Observation, Sampling, StepResult
from agentrl.credit.grpo import GRPO
from agentrl.engines.hf import HfEngine
from agentrl.learn.rows import batches_from_groups
from agentrl.learn.trl_learner import TrlLearner
from agentrl.memory.transcript import Transcript
from agentrl.models import train_tokenizer
from agentrl.renderers.chat import ChatRenderer
from agentrl.rollout.runner import GroupRequest, Limits, Runner

GROUP_SIZE = 8
PLACE = ("the", " old", " kitchen", " behind", " a", " green", " door", " near", " window", " 7")
NAME = "look"
CALL = (
    *("<tool_call>\n", '{"name": "', NAME, '", "arguments": {"place": "'),
    *PLACE,
    *('"}}', "\n</tool_call>", "<|im_end|>"),
)
LOOK = ToolSpec(
    "look",
    "Look at a place.",
    {
        "type": "object",
        "properties": {"place": {"type": "string", "description": "Name of the place."}},
        "required": ["place"],
    },
)
OPENING = "assistant\n"
TASK = "Look around and find the mug. "
LEARNING_RATE = 1e-9  # the weights must go on to give the same answers


@dataclass(frozen=True, slots=True)
class Setting:
    """What both sides play. ``turns`` are answers of the model; ``latency`` of the environment."""

    episodes: int
    turns: int
    hidden_size: int
    layers: int
    latency: str

    def waits_s(self, episode: int, turn: int) -> float:
        """5 to 50 ms, Pareto with exponent 1.2: half of them below 9 ms."""
        if self.latency == "none":
            return 0.0
        drawn = (derive_seed(1, "latency", episode, turn) + 1) / 2**63
        return min(0.005 / math.pow(drawn, 1 / 1.2), 0.050)


def shown(episode: int, turn: int) -> str:
    """What an environment answers: six digits in a sentence."""
    return f"You see desk {derive_seed(2, episode, turn) % 10**6:06} here."


def reward(episode: int) -> float:
    """Drawn, so that every group has something to learn."""
    return derive_seed(3, "reward", episode) % 1000 / 1000


@dataclass(frozen=True, slots=True)
class Rollout:
    """Seconds, seconds of the processor, sampled tokens and those of all first prompts."""

    wall_s: float
    cpu_s: float
    sampled: int
    prompts: int


@dataclass(frozen=True, slots=True)
class Times:
    """One training step: its rollout, and seconds of all of it."""

    rollout: Rollout
    wall_s: float
    cpu_s: float


Measured = Callable[[], Times]


# The model


def make_tokenizer() -> Any:
    """Words and bytes, Qwen2.5's template as TRL knows it, and the parts of the call as tokens."""
    from tokenizers import AddedToken
    from trl import chat_template_utils

    template = chat_template_utils.qwen2_5_chat_template
    written = [part for line in template.split("'") for part in line.split("\\n")]
    texts = [shown(number, 0) for number in range(8)]
    schema = json.dumps({"type": "function", "function": {NAME: LOOK.parameters}})
    tokenizer = train_tokenizer([*texts, TASK, schema, *[NAME] * 9, *written] * 3, vocab_size=700)
    ends = {"additional_special_tokens": ["<|im_start|>"], "eos_token": "<|im_end|>"}
    tokenizer.add_special_tokens(ends)
    parts = [one for one in (OPENING, *CALL[:-1]) if one != NAME]
    tokenizer.add_tokens([AddedToken(one, normalized=False) for one in parts])
    tokenizer.chat_template = template
    return tokenizer


def make_model(tokenizer: Any, hidden_size: int, layers: int) -> Any:
    """A random Qwen3 whose next token follows from the last one wherever a call is written."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    model = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=len(tokenizer),
            hidden_size=hidden_size,
            intermediate_size=3 * hidden_size,
            num_hidden_layers=layers,
            num_attention_heads=4,
            num_key_value_heads=4,
            head_dim=hidden_size // 4,
            max_position_embeddings=4096,
            tie_word_embeddings=False,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    ).eval()
    embedding, head = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    with torch.no_grad():
        torch.nn.init.normal_(embedding)
        for name, weight in model.named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                weight.mul_(0.01)  # computed in full, and too small to change the answer
        chain = [tokenizer.convert_tokens_to_ids(one) for one in (OPENING, *CALL)]
        for last, following in itertools.pairwise(chain):
            head[following] += 5 * embedding[last] / embedding[last].norm()
    return model


# TRL


class TrlEnv:
    """The environment as TRL wants it: the methods are the tools, and the waiting is awaited."""

    setting: Setting
    begun = 0  # TRL resets the members of a group one after the other

    def reset(self, episode: int, **_: Any) -> str:
        self._episode, self._turn = episode + type(self).begun % GROUP_SIZE, 0
        type(self).begun += 1
        return shown(episode, 0)

    # No type of what it returns: TRL would show it to the model, and agentrl does not.
    async def look(self, place: str):  # type: ignore[no-untyped-def]
        """
        Look at a place.

        Args:
            place: Name of the place.
        """
        self._turn += 1
        await asyncio.sleep(self.setting.waits_s(self._episode, self._turn))
        return shown(self._episode, self._turn)


def with_trl(model: Any, tokenizer: Any, setting: Setting, directory: Path) -> Measured:
    """TRL's trainer; a call makes one training step, and notes how long the rollout took."""
    from datasets import Dataset
    from transformers import PrinterCallback, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    class Trainer(GRPOTrainer):  # type: ignore[misc]
        def _generate(self, prompts: list[Any]) -> Any:
            cpu, started = time.process_time(), time.perf_counter()
            found = super()._generate(prompts)
            rollouts.append(
                Rollout(
                    time.perf_counter() - started,
                    time.process_time() - cpu,
                    sum(map(sum, found[2])),
                    sum(map(len, found[0])),
                )
            )
            return found

    class Clock(TrainerCallback):  # type: ignore[misc]
        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            marks.append((time.perf_counter(), time.process_time()))

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            marks.append((time.perf_counter(), time.process_time()))

    rollouts: list[Rollout] = []
    marks: list[tuple[float, float]] = []
    # A row for each prompt; TRL repeats it GROUP_SIZE times. Latencies go by the group's row.
    tasks = setting.episodes // GROUP_SIZE
    rows = [
        {"prompt": [{"role": "user", "content": TASK}], "episode": GROUP_SIZE * number}
        for number in range(tasks)
    ]
    env = type("Env", (TrlEnv,), {"setting": setting})
    config = GRPOConfig(
        output_dir=str(directory),
        per_device_train_batch_size=setting.episodes,
        num_generations=GROUP_SIZE,
        max_steps=1,
        max_completion_length=2000,
        max_tool_calling_iterations=setting.turns - 1,
        temperature=1.0,
        top_p=1.0,
        top_k=0,
        learning_rate=LEARNING_RATE,
        beta=0.0,
        loss_type="dapo",
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
        shuffle_dataset=False,
    )

    def rewards(completions: Sequence[Any], episode: Sequence[int], **_: Any) -> list[float]:
        return [reward(one + place % GROUP_SIZE) for place, one in enumerate(episode)]

    trainer = Trainer(
        model=model,
        processing_class=tokenizer,
        reward_funcs=[rewards],
        args=config,
        train_dataset=Dataset.from_list(rows),
        environment_factory=env,
        callbacks=[Clock()],
    )
    trainer.remove_callback(PrinterCallback)

    def step() -> Times:
        rollouts.clear()
        marks.clear()
        trainer.train()
        (rollout,) = rollouts
        begun, ended = marks
        return Times(rollout, ended[0] - begun[0], ended[1] - begun[1])

    return step


# agentrl


@dataclass(slots=True)
class LookEnv:
    """The same environment as agentrl wants it; the budget of steps ends the episode."""

    setting: Setting
    episode: int
    turn: int = 0
    tools: Sequence[ToolSpec] = field(default=(LOOK,))

    async def reset(self) -> Observation:
        first = self.episode - self.episode % GROUP_SIZE  # a group begins alike
        return Observation((Message("user", TASK + shown(first, 0)),))

    async def step(self, action: Message) -> StepResult:
        if not action.tool_calls:
            raise AssertionError(f"the model said {action.content!r}, no call")
        self.turn += 1
        await asyncio.sleep(self.setting.waits_s(self.episode, self.turn))
        text = shown(self.episode, self.turn)
        answer = Message("tool", text, tool_call_id=action.tool_calls[0].id)
        last = self.turn == self.setting.turns
        paid = reward(self.episode) if last else 0.0
        return StepResult(Observation((answer,)), paid, terminated=last, success=last)

    async def aclose(self) -> None:
        """Nothing is open."""


@dataclass(slots=True)
class LookFactory:
    """Makes them; every trial of a task is an episode of its own."""

    setting: Setting
    made: dict[str, int] = field(default_factory=dict)
    splits: Sequence[str] = ("train",)

    def tasks(self, split: str) -> Sequence[Task]:
        payloads = [{"first": at} for at in range(0, self.setting.episodes, GROUP_SIZE)]
        return [Task(content_hash(one), "look", split, one) for one in payloads]

    async def make(self, task: Task, *, seed: int) -> LookEnv:
        number = self.made.get(task.id, 0)
        self.made[task.id] = number + 1
        return LookEnv(self.setting, task.payload["first"] + number % GROUP_SIZE)


def with_agentrl(model: Any, tokenizer: Any, setting: Setting) -> Measured:
    """The runner, the engine and the learner; a call makes one training step."""
    engine = HfEngine(model, max_batch_size=setting.episodes)
    factory = LookFactory(setting)
    agent = Agent(
        engine=engine,
        renderer=ChatRenderer(tokenizer),
        make_memory=Transcript,
        sampling=Sampling(max_tokens=64),
        action_format="tools",
        budgets=Budgets(max_steps=setting.turns, max_tokens=4000),
    )
    learner = TrlLearner(
        model,
        tokenizer,
        LearnerConfig(
            learning_rate=LEARNING_RATE,
            trajectory_weighting="tokens",
            micro_batch_tokens=10**6,
        ),
        temperature=1.0,
        publish=engine.set_version,
    )
    rounds = iter(range(10**6))

    async def roll_out(number: int) -> list[Group]:
        asked = [
            GroupRequest(f"{number}-{place}", task, GROUP_SIZE, seed=number)
            for place, task in enumerate(factory.tasks("train"))
        ]
        return await Runner(factory, agent, Limits(concurrency=setting.episodes)).run(asked)

    loop = asyncio.new_event_loop()

    def step() -> Times:
        cpu, begun = time.process_time(), time.perf_counter()
        groups = loop.run_until_complete(roll_out(next(rounds)))
        rolled_out, rollout_cpu = time.perf_counter(), time.process_time() - cpu
        batches = batches_from_groups(
            groups, GRPO().assign(groups), updates=1, trajectory_weighting="tokens"
        )
        learner.fit(iter(batches), on_update=lambda _: None)
        learner.publish()
        ended, cpu = time.perf_counter(), time.process_time() - cpu
        played = [one for group in groups for one in group.trajectories]
        assert all(one.failure is None for one in played), played[0].failure
        sampled = sum(one.sampled_tokens for one in played)
        prompts = sum(len(one.steps[0].prompt_ids) for one in played)
        rollout = Rollout(rolled_out - begun, rollout_cpu, sampled, prompts)
        return Times(rollout, ended - begun, cpu)

    return step


def compare(setting: Setting, repeats: int) -> dict[str, Any]:
    """Both in turn, so that other work on the machine meets both."""
    tokenizer = make_tokenizer()
    model = make_model(tokenizer, setting.hidden_size, setting.layers)
    with tempfile.TemporaryDirectory() as name:
        others = copy.deepcopy(model), copy.deepcopy(tokenizer)
        sides = {
            "agentrl": with_agentrl(model, tokenizer, setting),
            "trl": with_trl(*others, setting, Path(name)),
        }
        found: dict[str, list[Times]] = {name: [] for name in sides}
        for _ in range(repeats + 1):  # the first round warms up
            for name, step in sides.items():
                found[name].append(step())
    return {"latency": setting.latency, **_figures(found, setting.episodes)}


def _figures(found: dict[str, list[Times]], episodes: int) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for part in ("rollout", "step"):
        for clock in ("wall", "cpu"):
            seconds = {
                name: [
                    getattr(one.rollout if part == "rollout" else one, f"{clock}_s")
                    for one in times[1:]
                ]
                for name, times in found.items()
            }
            ratios = [t / a for a, t in zip(seconds["agentrl"], seconds["trl"], strict=True)]
            name = part if clock == "wall" else f"{part}_cpu"
            for side, values in seconds.items():
                speed = episodes / statistics.median(values)
                figures[f"{side}_{name}_episodes_per_s"] = round(speed, 1)
            figures[f"{name}_ratio"] = round(statistics.median(ratios), 2)
            figures[f"{name}_ratio_range"] = [round(min(ratios), 2), round(max(ratios), 2)]
    for side, times in found.items():
        figures[f"{side}_sampled_tokens"] = times[-1].rollout.sampled
        figures[f"{side}_prompt_tokens"] = times[-1].rollout.prompts
    return figures


def main() -> int:
    """Print the figures, or one line of JSON last."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--episodes", type=int, default=32)
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--hidden-size", type=int, default=128)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="the last line is one JSON object")
    given = parser.parse_args()
    if given.episodes % GROUP_SIZE:
        parser.error(f"--episodes must be a multiple of {GROUP_SIZE}")
    torch.set_num_threads(1)
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    results = []
    for latency in ("none", "5 to 50 ms"):
        setting = Setting(given.episodes, given.turns, given.hidden_size, given.layers, latency)
        with contextlib.suppress(ImportError):
            from transformers.utils import logging as chatter

            chatter.set_verbosity_error()
        figures = compare(setting, given.repeats)
        results.append(figures)
        for name, value in figures.items():
            print(f"{name:38}{value}")
        print()
    if given.json:
        import transformers
        import trl

        print(
            json.dumps(
                {
                    "episodes": given.episodes,
                    "turns": given.turns,
                    "trl": trl.__version__,
                    "transformers": transformers.__version__,
                    "torch": torch.__version__,
                    "ratio": results[0]["rollout_ratio"],
                    "ratio_with_latency": results[1]["rollout_ratio"],
                    "settings": results,
                }
            )
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
