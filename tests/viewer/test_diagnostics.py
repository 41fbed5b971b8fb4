"""The diagnostics of an iteration, in words."""

from __future__ import annotations

from pathlib import Path

from agentrl.core.trajectory import CreditResult
from agentrl.credit import HGPO, diagnose
from agentrl.store.sqlite import SqliteStore
from agentrl.testing.episodes import episode, failed_episode, group
from agentrl.viewer.diagnostics import credit_metrics, diagnostics_lines


def test_every_part_and_partition_has_its_words() -> None:
    groups = [
        group("g", episode("a", ("s", 1.0), ("t", 0.0)), episode("b", ("s", 0.0))),
        group("h", episode("a", ("s", 1.0)), failed_episode("b")),
        group("even", *(episode(f"e{k}", ("s", 1.0)) for k in range(3))),
    ]
    found = dict(diagnostics_lines(diagnose(groups, HGPO(history_length=1).assign(groups))))
    assert found["groups"] == (
        "3 of 1 to 3 trajectories, 1 of one, 1 with equal scores, 1 without any signal, "
        "1 failed and 0 unscored trajectories left out"
    )
    assert found["steps"] == "7, 57% left without signal"
    assert found["parts"].startswith("episode ")
    assert "level_1 " in found["parts"]
    assert found["context_1"].startswith("4 clusters of 1.8 steps, at most 3; 29% of the acts")
    assert "context_2" in found


def test_what_an_earlier_release_recorded_is_shown_as_far_as_it_goes(tmp_path: Path) -> None:
    one = group("g", episode("a", ("s", 1.0)))
    old = {"groups": 1, "steps": 1, "episode_abs_mean": 0.5, "episode_share": 1.0}
    with SqliteStore(tmp_path) as store:
        assert credit_metrics(store) is None
        store.append(one.trajectories[0], task=one.task, iteration=3, purpose="train")
        store.add_credit([one], CreditResult([(0.0,)], metrics=old | {"anchor_clusters": 1}))
        found = credit_metrics(store)
    assert found is not None
    assert found[0] == 3
    assert list(diagnostics_lines(found[1])) == [("parts", "episode 100% (mean size 0.5)")]
    assert list(diagnostics_lines({})) == []
