"""Credit: groups of finished trajectories in, one advantage per step out.

| name | file | what it compares |
|---|---|---|
| ``grpo`` | ``grpo.py`` | a trajectory's score with its group's mean and spread |
| ``dr_grpo`` | ``dr_grpo.py`` | the same without the spread |
| ``rloo`` | ``rloo.py`` | a score with the mean of the others |
| ``reinforce_plus_plus`` | ``reinforce_plus_plus.py`` | returns with those of the whole batch |
| ``reinforce_plus_plus_baseline`` | ``reinforce_plus_plus.py`` | GRPO on the batch's scale |
| ``pass_at_k`` | ``pass_at_k.py`` | the best of a group with the second |
| ``loop`` | ``loop.py`` | leave-one-out, nothing where there is no signal |
| ``gigpo`` | ``gigpo.py`` | GRPO, plus steps taken from the same state |
| ``hgpo`` | ``hgpo.py`` | steps that also share the states before |
| ``bipace`` | ``bipace.py`` | actions in states the policy sees alike |
| ``r3l`` | ``r3l.py`` | scores, successes amplified, replayed beginnings left out |
| ``treerl`` | ``treerl.py`` | branches of a tree with one another |
| ``rlanything`` | ``rlanything.py`` | a judge's votes at equal step index |
| ``spa`` | ``spa.py`` | a progress estimate in place of rewards |
| ``opid`` | ``opid.py`` | GRPO, plus what a hindsight skill would like per token |
| ``seed`` | ``seed.py`` | GRPO, and skills with one another |
| ``himac`` | ``himac.py`` | plans with plans, executions with executions |
| ``mmpo`` | ``mmpo.py`` | GRPO, and summaries by what they leave unsure |
| ``combined`` | ``combined.py`` | a weighted sum of others |

An estimator is one file: a frozen dataclass of options with ``assign(groups) -> CreditResult``.
``columns.py`` turns groups into columns and decides who takes part, ``episode.py`` is the part most
of them share, ``annotations.py`` what only a model can know (``hidden_states.py`` is the annotator
of BiPACE), ``functional/`` the mathematics. ``diagnostics.py`` says what came of it in numbers,
``compared.py`` in words: what each part compares (``agentrl credit explain``).
docs/explanation/credit.md explains them and says how to add one.
"""

from agentrl.credit.annotations import AnnotatedStep, annotate
from agentrl.credit.bipace import BiPACE
from agentrl.credit.columns import Columns, columns_of, credit_result
from agentrl.credit.combined import Combined
from agentrl.credit.diagnostics import diagnose, with_diagnostics
from agentrl.credit.dr_grpo import DrGRPO
from agentrl.credit.gigpo import GiGPO
from agentrl.credit.grpo import GRPO
from agentrl.credit.hgpo import HGPO
from agentrl.credit.hidden_states import HiddenStates
from agentrl.credit.himac import HiMAC
from agentrl.credit.loop import LOOP
from agentrl.credit.mmpo import MMPO
from agentrl.credit.opid import OPID
from agentrl.credit.pass_at_k import PassAtK
from agentrl.credit.r3l import R3L
from agentrl.credit.reinforce_plus_plus import REINFORCEPlusPlus, REINFORCEPlusPlusBaseline
from agentrl.credit.rlanything import RLAnything
from agentrl.credit.rloo import RLOO
from agentrl.credit.seed import SEED
from agentrl.credit.spa import SPA
from agentrl.credit.treerl import TreeRL

__all__ = [
    "GRPO",
    "HGPO",
    "LOOP",
    "MMPO",
    "OPID",
    "R3L",
    "RLOO",
    "SEED",
    "SPA",
    "AnnotatedStep",
    "BiPACE",
    "Columns",
    "Combined",
    "DrGRPO",
    "GiGPO",
    "HiMAC",
    "HiddenStates",
    "PassAtK",
    "REINFORCEPlusPlus",
    "REINFORCEPlusPlusBaseline",
    "RLAnything",
    "TreeRL",
    "annotate",
    "columns_of",
    "credit_result",
    "diagnose",
    "with_diagnostics",
]
