"""Comparing actions inside a cluster of states."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from agentrl.credit.functional.checks import Array, Labels, integers
from agentrl.credit.functional.normalisers import EQUAL_TOLERANCE, equal_groups, normalise
from agentrl.credit.functional.partitions import refine

__all__ = ["different_peer_advantage", "q_advantage"]


def q_advantage(
    returns: npt.ArrayLike,
    cluster: npt.ArrayLike,
    action: npt.ArrayLike,
    *,
    tolerance: float | None = EQUAL_TOLERANCE,
) -> Array:
    """Mean return of a row's action minus the mean return of its cluster::

        A = mean{G_j : same cluster, same action} - mean{G_j : same cluster}

    Rows of one action share A; it is 0 if all members took the same action, and for a row alone.

    Source: BiPACE, Q-style (arXiv 2606.25556).

    Args:
        returns: Shape (n,).
        cluster: Cluster of each row, integers, shape (n,); negative: compared with nothing.
        action: Number of the action of each row, integers >= 0, shape (n,).
        tolerance: As in ``normalise``.

    Returns:
        Shape (n,).

    Raises:
        DataError: shapes differ or a return is not finite.
    """
    cluster = integers("cluster", cluster)
    centred = normalise(returns, cluster, tolerance=tolerance)
    same = refine(cluster, action)
    result = np.zeros(len(centred))
    labelled = same >= 0
    if labelled.any():
        mean = np.bincount(same[labelled], weights=centred[labelled])
        result[labelled] = (mean / np.bincount(same[labelled]))[same[labelled]]
        result[_one_action(cluster, same)] = 0.0
    return result


def different_peer_advantage(
    returns: npt.ArrayLike,
    cluster: npt.ArrayLike,
    action: npt.ArrayLike,
    *,
    tolerance: float | None = EQUAL_TOLERANCE,
) -> Array:
    """A row's return minus the mean return of the members that acted differently::

        A = G - mean{G_j : same cluster, another action}        0 if there is no such peer

    Source: BiPACE, diff-peer (arXiv 2606.25556); 0 without a peer is our choice. Arguments and
    errors as in ``q_advantage``.

    Returns:
        Shape (n,).
    """
    cluster = integers("cluster", cluster)
    centred = normalise(returns, cluster, tolerance=tolerance)
    same = refine(cluster, action)
    result = np.zeros(len(centred))
    labelled = same >= 0
    if not labelled.any():
        return result
    x, c, s = centred[labelled], cluster[labelled], same[labelled]
    peers = np.bincount(c)[c] - np.bincount(s)[s]
    others = np.bincount(c, weights=x)[c] - np.bincount(s, weights=x)[s]
    compared = peers > 0
    if tolerance is not None:
        compared &= ~equal_groups(np.asarray(returns)[labelled], c, tolerance=tolerance)
    result[labelled] = np.where(compared, x - others / np.maximum(peers, 1), 0.0)
    return result


def _one_action(cluster: Labels, same: Labels) -> npt.NDArray[np.bool_]:
    """Rows of clusters in which every member took the same action."""
    labelled = same >= 0
    result = np.zeros(len(cluster), dtype=np.bool_)
    size, alike = np.bincount(cluster[labelled]), np.bincount(same[labelled])
    result[labelled] = size[cluster[labelled]] == alike[same[labelled]]
    return result
