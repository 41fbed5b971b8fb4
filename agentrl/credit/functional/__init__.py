"""The mathematics of credit as pure functions over NumPy arrays, float64 inside.

| file | idea |
|---|---|
| ``returns`` | discounted returns, episode scores, penalties |
| ``anchors`` | when two states are the same |
| ``partitions`` | which rows are compared with one another |
| ``normalisers`` | baselines and spreads of a group |
"""

from agentrl.credit.functional.anchors import anchor_key, reference_anchor_key
from agentrl.credit.functional.checks import Array, Flags, Labels
from agentrl.credit.functional.normalisers import (
    EQUAL_TOLERANCE,
    Normaliser,
    Singleton,
    equal_groups,
    leave_one_out,
    normalise,
    trajectory_weights,
)
from agentrl.credit.functional.partitions import (
    cluster_sizes,
    context_partition,
    exact_partition,
    number,
    refine,
    share_of_singletons,
    similarity_partition,
    text_ratio,
)
from agentrl.credit.functional.returns import (
    discounted_returns,
    episode_scores,
    invalid_action_penalty,
    step_returns,
)

__all__ = [
    "EQUAL_TOLERANCE",
    "Array",
    "Flags",
    "Labels",
    "Normaliser",
    "Singleton",
    "anchor_key",
    "cluster_sizes",
    "context_partition",
    "discounted_returns",
    "episode_scores",
    "equal_groups",
    "exact_partition",
    "invalid_action_penalty",
    "leave_one_out",
    "normalise",
    "number",
    "reference_anchor_key",
    "refine",
    "share_of_singletons",
    "similarity_partition",
    "step_returns",
    "text_ratio",
    "trajectory_weights",
]
