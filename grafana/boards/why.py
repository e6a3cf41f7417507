"""Reasons for an empty panel, by query."""

from __future__ import annotations

# What is not configured; the keys are those of exporter.yml.
NO_WORKERS = "no workers are configured (runs[].workers)"
NO_MEMORY_LIMIT = "no worker has a memory limit (runs[].workers[].memory_limit)"
NO_AGE_LIMIT = "no worker has an age limit (runs[].workers[].age_limit)"
NO_TRIALS_LIMIT = "no worker has a limit of trials (runs[].workers[].trials_limit)"
NO_CHECKPOINTS = "no checkpoints are monitored (runs[].checkpoints), or none is complete"
NO_INTERVAL = "none is configured (runs[].checkpoints[].interval), and too few were seen yet"
NO_RECORD = "the framework keeps no record of its own from which it resumes"
NO_COPIES = "no checkpoint lacks a copy, or no second place is configured (runs[].copies)"
NO_DISKS = "no disks are monitored (disks, or runs[].path)"
NO_INODES = "no monitored disk has a limit on inodes"
NO_PROBE = "no write probe is configured (disks[].probe)"
NO_ROLLOUTS = "no rollouts are monitored (runs[].rollouts)"
NO_VERSION = "no server reports the version of its weights"
NO_POLICY = "no log reports the versions of the policy"
NO_STALENESS_LIMIT = "no limit is configured (runs[].rollouts[].staleness_limit)"
NO_SERVERS = "no inference servers are configured (runs[].inference)"
NO_DEEP = "no completion probe is configured (runs[].inference[].deep_probe)"
NO_ROUTER = "no server is a router"
NO_CONTAINERS = "no containers are monitored (runs[].containers)"
NO_HEALTH_CHECK = "no monitored container has a health check (runs[].containers)"
NO_LOGS = "no logs are followed (runs[].logs)"
NO_SILENCE_LIMIT = "no log has a limit of silence (runs[].logs[].silence_limit)"
NO_HEARTBEATS = "no heartbeats are configured (heartbeats)"
NO_REMEDIATOR = "no remediator is scraped"
NO_PROMETHEUS = "Prometheus does not scrape itself (job prometheus)"
NO_ALERTMANAGER = "Alertmanager is not scraped (job alertmanager)"
NO_RUN = "no run is monitored (runs)"
NO_PRICE = "no price is configured (host.price_per_hour)"

# Facts that a run, a server or a host does not report.
NO_STEPS = "no step is reported (check runs[].framework, path and logs)"
NO_PHASE = "no phase is reported yet (check runs[].framework, path and logs)"
NO_TOTAL = "no total is known (runs[].progress.total_steps)"
NO_NUMBER = "no log line contains a metric"
NO_SUCH_NUMBER = "no log line contains such a metric"
NO_ROW = "no pattern counts consecutive lines"
NOT_COUNTED = "no server counts them, or none is configured (runs[].inference)"
NOT_REPORTED = "no server reports it, or none is configured (runs[].inference)"
NO_ANSWER = "no server has answered yet"
NO_WORK = "no server has completed work yet"
NO_GPU = "the host has no GPU"
NO_GPU_OR_WORKER = "the host has no GPU, or no worker is configured"
NO_GPU_HELD = "no worker holds a GPU, or none is configured (runs[].workers)"
NO_ECC = "the GPUs have no ECC"
NO_REMAPPING = "the GPUs replace no rows (before Ampere)"
NO_RETIRING = "the GPUs retire no pages (from Ampere on)"
NO_NVLINK = "the GPUs have no NVLink"
NO_XID_WATCH = "no driver reports them"
NO_PRESSURE = "the kernel exports no pressure (PSI)"

# What has not happened.
RUN_OVER = "a finished run makes no progress"
NOBODY_WAITS = "no trainer waits, or no rollouts are monitored (runs[].rollouts)"
NO_ALERT = "no alert fires"
NO_ALERT_FIRED = "no alert fired in this time"
NOTHING_DONE = "no action in this time"
NO_INTERRUPTION = "the run was not interrupted since it was first watched"
NO_ATTEMPT = "the run has no worker that trains"
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
        NO_COPIES,
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
        NO_PRESSURE,
        NO_ALERT,
        NO_ACTION,
        NO_XID,
        NO_MATCH,
        NO_CONTAINER_ENDED,
        NO_INTERRUPTION,
        NO_PRICE,
        NOT_STARTING,
        NOBODY_WAITS,
        NO_END_LATELY,
    }
)
"""The reasons that hold, or may hold at any moment, in the demo run. The tests check that every
query that may be empty for no other reason has data there."""
