"""Environments in worker processes, also of another interpreter: what blocks, blocks itself alone.

``agentrl.envs.process.factory`` is what to use. The rest: ``worker`` is the program of a process,
``launch`` starts it, ``connection`` is the trainer's end of it, ``pool`` keeps several of them,
``codec`` and ``frames`` are what they say to each other. A worker needs the standard library alone.
"""
