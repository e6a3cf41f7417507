"""The tables of the journal, and what makes them of those of an earlier version."""

from __future__ import annotations

SCHEMA = """
CREATE TABLE incident (
    id INTEGER PRIMARY KEY,
    fingerprint TEXT NOT NULL,
    starts_at REAL NOT NULL,
    alert TEXT NOT NULL,
    run TEXT NOT NULL,
    worker TEXT NOT NULL,
    remediation TEXT NOT NULL,
    labels TEXT NOT NULL,
    first_heard REAL NOT NULL,
    last_heard REAL NOT NULL,
    resolved_at REAL,
    closed TEXT,                 -- why it is decided no more; NULL while it is
    said TEXT,                   -- verdict and reason last written down
    target_run TEXT,             -- the worker it turned out to be about
    target_worker TEXT,
    said_at REAL,                -- since when that is what is said
    closed_at REAL,
    annotations TEXT NOT NULL DEFAULT '{}',
    UNIQUE (fingerprint, starts_at)
);
CREATE INDEX incident_open ON incident (id) WHERE closed IS NULL;
CREATE TABLE action (
    id INTEGER PRIMARY KEY,
    incident INTEGER NOT NULL REFERENCES incident (id),
    run TEXT NOT NULL,
    worker TEXT NOT NULL,
    kind TEXT NOT NULL,
    intent_at REAL NOT NULL,
    processes TEXT NOT NULL,     -- what the target consisted of when the intent was formed
    reached TEXT,                -- the last step announced before it was taken
    result TEXT,
    result_at REAL,
    outcome TEXT,
    outcome_at REAL,
    rung INTEGER NOT NULL DEFAULT 0,  -- of the playbook's ladder, from 0
    step REAL,                   -- how far the run had come: steps done,
    checkpoint REAL              -- and the step of its newest complete checkpoint
);
CREATE INDEX action_target ON action (run, worker, intent_at);
CREATE TABLE event (
    id INTEGER PRIMARY KEY,
    at REAL NOT NULL,
    incident INTEGER,
    action INTEGER,
    kind TEXT NOT NULL,
    facts TEXT NOT NULL
);
CREATE TABLE tally (
    metric TEXT NOT NULL,
    labels TEXT NOT NULL,
    value REAL NOT NULL,
    PRIMARY KEY (metric, labels)
);
CREATE TABLE moment (name TEXT PRIMARY KEY, at REAL NOT NULL);
CREATE TABLE evidence (          -- how the box stood, just before an act or when it was decided
    id INTEGER PRIMARY KEY,
    incident INTEGER NOT NULL,
    action INTEGER,              -- NULL where nothing was done
    kind TEXT NOT NULL,
    at REAL NOT NULL,
    content TEXT NOT NULL
);
CREATE UNIQUE INDEX evidence_of ON evidence (incident, coalesce(action, 0), kind);
CREATE TABLE member (            -- what stood below each root of a target, as last seen
    run TEXT NOT NULL,
    worker TEXT NOT NULL,
    boot TEXT NOT NULL,          -- since which boot they run: pids and start times begin anew
    root_pid INTEGER NOT NULL,
    root_start_ticks INTEGER NOT NULL,
    pid INTEGER NOT NULL,
    start_ticks INTEGER NOT NULL,
    PRIMARY KEY (run, worker, boot, root_pid, root_start_ticks, pid, start_ticks)
);
CREATE TABLE notice (            -- what a person is told of, and whether it has arrived
    id INTEGER PRIMARY KEY,
    receiver TEXT NOT NULL,
    occasion TEXT NOT NULL,
    subject TEXT NOT NULL,       -- what is told of only once for each occasion
    about TEXT NOT NULL,         -- alert, run and worker
    line INTEGER NOT NULL,       -- the event that it tells of
    at REAL NOT NULL,
    settled TEXT,                -- what became of it; NULL while it waits
    settled_at REAL,
    UNIQUE (receiver, occasion, subject)
);
CREATE INDEX notice_waiting ON notice (receiver, id) WHERE settled IS NULL;
CREATE TABLE told (line INTEGER NOT NULL);  -- the last event that was looked at for notices
CREATE TABLE journal AS SELECT lower(hex(randomblob(8))) AS name;
"""

FROM_VERSION_1 = """
ALTER TABLE incident ADD COLUMN said_at REAL;
ALTER TABLE incident ADD COLUMN closed_at REAL;
ALTER TABLE action ADD COLUMN rung INTEGER NOT NULL DEFAULT 0;
ALTER TABLE action ADD COLUMN step REAL;
ALTER TABLE action ADD COLUMN checkpoint REAL;
ALTER TABLE incident ADD COLUMN annotations TEXT NOT NULL DEFAULT '{}';
CREATE TABLE evidence (
    id INTEGER PRIMARY KEY,
    incident INTEGER NOT NULL,
    action INTEGER,
    kind TEXT NOT NULL,
    at REAL NOT NULL,
    content TEXT NOT NULL
);
CREATE UNIQUE INDEX evidence_of ON evidence (incident, coalesce(action, 0), kind);
CREATE TABLE member (
    run TEXT NOT NULL,
    worker TEXT NOT NULL,
    boot TEXT NOT NULL,
    root_pid INTEGER NOT NULL,
    root_start_ticks INTEGER NOT NULL,
    pid INTEGER NOT NULL,
    start_ticks INTEGER NOT NULL,
    PRIMARY KEY (run, worker, boot, root_pid, root_start_ticks, pid, start_ticks)
);
CREATE TABLE notice (
    id INTEGER PRIMARY KEY,
    receiver TEXT NOT NULL,
    occasion TEXT NOT NULL,
    subject TEXT NOT NULL,
    about TEXT NOT NULL,
    line INTEGER NOT NULL,
    at REAL NOT NULL,
    settled TEXT,
    settled_at REAL,
    UNIQUE (receiver, occasion, subject)
);
CREATE INDEX notice_waiting ON notice (receiver, id) WHERE settled IS NULL;
CREATE TABLE told (line INTEGER NOT NULL);
INSERT INTO told SELECT max(id) FROM event HAVING max(id) IS NOT NULL;
CREATE TABLE journal AS SELECT lower(hex(randomblob(8))) AS name;
"""
