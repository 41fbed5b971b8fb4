"""Success on panels of tasks: statistics, and reports that exclude infra failures aloud."""
