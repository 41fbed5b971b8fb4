"""The environment's tasks by role, and whether another process lists the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from agentrl.assembly import close_factory, make_factory
from agentrl.audit.findings import Finding, judged, unchecked
from agentrl.config import ReinforceStage, RunConfig
from agentrl.core.errors import AgentRLError, ConfigError, nearest
from agentrl.core.protocols import EnvFactory
from agentrl.core.task import Task

__all__ = ["Listing", "check_listing", "list_tasks", "roles", "validates"]

CLAIM = "every process lists the same tasks in the same order"


@dataclass(frozen=True, slots=True)
class Listing:
    """Tasks by role (``train``, ``validation``, ``test``) as the environment lists them.

    Attributes:
        tasks: Of each role that the run uses.
        again: The ids as a second process lists them.
        missing: Why there is no listing; ``missing_again``: no second one.
    """

    tasks: Mapping[str, tuple[Task, ...]] = field(default_factory=dict)
    again: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    missing: str = ""
    missing_again: str = ""


def validates(config: RunConfig) -> bool:
    """Whether the run measures success on its validation split."""
    learns = any(isinstance(stage, ReinforceStage) for stage in config.stages)
    return learns and config.evaluation.every > 0


def roles(config: RunConfig) -> dict[str, str]:
    """The split of each role that the run uses."""
    used = {"train": config.env.train_split} if config.stages else {}
    if validates(config):
        used["validation"] = config.env.validation_split
    return {**used, "test": config.env.test_split}


def list_tasks(config: RunConfig) -> Listing:
    """List the tasks here, and again in another process.

    An environment that cannot be made here (its package or data is elsewhere) leaves ``missing``.

    Raises:
        ConfigError: it lacks a split that the run uses.
    """
    try:
        factory = make_factory(config)
    except AgentRLError as error:
        return Listing(missing=f"the environment '{config.env.name}' cannot be made here: {error}")
    try:
        tasks = _tasks(config, factory)
    finally:
        close_factory(factory)
    again: dict[str, tuple[str, ...]] = {}
    missing_again = ""
    try:
        other = make_factory(_elsewhere(config))
        try:
            listed = _tasks(config, other)
            again = {role: tuple(one.id for one in some) for role, some in listed.items()}
        finally:
            close_factory(other)
    except AgentRLError as error:
        missing_again = f"no second process could list them: {error}"
    return Listing(tasks, again, missing_again=missing_again)


def _elsewhere(config: RunConfig) -> RunConfig:
    """The same environment in one worker process: with a hash seed and a memory of its own."""
    workers = config.env.workers.model_copy(update={"processes": 1, "episodes": 1})
    return config.model_copy(update={"env": config.env.model_copy(update={"workers": workers})})


def _tasks(config: RunConfig, factory: EnvFactory) -> dict[str, tuple[Task, ...]]:
    listed = {}
    for role, split in roles(config).items():
        if split not in factory.splits:
            raise ConfigError(
                f"environment '{config.env.name}' has no split '{split}', which env.{role}_split "
                f"names{nearest(split, factory.splits) or '.'} It has: "
                f"{', '.join(factory.splits) or 'none'}."
            )
        listed[role] = tuple(factory.tasks(split))
    return listed


def check_listing(listing: Listing, played: Mapping[str, Sequence[Task]]) -> Finding:
    """Two processes agree, and what a run played is what the environment lists.

    Args:
        listing: Of the environment now.
        played: Tasks by role that a run has on record; empty for a run file.
    """
    if listing.missing:
        return unchecked("listing", CLAIM, listing.missing)
    counts = {f"{role} tasks": len(some) for role, some in listing.tasks.items()}
    counts["played tasks"] = sum(len(some) for some in played.values())
    offenders = [*_differences(listing), *_foreign(listing, played)]
    found = ", ".join(f"{len(some):,} {role}" for role, some in listing.tasks.items())
    found += " tasks, listed here" + ("" if listing.missing_again else " and by a second process")
    if counts["played tasks"]:
        found += f"; {counts['played tasks']:,} tasks that were played are among them"
    if offenders:
        found = f"{len(offenders)} differences"
    missing = listing.missing_again
    return judged("listing", CLAIM, found, offenders, counts, missing=missing)


def _differences(listing: Listing) -> Iterator[str]:
    for role, others in listing.again.items():
        here = [task.id for task in listing.tasks[role]]
        if here == list(others):
            continue
        shared = len(set(here) & set(others))
        if sorted(here) == sorted(others):
            what = "the same tasks in another order"
        else:
            what = f"{len(others):,} tasks, of which {shared:,} are among the {len(here):,} here"
        place = next(
            (
                place
                for place, pair in enumerate(zip(here, others, strict=False))
                if len({*pair}) > 1
            ),
            min(len(here), len(others)),
        )
        yield (
            f"the {role} split: a second process lists {what} (they part at place {place}). Sort "
            "what comes from folders, sets or dicts, and draw from a seeded random.Random"
        )


def _foreign(listing: Listing, played: Mapping[str, Sequence[Task]]) -> Iterator[str]:
    for role, some in played.items():
        if role not in listing.tasks:
            continue
        known = {task.id for task in listing.tasks[role]}
        for task in some:
            if task.id not in known:
                yield (
                    f"task '{task.id}' was played as a {role} task, and the environment does not "
                    f"list it in that split now: it has changed, or lists what depends on the "
                    "process"
                )
