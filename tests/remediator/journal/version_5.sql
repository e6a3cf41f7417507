BEGIN TRANSACTION;
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
    attempts INTEGER             -- and how many there may be
);
INSERT INTO "action" VALUES(1,1,'demo','rollout-0','restart',1800000005.0,'[[11, 100]]','start','done',1800000007.0,'not_healed',1800000067.0,0,150.0,100.0,1,3);
INSERT INTO "action" VALUES(2,2,'demo','trainer','restart',1800000077.0,'[[11, 100]]','start','done',1800000079.0,'healed',1800000139.0,0,150.0,100.0,1,3);
CREATE TABLE counter (
    metric TEXT NOT NULL,
    labels TEXT NOT NULL,
    value REAL NOT NULL,
    PRIMARY KEY (metric, labels)
);
INSERT INTO "counter" VALUES('alerts_received','["firing"]',2.0);
INSERT INTO "counter" VALUES('decisions','["act", "restart"]',2.0);
INSERT INTO "counter" VALUES('actions','["demo", "rollout-0", "restart", "done"]',1.0);
INSERT INTO "counter" VALUES('outcomes','["demo", "rollout-0", "not_healed"]',1.0);
INSERT INTO "counter" VALUES('alerts_received','["resolved"]',1.0);
INSERT INTO "counter" VALUES('decisions','["refuse", "resolved"]',1.0);
INSERT INTO "counter" VALUES('actions','["demo", "trainer", "restart", "done"]',1.0);
INSERT INTO "counter" VALUES('outcomes','["demo", "trainer", "healed"]',1.0);
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
CREATE TABLE event (
    id INTEGER PRIMARY KEY,
    at REAL NOT NULL,
    incident INTEGER,
    action INTEGER,
    kind TEXT NOT NULL,
    facts TEXT NOT NULL
);
INSERT INTO "event" VALUES(1,1800000000.0,1,NULL,'alert','{"alert": "TrainingWorkerMemoryOverLimit", "started": 1799999980.0}');
INSERT INTO "event" VALUES(2,1800000005.0,1,NULL,'decision','{"verdict": "act", "reason": "restart"}');
INSERT INTO "event" VALUES(3,1800000005.0,1,1,'intent','{"doing": "restart", "processes": [11], "rung": 0, "attempt": 1, "attempts": 3}');
INSERT INTO "event" VALUES(4,1800000005.0,1,1,'stop','{"processes": [11]}');
INSERT INTO "event" VALUES(5,1800000007.0,1,1,'start','{"command": ["/bin/train"]}');
INSERT INTO "event" VALUES(6,1800000007.0,1,1,'result','{"result": "done", "killed": [], "started_by": "trainwarden", "processes": [12]}');
INSERT INTO "event" VALUES(7,1800000067.0,1,1,'outcome','{"outcome": "not_healed", "seen": "an operator has started it again"}');
INSERT INTO "event" VALUES(8,1800000072.0,1,NULL,'resolved','{"alert": "TrainingWorkerMemoryOverLimit"}');
INSERT INTO "event" VALUES(9,1800000072.0,1,NULL,'decision','{"verdict": "refuse", "reason": "resolved"}');
INSERT INTO "event" VALUES(10,1800000072.0,2,NULL,'alert','{"alert": "TrainingWorkerMemoryOverLimit", "started": 1800000052.0}');
INSERT INTO "event" VALUES(11,1800000077.0,2,NULL,'decision','{"verdict": "act", "reason": "restart"}');
INSERT INTO "event" VALUES(12,1800000077.0,2,2,'intent','{"doing": "restart", "processes": [11], "rung": 0, "attempt": 1, "attempts": 3}');
INSERT INTO "event" VALUES(13,1800000077.0,2,2,'stop','{"processes": [11]}');
INSERT INTO "event" VALUES(14,1800000079.0,2,2,'start','{"command": ["/bin/train"]}');
INSERT INTO "event" VALUES(15,1800000079.0,2,2,'result','{"result": "done", "killed": [], "started_by": "trainwarden", "processes": [12]}');
INSERT INTO "event" VALUES(16,1800000139.0,2,2,'outcome','{"outcome": "healed", "seconds": 62.0, "remark": "its `trainwarden run` ended it, as the rest of its run had ended"}');
INSERT INTO "event" VALUES(17,1800000139.0,NULL,NULL,'save_requested','{"run": "demo", "worker": "trainer", "subjects": [[11, 100]], "checkpoint": 5}');
INSERT INTO "event" VALUES(18,1800000139.0,NULL,NULL,'save_result','{"run": "demo", "worker": "trainer", "came": "not asked: the worker does not handle SIGUSR1"}');
INSERT INTO "event" VALUES(19,1800000139.0,NULL,NULL,'save_requested','{"run": "demo", "worker": "trainer", "subjects": [[11, 100]], "checkpoint": 5}');
INSERT INTO "event" VALUES(20,1800000139.0,NULL,NULL,'save_result','{"run": "demo", "worker": "trainer", "came": "saved step 7"}');
CREATE TABLE evidence (          -- state of the host just before an action, or at a decision
    id INTEGER PRIMARY KEY,
    incident INTEGER NOT NULL,
    action INTEGER,              -- NULL without an action
    kind TEXT NOT NULL,
    at REAL NOT NULL,
    content TEXT NOT NULL
);
INSERT INTO "evidence" VALUES(1,1,NULL,'act',1800000139.0,'{}');
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
    UNIQUE (fingerprint, starts_at)
);
INSERT INTO "incident" VALUES(1,'1111111111111111',1799999980.0,'TrainingWorkerMemoryOverLimit','demo','rollout-0','restart_leaking_worker','{"alertname": "TrainingWorkerMemoryOverLimit", "run": "demo", "worker": "rollout-0", "remediation": "restart_leaking_worker"}',1800000000.0,1800000072.0,1800000072.0,'resolved','refuse resolved',NULL,NULL,1800000072.0,1800000072.0,'{}','',NULL);
INSERT INTO "incident" VALUES(2,'2222222222222222',1800000052.0,'TrainingWorkerMemoryOverLimit','demo','trainer','restart_leaking_worker','{"alertname": "TrainingWorkerMemoryOverLimit", "run": "demo", "worker": "trainer", "remediation": "restart_leaking_worker"}',1800000072.0,1800000072.0,NULL,NULL,NULL,NULL,NULL,1800000077.0,NULL,'{}','',NULL);
CREATE TABLE journal(name, created REAL);
INSERT INTO "journal" VALUES('5f44cc9a26749456',1795978367.0);
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
CREATE TABLE notice_cursor (event INTEGER NOT NULL);
CREATE TABLE timestamp (name TEXT PRIMARY KEY, at REAL NOT NULL);
INSERT INTO "timestamp" VALUES('watchdog',1800000072.0);
CREATE INDEX incident_open ON incident (id) WHERE closed IS NULL;
CREATE INDEX incident_part ON incident (part_of) WHERE part_of IS NOT NULL;
CREATE INDEX action_target ON action (run, worker, intent_at);
CREATE UNIQUE INDEX evidence_of ON evidence (incident, coalesce(action, 0), kind);
CREATE INDEX notice_waiting ON notice (receiver, id) WHERE settled IS NULL;
COMMIT;
PRAGMA user_version = 5;
