"""The append-only database of a run: what was played, what credit it got, what was learnt."""
