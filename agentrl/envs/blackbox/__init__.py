"""Train an agent that you did not write: it speaks to an OpenAI-compatible server, which is ours.

Each episode has an endpoint and a key of its own. What the agent asks is what the policy sees; what
the policy samples is what the agent is told; what the agent returns is the reward. So the agent is
the environment, and everything else stays as it is.
"""

from agentrl.envs.blackbox.factory import BlackBoxFactory
from agentrl.envs.blackbox.running import Episode

__all__ = ["BlackBoxFactory", "Episode"]
