"""A sound run passes every check, and each violation planted in it is found by its own check."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from agentrl.audit.auditing import audit_run
from agentrl.audit.findings import Audit, Finding
from agentrl.audit.record import read_record
from agentrl.audit.versions import check_staleness
from agentrl.core.errors import AgentRLError, ConfigError, SchemaVersionError, StoreError
from agentrl.store.sqlite import SqliteStore
from tests.audit.conftest import Copy

CHECKS = [
    *("listing", "splits", "panels", "plays", "samples"),
    *("sampled", "stored", "once", "counts", "versions", "staleness"),
]
TRAINED = "SELECT id FROM trajectories WHERE takes_part = 1 ORDER BY key"


def finding(audit: Audit, check: str) -> Finding:
    (one,) = (one for one in audit.findings if one.check == check)
    return one


def test_a_sound_run_passes_every_check_with_its_counts(made: Path) -> None:
    audit = audit_run(made)
    assert [one.check for one in audit.findings] == CHECKS
    assert not audit.violated, audit.violated
    assert not audit.unchecked
    with SqliteStore(made, read_only=True) as store:
        lines = store.find()
    trained = [line for line in lines if line.takes_part]
    evaluated = [line for line in lines if line.purpose != "train"]
    assert any(line.attempt for line in evaluated), "the run retried something"
    counts = finding(audit, "panels").counts
    # before and after: 4 tasks x 2 trials and 4 x 1 greedy; two validations of 3
    assert counts["episodes"] == 2 * (4 * 2 + 4) + 2 * 3
    assert counts["attempts"] == len(evaluated) > counts["episodes"]
    last = {(line.purpose, line.task_id, line.trial): line.outcome for line in evaluated}
    assert counts["infra failures"] == list(last.values()).count("infra") > 0
    played = finding(audit, "plays").counts
    assert (played["iterations"], played["groups"], played["episodes"]) == (2, 6, 2 * 3 * 3)
    assert played["attempts"] == len(lines) - len(evaluated)
    assert finding(audit, "samples").counts["attempts"] == len(lines)
    sampled = finding(audit, "sampled").counts
    assert sampled["trained tokens"] == sum(line.sampled_tokens for line in trained)
    assert sampled["rows"] > len(trained), "a window makes several rows of a trajectory"
    assert sampled["demonstrated rows"] > 0
    assert finding(audit, "stored").counts["trajectories"] == len(trained)
    assert finding(audit, "once").counts["groups"] == len({one.group_id for one in trained})
    assert finding(audit, "counts").counts["updates"] == 8 + 4
    assert finding(audit, "staleness").counts == {
        "bound": 0,
        "oldest": 0,
        "trajectories": len(trained),
    }


# Each plants one violation; the words are what the offender is named with.
Plant = Callable[[Copy], None]
PLANTED: dict[str, tuple[str, str, Plant]] = {}


def plant(check: str, words: str) -> Callable[[Plant], Plant]:
    def note(function: Plant) -> Plant:
        PLANTED[function.__name__] = (check, words, function)
        return function

    return note


@plant("splits", "is a train task and a test task")
def a_test_task_was_trained_on(copy: Copy) -> None:
    test = copy.one("SELECT key FROM tasks WHERE split = 'test'")
    train = copy.one("SELECT task FROM groups WHERE purpose = 'train'")
    copy.sql("UPDATE groups SET task = ? WHERE task = ? AND purpose = 'train'", test, train)


@plant("splits", "under another id: their payloads are equal")
def a_test_task_was_trained_on_under_another_id(copy: Copy) -> None:
    payload = copy.one("SELECT payload FROM tasks WHERE split = 'test'")
    train = copy.one("SELECT task FROM groups WHERE purpose = 'train'")
    copy.sql("UPDATE tasks SET payload = ? WHERE key = ?", payload, train)


@plant("listing", "the environment does not list it")
def a_task_was_played_that_the_environment_does_not_list(copy: Copy) -> None:
    task = copy.one("SELECT task FROM groups WHERE purpose = 'train'")
    copy.sql("UPDATE tasks SET id = 'gone', payload = '{\"rooms\": 99}' WHERE key = ?", task)


def _finished(copy: Copy, purpose: str) -> tuple[Any, ...]:
    """Key and id of an episode of an evaluation that finished."""
    (row,) = copy.sql(
        "SELECT trajectories.key, trajectories.id, group_key FROM trajectories"
        " JOIN groups ON groups.key = group_key"
        " WHERE purpose = ? AND outcome != 'infra' ORDER BY trajectories.key LIMIT 1",
        purpose,
    )
    return tuple(row)


def _again(copy: Copy, key: int, **changes: Any) -> None:
    """A copy of a trajectory with changes, without its steps."""
    (row,) = copy.sql("SELECT * FROM trajectories WHERE key = ?", key)
    names = [one[1] for one in copy.sql("PRAGMA table_info(trajectories)")]
    values = dict(zip(names, row, strict=True))
    values |= {"key": None, "id": f"{values['id']}-again", "steps": 0, **changes}
    marks = ",".join("?" * len(values))
    copy.sql(f"INSERT INTO trajectories VALUES ({marks})", *values.values())


@plant("panels", "was played 2 times")
def an_evaluation_task_was_played_again(copy: Copy) -> None:
    key, _, group = _finished(copy, "before")
    attempt = copy.one("SELECT max(attempt) FROM trajectories WHERE group_key = ?", group) + 1
    _again(copy, key, attempt=attempt)


@plant("panels", "was played 2 times")
def an_evaluation_task_was_played_in_another_group_too(copy: Copy) -> None:
    key, _, group = _finished(copy, "after/greedy")
    copy.sql(
        "INSERT INTO groups (id, task, purpose, iteration)"
        " SELECT 'other', task, purpose, iteration FROM groups WHERE key = ?",
        group,
    )
    other = copy.one("SELECT key FROM groups WHERE id = 'other'")
    _again(copy, key, group_key=other)


@plant("panels", "was never played")
def an_evaluation_task_was_left_out(copy: Copy) -> None:
    key, _, _ = _finished(copy, "after")
    copy.sql("DELETE FROM steps WHERE trajectory = ?", key)
    copy.sql("DELETE FROM trajectories WHERE key = ?", key)


@plant("panels", "its evaluation 'after' was never played")
def a_whole_evaluation_is_missing(copy: Copy) -> None:
    for group in copy.sql("SELECT key FROM groups WHERE purpose = 'after'"):
        copy.sql(
            "DELETE FROM steps WHERE trajectory IN"
            " (SELECT key FROM trajectories WHERE group_key = ?)",
            *group,
        )
        copy.sql("DELETE FROM trajectories WHERE group_key = ?", *group)


@plant("panels", "iteration 1 of stage1 is over, and 'validation/stage1/1' was never played")
def a_validation_is_missing(copy: Copy) -> None:
    copy.sql(
        "DELETE FROM steps WHERE trajectory IN (SELECT trajectories.key FROM trajectories JOIN"
        " groups ON groups.key = group_key WHERE purpose = 'validation/stage1/1')"
    )
    copy.sql(
        "DELETE FROM trajectories WHERE group_key IN"
        " (SELECT key FROM groups WHERE purpose = 'validation/stage1/1')"
    )
    copy.sql("DELETE FROM events WHERE json_extract(data, '$.purpose') = 'validation/stage1/1'")


@plant("panels", "is finished, and its evaluation 'before/greedy' was never played")
def nothing_was_ever_evaluated(copy: Copy) -> None:
    copy.sql(
        "DELETE FROM steps WHERE trajectory IN (SELECT trajectories.key FROM trajectories JOIN"
        " groups ON groups.key = group_key WHERE purpose != 'train')"
    )
    copy.sql(
        "DELETE FROM trajectories WHERE group_key IN"
        " (SELECT key FROM groups WHERE purpose != 'train')"
    )
    copy.sql("DELETE FROM events WHERE kind = 'evaluation'")


@plant("panels", "is not of its panel")
def a_trial_too_many_was_played(copy: Copy) -> None:
    key, _, _ = _finished(copy, "before")
    _again(copy, key, trial=2, attempt=0)


@plant("panels", "has the attempts")
def an_attempt_is_missing(copy: Copy) -> None:
    key = copy.one(
        "SELECT trajectories.key FROM trajectories JOIN groups ON groups.key = group_key"
        " WHERE purpose = 'before' AND outcome = 'infra' AND attempt = 0"
    )
    copy.sql("DELETE FROM steps WHERE trajectory = ?", key)
    copy.sql("DELETE FROM trajectories WHERE key = ?", key)


@plant("panels", "after")
def an_episode_that_had_finished_was_played_again(copy: Copy) -> None:
    # The retry failed: the count of finished episodes alone would not tell.
    key, _, group = _finished(copy, "before")
    trial, attempt = copy.sql("SELECT trial, attempt FROM trajectories WHERE key = ?", key)[0]
    record = copy.one("SELECT record FROM trajectories WHERE outcome = 'infra'")
    _again(copy, key, attempt=attempt + 1, outcome="infra", record=record)
    assert (
        copy.one(
            "SELECT count(*) FROM trajectories WHERE group_key = ? AND trial = ?", group, trial
        )
        >= 2
    )


@plant("panels", "was reported with success")
def success_was_reported_that_nobody_played(copy: Copy) -> None:
    def flatter(data: dict[str, Any]) -> None:
        data["success"] = 0.99

    copy.change_event("evaluation", 0, flatter)


@plant("panels", "was reported 2 times")
def an_evaluation_was_reported_twice(copy: Copy) -> None:
    copy.sql(
        "INSERT INTO events (kind, iteration, data)"
        " SELECT kind, iteration, data FROM events WHERE kind = 'evaluation' LIMIT 1"
    )


@plant("plays", "was played 2 times")
def a_training_episode_was_played_again(copy: Copy) -> None:
    key = copy.one("SELECT key FROM trajectories WHERE takes_part = 1")
    attempt = copy.one("SELECT attempt FROM trajectories WHERE key = ?", key)
    _again(copy, key, attempt=attempt + 1, takes_part=None)


@plant("plays", "2 of 3 episodes were played")
def a_training_episode_was_lost(copy: Copy) -> None:
    key = copy.one(
        "SELECT trajectories.key FROM trajectories JOIN groups ON groups.key = group_key"
        " WHERE purpose = 'train' AND takes_part = 0 AND trial NOT IN"
        " (SELECT trial FROM trajectories AS other WHERE other.group_key = trajectories.group_key"
        " AND takes_part = 1)"
    )
    (place,) = copy.sql("SELECT group_key, trial FROM trajectories WHERE key = ?", key)
    where = "FROM trajectories WHERE group_key = ? AND trial = ?"
    copy.sql(f"DELETE FROM steps WHERE trajectory IN (SELECT key {where})", *place)
    copy.sql(f"DELETE {where}", *place)


@plant("samples", "log-probabilities")
def a_log_probability_was_lost(copy: Copy) -> None:
    copy.sql(
        "UPDATE steps SET logprobs = substr(logprobs, 9) WHERE rowid ="
        " (SELECT rowid FROM steps WHERE length(logprobs) > 8 LIMIT 1)"
    )


@plant("samples", "version spans that begin at [1]")
def a_span_of_versions_was_lost(copy: Copy) -> None:
    copy.sql(
        "UPDATE steps SET record = json_set(record, '$.versions', json('[[1, 1]]')) WHERE rowid ="
        " (SELECT rowid FROM steps WHERE length(token_ids) > 8 LIMIT 1)"
    )


def _row(change: Callable[[list[Any]], None]) -> Callable[[dict[str, Any]], None]:
    """Change the first row of an update."""

    def apply(data: dict[str, Any]) -> None:
        change(data["rows"][0])

    return apply


@plant("sampled", "1 tokens were trained and not sampled")
def a_token_of_the_prompt_was_trained_on(copy: Copy) -> None:
    def widen(row: list[Any]) -> None:
        row[2][0][0] -= 1

    copy.change_event("trained", -1, _row(widen))


@plant("sampled", "1 sampled tokens have no action mask")
def a_sampled_token_was_masked(copy: Copy) -> None:
    def narrow(row: list[Any]) -> None:
        row[2][0][1] -= 1

    copy.change_event("trained", -1, _row(narrow))


@plant("sampled", "is none of the")
def other_tokens_were_trained_on(copy: Copy) -> None:
    def exchange(row: list[Any]) -> None:
        row[3] = "0" * 16

    copy.change_event("trained", -1, _row(exchange))


@plant("sampled", "is none of the")
def the_stored_tokens_are_not_those_that_were_trained_on(copy: Copy) -> None:
    id = copy.sql(TRAINED)[0][0]
    key = copy.one("SELECT key FROM trajectories WHERE id = ?", id)
    token_ids = copy.one("SELECT token_ids FROM steps WHERE trajectory = ?", key)
    other = bytes([token_ids[0] ^ 1]) + token_ids[1:]
    copy.sql("UPDATE steps SET token_ids = ? WHERE trajectory = ? AND position = 0", other, key)


@plant("sampled", "are not in the update")
def a_row_was_lost(copy: Copy) -> None:
    copy.change_event("trained", -1, lambda data: data["rows"].pop())


@plant("sampled", "the learner counted")
def the_learner_counted_other_tokens(copy: Copy) -> None:
    def count(data: dict[str, Any]) -> None:
        data["metrics"]["action_tokens"] += 1

    copy.change_event("update", -1, count)


@plant("stored", "is not in the store")
def a_trajectory_was_trained_on_that_nobody_stored(copy: Copy) -> None:
    def rename(row: list[Any]) -> None:
        row[0] = "invented/0/0"

    copy.change_event("trained", -1, _row(rename))


@plant("stored", "was played for 'after', not for training")
def an_evaluation_was_trained_on(copy: Copy) -> None:
    _, id, _ = _finished(copy, "after")

    def rename(row: list[Any]) -> None:
        row[0] = id

    copy.change_event("trained", -1, _row(rename))


@plant("stored", "ended in an infra failure (EnvError)")
def a_failure_was_trained_on(copy: Copy) -> None:
    id = copy.sql(TRAINED)[0][0]
    record = copy.one("SELECT record FROM trajectories WHERE outcome = 'infra'")
    copy.sql("UPDATE trajectories SET outcome = 'infra', record = ? WHERE id = ?", record, id)


@plant("stored", "took no part in credit")
def what_credit_left_out_was_trained_on(copy: Copy) -> None:
    copy.sql("UPDATE trajectories SET takes_part = 0 WHERE id = ?", copy.sql(TRAINED)[0][0])


@plant("once", "was learnt from in 2 updates")
def an_update_was_made_twice(copy: Copy) -> None:
    for kind in ("update", "trained"):
        copy.sql(
            "INSERT INTO events (kind, iteration, data) SELECT kind, iteration,"
            " json_set(data, '$.update', 5, '$.batch', 'again') FROM events"
            " WHERE sequence = (SELECT max(sequence) FROM events WHERE kind = ?)",
            kind,
        )


@plant("once", "was split over 2 updates")
def a_group_was_split_over_updates(copy: Copy) -> None:
    moved: list[Any] = []

    def take(data: dict[str, Any]) -> None:
        first = data["rows"][0][0]
        moved.extend(row for row in data["rows"] if row[0] == first)
        data["rows"] = [row for row in data["rows"] if row[0] != first]

    copy.change_event("trained", -2, take)
    copy.change_event("trained", -1, lambda data: data["rows"].extend(moved))


@plant("once", "rows in it, and its tokens make")
def a_trajectory_is_twice_in_an_update(copy: Copy) -> None:
    def double(data: dict[str, Any]) -> None:
        first = data["rows"][0][0]
        data["rows"] += [row for row in data["rows"] if row[0] == first]

    copy.change_event("trained", -1, double)


@plant("counts", "times, expected once")
def a_trajectory_counts_by_its_steps(copy: Copy) -> None:
    # D6: without trajectory weighting an episode of ten steps has ten times the say of one
    def flat(data: dict[str, Any]) -> None:
        sizes = [sum(end - start for start, end in row[2]) for row in data["rows"]]
        names = [row[0] for row in data["rows"]]
        tokens = {
            name: sum(s for s, n in zip(sizes, names, strict=True) if n == name) for name in names
        }
        longest = max(tokens, key=lambda name: tokens[name])
        for row in data["rows"]:
            row[4] *= 2 if row[0] == longest else 1

    copy.change_event("trained", -1, flat)


@plant("counts", "update 4 follows update 2")
def an_update_is_missing(copy: Copy) -> None:
    numbers = [
        json.loads(text)["update"]
        for (text,) in copy.sql("SELECT data FROM events WHERE kind = 'update' ORDER BY sequence")
    ]
    assert numbers[-4:] == [1, 2, 3, 4]
    for kind in ("update", "trained"):
        rows = copy.sql("SELECT sequence FROM events WHERE kind = ? ORDER BY sequence", kind)
        copy.sql("DELETE FROM events WHERE sequence = ?", *rows[-2])


@plant("versions", "was sampled by version 0, after version 1")
def versions_go_back_within_an_episode(copy: Copy) -> None:
    key = copy.one("SELECT key FROM trajectories WHERE steps > 1 AND newest_version = 1")
    copy.sql(
        "UPDATE steps SET record = json_set(record, '$.versions', json('[[0, 0]]'))"
        " WHERE trajectory = ? AND position = 1",
        key,
    )


@plant("versions", "was made at version 1, after 2")
def versions_go_back_between_updates(copy: Copy) -> None:
    def go_back(data: dict[str, Any]) -> None:
        data["policy_version"] = 1

    copy.change_event("update", -1, go_back)


@plant("versions", "sampled by version 9")
def it_learnt_from_weights_that_were_yet_to_be_made(copy: Copy) -> None:
    copy.sql("UPDATE trajectories SET newest_version = 9 WHERE id = ?", copy.sql(TRAINED)[0][0])


@plant("versions", "was played by the versions 1, 2")
def an_evaluation_mixes_policies(copy: Copy) -> None:
    key, _, _ = _finished(copy, "before")
    copy.sql("UPDATE trajectories SET newest_version = 2 WHERE key = ?", key)


@plant("versions", "'after' was played by version 1, after one of version 3")
def the_last_evaluation_is_of_an_old_policy(copy: Copy) -> None:
    copy.sql(
        "UPDATE trajectories SET oldest_version = 1, newest_version = 1 WHERE group_key IN"
        " (SELECT key FROM groups WHERE purpose = 'after') AND sampled_tokens > 0"
    )


@plant("versions", "the learner was told that version 7")
def the_learner_was_told_another_version(copy: Copy) -> None:
    def postdate(row: list[Any]) -> None:
        row[5] = 7

    copy.change_event("trained", -1, _row(postdate))


@plant("staleness", "1 behind")
def it_learnt_from_what_an_older_policy_sampled(copy: Copy) -> None:
    def move(data: dict[str, Any]) -> None:
        data["policy_version"] = 3

    copy.change_event("trained", -1, move)
    copy.change_event("update", -1, move)


# What a plant breaks beside its own check; nothing else may break.
ALSO = {
    "a_test_task_was_trained_on": {"listing"},
    "an_evaluation_was_reported_twice": {"versions"},  # after newer ones, too
    "a_token_of_the_prompt_was_trained_on": {"counts"},
    "a_sampled_token_was_masked": {"counts"},
    "a_row_was_lost": {"counts"},
    "a_trajectory_was_trained_on_that_nobody_stored": {"sampled", "counts"},
    "an_evaluation_was_trained_on": {"sampled", "counts", "versions"},
    "a_group_was_split_over_updates": {"sampled", "counts"},
    "a_trajectory_is_twice_in_an_update": {"sampled", "counts"},
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_violation_is_found_by_its_check(name: str, copy: Copy) -> None:
    check, words, function = PLANTED[name]
    function(copy)
    audit = audit_run(copy.path)
    broken = {one.check for one in audit.violated}
    assert broken == {check} | ALSO.get(name, set())
    offenders = finding(audit, check).offenders
    assert any(words in one for one in offenders), offenders


# What is missing is told apart from what is wrong


def test_a_run_under_way_is_judged_as_far_as_it_went(copy: Copy) -> None:
    copy.sql("DELETE FROM events WHERE kind = 'finished'")
    copy.sql(
        "DELETE FROM events WHERE kind = 'evaluation' AND json_extract(data, '$.purpose')"
        " LIKE 'after%'"
    )
    key, _, _ = _finished(copy, "after")
    copy.sql("DELETE FROM steps WHERE trajectory = ?", key)
    copy.sql("DELETE FROM trajectories WHERE key = ?", key)
    audit = audit_run(copy.path)
    assert not audit.violated, audit.violated
    assert "under way" in audit.state
    assert finding(audit, "panels").counts["unfinished"] == 2


def test_a_run_killed_before_its_first_update_has_nothing_to_prove_of_it(copy: Copy) -> None:
    copy.sql("DELETE FROM events WHERE kind != 'evaluation'")
    audit = audit_run(copy.path)
    assert [one.check for one in audit.findings] == [*CHECKS[:5], "versions"]


def test_a_run_of_an_earlier_release_is_not_proven(copy: Copy) -> None:
    copy.sql("DELETE FROM events WHERE kind = 'trained'")
    audit = audit_run(copy.path)
    assert [one.check for one in audit.unchecked] == [
        "sampled",
        "stored",
        "once",
        "counts",
        "staleness",
    ]
    assert "does not say what its updates learnt from" in finding(audit, "once").found
    assert not audit.violated


def test_updates_without_a_record_are_counted(copy: Copy) -> None:
    copy.sql(
        "DELETE FROM events WHERE sequence ="
        " (SELECT min(sequence) FROM events WHERE kind = 'trained')"
    )
    audit = audit_run(copy.path)
    assert [one.check for one in audit.unchecked] == [
        "sampled",
        "stored",
        "once",
        "counts",
        "staleness",
    ]
    assert "1 updates have no record of their rows" in finding(audit, "sampled").found


def _environment(copy: Copy, name: str) -> None:
    file = copy.path / "config.yaml"
    data = yaml.safe_load(file.read_text())
    data["env"] |= {"name": f"tests.audit.factories:{name}", "options": {}}
    file.write_text(yaml.safe_dump(data))


def test_an_environment_that_is_elsewhere_leaves_its_checks_open(copy: Copy) -> None:
    _environment(copy, "Unmade")
    audit = audit_run(copy.path)
    assert [one.check for one in audit.unchecked] == ["listing", "splits", "panels"]
    for check in ("listing", "splits", "panels"):
        assert "the games are on another machine" in finding(audit, check).found
    # and what is on record is judged all the same
    an_evaluation_task_was_played_again(copy)
    a_test_task_was_trained_on(copy)
    broken = [one.check for one in audit_run(copy.path).violated]
    assert broken == ["splits", "panels"]


def test_a_panel_of_unknown_tasks_is_counted(copy: Copy) -> None:
    _environment(copy, "Unmade")
    for (group,) in copy.sql("SELECT key FROM groups WHERE purpose = 'after/greedy' LIMIT 1"):
        copy.sql("DELETE FROM trajectories WHERE group_key = ?", group)
    (one,) = audit_run(copy.path).violated
    assert "3 tasks were played, and its panel has 4" in one.offenders[0]


def test_different_tasks_that_begin_alike_are_pointed_at(copy: Copy) -> None:
    # (hidden state may differ: a hint, no violation)
    assert finding(audit_run(copy.path), "splits").counts["begin alike"] == 0
    first = copy.one(
        "SELECT steps.record FROM steps JOIN trajectories ON trajectories.key = trajectory"
        " WHERE takes_part = 1 AND position = 0 LIMIT 1"
    )
    key, _, _ = _finished(copy, "before")
    copy.sql("UPDATE steps SET record = ? WHERE trajectory = ? AND position = 0", first, key)
    audit = audit_run(copy.path)
    assert finding(audit, "splits").counts["begin alike"] == 1
    assert "begin with the very words" in finding(audit, "splits").found
    assert not audit.violated


# Replays and staleness


def _replay(copy: Copy) -> str:
    """Let the last update learn from an episode of the first iteration again."""
    taken: list[Any] = []
    (text,) = copy.sql(
        "SELECT data FROM events WHERE kind = 'trained'"
        " AND json_array_length(data, '$.rows') > 0 ORDER BY sequence LIMIT 1"
    )[0]
    rows = json.loads(text)["rows"]
    id = rows[0][0]
    for row in rows:
        if row[0] == id:
            taken.append([f"{id}@replay:later", *row[1:]])

    def join(data: dict[str, Any]) -> None:
        data["rows"] += taken
        tokens: dict[str, int] = {}
        for name, _, spans, *_ in data["rows"]:
            tokens[name] = tokens.get(name, 0) + sum(end - start for start, end in spans)
        for row in data["rows"]:
            row[4] = sum(tokens.values()) / (len(tokens) * tokens[row[0]])

    def counted(data: dict[str, Any]) -> None:
        data["metrics"]["rows"] += len(taken)
        data["metrics"]["action_tokens"] += sum(b - a for row in taken for a, b in row[2])

    copy.change_event("trained", -1, join)
    copy.change_event("update", -1, counted)
    return str(id)


def test_a_replay_is_a_use_of_its_own_and_old_by_intention(copy: Copy) -> None:
    id = _replay(copy)
    audit = audit_run(copy.path)
    assert not audit.violated, audit.violated
    assert finding(audit, "stored").counts["replays"] == 1
    assert finding(audit, "staleness").counts["oldest replay"] == 1
    # still held against what is stored
    copy.sql(
        "UPDATE groups SET purpose = 'validation/x' WHERE key ="
        " (SELECT group_key FROM trajectories WHERE id = ?)",
        id,
    )
    assert "stored" in {one.check for one in audit_run(copy.path).violated}


def test_the_bound_of_staleness_is_the_run_files(copy: Copy) -> None:
    it_learnt_from_what_an_older_policy_sampled(copy)
    with SqliteStore(copy.path, read_only=True) as store:
        record = read_record(copy.path, store)
    for bound, status in ((0, "violated"), (1, "holds")):
        rollout = record.config.rollout.model_copy(update={"max_staleness": bound})
        config = record.config.model_copy(update={"rollout": rollout})
        judged = check_staleness(replace(record, config=config))
        assert judged is not None
        assert (judged.status, judged.counts["bound"]) == (status, bound)
        assert judged.counts["oldest"] == 1


def _asynchronous(copy: Copy) -> None:
    """Let the run say of itself that its iterations took what was complete."""
    file = copy.path / "config.yaml"
    data = yaml.safe_load(file.read_text())
    data["rollout"]["max_staleness"] = 1
    file.write_text(yaml.safe_dump(data))
    for number in (0, 1):
        rows = copy.sql(
            "SELECT id FROM groups WHERE purpose = 'train' AND iteration = ? ORDER BY key",
            number + 1,
        )
        trained = {id: 3 * number + place for place, (id,) in enumerate(rows)}
        taken = {"stage": "stage1", "number": number, "trained": trained, "stale": {}}
        copy.sql(
            "INSERT INTO events (kind, iteration, data) VALUES ('taken', ?, ?)",
            number + 1,
            json.dumps({**taken, "discarded": {}}),
        )


def test_what_asynchronous_iterations_took_is_there_whole_and_once(copy: Copy) -> None:
    _asynchronous(copy)
    audit = audit_run(copy.path)
    assert not audit.violated, audit.violated
    first = copy.one("SELECT id FROM groups WHERE purpose = 'train' AND iteration = 1")

    def take_again(data: dict[str, Any]) -> None:
        data["trained"][first] = 0
        data["stale"]["stage1-9-0-unknown"] = 7

    copy.change_event("taken", 1, take_again)
    assert finding(audit_run(copy.path), "plays").offenders == (
        f"group '{first}' was taken by 2 iterations",
        "group 'stage1-9-0-unknown' was taken, and 0 of 3 were played",
    )
    copy.sql("DELETE FROM events WHERE kind = 'taken'")
    assert finding(audit_run(copy.path), "plays").offenders == (
        "stage1, iteration 0 does not say which groups it took",
        "stage1, iteration 1 does not say which groups it took",
    )


# Bad input


def test_nothing_is_there(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no store at"):
        audit_run(tmp_path / "nothing")


def test_a_store_without_its_run(copy: Copy) -> None:
    (copy.path / "config.yaml").unlink()
    with pytest.raises(ConfigError, match="killed before it began"):
        audit_run(copy.path)


def test_a_run_without_episodes(copy: Copy) -> None:
    for table in ("steps", "step_credit", "trajectories", "groups", "tasks", "events"):
        copy.sql(f"DELETE FROM {table}")
    with pytest.raises(StoreError, match="holds no episode yet"):
        audit_run(copy.path)


def test_a_store_that_was_just_made(copy: Copy) -> None:
    for one in copy.path.glob("store.sqlite*"):
        one.unlink()
    (copy.path / "store.sqlite").touch()
    with pytest.raises(StoreError, match="is empty: the run has not recorded anything yet"):
        audit_run(copy.path)


@pytest.mark.parametrize("share", [0.2, 0.6, 0.95])
def test_half_a_store(copy: Copy, share: float) -> None:
    database = copy.path / "store.sqlite"
    copy.sql("PRAGMA journal_mode = DELETE")
    content = database.read_bytes()
    database.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(StoreError, match=r"damaged|malformed"):
        audit_run(copy.path)


def test_a_damaged_page(copy: Copy) -> None:
    copy.sql("PRAGMA journal_mode = DELETE")
    database = copy.path / "store.sqlite"
    content = bytearray(database.read_bytes())
    content[len(content) // 2 : len(content) // 2 + 4096] = b"\xff" * 4096
    database.write_bytes(bytes(content))
    with pytest.raises(AgentRLError):
        audit_run(copy.path)


def test_a_store_of_another_schema(copy: Copy) -> None:
    copy.sql("PRAGMA user_version = 0")
    with pytest.raises(SchemaVersionError, match="has schema version 0; this agentrl reads"):
        audit_run(copy.path)


def test_the_audit_changes_nothing(copy: Copy) -> None:
    with sqlite3.connect(copy.path / "store.sqlite") as connection:
        before = list(connection.iterdump())
        audit_run(copy.path)
        assert list(connection.iterdump()) == before
    connection.close()
