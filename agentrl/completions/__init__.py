"""Any OpenAI-compatible endpoint, hosted or local: for evaluation, simulated users and judges.

Its tokens are counted and paid for, but they are not ours: nothing that comes from here is ever
trained on.
"""

from agentrl.completions.client import Completion, CompletionClient
from agentrl.completions.usage import Prices, Usage

__all__ = ["Completion", "CompletionClient", "Prices", "Usage"]
