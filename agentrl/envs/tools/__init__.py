"""Environments made of an instruction, tools, perhaps a user, and a scorer: no Env to write.

``ToolEnvFactory(tasks, tools, score)``; ``env.py`` says what ends an episode, ``situation.py`` what
a scorer is shown, ``expert.py`` how to have something to clone from, ``problems.py`` how plain data
becomes tasks.
"""

from agentrl.envs.tools.env import ToolEnv
from agentrl.envs.tools.factory import ToolEnvFactory, right_answer
from agentrl.envs.tools.situation import Score, Situation

__all__ = ["Score", "Situation", "ToolEnv", "ToolEnvFactory", "right_answer"]
