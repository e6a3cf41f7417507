"""Why a query may rightly be answered with nothing: what a panel says where it is empty."""

from __future__ import annotations

# What is not configured; the keys are those of exporter.yml.
NO_WORKERS = "no workers are configured (runs[].workers)"
NO_MEMORY_LIMIT = "no worker has a memory limit (runs[].workers[].memory_limit)"
NO_AGE_LIMIT = "no worker has an age limit (runs[].workers[].age_limit)"
NO_TRIALS_LIMIT = "no worker has a limit of trials (runs[].workers[].trials_limit)"
NO_CHECKPOINTS = "no checkpoints are watched (runs[].checkpoints), or none is complete"
NO_INTERVAL = "none is configured (runs[].checkpoints[].interval), and too few were seen yet"
NO_RECORD = "the framework keeps no record of its own from which it resumes"
NO_FOLDER = "no checkpoint of several files is complete: of one file it cannot be told"
NO_DISKS = "no disks are watched (disks, or runs[].path)"
NO_INODES = "no disk is watched that has a limit on files"
NO_PROBE = "no disk is written to for a test (disks[].probe)"
NO_ROLLOUTS = "no rollouts are watched (runs[].rollouts)"
NO_VERSION = "no server tells the version of its weights"
NO_POLICY = "no log tells the versions of the policy"
NO_STALENESS_LIMIT = "no limit is configured (runs[].rollouts[].staleness_limit)"
NO_SERVERS = "no inference servers are configured (runs[].inference)"
NO_DEEP = "no server is asked for a token (runs[].inference[].deep_probe)"
NO_ROUTER = "no server is a router"
NO_CONTAINERS = "no containers are watched (runs[].containers)"
NO_HEALTH_CHECK = "no container that is watched has a health check (runs[].containers)"
NO_LOGS = "no logs are followed (runs[].logs)"
NO_SILENCE_LIMIT = "no log has a limit of silence (runs[].logs[].silence_limit)"
NO_HEARTBEATS = "no heartbeats are awaited (heartbeats)"
NO_REMEDIATOR = "no remediator is scraped"
NO_PROMETHEUS = "Prometheus does not scrape itself (job prometheus)"
NO_ALERTMANAGER = "Alertmanager is not scraped (job alertmanager)"
NO_RULES = "no rule is loaded"
NO_RUN = "no run is watched (runs)"

# What a run, a server or a box does not tell.
NO_STEPS = "no step is told (runs[].framework, path and logs lead to it)"
NO_PHASE = "no phase is told yet (runs[].framework, path and logs lead to it)"
NO_TOTAL = "no total is told (runs[].progress.total_steps)"
NO_NUMBER = "no line of a log tells a number"
NO_SUCH_NUMBER = "no line of a log tells such a number"
NO_ROW = "no pattern counts how many come in a row"
NOT_COUNTED = "no server counts them, or none is configured (runs[].inference)"
NOT_TOLD = "no server tells it, or none is configured (runs[].inference)"
NO_ANSWER = "no server has answered yet"
NO_WORK = "no server was seen to get something done yet"
NO_GPU = "the box has no GPU"
NO_GPU_OR_WORKER = "the box has no GPU, or no worker is configured that others could be told from"
NO_GPU_HELD = "no worker holds a GPU, or none is configured (runs[].workers)"
NO_ECC = "the GPUs have no ECC"
NO_REMAPPING = "the GPUs replace no rows (before Ampere)"
NO_RETIRING = "the GPUs retire no pages (from Ampere on)"
NO_NVLINK = "the GPUs have no NVLink"
NO_XID_WATCH = "no driver can be asked for them"
NO_PRESSURE = "the kernel does not tell its pressure (PSI)"
NO_CGROUP = "no cgroup limits the box"

# What has not happened.
RUN_OVER = "a run that is over need not progress"
NOBODY_WAITS = "no trainer waits, or no rollouts are watched (runs[].rollouts)"
NO_ALERT = "no alert fires"
NOBODY_TO_CALL = "nothing has to be told to a person, or none is named (notify)"
NOTHING_HELD = "nobody holds the remediator"
NOTHING_WAITS = "nothing that should be healed is kept waiting"
NO_ALERT_FIRED = "no alert fired in this time"
NOTHING_DONE = "nothing was done in this time"
NOTHING_DONE_YET = "nothing was done yet"
NOTHING_DECIDED = "nothing had to be decided in this time"
NO_ACTION = "no action goes on"
NO_XID = "no XID came in this time"
NO_MATCH = "no line has matched yet"
NO_END_YET = "no process of a worker has ended yet"
NO_END_LATELY = "no process of a worker has ended lately"
NO_END = "no process of a worker has ended in this time"
NO_CONTAINER_ENDED = "no container has ended yet, or none is watched (runs[].containers)"
NOT_STARTING = "no server is starting, paused or updating weights"

OF_THE_DEMO = frozenset(
    {
        NO_AGE_LIMIT,
        NO_TRIALS_LIMIT,
        NO_RECORD,
        NO_PROBE,
        NO_VERSION,
        NO_POLICY,
        NO_STALENESS_LIMIT,
        NO_ROUTER,
        NO_CONTAINERS,
        NO_HEALTH_CHECK,
        NO_SILENCE_LIMIT,
        NO_HEARTBEATS,
        NO_SUCH_NUMBER,
        NO_ROW,
        NOT_COUNTED,
        NO_RETIRING,
        NO_NVLINK,
        NO_CGROUP,
        NO_PRESSURE,
        NO_ALERT,
        NOBODY_TO_CALL,
        NOTHING_HELD,
        NOTHING_WAITS,
        NO_ACTION,
        NO_XID,
        NO_MATCH,
        NO_CONTAINER_ENDED,
        NOT_STARTING,
        NOBODY_WAITS,
        NO_END_LATELY,
    }
)
"""Those that hold, or may hold at any moment, in the demo run; every query that may not be empty
for one of these has data there, which the tests see to."""
