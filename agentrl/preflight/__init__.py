"""Refuses a run that cannot work, before anything is written and before a model is loaded.

This is the one place that knows what can be wrong: ``train``, its dry run, ``rollout``,
``evaluate`` and ``check run`` ask here, and are told everything that was found at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from agentrl.assembly import close_factory, make_factory
from agentrl.config import RunConfig
from agentrl.core.protocols import EnvFactory
from agentrl.preflight.parts import (
    check_engine_options,
    check_forms,
    check_model,
    part_checks,
)
from agentrl.preflight.problems import Problems
from agentrl.preflight.settings import playing_problems, training_problems
from agentrl.preflight.splits import check_splits
from agentrl.preflight.stages import stage_checks
from agentrl.preflight.template import template_words
from agentrl.run_directory import refuse_taken

__all__ = ["check_playing", "check_training"]


def check_playing(config: RunConfig) -> EnvFactory:
    """Check what needs no torch for playing with ``config``; returns its environment's factory.

    Raises:
        ConfigError: every reason why the run cannot work, together.
        DataError: the environment's data is missing or damaged, and nothing else is wrong.
    """
    return _checked(config, list(playing_problems(config)), trains=False, new=False)


def check_training(config: RunConfig, *, new: bool = False) -> EnvFactory:
    """As ``check_playing``, and everything that the stages and evaluations need.

    Args:
        config: The run.
        new: It begins, so its directory must not hold anything.
    """
    texts = [*playing_problems(config), *training_problems(config)]
    return _checked(config, texts, trains=True, new=new)


def _checked(config: RunConfig, texts: Sequence[str], *, trains: bool, new: bool) -> EnvFactory:
    problems = Problems()
    if new:
        problems.attempt(partial(refuse_taken, config.run_dir))
    for text in texts:
        problems.add(text)
    for check in part_checks(config, trains=trains):
        problems.attempt(check)
    factory = problems.attempt(partial(make_factory, config))
    try:
        problems.attempt(partial(check_model, config, factory))
        if factory is not None:
            problems.attempt(partial(check_forms, config, factory))
        if factory is not None and trains:
            check_splits(config, factory, problems)
        for check in stage_checks(config, factory) if trains else ():
            problems.attempt(check)
        if not problems:
            problems.attempt(partial(template_words, config))
        if not problems:  # last, for it loads torch: what is misspelt is said seconds earlier
            problems.attempt(partial(check_engine_options, config))
        problems.refuse()
        assert factory is not None  # or there was a problem
    except BaseException:
        close_factory(factory)
        raise
    return factory
