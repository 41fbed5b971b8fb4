"""The report of a run: success before and after, the paired difference, the learning curve."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from agentrl.core.errors import DataError
from agentrl.evaluate.statistics import PairedDifference, paired_difference
from agentrl.evaluate.success import KindReport, SuccessReport, TaskOutcome

__all__ = [
    "CurvePoint",
    "Evaluation",
    "KindReport",
    "RunReport",
    "SuccessReport",
    "TaskOutcome",
    "peak_memory_mb",
    "read_report",
    "write_report",
]

JSON_FILE = "report.json"
TEXT_FILE = "report.md"
CURVE_FILE = "curve.png"


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Success of one policy on the test panel: sampled as in training, and greedy if asked for."""

    sampled: SuccessReport
    greedy: SuccessReport | None = None

    def to_data(self) -> dict[str, Any]:
        """Plain data: the sampled report, and the greedy one under ``greedy``."""
        return {
            **self.sampled.to_data(),
            "greedy": None if self.greedy is None else self.greedy.to_data(),
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        """What ``to_data`` gave."""
        sampled = {name: value for name, value in data.items() if name != "greedy"}
        return cls(
            SuccessReport.from_data(sampled),
            None if data["greedy"] is None else SuccessReport.from_data(data["greedy"]),
        )


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """Where a run stood after an iteration.

    Attributes:
        iteration: Its number in its stage.
        episodes: Training episodes since the start of the run, as ``tokens`` (sampled ones).
        wall_s: Seconds since the start of the run.
        train_success: Share of the iteration's finished episodes that succeeded; ``None`` if none
            finished. train_reward: their mean reward likewise.
        validation: Success on the validation panel; ``None`` where it was not measured.
        credit: Diagnostics of the iteration's credit by name (``agentrl.credit.diagnostics``).
    """

    iteration: int
    episodes: int
    tokens: int
    wall_s: float
    train_success: float | None
    train_reward: float | None
    validation: SuccessReport | None = None
    credit: Mapping[str, float] = field(default_factory=dict)

    def to_data(self) -> dict[str, Any]:
        """Plain data for JSON."""
        data: dict[str, Any] = {
            name: getattr(self, name) for name in self.__dataclass_fields__ if name != "validation"
        }
        data["validation"] = None if self.validation is None else self.validation.to_data()
        return data

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        """What ``to_data`` gave; other keys are left alone."""
        fields = {name: data[name] for name in cls.__dataclass_fields__ if name != "credit"}
        fields["credit"] = data.get("credit", {})  # reports of earlier runs have none
        if fields["validation"] is not None:
            fields["validation"] = SuccessReport.from_data(fields["validation"])
        return cls(**fields)


@dataclass(frozen=True, slots=True)
class RunReport:
    """What a run came to.

    Attributes:
        before: Success on the test panel before reinforcement learning, ``after`` at the end.
        paired: After minus before on the same tasks, sampled; ``paired_greedy`` likewise.
        curve: The iterations in order.
        wall_s: Seconds of the whole run.
        peak_rss_mb: Most memory that the process held, in MiB.
    """

    before: Evaluation
    after: Evaluation
    paired: PairedDifference
    paired_greedy: PairedDifference | None
    curve: tuple[CurvePoint, ...]
    wall_s: float
    peak_rss_mb: float

    @classmethod
    def of(
        cls,
        before: Evaluation,
        after: Evaluation,
        *,
        curve: Sequence[CurvePoint],
        wall_s: float,
        peak_rss_mb: float | None = None,
        seed: int = 0,
    ) -> Self:
        """Compare two evaluations of one panel.

        Args:
            before: The policy before. after: the policy after.
            curve: The iterations in order.
            wall_s: Seconds of the run.
            peak_rss_mb: Memory in MiB; ``None``: the peak of this process until now.
            seed: Seed of the bootstrap.

        Raises:
            DataError: the panels differ, or no task was scored on both sides.
        """
        greedy = None
        if before.greedy is not None and after.greedy is not None:
            greedy = _paired(before.greedy, after.greedy, seed)
        return cls(
            before=before,
            after=after,
            paired=_paired(before.sampled, after.sampled, seed),
            paired_greedy=greedy,
            curve=tuple(curve),
            wall_s=wall_s,
            peak_rss_mb=peak_memory_mb() if peak_rss_mb is None else peak_rss_mb,
        )

    def to_data(self) -> dict[str, Any]:
        """Plain data: the content of ``report.json``."""
        return {
            "before": self.before.to_data(),
            "after": self.after.to_data(),
            "paired": asdict(self.paired),
            "paired_greedy": None if self.paired_greedy is None else asdict(self.paired_greedy),
            "curve": [point.to_data() for point in self.curve],
            "wall_s": self.wall_s,
            "peak_rss_mb": self.peak_rss_mb,
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        """What ``to_data`` gave."""
        greedy = data["paired_greedy"]
        return cls(
            before=Evaluation.from_data(data["before"]),
            after=Evaluation.from_data(data["after"]),
            paired=PairedDifference(**data["paired"]),
            paired_greedy=None if greedy is None else PairedDifference(**greedy),
            curve=tuple(CurvePoint.from_data(point) for point in data["curve"]),
            wall_s=data["wall_s"],
            peak_rss_mb=data["peak_rss_mb"],
        )


def _paired(before: SuccessReport, after: SuccessReport, seed: int) -> PairedDifference:
    return paired_difference(
        before.by_task(), after.by_task(), seed=seed, confidence=before.confidence
    )


def peak_memory_mb() -> float:
    """The most memory this process held until now, in MiB."""
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1024 * 1024 if sys.platform == "darwin" else 1024)


def write_report(run_dir: Path, report: RunReport) -> None:
    """Write ``report.json``, ``report.md`` and ``curve.png`` into the run's directory.

    Raises:
        DataError: a number is NaN or infinite, which JSON cannot hold and no report should.
    """
    from agentrl.evaluate.plot import write_curve
    from agentrl.evaluate.rendering import to_markdown

    try:
        text = json.dumps(report.to_data(), indent=2, ensure_ascii=False, allow_nan=False)
    except ValueError as error:
        raise DataError(f"the report holds a number that is not finite: {error}") from None
    _replace(run_dir / JSON_FILE, text + "\n")
    _replace(run_dir / TEXT_FILE, to_markdown(report))
    write_curve(report, run_dir / CURVE_FILE)


def read_report(run_dir: Path) -> RunReport:
    """The report of a finished run (without single outcomes, which are in its store).

    Raises:
        DataError: there is none, or it is damaged.
    """
    path = run_dir / JSON_FILE
    try:
        return RunReport.from_data(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise DataError(f"no report at {path}: the run has not finished") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{path} is not a report of this release ({error!r}); write it again from the run"
        ) from error


def _replace(path: Path, text: str) -> None:
    # Written beside and renamed: a reader, or a kill, never meets half a report.
    new = path.with_name(path.name + ".new")
    new.write_text(text, encoding="utf-8")
    new.replace(path)
