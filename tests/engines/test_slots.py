"""Slots: one per episode, the least recently used idle one evicted."""

from __future__ import annotations

from agentrl.engines.slots import Slot, SlotTable


def take(table: SlotTable, episode_id: str) -> Slot:
    slot = table.acquire(episode_id)
    assert slot is not None
    return slot


def test_an_episode_finds_its_own_slot_again() -> None:
    table = SlotTable(2)
    first = take(table, "a")
    first.held += [1, 2]
    table.rest(first)
    assert take(table, "a") is first
    assert first.held == [1, 2]


def test_the_least_recently_used_idle_episode_is_evicted() -> None:
    table = SlotTable(2)
    for name in ("a", "b"):
        table.rest(take(table, name))
    table.rest(take(table, "a"))
    assert take(table, "c").row == 1  # b's
    assert table.idle_slot("b") is None
    assert table.idle_slot("a") is not None
    assert table.evictions == 1


def test_busy_slots_are_never_taken_away() -> None:
    table = SlotTable(1)
    take(table, "a")
    assert table.acquire("b") is None
    assert table.acquire("a") is None  # its request still runs
    assert not table.available


def test_a_release_frees_at_once_or_when_the_request_ends() -> None:
    table = SlotTable(2)
    idle, busy = take(table, "idle"), take(table, "busy")
    table.rest(idle)
    table.release("idle")
    table.release("busy")
    table.release("unknown")
    assert [slot.episode_id for slot in table] == ["busy"]
    table.rest(busy)
    assert list(table) == []
    assert take(table, "next").row == 0


def test_forgetting_empties_every_slot_and_keeps_running_requests() -> None:
    table = SlotTable(2)
    idle, busy = take(table, "idle"), take(table, "busy")
    idle.held += [1]
    busy.held += [2]
    table.rest(idle)
    table.forget()
    assert [(slot.episode_id, slot.held) for slot in table] == [("busy", [])]
    assert table.available
