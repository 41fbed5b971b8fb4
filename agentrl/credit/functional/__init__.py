"""The mathematics of credit as pure functions over NumPy arrays, float64 inside.

| file | idea |
|---|---|
| ``returns`` | discounted returns, episode scores, penalties |
| ``anchors`` | when two states are the same |
| ``labels`` | integers that say which rows belong together |
| ``partitions`` | which rows are compared with one another |
| ``similarity`` | the same by similar texts |
| ``clusters`` | the same by direction of hidden states |
| ``normalisers`` | baselines and spreads of a group, whitening of a batch |
| ``actions`` | comparing actions inside a cluster of states |
| ``episodes`` | amplification and filters of episode scores |
| ``trees`` | values of episodes that share their beginnings |
| ``combiners`` | several comparisons of one step become one number |
| ``distillation`` | terms per token from hindsight skills |
| ``objectives`` | losses with gradients: PPO, GSPO, KL estimators |
| ``objectives_off_policy`` | LOOP, R3L, CPGD, decoupled PPO, OPID, SEED |
"""

from agentrl.credit.functional.actions import (
    different_peer_advantage,
    q_advantage,
)
from agentrl.credit.functional.anchors import (
    anchor_key,
    reference_anchor_key,
)
from agentrl.credit.functional.checks import (
    Array,
    Flags,
    Labels,
    RowError,
)
from agentrl.credit.functional.clusters import (
    Centroid,
    cosine_partition,
)
from agentrl.credit.functional.combiners import (
    level_contributions,
    level_weights,
    weighted_sum,
)
from agentrl.credit.functional.distillation import (
    RoutingMode,
    SkillMode,
    route_skills,
    skill_reward,
    teacher_term,
)
from agentrl.credit.functional.episodes import (
    amplified,
    informative,
    soft_mean,
)
from agentrl.credit.functional.labels import (
    dense,
)
from agentrl.credit.functional.normalisers import (
    EQUAL_TOLERANCE,
    Normaliser,
    Singleton,
    deviations,
    equal_groups,
    leave_one_out,
    normalise,
    top_margin,
    trajectory_weights,
    whiten,
)
from agentrl.credit.functional.objectives import (
    Aggregation,
    Objective,
    active,
    aggregation_weights,
    gspo,
    kl_estimators,
    masked_mean,
    ppo_clip,
)
from agentrl.credit.functional.objectives_off_policy import (
    cpgd,
    decoupled_ppo,
    gated_distillation,
    loop_loss,
    opd_loss,
    opmd,
)
from agentrl.credit.functional.partitions import (
    cluster_sizes,
    context_partition,
    exact_partition,
    number,
    refine,
    share_of_singletons,
)
from agentrl.credit.functional.returns import (
    discounted_returns,
    episode_scores,
    invalid_action_penalty,
    step_returns,
    token_returns,
)
from agentrl.credit.functional.similarity import (
    similarity_partition,
    text_ratio,
)
from agentrl.credit.functional.trees import (
    Centring,
    LeafWeighting,
    Tree,
    segment_rewards,
    tree_values,
)

__all__ = [
    "EQUAL_TOLERANCE",
    "Aggregation",
    "Array",
    "Centring",
    "Centroid",
    "Flags",
    "Labels",
    "LeafWeighting",
    "Normaliser",
    "Objective",
    "RoutingMode",
    "RowError",
    "Singleton",
    "SkillMode",
    "Tree",
    "active",
    "aggregation_weights",
    "amplified",
    "anchor_key",
    "cluster_sizes",
    "context_partition",
    "cosine_partition",
    "cpgd",
    "decoupled_ppo",
    "dense",
    "deviations",
    "different_peer_advantage",
    "discounted_returns",
    "episode_scores",
    "equal_groups",
    "exact_partition",
    "gated_distillation",
    "gspo",
    "informative",
    "invalid_action_penalty",
    "kl_estimators",
    "leave_one_out",
    "level_contributions",
    "level_weights",
    "loop_loss",
    "masked_mean",
    "normalise",
    "number",
    "opd_loss",
    "opmd",
    "ppo_clip",
    "q_advantage",
    "reference_anchor_key",
    "refine",
    "route_skills",
    "segment_rewards",
    "share_of_singletons",
    "similarity_partition",
    "skill_reward",
    "soft_mean",
    "step_returns",
    "teacher_term",
    "text_ratio",
    "token_returns",
    "top_margin",
    "trajectory_weights",
    "tree_values",
    "weighted_sum",
    "whiten",
]
