"""How fast ``HfEngine`` samples many short multi-turn episodes, against ``model.generate``.

    python benchmarks/engine_speed.py [--episodes N] [--steps N] [--repeats N] [--json] ...

Both play the same workload with the same tiny model on one thread: every step an episode samples an
answer and is shown a few more tokens. ``HfEngine`` serves all episodes at once and keeps their keys
and values; ``model.generate`` is called once a step with all prompts as one padded batch, which is
the best it can do without an engine. Answers have one fixed length, which favours ``generate``: it
never waits for a longer neighbour. The two are measured in turn and compared by CPU time, since
other work on the machine would spoil wall time. ``--json``: the last line is one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from agentrl.core.task import derive_seed
from agentrl.core.trajectory import Sampling
from agentrl.engines.hf import HfEngine

GROUP_SIZE = 8


@dataclass(frozen=True, slots=True)
class Workload:
    """Episodes in groups of eight with one first prompt; lengths are in tokens."""

    episodes: int
    steps: int
    first: int
    observation: int
    answer: int
    vocabulary: int

    @property
    def sampled(self) -> int:
        return self.episodes * self.steps * self.answer

    def tokens(self, *names: int | str, count: int) -> list[int]:
        return [derive_seed(*names, place) % self.vocabulary for place in range(count)]

    def starts(self) -> list[list[int]]:
        groups = [number // GROUP_SIZE for number in range(self.episodes)]
        return [self.tokens("first", group, count=self.first) for group in groups]

    def observations(self) -> list[list[list[int]]]:
        """What each episode is shown after each step."""
        return [
            [self.tokens(number, step, count=self.observation) for step in range(self.steps)]
            for number in range(self.episodes)
        ]


def tiny_policy(workload: Workload, hidden_size: int, layers: int) -> Any:
    """A random model of the architecture and size of the tiny policies."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=workload.vocabulary,
        hidden_size=hidden_size,
        intermediate_size=3 * hidden_size,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=hidden_size // 4,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    return Qwen3ForCausalLM(config).eval()


def with_engine(engine: HfEngine, workload: Workload) -> Callable[[int], None]:
    starts, observations = workload.starts(), workload.observations()
    sampling = Sampling(max_tokens=workload.answer)

    async def episode(number: int, repeat: int) -> None:
        prompt, name = list(starts[number]), f"{repeat}/{number}"
        for step, shown in enumerate(observations[number]):
            sample = await engine.sample(
                prompt,
                sampling=sampling,
                stop_token_ids=(),
                seed=derive_seed(name, step),
                episode_id=name,
            )
            prompt += [*sample.token_ids, *shown]
        engine.release(name)

    async def all_episodes(repeat: int) -> None:
        engine.set_version(repeat)  # as after an update: nothing is held
        await asyncio.gather(*(episode(one, repeat) for one in range(workload.episodes)))

    return lambda repeat: asyncio.run(all_episodes(repeat))


def with_generate(model: Any, workload: Workload) -> Callable[[int], None]:
    starts, observations = workload.starts(), workload.observations()

    def play(repeat: int) -> None:
        torch.manual_seed(repeat)
        ids = torch.tensor(starts)
        for step in range(workload.steps):
            ids = model.generate(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                do_sample=True,
                max_new_tokens=workload.answer,
                pad_token_id=0,
            )
            ids = torch.cat([ids, torch.tensor([one[step] for one in observations])], dim=1)

    return play


def seconds(play: Callable[[int], None], repeat: int) -> tuple[float, float]:
    """CPU and wall seconds of one play."""
    cpu, wall = time.process_time(), time.perf_counter()
    play(repeat)
    return time.process_time() - cpu, time.perf_counter() - wall


def measure(workload: Workload, hidden_size: int, layers: int, repeats: int) -> dict[str, Any]:
    model = tiny_policy(workload, hidden_size, layers)
    engine = HfEngine(model, max_batch_size=workload.episodes)
    plays = {"engine": with_engine(engine, workload), "generate": with_generate(model, workload)}
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in plays}
    for repeat in range(repeats + 1):  # the first round warms up
        for name, play in plays.items():
            times[name].append(seconds(play, repeat))
    cpu = {name: statistics.median(one for one, _ in found[1:]) for name, found in times.items()}
    wall = {name: statistics.median(one for _, one in found[1:]) for name, found in times.items()}
    ratios = [g / e for (e, _), (g, _) in zip(times["engine"], times["generate"], strict=True)][1:]
    asyncio.run(engine.aclose())
    return {
        "parameters": sum(one.numel() for one in model.parameters()),
        **asdict(workload),
        "sampled_tokens": workload.sampled,
        "engine_cpu_s": round(cpu["engine"], 3),
        "generate_cpu_s": round(cpu["generate"], 3),
        "engine_wall_s": round(wall["engine"], 3),
        "generate_wall_s": round(wall["generate"], 3),
        "engine_tokens_per_cpu_s": round(workload.sampled / cpu["engine"]),
        "generate_tokens_per_cpu_s": round(workload.sampled / cpu["generate"]),
        "ratio": round(statistics.median(ratios), 2),
        "ratio_range": [round(min(ratios), 2), round(max(ratios), 2)],
        "mean_batch": round(engine.stats.mean_batch, 1),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--episodes", type=int, default=128)
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--first", type=int, default=50, help="tokens of the first prompt")
    parser.add_argument("--observation", type=int, default=12, help="tokens shown after a step")
    parser.add_argument("--answer", type=int, default=4, help="tokens sampled in a step")
    parser.add_argument("--vocabulary", type=int, default=512)
    parser.add_argument("--hidden-size", type=int, default=128)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="the last line is one JSON object")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    workload = Workload(
        episodes=given.episodes,
        steps=given.steps,
        first=given.first,
        observation=given.observation,
        answer=given.answer,
        vocabulary=given.vocabulary,
    )
    found = measure(workload, given.hidden_size, given.layers, given.repeats)
    print(
        f"{workload.episodes} episodes of {workload.steps} steps, {found['parameters']:,} "
        f"parameters, one thread\n"
        f"HfEngine        {found['engine_cpu_s']:7.2f} CPU s  "
        f"{found['engine_tokens_per_cpu_s']:6,} sampled tokens/s\n"
        f"model.generate  {found['generate_cpu_s']:7.2f} CPU s  "
        f"{found['generate_tokens_per_cpu_s']:6,} sampled tokens/s\n"
        f"ratio           {found['ratio']:7.2f}  "
        f"(between {found['ratio_range'][0]} and {found['ratio_range'][1]})"
    )
    if given.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
