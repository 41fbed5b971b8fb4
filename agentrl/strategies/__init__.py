"""Which tasks are played how often, and what is learnt from (``agentrl.core.strategy``).

| file | idea |
|---|---|
| ``course`` | asks a list of strategies on behalf of a training loop, synchronous or not |
| ``cursor`` | goes through the training tasks in seeded epochs |
| ``replaying`` | stored trajectories among fresh ones, marked as such |
| ``signal`` | what a group's rewards say |
| ``resample`` | groups without signal are played anew or dropped (DAPO) |
| ``adaptive`` | few episodes first, more where there is signal to be had (AERO) |
| ``variance`` | tasks that are sometimes solved (VCRL) |
| ``difficulty`` | a window of levels that follows the policy (RLVE) |
| ``replay`` | verified successes join their task's later groups (RLEP) |
| ``self_imitation`` | good episodes are learnt from again, with decaying weight (SPEAR) |
"""
