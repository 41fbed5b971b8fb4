"""Values and segment rewards on a tree of episodes that share their beginnings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from agentrl.core.errors import DataError
from agentrl.credit.functional.checks import Array, Labels, floats, integers
from agentrl.credit.functional.normalisers import EQUAL_TOLERANCE, leave_one_out

__all__ = ["Centring", "LeafWeighting", "Tree", "segment_rewards", "tree_values"]

Centring = Literal["none", "token", "step"]
LeafWeighting = Literal["none", "sqrt", "uniform"]


@dataclass(frozen=True, slots=True)
class Tree:
    """A tree of segments below an unlisted root.

    Attributes:
        parent: Position of each node's parent, which comes earlier; -1 is the root.
        tokens: Tokens of each node's segment.
        leaves: Positions of the leaves.
        scores: Score of each leaf.
    """

    parent: Labels
    tokens: Array
    leaves: Labels
    scores: Array

    @classmethod
    def of(
        cls,
        parent: npt.ArrayLike,
        tokens: npt.ArrayLike,
        leaves: npt.ArrayLike,
        scores: npt.ArrayLike,
    ) -> Tree:
        """Check and make a tree.

        Raises:
            DataError: a parent does not come before its child, or leaves and scores differ.
        """
        parent = integers("parent", parent)
        tokens = floats("tokens", tokens, like=parent)
        leaves = integers("leaves", leaves)
        scores = floats("scores", scores, like=leaves)
        if (parent >= np.arange(len(parent))).any() or (parent < -1).any():
            raise DataError("every parent must come before its child; -1 is the root")
        if len(set(leaves.tolist())) != len(leaves) or np.isin(leaves, parent).any():
            raise DataError("leaves must be distinct nodes without children")
        return cls(parent, tokens, leaves, scores)

    def path(self, node: int) -> list[int]:
        """Nodes from the root's child down to ``node``."""
        found = []
        while node >= 0:
            found.append(node)
            node = int(self.parent[node])
        return found[::-1]


def tree_values(
    tree: Tree,
    *,
    centring: Centring = "none",
    weighting: LeafWeighting = "none",
    tolerance: float | None = EQUAL_TOLERANCE,
) -> tuple[Array, float]:
    """Value of every node: the mean centred score of the leaves below it.

    ::

        c_l    = score of leaf l - mean of the other leaves
        acc(n) = sum of c_l over the leaves below n,     m(n) = how many there are
        acc   -= mu * m     with mu = sum(acc * tokens) / sum(m * tokens)   (centring token)
                                 or   sum(acc) / sum(m), root included      (centring step)
        acc   /= sqrt(m)  (weighting sqrt)  or  m  (weighting uniform)
        V(n)   = acc(n) / m(n)

    Source: TreeRL (github.com/THUDM/TreeRL).

    Returns:
        Values of the nodes, shape (nodes,), and the value of the root.

    Raises:
        DataError: with ``tolerance`` ``None``, a tree of one leaf (the published code refuses it).
    """
    count = len(tree.leaves)
    if count == 1 and tolerance is None:
        raise DataError("a tree of one leaf has nothing to compare it with")
    centred = leave_one_out(tree.scores, np.zeros(count, dtype=np.int64), tolerance=tolerance)
    # The root is kept at the end, so that a parent of -1 finds it.
    nodes = len(tree.parent)
    acc, below = np.zeros(nodes + 1), np.zeros(nodes + 1)
    acc[tree.leaves], below[tree.leaves] = centred, 1.0
    for node in range(nodes - 1, -1, -1):
        acc[tree.parent[node]] += acc[node]
        below[tree.parent[node]] += below[node]
    if (below[:nodes] == 0).any():
        raise DataError(f"node {int(np.argmin(below[:nodes]))} has no leaf below it")
    if centring != "none":
        weight = np.append(tree.tokens, 0.0) if centring == "token" else np.ones(nodes + 1)
        total = (below * weight).sum()
        acc = acc - (acc * weight).sum() / (total or 1.0) * below
    divisor = {"none": np.ones(nodes + 1), "sqrt": np.sqrt(below), "uniform": below}[weighting]
    value = acc / np.where(below > 0, divisor * below, 1.0)
    return value[:nodes], float(value[nodes])


def segment_rewards(
    tree: Tree,
    values: npt.ArrayLike,
    root: float,
    *,
    add_state: bool = False,
    fill: bool = False,
) -> Sequence[Array]:
    """Reward of each segment on the way to each leaf.

    ::

        r(n) = V(n) - V(parent)      + V(n) with ``add_state``

    Source: TreeRL (github.com/THUDM/TreeRL). ``fill`` gives a segment whose difference is 0 the
    reward of the segment before it, as the published code does; a segment that changes nothing then
    shares in its predecessor's credit.

    Returns:
        For each leaf, in the order of ``tree.leaves``, one reward per node of its path.

    Raises:
        DataError: ``values`` has the wrong shape or is not finite.
    """
    values = floats("values", values, like=tree.parent)
    with_root = np.append(values, root)
    difference = values - with_root[tree.parent]
    found = []
    for leaf in tree.leaves.tolist():
        path = tree.path(leaf)
        rewards = difference[path]
        if fill:
            for k in range(1, len(path)):
                if abs(rewards[k]) < 1e-8:
                    rewards[k] = rewards[k - 1]
        found.append(rewards + values[path] if add_state else rewards)
    return found
