"""A run proves itself, from what is on record: splits, panels, training rows, policy versions.

| file | what |
|---|---|
| ``findings`` | what a check came to |
| ``listing`` | the environment's tasks, listed in two processes |
| ``splits`` | train, validation and test share no problem |
| ``panels`` | every evaluation task once per trial, and the success that was reported |
| ``plays`` | every training episode once, none missing |
| ``rows`` | training rows made again from the stored tokens |
| ``learning`` | what updates learnt from, and how often |
| ``versions`` | order and age of the policy versions |
| ``auditing`` | all of it, of a run or of a run file |
| ``lesson`` | how an index split over per-worker shuffles leaks |
"""
