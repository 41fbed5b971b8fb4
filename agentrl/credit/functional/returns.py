"""Returns and penalties: what a step brought, seen from the step itself."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from agentrl.core.errors import DataError
from agentrl.credit.functional.checks import Array, flags, floats, integers, within
from agentrl.credit.functional.labels import dense

__all__ = [
    "discounted_returns",
    "episode_scores",
    "invalid_action_penalty",
    "step_returns",
    "token_returns",
]


def discounted_returns(rewards: npt.ArrayLike, discount: float) -> Array:
    """Discounted return from each step to the end of its episode.

    Computes, from the last step backwards::

        G_t = r_t + discount * G_{t+1},    G_T = 0

    Nothing is added at a truncation: a truncated episode is treated as a finished one.

    Source: GiGPO, Eq. 5 (arXiv 2505.10978).

    Args:
        rewards: Reward received after each action, shape (T,).
        discount: Per-step discount in [0, 1].

    Returns:
        Returns, shape (T,), float64. Empty for an empty episode.

    Raises:
        DataError: ``rewards`` is not 1-D or not finite, or ``discount`` is outside [0, 1].
    """
    rewards = floats("rewards", rewards)
    zeros = np.zeros(len(rewards), dtype=np.int64)
    return step_returns(rewards, zeros, np.arange(len(rewards)), discount)


def step_returns(
    rewards: npt.ArrayLike, trajectory: npt.ArrayLike, index: npt.ArrayLike, discount: float
) -> Array:
    """``discounted_returns`` of many episodes at once, rows in any order.

    Time is ``index``, never the order of the rows, so shuffled rows give shuffled returns. Gaps in
    ``index`` (calls that were no act) do not discount. One pass after a sort: O(n log n).

    Args:
        rewards: Reward of each row, shape (n,).
        trajectory: Which episode each row belongs to, integers, shape (n,).
        index: Time of each row in its episode, integers, shape (n,).
        discount: Per-step discount in [0, 1].

    Returns:
        Returns in the order of the rows, shape (n,).

    Raises:
        DataError: shapes differ, a value is not finite, or an episode has one index twice.
    """
    rewards = floats("rewards", rewards)
    trajectory = integers("trajectory", trajectory, like=rewards)
    index = integers("index", index, like=rewards)
    discount = within("discount", discount, 0.0, 1.0)
    order = np.lexsort((index, trajectory))
    episode, time = trajectory[order], index[order]
    same = episode[1:] == episode[:-1]
    twice = np.flatnonzero(same & (time[1:] == time[:-1]))
    if twice.size:
        raise DataError(
            f"trajectory {episode[twice[0]]} has step index {time[twice[0]]} twice; "
            "a step must appear once"
        )
    # A loop over Python floats: exact order of operations, and fast enough for millions of rows.
    following = [*same.tolist(), False][: len(rewards)]
    running, found = 0.0, []
    for reward, goes_on in zip(rewards[order].tolist()[::-1], following[::-1], strict=True):
        running = reward + discount * running if goes_on else reward
        found.append(running)
    returns = np.empty(len(rewards))
    returns[order] = found[::-1]
    return returns


def episode_scores(rewards: npt.ArrayLike, trajectory: npt.ArrayLike) -> Array:
    """Sum of the rewards of a row's episode, on every row of it, undiscounted.

    Args:
        rewards: Reward of each row, shape (n,).
        trajectory: Which episode each row belongs to, integers, shape (n,).

    Returns:
        Scores, shape (n,).

    Raises:
        DataError: shapes differ or a reward is not finite.
    """
    rewards = floats("rewards", rewards)
    trajectory = integers("trajectory", trajectory, like=rewards)
    if not len(rewards):
        return rewards
    place = dense(trajectory)
    return np.asarray(np.bincount(place, weights=rewards)[place])


def invalid_action_penalty(valid: npt.ArrayLike, coefficient: float) -> Array:
    """What a row loses for an action that was malformed or impossible::

        p = coefficient * (1 - valid)

    It is subtracted from the row's return and from the row's own episode score *after* both were
    computed, so it does not travel back in time.

    Source: verl-agent, the public GiGPO training code (coefficient 0.1 for ALFWorld and WebShop,
    with success worth 10).

    Args:
        valid: Whether each action was valid, booleans, shape (n,).
        coefficient: Penalty, >= 0, in units of reward.

    Returns:
        Penalties, shape (n,).

    Raises:
        DataError: ``valid`` is not 1-D boolean or ``coefficient`` is negative or infinite.
    """
    valid = flags("valid", valid)
    coefficient = within("coefficient", coefficient, 0.0, np.finfo(np.float64).max)
    return np.where(valid, 0.0, coefficient)


def token_returns(
    scores: npt.ArrayLike, lengths: npt.ArrayLike, width: int, discount: float
) -> Array:
    """Returns of the tokens of answers whose score sits on their last token::

        R[r, k] = discount^(lengths[r] - 1 - k) * scores[r]      for k < lengths[r], else 0

    Source: REINFORCE++ (arXiv 2501.03262).

    Args:
        scores: Score of each answer, shape (n,).
        lengths: Tokens of each answer, integers, shape (n,), at most ``width``.
        width: Columns of the result.
        discount: Per-token discount in [0, 1].

    Returns:
        Shape (n, width).

    Raises:
        DataError: shapes differ, a value is not finite, or a length is outside [0, width].
    """
    scores = floats("scores", scores)
    lengths = integers("lengths", lengths, like=scores)
    discount = within("discount", discount, 0.0, 1.0)
    if len(lengths) and not (lengths.min() >= 0 and lengths.max() <= width):
        raise DataError(f"lengths must be in [0, {width}], got {lengths.min()} to {lengths.max()}")
    left = lengths[:, None] - 1 - np.arange(width)
    return np.where(left >= 0, discount ** np.maximum(left, 0) * scores[:, None], 0.0)
