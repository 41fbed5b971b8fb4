"""ALFWorld on the standard library: real games letter for letter, and generated ones.

``AlfworldFactory`` is what runs use; ``World`` plays one game without any of the framework.
"""

from agentrl.envs.alfworld.difficulty import PRESETS, Difficulty
from agentrl.envs.alfworld.engine import Reply, World
from agentrl.envs.alfworld.env import AlfworldEnv, Wording
from agentrl.envs.alfworld.experts import Expert, OracleExpert, SearchExpert
from agentrl.envs.alfworld.factory import AlfworldFactory
from agentrl.envs.alfworld.game import TASK_TYPES, Game, Goal
from agentrl.envs.alfworld.generate import Generator, split_of

__all__ = [
    "PRESETS",
    "TASK_TYPES",
    "AlfworldEnv",
    "AlfworldFactory",
    "Difficulty",
    "Expert",
    "Game",
    "Generator",
    "Goal",
    "OracleExpert",
    "Reply",
    "SearchExpert",
    "Wording",
    "World",
    "split_of",
]
