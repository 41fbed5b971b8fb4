"""Which groups an iteration learns from: ages, and the choice among those that are complete."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agentrl.core.trajectory import Group
from agentrl.rollout.staleness import Asynchrony, Settled, aged, choose, groups_admitted
from agentrl.rollout.staleness import oldest_version as oldest
from agentrl.testing.episodes import episode, failed_episode, group


def sampled_with(name: str, *versions: int) -> Group:
    """A group of one episode, each step of which two versions sampled: ``v`` and ``v + 1``."""
    whole = episode(name, *(("s", 0.0) for _ in versions))
    steps = [
        replace(one, sample=replace(one.sample, versions=((0, version), (1, version + 1))))
        for one, version in zip(whole.steps, versions, strict=True)
    ]
    return group(name, replace(whole, steps=tuple(steps)))


def complete(*versions: int) -> list[Settled]:
    return [Settled(place, sampled_with(f"g{place}", one)) for place, one in enumerate(versions)]


def test_a_group_is_as_old_as_the_oldest_version_that_sampled_any_of_it() -> None:
    assert oldest(sampled_with("g", 5, 3, 7)) == 3
    assert aged(sampled_with("g", 5, 3, 7), 8) == 5
    # Newer than the weights: a run that was killed went on from an older checkpoint.
    assert aged(sampled_with("g", 5), 2) == 0


def test_a_group_of_which_nothing_was_sampled_has_no_age() -> None:
    broken = group("g", failed_episode("e"))
    assert oldest(broken) is None
    assert aged(broken, 100) == 0


@pytest.mark.parametrize(
    ("iteration", "expected"),
    [(0, 2 * 8), (1, 3 * 8), (8, 10 * 8), (9, 10 * 8), (10, 10 * 8)],
)
def test_no_more_groups_are_begun_than_the_bound_allows(iteration: int, expected: int) -> None:
    # Ten iterations of eight groups, one ahead: min(iteration + 1 + 1, 10) * 8.
    found = groups_admitted(iteration, bound=1, per_iteration=8, iterations=10, stale=0)
    assert found == expected
    more = groups_admitted(iteration, bound=1, per_iteration=8, iterations=10, stale=3)
    assert more == expected + 3


def places(chosen: tuple[Settled, ...] | None) -> list[int] | None:
    return None if chosen is None else [one.position for one in chosen]


def chosen_of(
    groups: list[Settled], under_way: list[int], *, version: int, wait: bool = True
) -> list[int] | None:
    return places(choose(groups, under_way, version=version, bound=2, count=2, wait=wait))


def test_equally_old_groups_go_in_as_they_become_complete() -> None:
    assert chosen_of(complete(9, 9, 9), [], version=9) == [0, 1]
    assert chosen_of(complete(9), [], version=9) is None


def test_older_groups_go_in_first() -> None:
    assert chosen_of(complete(9, 9, 7), [], version=9) == [0, 2]
    assert chosen_of(complete(8, 7, 9, 7), [], version=9) == [1, 3]


def test_what_would_be_too_old_for_the_next_iteration_is_waited_for_if_that_is_wanted() -> None:
    # Bound 2, version 9: what was begun under version 7 is as old as it may be.
    assert chosen_of(complete(9, 9, 9), [8, 7], version=9) is None
    assert chosen_of(complete(9, 9, 9), [8, 8], version=9) == [0, 1]
    assert chosen_of(complete(9, 9, 9), [8, 7], version=9, wait=False) == [0, 1]


def test_more_old_groups_than_the_next_iteration_can_take_are_waited_for_in_time() -> None:
    # Three groups of version 8 and two places in the next iteration, the last that may have them.
    assert chosen_of(complete(9, 9, 9), [8, 8, 8], version=9) is None
    assert chosen_of(complete(9, 8, 9), [8, 8], version=9) == [0, 1]
    assert chosen_of(complete(8, 8, 8, 8, 8), [], version=9) is None  # cannot come about


def test_what_is_recorded_is_plain_and_what_is_tracked_are_numbers() -> None:
    made = Asynchrony(4, {"a": 0, "b": 1}, {"c": 3}, ["d"], waited_s=1.5, overlap=0.5, ahead=7)
    assert made.to_data() == {
        "version": 4,
        "ages": {"a": 0, "b": 1},
        "stale": {"c": 3},
        "discarded": ["d"],
        "waited_s": 1.5,
        "overlap": 0.5,
        "ahead": 7,
    }
    assert made.measures() == {
        "staleness_mean": 0.5,
        "staleness_max": 1,
        "stale_groups": 1,
        "waited_s": 1.5,
        "overlap": 0.5,
        "groups_ahead": 7,
    }
    assert Asynchrony(0).measures()["staleness_mean"] is None
