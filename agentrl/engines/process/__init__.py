"""An engine in a process of its own, with its own copy of the weights.

``engine`` is what to use: ``ProcessEngine`` samples through a child process and gives it new
weights, by version, while answers are under way. ``child`` is the trainer's end of one process,
``worker`` the program of that process, ``weights`` the folder through which weights pass. What
samples in the child is a host (``agentrl.engines.hf.hosted`` for transformers models).
"""
