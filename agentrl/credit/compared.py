"""What each part of an advantage compares, for people who want to see why a step got its credit.

``compared(estimator, columns)`` describes the parts that ``estimator.assign`` gives: which numbers
of the steps are compared, within which partition, by which rule. It explains and computes no
advantage. An estimator of your own is explained in full if you register it here::

    @compared.register
    def _(estimator: MyEstimator, columns: Columns) -> tuple[Compared, ...]: ...

Otherwise its recorded parts and partitions are shown as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import singledispatch

import numpy as np

from agentrl.credit.bipace import BiPACE
from agentrl.credit.columns import Columns
from agentrl.credit.combined import Combined
from agentrl.credit.dr_grpo import DrGRPO
from agentrl.credit.episode import entry_weights, penalised_scores
from agentrl.credit.functional import Array, episode_scores, trajectory_weights
from agentrl.credit.gigpo import GiGPO
from agentrl.credit.grpo import GRPO
from agentrl.credit.hgpo import HGPO
from agentrl.credit.himac import HiMAC
from agentrl.credit.loop import LOOP
from agentrl.credit.mmpo import MMPO
from agentrl.credit.opid import OPID
from agentrl.credit.options import EntryOptions, EpisodeOptions, entries_of
from agentrl.credit.pass_at_k import PassAtK
from agentrl.credit.r3l import R3L
from agentrl.credit.reinforce_plus_plus import (
    REINFORCEPlusPlus,
    REINFORCEPlusPlusBaseline,
    returns_everywhere,
    sampled_tokens,
)
from agentrl.credit.rlanything import RLAnything
from agentrl.credit.rloo import RLOO
from agentrl.credit.seed import SEED
from agentrl.credit.spa import SPA
from agentrl.credit.states import penalised_returns
from agentrl.credit.treerl import TreeRL

__all__ = ["BATCH", "GROUP", "Compared", "compared"]

GROUP = "the group"
BATCH = "the batch"


@dataclass(frozen=True, slots=True)
class Compared:
    """What one part of an advantage compares.

    Attributes:
        part: Its name in ``CreditResult.parts``.
        rule: How it comes about, in words.
        within: What is compared with one another: a partition of ``CreditResult.groups`` by name,
            ``GROUP`` or ``BATCH``.
        what: What the numbers are. values: the number of each step, shape (M,); ``None``: they come
            from annotations, which are not recorded.
        weights: Of the steps in the mean and the spread, shape (M,); ``None``: 1 each. They sum to
            the number of ``entries``.
        ddof: Of the spread, 0 or 1.
    """

    part: str
    rule: str
    within: str = GROUP
    what: str = "score"
    values: Array | None = None
    weights: Array | None = None
    ddof: int = 1
    entries: str = "steps"


@singledispatch
def compared(estimator: object, columns: Columns) -> tuple[Compared, ...]:
    """What the parts of ``estimator`` compare in ``columns``; empty if nobody has described it."""
    return ()


def _spread(normaliser: str) -> str:
    return ", divided by their spread" if normaliser == "mean_std" else ""


def _entries(columns: Columns, options: EntryOptions) -> Array:
    return entry_weights(columns, entries_of(options), reference=options.reference)


def _penalised(penalty: float, what: str) -> str:
    return f"{what} less {penalty:g} if invalid" if penalty else what


def _word(penalty: float, what: str) -> str:
    return f"penalised {what}" if penalty else what


def _episode(columns: Columns, options: EpisodeOptions) -> Compared:
    penalty = options.invalid_action_penalty
    return Compared(
        part="episode",
        rule=f"{_penalised(penalty, 'score of the trajectory')}, minus the mean of the group's "
        f"{entries_of(options)}{_spread(options.normaliser)}",
        what=_word(penalty, "score"),
        values=penalised_scores(columns, penalty),
        weights=_entries(columns, options),
        entries="steps" if entries_of(options) == "rows" else "trajectories",
    )


def _state(columns: Columns, options: GiGPO | OPID) -> Compared:
    penalty = options.invalid_action_penalty
    return Compared(
        part="step",
        rule=f"{options.step_weight:g} x ({_penalised(penalty, 'return')} (discount "
        f"{options.discount:g}), minus the mean of the steps taken in the same state"
        f"{_spread(options.normaliser)})",
        within="anchor",
        what=_word(penalty, "return"),
        values=penalised_returns(columns, options),
    )


@compared.register
def _grpo(estimator: GRPO, columns: Columns) -> tuple[Compared, ...]:
    return (_episode(columns, estimator),)


@compared.register
def _dr_grpo(estimator: DrGRPO, columns: Columns) -> tuple[Compared, ...]:
    return (_episode(columns, estimator),)


@compared.register
def _gigpo(estimator: GiGPO, columns: Columns) -> tuple[Compared, ...]:
    return _episode(columns, estimator), _state(columns, estimator)


@compared.register
def _opid(estimator: OPID, columns: Columns) -> tuple[Compared, ...]:
    return _episode(columns, estimator), _state(columns, estimator)


@compared.register
def _rloo(estimator: RLOO, columns: Columns) -> tuple[Compared, ...]:
    penalty = estimator.invalid_action_penalty
    return (
        Compared(
            part="episode",
            rule=f"{_penalised(penalty, 'score of the trajectory')}, minus the mean of the others: "
            "n / (n - 1) x (own - mean of all n)",
            what=_word(penalty, "score"),
            values=penalised_scores(columns, penalty),
            weights=_entries(columns, estimator),
            entries="steps" if entries_of(estimator) == "rows" else "trajectories",
        ),
    )


@compared.register
def _loop(estimator: LOOP, columns: Columns) -> tuple[Compared, ...]:
    others = "the others" if estimator.baseline == "leave_one_out" else "all"
    kept = "are kept, others get 0" if estimator.positive_only else "in size are kept, others get 0"
    bonus = f", plus {estimator.bonus:g}" if estimator.bonus else ""
    divided = ", divided by the group's spread" if estimator.divide else ""
    return (
        Compared(
            part="episode",
            rule=f"score of the trajectory, minus the mean of {others}{divided}; "
            f"{estimator.threshold:g} and above {kept}{bonus}",
            values=episode_scores(columns.reward, columns.trajectory),
            weights=trajectory_weights(columns.trajectory),
            ddof=0,
            entries="trajectories",
        ),
    )


@compared.register
def _pass_at_k(estimator: PassAtK, columns: Columns) -> tuple[Compared, ...]:
    scores = penalised_scores(columns, estimator.invalid_action_penalty)
    each = trajectory_weights(columns.trajectory)
    own = np.bincount(columns.trajectory, weights=each * scores)[columns.trajectory]
    divided = ", divided by the group's spread" if estimator.normaliser == "mean_std" else ""
    return (
        Compared(
            part="episode",
            rule=f"only the best trajectory of the group: its margin over the second{divided}; "
            "all others get 0",
            what=_word(estimator.invalid_action_penalty, "score"),
            values=np.asarray(own, dtype=np.float64),
            weights=each,
            entries="trajectories",
        ),
    )


@compared.register
def _reinforce_plus_plus(estimator: REINFORCEPlusPlus, columns: Columns) -> tuple[Compared, ...]:
    penalty = estimator.invalid_action_penalty
    returns = returns_everywhere(columns, estimator.discount)
    return (
        Compared(
            part="return",
            rule=f"{_penalised(penalty, 'return')} (discount {estimator.discount:g}), minus the "
            "mean over the batch's sampled tokens, divided by their spread",
            within=BATCH,
            what=_word(penalty, "return"),
            values=returns - np.where(columns.valid, 0.0, penalty),
            weights=sampled_tokens(columns),
            entries="tokens",
        ),
    )


@compared.register
def _reinforce_plus_plus_baseline(
    estimator: REINFORCEPlusPlusBaseline, columns: Columns
) -> tuple[Compared, ...]:
    one = _episode(columns, estimator)
    return (replace(one, rule=f"{one.rule}; then divided by its spread over the batch's tokens"),)


@compared.register
def _hgpo(estimator: HGPO, columns: Columns) -> tuple[Compared, ...]:
    penalty, returns = estimator.invalid_action_penalty, penalised_returns(columns, estimator)
    spread = _spread(estimator.normaliser)
    depth = f"(k + 1)^{estimator.alpha:g}"
    base = _episode(columns, estimator)
    return (
        replace(base, rule=f"level 0, {base.rule}; its share of the mean over levels k by {depth}"),
        *(
            Compared(
                part=f"level_{k}",
                rule=f"level {k}, {_penalised(penalty, 'return')} (discount {estimator.discount:g})"
                f", minus the mean of the steps whose last {k} states agree{spread}; its share of "
                f"the mean over levels k by {depth}, those where the step is alone left out",
                within=f"context_{k}",
                what=_word(penalty, "return"),
                values=returns,
                ddof=0,
            )
            for k in range(1, estimator.history_length + 2)
        ),
    )


@compared.register
def _bipace(estimator: BiPACE, columns: Columns) -> tuple[Compared, ...]:
    penalty = estimator.invalid_action_penalty
    own = _penalised(penalty, "return")
    rule = {
        "q": "mean return of the steps of the cluster with the same action, minus that of all",
        "different_peer": f"{own}, minus the mean of the steps of the cluster that acted "
        "differently; 0 if none did",
        "mean": f"{own}, minus the mean of the cluster",
    }[estimator.comparison]
    return (
        _episode(columns, estimator),
        Compared(
            part="step",
            rule=f"{estimator.step_weight:g} x ({rule}; discount {estimator.discount:g})",
            within="cluster",
            what=_word(penalty, "return"),
            values=penalised_returns(columns, estimator),
        ),
    )


@compared.register
def _r3l(estimator: R3L, columns: Columns) -> tuple[Compared, ...]:
    mean = "mean" if estimator.baseline == "mean" else "soft mean"
    return (
        Compared(
            part="episode",
            rule=f"score of the trajectory, minus the {mean} of the group, x {estimator.alpha:g} "
            f"where that is positive; 1 for a score of {estimator.best:g}; 0 on replayed steps "
            "(prefix), 1 on those of an exemplar",
            values=episode_scores(columns.reward, columns.trajectory),
            weights=trajectory_weights(columns.trajectory),
            entries="trajectories",
        ),
    )


@compared.register
def _treerl(estimator: TreeRL, columns: Columns) -> tuple[Compared, ...]:
    added = ", plus the value itself" if estimator.add_state else ""
    return (
        Compared(
            part="segment",
            rule="value of the segment, minus the value of the one before it; a value is the mean, "
            "over the episodes through the segment, of their score minus the mean of the others"
            + added,
            within="node",
            values=episode_scores(columns.reward, columns.trajectory),
        ),
    )


@compared.register
def _rlanything(estimator: RLAnything, columns: Columns) -> tuple[Compared, ...]:
    return (
        Compared(
            part="step",
            rule="score of the trajectory plus the mean vote on the step, minus the mean of the "
            "group's episodes at the same act, divided by their spread",
            within="index",
            what="score + vote",
            ddof=0,
        ),
    )


@compared.register
def _spa(estimator: SPA, columns: Columns) -> tuple[Compared, ...]:
    spread = _spread(estimator.normaliser)
    episode = "sum of the progress, minus the mean of the group's trajectories" + spread
    step = (
        f"{estimator.step_weight:g} x (return of the progress (discount {estimator.discount:g}), "
        f"minus the mean of the steps of the same {estimator.compare}{spread})"
    )
    return (
        Compared(part="episode", rule=episode, what="progress"),
        Compared(part="step", rule=step, within=estimator.compare, what="return of the progress"),
    )


@compared.register
def _seed(estimator: SEED, columns: Columns) -> tuple[Compared, ...]:
    weight, spread = estimator.skill_weight, _spread(estimator.normaliser)
    return (
        *_grpo(_as_grpo(estimator), columns),
        Compared(
            part="skill",
            rule=f"{weight:g} x (reward of the skill, minus the mean of the group's skills"
            f"{spread})",
            what="skill reward",
        ),
    )


@compared.register
def _mmpo(estimator: MMPO, columns: Columns) -> tuple[Compared, ...]:
    weight, spread = estimator.belief_weight, _spread(estimator.normaliser)
    return (
        *_grpo(_as_grpo(estimator), columns),
        Compared(
            part="belief",
            rule=f"-{weight:g} x (belief entropy of the summary, minus the mean of the group's "
            f"summaries{spread})",
            what="belief entropy",
        ),
    )


def _as_grpo(estimator: SEED | MMPO) -> GRPO:
    return GRPO(
        normaliser=estimator.normaliser,
        invalid_action_penalty=estimator.invalid_action_penalty,
        reference=getattr(estimator, "reference", False),
    )


@compared.register
def _himac(estimator: HiMAC, columns: Columns) -> tuple[Compared, ...]:
    scores = episode_scores(columns.reward, columns.trajectory)
    once = trajectory_weights(columns.trajectory)
    spread = _spread(estimator.normaliser)
    return (
        Compared(
            part="macro",
            rule=f"of steps that wrote a plan: mean score of the plan, minus the mean of the "
            f"group's plans{spread}",
            what="score",
            values=scores,
            weights=once,
            entries="trajectories",
        ),
        Compared(
            part="micro",
            rule=f"of steps that carry one out: score, minus the mean of the episodes of the same "
            f"plan{spread}",
            within="blueprint",
            values=scores,
            weights=once,
            entries="trajectories",
        ),
    )


@compared.register
def _combined(estimator: Combined, columns: Columns) -> tuple[Compared, ...]:
    return tuple(_terms(estimator, columns))


def _terms(estimator: Combined, columns: Columns) -> Iterator[Compared]:
    for name, term in estimator.estimators.items():
        for one in compared(term, columns):
            within = one.within if one.within in (GROUP, BATCH) else f"{name}.{one.within}"
            rule = f"{estimator.weights[name]:g} x ({one.rule})"
            yield replace(one, part=f"{name}.{one.part}", within=within, rule=rule)
