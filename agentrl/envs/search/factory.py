"""The search ``EnvFactory``: the embedded corpus and its questions, or your own."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from agentrl.core.errors import ConfigError, DataError, nearest
from agentrl.core.message import ToolSpec
from agentrl.core.protocols import Demonstration, Env
from agentrl.core.task import Task, derive_seed
from agentrl.envs.search.commands import CommandEnv
from agentrl.envs.search.expert import search_expert
from agentrl.envs.search.generate import HOPS, SPLITS, Text, World
from agentrl.envs.search.library import QUICK_DOCUMENTS, Library, Lookup, QuickLookup
from agentrl.envs.search.questions import Questions, questions_by_split
from agentrl.envs.search.scoring import exact_match, f1
from agentrl.envs.search.sources import Document, Source, read_documents
from agentrl.envs.tools import Score, Situation, ToolEnvFactory
from agentrl.envs.tools.expert import played
from agentrl.tools.finish import Finish

__all__ = ["SearchFactory"]

RULES: Mapping[str, str] = {
    "tools": "Search the documents until you know the answer, then call finish with it: the exact "
    "name or phrase, and nothing else.",
    "tagged": "Say <action>search WORDS</action> to search the documents. Once you know the answer "
    "say <action>finish ANSWER</action>: the exact name or phrase, and nothing else.",
    "bare": "Say: search WORDS, to search the documents. Once you know the answer say: finish "
    "ANSWER, the exact name or phrase, and nothing else.",
}


class SearchFactory:
    """Questions that are answered by searching a corpus over several turns.

    An episode ends with ``finish``, or is truncated after ``max_steps`` messages. Success is an
    exact match (SQuAD's normalisation) with one of the accepted answers.

    Args:
        corpus: Documents of yours, see ``agentrl.envs.search.sources``; ``None``: the embedded
            corpus, made by ``agentrl.envs.search.generate``.
        questions: Questions of yours: a source, or sources by split; with a corpus.
        hops: Only questions of these numbers of hops; default 1 to 3, and all of yours.
        results: Documents that a search shows. result_chars: most characters of each.
        max_steps: Messages of the policy before an episode is truncated.
        reward: ``em``: 1 for an exact match, else 0; ``f1``: the F1 of the answer.
        action_format: ``tools``: the policy calls ``search`` and ``finish``; ``tagged`` and
            ``bare``: it writes commands of these names. As ``agent.action_format``.
        instruction: What the policy is told; ``{question}`` stands for the question. ``None``: the
            rules and the question; in compact text the question alone.
        tasks_per_split: How many questions each split has: of the embedded corpus exactly, and
            by default at most 4096, 256 and 256; of yours at most, and by default all. A longer
            list begins with the shorter one.
        seed: Of the embedded corpus. regions: its size, 16 documents each.
        text: Of the embedded corpus: ``full``, or ``compact`` for tiny models.

    Raises:
        ConfigError: an option that is wrong, or a file that cannot be read.
        DataError: a corpus or questions that are damaged, or a question in two splits; names file
            and line.
        MissingDependencyError: bm25s is not installed.
    """

    demonstrate: Callable[..., Iterable[Demonstration]]  # where it is known what to search for

    def __init__(
        self,
        corpus: Source | None = None,
        questions: Questions | None = None,
        *,
        hops: int | Sequence[int] | None = None,
        results: int = 3,
        result_chars: int = 1000,
        max_steps: int = 8,
        reward: Literal["em", "f1"] = "em",
        action_format: Literal["tools", "tagged", "bare"] = "tools",
        instruction: str | None = None,
        tasks_per_split: Mapping[str, int] | None = None,
        seed: int | None = None,
        regions: int | None = None,
        text: Text | None = None,
    ) -> None:
        _one_of("reward", reward, ("em", "f1"))
        _one_of("action_format", action_format, tuple(RULES))
        _one_of("text", text or "full", ("full", "compact"))
        wanted, counts = _hops(hops), _counts(tasks_per_split)
        if (corpus is None) != (questions is None):
            raise ConfigError(
                "env 'search': give corpus and questions together (yours), or neither (the "
                f"embedded ones); got only {'corpus' if questions is None else 'questions'}"
            )
        generated = {"seed": seed, "regions": regions, "text": text}
        documents: list[Document]
        if corpus is None or questions is None:
            options = {key: value for key, value in generated.items() if value is not None}
            world = World(**options)  # type: ignore[arg-type]
            documents = world.documents()
            problems = world.by_split(wanted or HOPS, _known(counts, SPLITS))
        else:
            for key, value in generated.items():
                if value is not None:
                    raise ConfigError(
                        f"env 'search': {key} is of the embedded corpus, and corpus names one of "
                        "yours: remove one"
                    )
            documents = read_documents(corpus)
            problems = questions_by_split(questions, wanted)
            for split, count in _known(counts, problems).items():
                problems[split] = problems[split][:count]
        self._library = Library(documents, results=results, chars=result_chars)
        self._commands = action_format != "tools"
        told = "" if text == "compact" else f"{RULES[action_format]}\nQuestion: "
        self._inner = _tool_env(
            problems,
            self._library,
            right=exact_match if reward == "em" else f1,
            instruction=instruction or f"{told}{{question}}",
            max_steps=max_steps,
        )
        self._check_steps(max_steps, problems)
        if all("searches" in one for some in problems.values() for one in some):
            self.demonstrate = self._demonstrate

    @property
    def splits(self) -> Sequence[str]:
        return self._inner.splits

    @property
    def tools(self) -> Sequence[ToolSpec]:
        """What the model is told of the tools; none where it writes commands."""
        return () if self._commands else self._inner.tools

    def tasks(self, split: str) -> Sequence[Task]:
        return self._inner.tasks(split)

    async def make(self, task: Task, *, seed: int) -> Env:
        """Make the episode; ``seed`` changes nothing, for nothing is random here."""
        if "question" not in task.payload or "answers" not in task.payload:
            raise DataError(
                f"task '{task.id}' of env '{task.env}' has no question with answers; the search "
                "environment plays only the tasks that its factory lists"
            )
        env = await self._inner.make(task, seed=seed)
        return CommandEnv(env) if self._commands else env

    def fit_to(self, count_tokens: Callable[[str], int], room_tokens: int) -> None:
        """Called once the policy is known: what a search shows must fit its prompt."""
        self._inner.fit_to(count_tokens, room_tokens)

    def _demonstrate(self, task: Task, *, seed: int, noise: float) -> Iterable[Demonstration]:
        """The expert's episode; a share ``noise`` of its commands is random, not trainable."""
        wandered: list[bool] = []
        expert = search_expert(
            self._library, noise=noise, wandered=wandered, commands=self._commands
        )

        async def make() -> Env:
            return await self.make(task, seed=seed)

        rng = random.Random(derive_seed(seed, task.id))
        # In a thread, because demonstrations are also asked for while an event loop runs.
        with ThreadPoolExecutor(1) as pool:
            steps = pool.submit(played, make, expert, task, rng).result()
        pairs = zip(steps, wandered, strict=True)
        return [replace(step, trainable=not random_one) for step, random_one in pairs]

    def _check_steps(self, max_steps: int, problems: Mapping[str, Sequence[Any]]) -> None:
        longest = max(
            len(one.get("searches", ())) + 1 for some in problems.values() for one in some
        )
        if max_steps < longest:
            raise ConfigError(
                f"env 'search': max_steps={max_steps} is too few: a question needs {longest - 1} "
                f"searches and an answer; raise it to {longest} or more, or lower hops"
            )


def _tool_env(
    problems: Mapping[str, Sequence[Mapping[str, Any]]],
    library: Library,
    *,
    right: Callable[[str, Sequence[str]], float],
    instruction: str,
    max_steps: int,
) -> ToolEnvFactory:
    if "{question}" not in instruction:
        raise ConfigError(
            f"env 'search': the instruction must hold {{question}}, got {instruction!r}"
        )
    before, _, after = instruction.partition("{question}")
    few = len(library.documents) <= QUICK_DOCUMENTS

    def told(task: Task) -> str:  # braces in a question, or in what stands around it, stay
        return f"{before}{task.payload['question']}{after}"

    def score(situation: Situation) -> Score:
        answer, accepted = situation.answer or "", situation.task.payload["answers"]
        return Score(right(answer, accepted), success=exact_match(answer, accepted) == 1)

    def state(situation: Situation) -> str:
        return f"seen: {situation.part(Lookup).seen()}"

    kinds = {
        split: [{**one, "kind": f"{one['hops']}-hop"} if "hops" in one else one for one in some]
        for split, some in problems.items()
    }
    return ToolEnvFactory(
        kinds,
        [partial(QuickLookup if few else Lookup, library=library), Finish],
        score,
        instruction=told,
        name="search",
        anchor=state,
        max_steps=max_steps,
    )


def _hops(hops: int | Sequence[int] | None) -> tuple[int, ...]:
    listed = () if hops is None else (hops,) if isinstance(hops, int) else tuple(hops)
    for one in listed:
        if isinstance(one, bool) or not isinstance(one, int) or not 1 <= one <= 9:
            raise ConfigError(f"env 'search': hops must be whole numbers from 1 to 9, got {hops!r}")
    if hops is not None and not listed:
        raise ConfigError("env 'search': hops is empty; name at least one, or leave it out")
    return listed


def _counts(tasks_per_split: Mapping[str, int] | None) -> dict[str, int]:
    counts = dict(tasks_per_split or {})
    for split, count in counts.items():
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise ConfigError(
                f"env 'search': tasks_per_split.{split} must be a whole number of at least 1, got "
                f"{count!r}"
            )
    return counts


def _known(counts: Mapping[str, int], splits: Iterable[str]) -> dict[str, int]:
    for split in counts:
        _one_of("split in tasks_per_split", split, tuple(splits))
    return dict(counts)


def _one_of(what: str, value: Any, known: Sequence[str]) -> None:
    if value not in known:
        raise ConfigError(
            f"env 'search': unknown {what} {value!r}{nearest(str(value), known) or '.'} It may "
            f"be: {', '.join(known)}."
        )
