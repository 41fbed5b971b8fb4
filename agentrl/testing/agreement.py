"""Whether an engine and the learner see one policy: ``agentrl check engine NAME --model M``.

An update compares log-probabilities of two programs: the engine's, when it sampled a token, and the
learner's. For equal weights their ratio

    ratio = exp(learner's log-probability - engine's log-probability)

must be 1 up to rounding, or every clipped objective and every importance weight is wrong without
anybody noticing. Here episodes of several turns are sampled, scored by the learner's own scorer,
and compared token by token, once with the weights as they are, and once after they were changed and
published. Settings that make the ratio wrong, or the samples of a group alike,
are named.

Source: the cases are TRL's issues 6789 and 4159 (truncated sampling, temperature).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from agentrl.core.errors import ConfigError
from agentrl.core.protocols import Engine
from agentrl.core.trajectory import Row, Sample, Sampling

__all__ = ["LIMIT", "Agreement", "check_agreement", "compare", "split_options"]

LOW, HIGH = 0.9, 1.1
LIMIT = 0.02  # of tokens outside; low precision on a GPU is worth some
_LONGEST_PROMPT, _SHOWN = 48, 12  # tokens of a first prompt, and of what is shown between turns
_TURNS, _ALIKE, _ANSWER = 2, 4, 64
_NOISE = 0.1
_TEXT = (
    "You are in the middle of a room. Looking quickly around you, you see a drawer 2, a shelf 5, "
    "a fridge 1 and a desk 1. Your task is to: put a clean mug on the desk.",
    "The customer asks for a refund of order 4411, which was delivered two weeks late. Look the "
    "order up before you promise anything.",
    "def area(width, height):\n    return width + height\n\nThe test expects area(3, 4) == 12.",
    "Which river runs through the town where the author of the book was born?",
)


@dataclass(frozen=True, slots=True)
class Agreement:
    """What was found.

    Attributes:
        tokens: Sampled tokens that were compared. episodes: Of how many episodes.
        median, p90, p99, largest: Of the absolute differences of log-probabilities.
        mean_ratio: 1 for one policy.
        outside: Share of tokens whose ratio is outside [0.9, 1.1].
        limit: The largest share that passes.
        warnings: What biases the ratio although it may look right, in words.
        published: The same after the weights were changed and published; ``None``: this engine
            takes no new weights.
    """

    tokens: int
    episodes: int
    median: float
    p90: float
    p99: float
    largest: float
    mean_ratio: float
    outside: float
    limit: float
    warnings: tuple[str, ...] = ()
    published: Agreement | None = None

    @property
    def ok(self) -> bool:
        later = self.published
        return self.outside <= self.limit and (later is None or later.ok)

    def to_data(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {**asdict(self), "ok": self.ok}

    def lines(self) -> list[str]:
        """The report for people."""
        verdict = "agrees with the learner" if self.ok else "does NOT agree with the learner"
        later = self.published
        return [
            *self._numbers(),
            *(["after changed weights were published:", *later._numbers()] if later else []),
            *(f"warning: {one}" for one in self.warnings),
            f"the engine {verdict}",
        ]

    def _numbers(self) -> list[str]:
        return [
            f"{self.tokens:,} sampled tokens of {self.episodes} episodes",
            f"  difference of log-probabilities: median {self.median:.1e}, 90 % below "
            f"{self.p90:.1e}, 99 % below {self.p99:.1e}, largest {self.largest:.1e}",
            f"  ratio: mean {self.mean_ratio:.4f}; outside [{LOW:g}, {HIGH:g}]: "
            f"{self.outside:.2%} of the tokens (limit {self.limit:.2%})",
        ]


def check_agreement(
    name: Any,
    path: str,
    options: Mapping[str, Any],
    *,
    sampling: Sampling,
    dtype: str = "float32",
    episodes: int = 32,
    limit: float = LIMIT,
) -> Agreement:
    """Sample with the engine ``name``, score with the learner, compare.

    Args:
        name: Registered name or ``module:attr`` of an engine, or its class.
        path: Model folder, hub id or ``builtin:NAME``.
        options: The engine's own.
        sampling: How to sample.
        dtype: The learner's, of the weights.
        episodes: How many are played at once, of two turns each.
        limit: Largest share of tokens outside [0.9, 1.1] that passes.

    Raises:
        ConfigError: an unknown engine, option or model; an engine without log-probabilities.
        EngineError: the engine could not sample.
    """
    from agentrl.models.loading import load_model
    from agentrl.registry import verify

    verify("engine", name, options, ("model",))
    model = load_model(path, dtype=dtype)
    prompts = _prompts(path, model, episodes)
    now, later, warnings = asyncio.run(_played(name, options, model, prompts, sampling, limit))
    return replace(now, published=later, warnings=tuple(warnings))


def split_options(options: Sequence[str]) -> tuple[dict[str, Any], Sampling]:
    """``key=value`` texts: the engine's own options, and how to sample (``sampling.top_p=0.9``).

    Raises:
        ConfigError: an option that is none, or settings of sampling that make no sense.
    """
    from pydantic import ValidationError

    from agentrl.config import SamplingConfig
    from agentrl.testing.checking import read_option

    own = dict(read_option(one) for one in options)
    mark = "sampling."
    wanted = {key.removeprefix(mark): own.pop(key) for key in list(own) if key.startswith(mark)}
    try:
        told = SamplingConfig.model_validate({"max_tokens": _ANSWER, **wanted})
    except ValidationError as error:
        wrong = [f"{mark}{one['loc'][0]}: {one['msg']}" for one in error.errors()]
        known = ", ".join(mark + key for key in SamplingConfig.model_fields)
        raise ConfigError(f"{'; '.join(wrong)}. Known: {known}") from error
    return own, Sampling(**told.model_dump())


def compare(
    pairs: Sequence[tuple[Sequence[int], Sample]],
    scored: Sequence[Sequence[float]],
    *,
    limit: float = LIMIT,
) -> Agreement:
    """Compare samples with what the learner says of the same tokens.

    Args:
        pairs: Prompts and answers.
        scored: Log-probabilities of all tokens of each row, prompt and answer.
        limit: Largest share outside that passes.

    Raises:
        ConfigError: the engine's log-probabilities are no numbers.
    """
    theirs = np.concatenate([np.asarray(one.logprobs, np.float64) for _, one in pairs])
    if not np.isfinite(theirs).all():
        raise ConfigError(
            "the engine gives no log-probabilities of what it samples, so nothing can be learnt "
            "from it; it can be evaluated with"
        )
    ours = np.concatenate(
        [
            np.asarray(row[len(prompt) :], np.float64)
            for (prompt, _), row in zip(pairs, scored, strict=True)
        ]
    )
    difference: npt.NDArray[np.float64] = ours - theirs
    ratio = np.exp(difference)
    size = np.abs(difference)
    return Agreement(
        tokens=len(size),
        episodes=len(pairs) // _TURNS,
        median=float(np.median(size)),
        p90=float(np.quantile(size, 0.9)),
        p99=float(np.quantile(size, 0.99)),
        largest=float(size.max()),
        mean_ratio=float(ratio.mean()),
        outside=float(((ratio < LOW) | (ratio > HIGH)).mean()),
        limit=limit,
    )


def _prompts(path: str, model: Any, count: int) -> list[list[int]]:
    """Beginnings of texts, of many lengths; random ids for a model without tokenizer."""
    from agentrl.models.loading import load_tokenizer

    draw = random.Random(0)
    vocabulary = int(model.get_input_embeddings().num_embeddings)
    try:
        tokenizer = load_tokenizer(path)
    except ConfigError:
        ids = [[draw.randrange(vocabulary) for _ in range(_LONGEST_PROMPT)] for _ in _TEXT]
    else:
        ids = [list(tokenizer.encode(text, add_special_tokens=False)) for text in _TEXT]
    return [ids[one % len(ids)][: draw.randint(4, _LONGEST_PROMPT)] for one in range(max(1, count))]


async def _played(
    name: Any,
    options: Mapping[str, Any],
    model: Any,
    prompts: Sequence[list[int]],
    sampling: Sampling,
    limit: float,
) -> tuple[Agreement, Agreement | None, list[str]]:
    """Compare with the weights as they are, and with changed ones that the engine was given."""
    from agentrl.registry import make

    engine: Any = make("engine", name, options, model=model)

    async def compared() -> Agreement:
        episodes = [
            _episode(engine, prompt, sampling, number) for number, prompt in enumerate(prompts)
        ]
        pairs = [pair for episode in await asyncio.gather(*episodes) for pair in episode]
        return compare(pairs, _scored(model, pairs, sampling), limit=limit)

    try:
        now, later = await compared(), None
        warnings = [*_cut(sampling), *await _alike(engine, prompts[0], sampling)]
        if hasattr(engine, "set_version"):
            _change(model)
            try:
                await asyncio.to_thread(engine.set_version, 1)
            except ConfigError as error:  # it is not for training, and says so
                warnings.append(str(error))
            else:
                later = await compared()
        return now, later, warnings
    finally:
        await engine.aclose()


def _change(model: Any) -> None:
    """Other weights, in place, as an optimiser leaves them: of every matrix a tenth is noise."""
    import torch

    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for one in model.parameters():
            if one.dim() > 1:
                noise = torch.randn(one.shape, generator=generator).to(one)
                one.add_(_NOISE * one.std() * noise)


async def _episode(
    engine: Engine, prompt: list[int], sampling: Sampling, number: int
) -> list[tuple[list[int], Sample]]:
    """Turns whose prompts grow, so that the engine uses what it keeps of the earlier ones."""
    pairs, shown = [], prompt
    for turn in range(_TURNS):
        sample = await engine.sample(
            shown,
            sampling=sampling,
            stop_token_ids=(),
            seed=number * _TURNS + turn,
            episode_id=f"agreement-{number}",
        )
        pairs.append((shown, sample))
        shown = [*shown, *sample.token_ids, *prompt[:_SHOWN]]
    engine.release(f"agreement-{number}")
    return pairs


def _scored(
    model: Any, pairs: Sequence[tuple[list[int], Sample]], sampling: Sampling
) -> Sequence[Sequence[float]]:
    """What the learner says of the same tokens, at the same temperature (1 for greedy)."""
    from agentrl.config import LearnerConfig
    from agentrl.learn.trl_learner import TrlLearner

    learner = TrlLearner(model, 0, LearnerConfig(), temperature=sampling.temperature or 1.0)
    return learner.score([_row(prompt, sample) for prompt, sample in pairs]).logprobs


def _row(prompt: Sequence[int], sample: Sample) -> Row:
    answer = len(sample.token_ids)
    zeros = (0.0,) * (len(prompt) + answer)
    return Row(
        token_ids=(*prompt, *sample.token_ids),
        action_mask=(0,) * len(prompt) + (1,) * answer,
        behaviour_logprobs=zeros,
        advantages=zeros,
        weight=1.0,
        trajectory_id="agreement",
        group_id="agreement",
        policy_version=0,
    )


def _cut(sampling: Sampling) -> list[str]:
    """Settings under which the tokens come from another distribution than the policy's."""
    found = []
    if sampling.temperature == 0:
        found.append(
            "temperature 0 takes the most probable token always: nothing is sampled, so there is "
            "nothing to learn from; compared at temperature 1"
        )
    for name, value, off in (("top_p", sampling.top_p, 1.0), ("top_k", sampling.top_k, 0)):
        if value != off:
            found.append(
                f"{name}={value:g} cuts the distribution that is sampled from: a token's true "
                "probability is larger than the policy's by the share that was cut off, so ratios "
                f"are biased, whatever they look like here; train with {name}={off:g}"
            )
    return found


async def _alike(engine: Engine, prompt: list[int], sampling: Sampling) -> list[str]:
    """Whether other seeds give other answers, and the same seed the same one."""
    if sampling.temperature == 0:
        return []
    seeds = [*range(_ALIKE), 0]
    answers = [
        (
            await engine.sample(
                prompt, sampling=sampling, stop_token_ids=(), seed=seed, episode_id=f"seed-{place}"
            )
        ).token_ids
        for place, seed in enumerate(seeds)
    ]
    found = []
    if len(set(answers[:_ALIKE])) == 1:
        found.append(
            f"{_ALIKE} requests with different seeds got one and the same answer: all episodes of "
            "a group would be alike, and nothing could be learnt from them"
        )
    elif answers[0] != answers[-1]:
        found.append(
            "the same request with the same seed got another answer: this engine's sampling "
            "cannot be repeated (ratios are not biased by that)"
        )
    return found
