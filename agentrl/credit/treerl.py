"""TreeRL: episodes that branch from one another; a segment earns what it changed in value."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from agentrl.core.errors import DataError
from agentrl.core.trajectory import CreditResult, Group, Step
from agentrl.credit.annotations import annotations_of
from agentrl.credit.columns import Columns, columns_of, credit_result
from agentrl.credit.episode import equal_group_metrics
from agentrl.credit.functional import (
    EQUAL_TOLERANCE,
    Centring,
    Labels,
    LeafWeighting,
    Tree,
    episode_scores,
    segment_rewards,
    tree_values,
)
from agentrl.credit.options import check_options

__all__ = ["TreeRL"]


@dataclass(frozen=True, slots=True)
class TreeRL:
    """Process rewards from a tree of episodes.

    ::

        V(node) = mean over the leaves below it of (score - mean of the other leaves)
        A       = V(node) - V(parent)      (+ V(node) with ``add_state``)

    Every step carries the annotation ``node``, which names the segment it belongs to inside its
    group; episodes that share a beginning share its nodes. Without annotations every episode is one
    branch of its own, and this is RLOO. A beginning that several episodes share counts in the loss
    once for each of them.

    Source: github.com/THUDM/TreeRL.

    Attributes:
        centring: Subtract a mean over the tree, weighted by ``token`` or ``step``, or ``none``.
        weighting: Divide by the ``sqrt`` of the leaves below or by their number (``uniform``), so
            that often shared segments weigh less, or ``none``. Published script: ``sqrt``.
        add_state: Add V(node), as the published script does.
        fill: A segment that changed nothing inherits its predecessor's reward; ``None``: no, yes in
            reference mode.
        reference: Reproduce the published code; a group of one episode is refused.
    """

    centring: Centring = "none"
    weighting: LeafWeighting = "none"
    add_state: bool = False
    fill: bool | None = None
    reference: bool = False

    def __post_init__(self) -> None:
        check_options(
            self,
            centring=("none", "token", "step"),
            weighting=("none", "sqrt", "uniform"),
        )

    def assign(self, groups: Sequence[Group]) -> CreditResult:
        """Advantages; parts: ``segment``; groups: ``node``.

        Raises:
            DataError: an episode ends inside another's segments; in reference mode, a group of one.
        """
        columns = columns_of(groups)
        steps = tuple(columns.steps)
        scores = episode_scores(columns.reward, columns.trajectory)
        part = np.zeros(len(scores))
        labels = np.full(len(scores), -1, dtype=np.int64)
        used = 0
        for episodes in _by_group(columns):
            _require_names(columns, steps, episodes)
            parent, tokens, paths = _grow([[steps[k] for k in one] for one in episodes])
            leaves = [path[-1] for path in paths]
            _require_leaves(columns, episodes, parent, leaves)
            tree = Tree.of(parent, tokens, leaves, [scores[one[0]] for one in episodes])
            try:
                found = self.rewards(tree)
            except DataError as error:
                raise DataError(f"{columns.where(int(episodes[0][0]))}: {error}") from None
            for one, path, rewards in zip(episodes, paths, found, strict=True):
                earned = dict(zip(dict.fromkeys(path), rewards, strict=True))
                part[one] = [earned[node] for node in path]
                labels[one] = np.array(path) + used
            used += len(parent)
        metrics = equal_group_metrics(columns)
        return credit_result(columns, {"segment": part}, {"node": labels}, metrics)

    def rewards(self, tree: Tree) -> list[list[float]]:
        """Rewards of the segments on the way to each leaf."""
        values, root = tree_values(
            tree,
            centring=self.centring,
            weighting=self.weighting,
            tolerance=None if self.reference else EQUAL_TOLERANCE,
        )
        fill = self.reference if self.fill is None else self.fill
        found = segment_rewards(tree, values, root, add_state=self.add_state, fill=fill)
        return [one.tolist() for one in found]


def _by_group(columns: Columns) -> Iterator[list[Labels]]:
    """For each group the positions of the steps of each of its episodes, in order of time."""
    order = np.lexsort((columns.index, columns.trajectory, columns.group)).astype(np.int64)
    if not len(order):
        return
    for inside in np.split(order, np.flatnonzero(np.diff(columns.group[order])) + 1):
        yield np.split(inside, np.flatnonzero(np.diff(columns.trajectory[inside])) + 1)


def _grow(episodes: Sequence[Sequence[Step]]) -> tuple[list[int], list[int], list[list[int]]]:
    """Parents and tokens of the nodes, and for each episode the node of each of its steps."""
    nodes: dict[tuple[int, Hashable], int] = {}
    parent: list[int] = []
    tokens: list[int] = []
    paths = []
    for number, steps in enumerate(episodes):
        position, path = -1, []
        own = ("episode", number)
        for name, run in groupby(steps, key=lambda step: annotations_of(step).get("node", own)):
            members = list(run)
            key = (position, name)
            if key not in nodes:
                nodes[key] = len(parent)
                parent.append(position)
                tokens.append(sum(len(step.sample.token_ids) for step in members))
            position = nodes[key]
            path += [position] * len(members)
        paths.append(path)
    return parent, tokens, paths


def _require_names(columns: Columns, steps: Sequence[Step], episodes: Sequence[Labels]) -> None:
    for row in (k for one in episodes for k in one.tolist()):
        node = annotations_of(steps[row]).get("node")
        if not isinstance(node, Hashable):
            raise DataError(
                f"{columns.where(row)} has {node!r} as annotation 'node', expected a name (text or "
                "a number)"
            )


def _require_leaves(
    columns: Columns, episodes: Sequence[Labels], parent: Sequence[int], leaves: Sequence[int]
) -> None:
    inner = set(parent)
    for one, leaf in zip(episodes, leaves, strict=True):
        if leaf in inner or leaves.count(leaf) > 1:
            raise DataError(
                f"{columns.where(int(one[-1]))}: the episode ends inside the segments of another "
                "of its group, so it is no leaf; give the last steps of every episode a node of "
                "their own"
            )
