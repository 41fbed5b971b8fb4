"""Runs side by side: learning curves over seeds, and final scores paired on one panel.

| file | what |
|---|---|
| ``seeds`` | intervals over seeds |
| ``runs`` | what a run brings: its curve, its panel, its seed |
| ``grouping`` | runs that differ in nothing but their seed |
| ``curves`` | success at equal budgets of episodes, tokens and time |
| ``scores`` | final scores, paired |
| ``comparison`` | all of it |
| ``shown``, ``picture`` | as tables, as curves |
"""
