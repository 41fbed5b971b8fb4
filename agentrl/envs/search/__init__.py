"""Questions that are answered by searching a corpus over several turns.

``factory.py`` says what there is to choose; ``generate.py`` writes the corpus that is embedded,
``sources.py`` reads your own, ``library.py`` is what searches, ``scoring.py`` compares answers.
"""

from agentrl.envs.search.factory import SearchFactory
from agentrl.envs.search.generate import write_world
from agentrl.envs.search.scoring import exact_match, f1, normalise_answer

__all__ = ["SearchFactory", "exact_match", "f1", "normalise_answer", "write_world"]
