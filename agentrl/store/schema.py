"""Tables of a run's database.

Exactness: SQLite drops the sign of -0.0 and turns NaN into NULL, and its TEXT cannot hold lone
surrogates. So whatever must come back as it was lies in packed bytes or in the JSON of a ``record``
column; the plain columns beside it exist to be asked for in SQL.
"""

from __future__ import annotations

SCHEMA_VERSION = 1
APPLICATION_ID = 0x41524C53  # "ARLS": tells a store from another program's database

TABLES = """
CREATE TABLE tasks (
    key INTEGER PRIMARY KEY,
    id TEXT NOT NULL,
    content TEXT NOT NULL UNIQUE,  -- hash of every field: one id may be listed in two splits
    env TEXT NOT NULL,
    split TEXT NOT NULL,
    kind TEXT NOT NULL,
    payload TEXT NOT NULL          -- JSON
);
CREATE TABLE groups (
    key INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    task INTEGER NOT NULL REFERENCES tasks(key),
    purpose TEXT NOT NULL,         -- train, or the name of an evaluation
    iteration INTEGER NOT NULL
);
CREATE INDEX groups_by_purpose ON groups(purpose, iteration);
CREATE INDEX groups_by_task ON groups(task);
CREATE TABLE trajectories (
    key INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    group_key INTEGER NOT NULL REFERENCES groups(key),
    trial INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    seed INTEGER NOT NULL,
    stop_reason TEXT NOT NULL,
    outcome TEXT NOT NULL,         -- success, failure, infra, unknown
    reward REAL,                   -- NULL: not scored
    steps INTEGER NOT NULL,
    sampled_tokens INTEGER NOT NULL,
    oldest_version INTEGER NOT NULL,
    newest_version INTEGER NOT NULL,
    takes_part INTEGER,            -- in credit; NULL: no credit was recorded
    record TEXT NOT NULL           -- JSON: success, failures, final_shown, wall_s
);
CREATE INDEX trajectories_by_group ON trajectories(group_key);
CREATE TABLE steps (
    trajectory INTEGER NOT NULL REFERENCES trajectories(key),
    position INTEGER NOT NULL,
    kind TEXT NOT NULL,
    parse_status TEXT NOT NULL,
    reward REAL,
    valid INTEGER,
    prompt_kept INTEGER NOT NULL,  -- leading ids shared with the tokens held by the step before
    prompt_added BLOB NOT NULL,    -- int32, little endian: the rest of the prompt
    token_ids BLOB NOT NULL,       -- int32, little endian
    logprobs BLOB NOT NULL,        -- float64, little endian
    record TEXT NOT NULL,          -- JSON: messages, action, anchor, result, versions, timings
    PRIMARY KEY (trajectory, position)
);
CREATE TABLE step_credit (
    trajectory INTEGER NOT NULL REFERENCES trajectories(key),
    position INTEGER NOT NULL,
    advantage REAL NOT NULL,
    token_advantages BLOB,         -- float64, little endian; NULL: the estimator works by step
    record TEXT NOT NULL,          -- JSON: advantage, parts and partitions by name
    PRIMARY KEY (trajectory, position)
);
CREATE TABLE events (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    kind TEXT NOT NULL,            -- update, evaluation, credit, resume, ...
    iteration INTEGER NOT NULL,
    data TEXT NOT NULL             -- JSON
);
CREATE INDEX events_by_kind ON events(kind, iteration);
"""
