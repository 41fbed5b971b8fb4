"""Several estimators at once: a weighted sum of their advantages."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentrl.core.errors import ConfigError, DataError
from agentrl.core.protocols import CreditEstimator
from agentrl.core.trajectory import CreditResult, Group
from agentrl.credit.diagnostics import diagnose, with_diagnostics
from agentrl.registry import make

__all__ = ["Combined"]


@dataclass(frozen=True, slots=True, init=False)
class Combined:
    """``A = sum over the terms of weight * A_term``.

    In a run file::

        credit:
          name: combined
          options:
            terms:
              - {name: grpo, weight: 1.0}
              - {name: hgpo, weight: 0.5, options: {history_length: 2}}

    Parts, groups and metrics are those of the terms with the term's name before them (``hgpo.``;
    a name that occurs again gets ``hgpo_2.``); the diagnostics are those of the sum. Token
    advantages are added likewise.

    Attributes:
        estimators: The estimators, by name. weights: their weights, by the same names.
    """

    estimators: Mapping[str, CreditEstimator]
    weights: Mapping[str, float]

    def __init__(self, terms: Sequence[Mapping[str, Any] | tuple[CreditEstimator, float]]) -> None:
        """Make the terms.

        Args:
            terms: ``{name, weight, options}`` as in a run file, or ``(estimator, weight)``.

        Raises:
            ConfigError: no terms, an unknown key, a weight that is not finite, or what making an
                estimator raises.
        """
        estimators: dict[str, CreditEstimator] = {}
        weights: dict[str, float] = {}
        for term in terms:
            name, estimator, weight = _term(term)
            taken = sum(1 for one in estimators if one == name or one.startswith(f"{name}_"))
            unique = f"{name}_{taken + 1}" if taken else name
            estimators[unique], weights[unique] = estimator, weight
        if not estimators:
            raise ConfigError("combined: give at least one term, such as {name: grpo, weight: 1.0}")
        object.__setattr__(self, "estimators", estimators)
        object.__setattr__(self, "weights", weights)

    @property
    def scope(self) -> str:
        """``batch`` if the statistics of any term span the batch."""
        spans = any(getattr(one, "scope", "group") == "batch" for one in self.estimators.values())
        return "batch" if spans else "group"

    @property
    def needs(self) -> tuple[str, ...]:
        """Annotations that any term needs."""
        names = (name for one in self.estimators.values() for name in getattr(one, "needs", ()))
        return tuple(dict.fromkeys(names))

    def assign(self, groups: Sequence[Group]) -> CreditResult:
        """The weighted sum.

        Raises:
            DataError: the terms disagree about which trajectories take part.
        """
        results = {name: one.assign(groups) for name, one in self.estimators.items()}
        absent = {
            name: [row is None for row in result.step_advantages]
            for name, result in results.items()
        }
        if any(one != next(iter(absent.values())) for one in absent.values()):
            raise DataError(
                f"the terms {', '.join(results)} disagree about which trajectories take part"
            )
        common = {name: diagnose(groups, one) for name, one in results.items()}
        added = CreditResult(
            step_advantages=self._sum(
                {name: result.step_advantages for name, result in results.items()}
            ),
            token_advantages=self._tokens(results),
            parts={
                f"{name}.{part}": _scaled(rows, self.weights[name])
                for name, result in results.items()
                for part, rows in result.parts.items()
            },
            groups={
                f"{name}.{label}": rows
                for name, result in results.items()
                for label, rows in result.groups.items()
            },
            metrics={
                f"{name}.{key}": value
                for name, result in results.items()
                for key, value in result.metrics.items()
                if key not in common[name]
            },
        )
        return with_diagnostics(groups, added)

    def _sum(
        self, rows: Mapping[str, Sequence[Sequence[float] | None]]
    ) -> tuple[tuple[float, ...] | None, ...]:
        scaled = [_scaled(one, self.weights[name]) for name, one in rows.items()]
        return tuple(
            None if same[0] is None else _weighted([1.0] * len(same), [row or () for row in same])
            for same in zip(*scaled, strict=True)
        )

    def _tokens(
        self, results: Mapping[str, CreditResult]
    ) -> tuple[tuple[tuple[float, ...], ...] | None, ...] | None:
        given = {
            name: result.token_advantages
            for name, result in results.items()
            if result.token_advantages is not None
        }
        if not given:
            return None
        summed: list[tuple[tuple[float, ...], ...] | None] = []
        for rows in zip(*given.values(), strict=True):
            if rows[0] is None:
                summed.append(None)
                continue
            weights = [self.weights[name] for name in given]
            steps = zip(*(row or () for row in rows), strict=True)
            summed.append(tuple(_weighted(weights, step) for step in steps))
        return tuple(summed)


def _term(
    term: Mapping[str, Any] | tuple[CreditEstimator, float],
) -> tuple[str, CreditEstimator, float]:
    if isinstance(term, Mapping):
        unknown = sorted(term.keys() - {"name", "weight", "options"})
        if unknown or "name" not in term:
            raise ConfigError(
                f"combined: a term has the keys name, weight and options, got {dict(term)}"
            )
        name, weight = str(term["name"]), term.get("weight", 1.0)
        estimator = make("credit", name, term.get("options"))
        name = name.rpartition(":")[2]
    else:
        estimator, weight = term
        name = type(estimator).__name__.lower()
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not math.isfinite(weight):
        raise ConfigError(f"combined: the weight of '{name}' must be a finite number, got {weight}")
    return name, estimator, float(weight)


def _scaled(
    rows: Sequence[Sequence[float] | None], weight: float
) -> tuple[tuple[float, ...] | None, ...]:
    return tuple(None if row is None else tuple(weight * x for x in row) for row in rows)


def _weighted(weights: Sequence[float], rows: Sequence[Sequence[float]]) -> tuple[float, ...]:
    return tuple(
        sum(w * x for w, x in zip(weights, values, strict=True))
        for values in zip(*rows, strict=True)
    )
