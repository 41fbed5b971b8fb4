"""Why each step of a group got its credit: which steps were compared, and what each part came from.

Advantages, parts and partitions are those that the run recorded. The numbers that were compared
(scores, returns) and their means are worked out from the recorded rewards with the options of the
run's estimator (``agentrl.credit.compared``). The estimator is also run again on what was recorded,
and the explanation says whether that gives what is stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentrl.core.errors import DataError
from agentrl.core.protocols import CreditEstimator
from agentrl.store.records import StoredTrajectory
from agentrl.store.sqlite import SqliteStore
from agentrl.viewer.explain_clusters import partitions_of
from agentrl.viewer.explain_known import known_of
from agentrl.viewer.explain_steps import member_of
from agentrl.viewer.explanation import Explanation
from agentrl.viewer.side_by_side import group_episodes

__all__ = ["explain"]


def explain(
    store: SqliteStore,
    group_id: str,
    *,
    estimator: CreditEstimator | None = None,
    name: str | None = None,
    options: Mapping[str, Any] | None = None,
    unknown: str = "",
    chosen: str = "",
) -> Explanation:
    """Explain the credit of a group.

    Args:
        store: Store of the run; it may be written meanwhile.
        group_id: Which group.
        estimator: The run's. ``None``: what was recorded is shown without what was compared.
        name: Its name, likewise its ``options``. unknown: why there is none.
        chosen: Why this group is shown.

    Raises:
        DataError: the group has no episode, or none that credit was recorded for.
    """
    episodes = group_episodes(store, group_id)
    if not episodes:
        raise DataError(f"no episode of group '{group_id}' was recorded; list them: agentrl view")
    if all(one.credit is None for one in episodes):
        raise DataError(_no_credit(episodes[0]))
    known = known_of(store, episodes, estimator, unknown)
    line = episodes[0].summary
    return Explanation(
        group=line.group_id,
        task=line.task_id,
        env=line.env,
        kind=line.kind,
        purpose=line.purpose,
        iteration=line.iteration,
        estimator=name,
        options=options or {},
        chosen=chosen,
        check=known.check,
        agrees=known.agrees,
        rules={part: one.rule for part, one in known.parts.items()},
        partitions=tuple(partitions_of(episodes, known)),
        members=tuple(member_of(one, episodes, known) for one in episodes),
    )


def _no_credit(one: StoredTrajectory) -> str:
    line = one.summary
    if line.purpose.split("/")[0] != "train":
        return (
            f"group '{line.group_id}' was played for '{line.purpose}', from which nothing is "
            "learnt, so it has no credit; choose a group of purpose 'train'"
        )
    return (
        f"group '{line.group_id}' has no credit: its iteration {line.iteration} is still being "
        "played, or ended before credit was given; choose an earlier one"
    )
