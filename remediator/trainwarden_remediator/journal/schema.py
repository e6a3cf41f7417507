"""The tables of the journal, and the migrations from earlier versions."""

from __future__ import annotations

from trainwarden_remediator.model import BLOCKING

_FIRST_TABLES = """
CREATE TABLE incident (
    id INTEGER PRIMARY KEY,
    fingerprint TEXT NOT NULL,
    starts_at REAL NOT NULL,
    alert TEXT NOT NULL,
    run TEXT NOT NULL,
    worker TEXT NOT NULL,
    remediation TEXT NOT NULL,
    labels TEXT NOT NULL,
    first_received_at REAL NOT NULL,
    last_received_at REAL NOT NULL,
    resolved_at REAL,
    closed TEXT,                 -- why it was closed; NULL while it is open
    last_decision TEXT,          -- verdict and reason of the last recorded decision
    target_run TEXT,             -- the target of the last decision
    target_worker TEXT,
    last_decided_at REAL,        -- when last_decision was recorded
    closed_at REAL,
    annotations TEXT NOT NULL DEFAULT '{}',
    last_detail TEXT,            -- what last_decision says beyond its reason
    part_of INTEGER REFERENCES incident (id) ON DELETE SET NULL,  -- the incident of its outage
    blocked_since REAL,          -- when it came to wait for an operator; NULL if it does not
    UNIQUE (fingerprint, starts_at)
);
CREATE INDEX incident_open ON incident (id) WHERE closed IS NULL;
CREATE INDEX incident_part ON incident (part_of) WHERE part_of IS NOT NULL;
CREATE TABLE action (
    id INTEGER PRIMARY KEY,
    incident INTEGER NOT NULL REFERENCES incident (id),
    run TEXT NOT NULL,
    worker TEXT NOT NULL,
    kind TEXT NOT NULL,
    intent_at REAL NOT NULL,
    processes TEXT NOT NULL,     -- the instances of the target at the time of the intent
    last_step TEXT,              -- the last step, recorded before it was performed
    result TEXT,
    result_at REAL,
    outcome TEXT,
    outcome_at REAL,
    rung INTEGER NOT NULL DEFAULT 0,  -- of the playbook's ladder, from 0
    step REAL,                   -- progress of the run at the time of the intent: steps done
    checkpoint REAL,             -- and the step of its newest complete checkpoint
    attempt INTEGER,             -- which of its target's attempts it is, from 1
    attempts INTEGER,            -- and how many there may be
    account INTEGER              -- of an announced target; NULL for root and this program's own
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
CREATE TABLE counter (
    metric TEXT NOT NULL,
    labels TEXT NOT NULL,
    value REAL NOT NULL,
    PRIMARY KEY (metric, labels)
);
CREATE TABLE timestamp (name TEXT PRIMARY KEY, at REAL NOT NULL);
"""

_LATER_TABLES = """
CREATE TABLE evidence (          -- state of the host just before an action, or at a decision
    id INTEGER PRIMARY KEY,
    incident INTEGER NOT NULL,
    action INTEGER,              -- NULL without an action
    kind TEXT NOT NULL,
    at REAL NOT NULL,
    content TEXT NOT NULL
);
CREATE UNIQUE INDEX evidence_of ON evidence (incident, coalesce(action, 0), kind);
CREATE TABLE descendant (        -- descendants of each root process of a target, as last seen
    run TEXT NOT NULL,
    worker TEXT NOT NULL,
    boot TEXT NOT NULL,          -- the boot in which the pids and start times are valid
    root_pid INTEGER NOT NULL,
    root_start_ticks INTEGER NOT NULL,
    pid INTEGER NOT NULL,
    start_ticks INTEGER NOT NULL,
    PRIMARY KEY (run, worker, boot, root_pid, root_start_ticks, pid, start_ticks)
);
CREATE TABLE notice (            -- notifications of the on-call, and their delivery
    id INTEGER PRIMARY KEY,
    receiver TEXT NOT NULL,
    occasion TEXT NOT NULL,
    subject TEXT NOT NULL,       -- sent only once for each occasion
    about TEXT NOT NULL,         -- alert, run, worker and reason
    event INTEGER NOT NULL,      -- the event that it reports
    at REAL NOT NULL,
    settled TEXT,                -- result of the delivery; NULL while it is pending
    settled_at REAL,
    UNIQUE (receiver, occasion, subject)
);
CREATE INDEX notice_waiting ON notice (receiver, id) WHERE settled IS NULL;
CREATE TABLE notice_cursor (event INTEGER NOT NULL);  -- the last event that was read for notices
CREATE TABLE journal AS SELECT lower(hex(randomblob(8))) AS name;
"""
"""The tables that version 1 does not have."""

_CREATION_TIME = "ALTER TABLE journal ADD COLUMN created REAL;\n"
"""Some journals of version 5 do not have this column; where it is NULL, the time is not known."""

_CREATED = "UPDATE journal SET created = CAST(strftime('%s', 'now') AS REAL);\n"

SCHEMA = _FIRST_TABLES + _LATER_TABLES + _CREATION_TIME + _CREATED

_FROM_VERSION_1 = """
ALTER TABLE incident ADD COLUMN last_decided_at REAL;
ALTER TABLE incident ADD COLUMN closed_at REAL;
ALTER TABLE incident ADD COLUMN annotations TEXT NOT NULL DEFAULT '{}';
ALTER TABLE action ADD COLUMN rung INTEGER NOT NULL DEFAULT 0;
ALTER TABLE action ADD COLUMN step REAL;
ALTER TABLE action ADD COLUMN checkpoint REAL;
"""

_SKIP_OLD_EVENTS = "INSERT INTO notice_cursor SELECT max(id) FROM event HAVING max(id) > 0;\n"
"""Prevents notifications about the events of an earlier version."""

_FROM_VERSION_2 = """
ALTER TABLE incident RENAME COLUMN said_at TO last_decided_at;
ALTER TABLE member RENAME TO descendant;
ALTER TABLE notice RENAME COLUMN line TO event;
ALTER TABLE told RENAME COLUMN line TO event;
ALTER TABLE told RENAME TO notice_cursor;
"""

_FROM_BOTH = """
ALTER TABLE incident RENAME COLUMN said TO last_decision;
ALTER TABLE incident RENAME COLUMN first_heard TO first_received_at;
ALTER TABLE incident RENAME COLUMN last_heard TO last_received_at;
ALTER TABLE action RENAME COLUMN reached TO last_step;
ALTER TABLE tally RENAME TO counter;
ALTER TABLE moment RENAME TO timestamp;
UPDATE timestamp SET name = 'breaker_opened' WHERE name = 'breaker';
UPDATE timestamp SET name = 'breaker_reset' WHERE name = 'reopened';
UPDATE event SET kind = 'output' WHERE kind = 'said';
UPDATE event SET kind = 'kill_deferred' WHERE kind = 'spare';
UPDATE event SET kind = 'save_requested' WHERE kind = 'save';
UPDATE event SET kind = 'save_result' WHERE kind = 'saved';
UPDATE event SET kind = 'alerts_stale' WHERE kind = 'silent';
UPDATE event SET kind = 'alerts_resumed' WHERE kind = 'heard';
UPDATE event SET kind = 'paged' WHERE kind = 'asked';
UPDATE event SET kind = 'breaker_opened' WHERE kind = 'breaker';
UPDATE event SET kind = 'breaker_reset' WHERE kind = 'reopened';
UPDATE action SET last_step = 'output' WHERE last_step = 'said';
UPDATE action SET last_step = 'kill_deferred' WHERE last_step = 'spare';
UPDATE action SET last_step = 'paged' WHERE last_step = 'asked';
"""

RENAMED_REASONS = {
    "goes_on": "progressing",
    "trouble_over": "condition_cleared",
    "trouble_back": "condition_returned",
    "larger_first": "larger_worker_first",
    "world_unknown": "observation_failed",
    "disk_trouble": "disk_unusable",
    "restarts_fruitless": "restarts_without_progress",
    "explained": "root_cause_elsewhere",
    "left_alone": "managed_elsewhere",
    "forgotten": "alert_stale",
    "widespread": "mass_failure",
    "asked": "awaiting_operator",
}
"""Reasons of decisions: the names of an earlier version, and the current ones."""

RENAMED_EVENTS = {
    "held": "held_by_alert",
    "breaker": "breaker_opened",
    "asked": "paged",
    "silent": "alerts_stale",
    "acted": "action_started",
}
"""The same for the events of notifications."""

_FROM_BOTH += "".join(
    f"UPDATE incident SET last_decision = replace(last_decision, ' {old}', ' {new}')"  # noqa: S608
    f" WHERE last_decision LIKE '% {old}';\n"
    f"UPDATE incident SET closed = '{new}' WHERE closed = '{old}';\n"
    f"UPDATE event SET facts = json_set(facts, '$.reason', '{new}')"
    f" WHERE kind = 'decision' AND json_extract(facts, '$.reason') = '{old}';\n"
    f"UPDATE counter SET labels = replace(labels, json_quote('{old}'), json_quote('{new}'))"
    " WHERE metric = 'decisions';\n"
    for old, new in RENAMED_REASONS.items()
)
_FROM_BOTH += "".join(
    f"UPDATE notice SET occasion = '{new}' WHERE occasion = '{old}';\n"  # noqa: S608
    for old, new in RENAMED_EVENTS.items()
)
_FROM_BOTH += """
UPDATE action SET worker = 'on-call' WHERE run = '' AND worker = 'person';
UPDATE counter SET labels = replace(labels, '"", "person"', '"", "on-call"')
 WHERE metric IN ('actions', 'outcomes');
"""

_TAKEN_OVER = {
    "stopped": "an operator has stopped it",
    "ended_with_run": "its `trainwarden run` ended it, as the rest of its run had ended",
    "started_by_operator": "an operator has started it again",
}
"""What has taken over a worker during a verification: its name, and the text that an outcome of an
earlier version has instead."""

_FROM_VERSION_6 = "".join(
    f"UPDATE event SET facts = json_set(facts, '$.taken_over', '{name}')"  # noqa: S608
    " WHERE kind = 'outcome' AND CASE WHEN json_valid(facts)"
    f" THEN '{text}' IN (json_extract(facts, '$.seen'), json_extract(facts, '$.remark')) END;\n"
    for name, text in _TAKEN_OVER.items()
)
_FROM_VERSION_6 += """
UPDATE event SET facts = json_set(facts, '$.sent', json(CASE
 WHEN json_extract(facts, '$.came') GLOB 'not asked*' THEN 'false' ELSE 'true' END))
 WHERE kind = 'save_result' AND json_valid(facts);
"""
_FROM_VERSION_6 += f"""
ALTER TABLE incident ADD COLUMN blocked_since REAL;
UPDATE incident SET blocked_since = last_decided_at WHERE closed IS NULL AND last_decision
 IN ({", ".join(f"'wait {reason}'" for reason in BLOCKING)});
"""  # noqa: S608 - words of ours
_FROM_VERSION_5 = f"ALTER TABLE action ADD COLUMN account INTEGER;\n{_FROM_VERSION_6}"
_FROM_VERSION_4 = f"""
{_CREATION_TIME}
ALTER TABLE incident ADD COLUMN part_of INTEGER REFERENCES incident (id) ON DELETE SET NULL;
ALTER TABLE action ADD COLUMN attempt INTEGER;
ALTER TABLE action ADD COLUMN attempts INTEGER;
CREATE INDEX incident_part ON incident (part_of) WHERE part_of IS NOT NULL;
{_FROM_VERSION_5}
"""
_FROM_VERSION_3 = f"ALTER TABLE incident ADD COLUMN last_detail TEXT;\n{_FROM_VERSION_4}"

MIGRATIONS = {
    1: _FROM_VERSION_1 + _LATER_TABLES + _SKIP_OLD_EVENTS + _FROM_BOTH + _FROM_VERSION_3,
    2: _FROM_VERSION_2 + _FROM_BOTH + _FROM_VERSION_3,
    3: _FROM_VERSION_3,
    4: _FROM_VERSION_4,
    5: _FROM_VERSION_5,
    6: _FROM_VERSION_6,
}
"""The SQL that upgrades a journal to the current version, by its present version."""
