"""Credit: groups of finished trajectories in, one advantage per step out.

| name | file | what it compares |
|---|---|---|
| ``grpo`` | ``grpo.py`` | a trajectory's score with its group's mean and spread |
| ``gigpo`` | ``gigpo.py`` | the same, plus steps taken from the same state |

An estimator is one file: a frozen dataclass of options with ``assign(groups) -> CreditResult``.
``columns.py`` turns groups into columns and decides who takes part, ``episode.py`` is the part most
of them share, ``functional/`` the mathematics. How to add one: docs/explanation/credit.md.
"""

from agentrl.credit.columns import Columns, columns_of, credit_result
from agentrl.credit.gigpo import GiGPO
from agentrl.credit.grpo import GRPO

__all__ = ["GRPO", "Columns", "GiGPO", "columns_of", "credit_result"]
