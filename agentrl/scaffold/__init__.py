"""What ``agentrl init`` and ``agentrl new`` write: a commented run file, working skeletons."""
