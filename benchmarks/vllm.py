"""The vLLM engine against vLLM itself, offline, on the same requests; and what publishing costs.

    python benchmarks/vllm.py [--episodes N] [--steps N] [--repeats N] [--model FOLDER] [--json]

Needs the server's environment (``agentrl engines install vllm``). Every episode asks for one answer
after another, each prompt longer than the last. Through the engine a step waits for the one before
it, as episodes do; vLLM's ``LLM.generate`` is given all requests in one call and waits for nothing,
so it is the most that can be had. ``HfEngine`` plays the same episodes beside it, in this process.
Answers have one fixed length. Of each the median wall time of the repeats counts, after one round
that is not measured; the machine must be quiet.

Publishing is ``set_version`` on a running server: the weights are written, the server is paused,
loads them, drops its prefixes, is told the version and asked for it. A bare reload is the one
request that loads the same file.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from agentrl.core.task import derive_seed
from agentrl.core.trajectory import Sampling
from agentrl.engines.hf import HfEngine
from agentrl.engines.vllm.control import Control
from agentrl.engines.vllm.engine import VllmEngine
from agentrl.engines.vllm.environment import find_environment
from agentrl.engines.vllm.launch import LaunchSettings, last_words, server_variables
from agentrl.models.loading import load_model, load_tokenizer, save_policy
from agentrl.models.serving import ServedPolicy
from agentrl.models.tiny import tiny_policy
from agentrl.testing.tiny_tokenizers import tiny_tokenizer

OFFLINE = """
import json, sys, time
from vllm import LLM, SamplingParams
if __name__ == "__main__":
    told = json.load(open(sys.argv[1]))
    cpu = {"enforce_eager": True} if told["cpu"] else {}
    llm = LLM(model=told["model"], dtype="float32", max_num_seqs=told["concurrency"],
              max_model_len=told["context"], generation_config="vllm",
              logprobs_mode="processed_logprobs", **cpu)
    how = SamplingParams(max_tokens=told["answer"], temperature=1.0, logprobs=0, ignore_eos=True,
                         detokenize=False)
    prompts = [{"prompt_token_ids": one} for one in told["prompts"]]
    seconds = []
    for _ in range(told["repeats"] + 1):
        llm.reset_prefix_cache()
        start = time.perf_counter()
        llm.generate(prompts, how, use_tqdm=False)
        seconds.append(time.perf_counter() - start)
    json.dump(seconds[1:], open(sys.argv[2], "w"))
"""


@dataclass(frozen=True, slots=True)
class Workload:
    """Episodes whose prompts grow; lengths are in tokens."""

    episodes: int = 64
    steps: int = 8
    first: int = 96
    growth: int = 48
    answer: int = 24
    repeats: int = 3

    @property
    def sampled(self) -> int:
        return self.episodes * self.steps * self.answer

    @property
    def context(self) -> int:
        return self.first + self.steps * self.growth + self.answer

    def prompts(self, vocabulary: int) -> list[list[list[int]]]:
        """Of each step, one prompt per episode."""
        longest = self.first + self.steps * self.growth
        texts = [
            [derive_seed(number, place) % vocabulary for place in range(longest)]
            for number in range(self.episodes)
        ]
        return [
            [text[: self.first + step * self.growth] for text in texts]
            for step in range(self.steps)
        ]


async def play(engine: Any, prompts: list[list[list[int]]], work: Workload) -> list[float]:
    """Seconds of each measured round of all episodes at once."""

    async def episode(number: int, round_: int) -> None:
        for step, shown in enumerate(prompts):
            await engine.sample(
                shown[number],
                sampling=Sampling(max_tokens=work.answer),
                stop_token_ids=(),
                seed=number * work.steps + step,
                episode_id=f"{round_}-{number}",
            )
        engine.release(f"{round_}-{number}")

    seconds = []
    for round_ in range(work.repeats + 1):
        if isinstance(engine, VllmEngine):
            with Control(engine.urls[0]) as control:
                control.forget_prefixes()
        start = time.perf_counter()
        await asyncio.gather(*(episode(one, round_) for one in range(work.episodes)))
        seconds.append(time.perf_counter() - start)
    return seconds[1:]


def offline(model: Path, prompts: list[list[list[int]]], work: Workload, folder: Path) -> Any:
    """Seconds of vLLM's own ``LLM.generate`` with all requests in one call."""
    found = find_environment()
    told = {
        "model": str(model),
        "cpu": found.kind == "cpu",
        "context": work.context,
        "concurrency": work.episodes,
        "answer": work.answer,
        "repeats": work.repeats,
        "prompts": [one for shown in prompts for one in shown],
    }
    asked, answered, program = folder / "asked.json", folder / "answered.json", folder / "run.py"
    asked.write_text(json.dumps(told))
    program.write_text(OFFLINE)
    log = folder / "offline.log"
    with log.open("wb") as printed:
        code = subprocess.run(
            [str(found.python), "-I", str(program), str(asked), str(answered)],
            stdout=printed,
            stderr=printed,
            env=server_variables(LaunchSettings(), found.kind),
        ).returncode
    if code:
        raise SystemExit(f"vLLM offline ended with {code}{last_words(log)}")
    return json.loads(answered.read_text())


def publishing(engine: VllmEngine, repeats: int) -> dict[str, float]:
    """Median seconds of a publication and of a bare reload of the same file."""

    def timed(work: Callable[[int], None]) -> float:
        work(0)
        seconds = []
        for number in range(1, repeats + 1):
            start = time.perf_counter()
            work(number)
            seconds.append(time.perf_counter() - start)
        return statistics.median(seconds)

    whole = timed(engine.set_version)
    publisher: Any = engine._publisher
    newest = str(max(publisher.folder.glob("publication-*")))
    with Control(engine.urls[0]) as control:
        bare = timed(lambda _: control.reload(newest))
    return {"publish_s": whole, "bare_reload_s": bare, "ratio": whole / bare}


def measure(work: Workload, path: str | None) -> dict[str, Any]:
    if path is None:
        tokenizer: Any = tiny_tokenizer()
        model: Any = tiny_policy(tokenizer, hidden_size=64, layers=2, heads=2, context=work.context)
    else:
        tokenizer, model = load_tokenizer(path), load_model(path)
    prompts = work.prompts(len(tokenizer) - 8)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        save_policy(folder / "model", model, tokenizer)
        engine = VllmEngine(
            policy=ServedPolicy(model, tokenizer),
            launch=True,
            publish="reload_path",
            context_tokens=work.context,
            concurrency=work.episodes,
        )
        try:
            ours = asyncio.run(play(engine, prompts, work))
            published = publishing(engine, work.repeats)
        finally:
            asyncio.run(engine.aclose())
        theirs = offline(folder / "model", prompts, work, folder)
    hf = asyncio.run(_closed(HfEngine(model, max_batch_size=work.episodes), prompts, work))
    rates = {
        name: work.sampled / statistics.median(seconds)
        for name, seconds in (("engine", ours), ("offline", theirs), ("hf", hf))
    }
    return {
        "workload": asdict(work),
        "tokens_per_s": rates,
        "of_offline": rates["engine"] / rates["offline"],
        "publishing": published,
    }


async def _closed(engine: HfEngine, prompts: list[list[list[int]]], work: Workload) -> list[float]:
    try:
        return await play(engine, prompts, work)
    finally:
        await engine.aclose()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    usual = Workload()
    parser.add_argument("--episodes", type=int, default=usual.episodes)
    parser.add_argument("--steps", type=int, default=usual.steps)
    parser.add_argument("--repeats", type=int, default=usual.repeats)
    parser.add_argument("--model", help="model folder; default: a tiny random one")
    parser.add_argument("--json", action="store_true")
    told = parser.parse_args()
    work = Workload(episodes=told.episodes, steps=told.steps, repeats=told.repeats)
    found = measure(work, told.model)
    rates, published = found["tokens_per_s"], found["publishing"]
    print(f"{work.episodes} episodes of {work.steps} steps, {work.answer} tokens an answer")
    print(f"  vllm engine          {rates['engine']:9,.0f} tokens/s")
    print(f"  vLLM offline         {rates['offline']:9,.0f} tokens/s")
    print(f"  hf engine            {rates['hf']:9,.0f} tokens/s")
    print(f"  engine of offline    {found['of_offline']:9.0%}")
    print(
        f"publishing {published['publish_s']:.3f} s, a bare reload "
        f"{published['bare_reload_s']:.3f} s: {published['ratio']:.1f} times"
    )
    if told.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
