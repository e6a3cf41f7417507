"""Of the board of workers: what they do, and the containers and disks under them."""

from __future__ import annotations

from boards import limits, style, why, working
from boards.layout import Row
from boards.panels import BYTES, COUNT, NAME, SHARE, Graph, Timeline
from boards.queries import Query, coded
from boards.style import codes, falling, rising, words
from boards.tables import Column, Table

STATE_WORDS = words(
    ("running", style.GOOD),
    ("created", "semi-dark-blue"),
    ("restarting", "orange"),
    ("paused", style.CALM),
    ("removing", "light-blue"),
    ("exited", style.CRITICAL),
    ("dead", "dark-red"),
    ("absent", "dark-red"),
)

HEALTH_WORDS = words(
    ("starting", "light-blue"), ("healthy", style.GOOD), ("unhealthy", style.WARNING)
)


def container_states() -> Timeline:
    return Timeline(
        title="Containers",
        about=(
            "State of each container. Good: running. A container that ends with an error and is "
            "not started again is TrainingContainerStopped; a container that keeps restarting is "
            "TrainingContainerRestartLoop, and all restarts of its run are held."
        ),
        queries=[
            Query(
                coded("trainwarden_container_state{RUN}", "state", codes(STATE_WORDS)),
                "{{run}} {{container}}",
                why.NO_CONTAINERS,
            )
        ],
        width=24,
        height=5,
        meanings=STATE_WORDS,
    )


ONE = "{{run}} {{worker}}"
CONTAINER = "max by (run, container, instance)"
HEALTH = coded("trainwarden_container_health{RUN}", "health", codes(HEALTH_WORDS))
DISK = "max by (path, instance)"
NO_YES = words(("no", style.CRITICAL), ("yes", style.GOOD))

LIFE = Row(
    "What they do",
    [
        Graph(
            title="CPUs",
            about="Cores kept busy, children counted. Good: what is usual for the worker.",
            queries=[
                Query(
                    "rate(trainwarden_worker_cpu_seconds_total{WORKER}[$__rate_interval])",
                    ONE,
                    why.NO_WORKERS,
                )
            ],
            unit=COUNT,
        ),
        Graph(
            title="Processes in disk sleep or zombie state",
            about="Good: 0. A worker in `disk_sleep` for minutes hangs in a dead mount or device.",
            queries=[
                Query(
                    'trainwarden_worker_process_states{WORKER,state=~"disk_sleep|zombie|stopped"}',
                    "{{run}} {{worker}} {{state}}",
                    why.NO_WORKERS,
                )
            ],
            unit=COUNT,
            decimals=0,
            stepped=True,
        ),
        Graph(
            title="Read from and written to storage",
            about=(
                "Children counted; what is read is drawn below zero. Good: what is usual, and "
                "spikes while a checkpoint is saved."
            ),
            queries=[
                Query(
                    "-rate(trainwarden_worker_read_bytes_total{WORKER}[$__rate_interval])",
                    f"{ONE} read",
                    why.NO_WORKERS,
                ),
                Query(
                    "rate(trainwarden_worker_written_bytes_total{WORKER}[$__rate_interval])",
                    f"{ONE} written",
                    why.NO_WORKERS,
                ),
            ],
            unit="Bps",
        ),
        working.restarts(),
        Graph(
            title="Ends, by exit code or signal",
            about="In the last ten minutes. Good: none, or status 0.",
            queries=[
                Query(
                    "round(increase(trainwarden_worker_exits_total{WORKER}[10m])) > 0",
                    "{{run}} {{worker}} {{status}}",
                    why.NO_END_LATELY,
                )
            ],
            unit=COUNT,
            decimals=0,
            width=12,
            stepped=True,
        ),
    ],
)

CONTAINERS = Row(
    "Containers and disks",
    [
        container_states(),
        Table(
            title="Containers now",
            about=(
                "Starts, also those before the exporter's own; how the last one ended, and what it "
                "printed. Good: 0 or 1 start in ten minutes, and healthy; 3 close together are "
                "TrainingContainerRestartLoop, and all restarts of the run are held."
            ),
            queries=[
                Query(
                    f"{CONTAINER} (trainwarden_container_recent_starts{{RUN}})",
                    "starts",
                    why.NO_CONTAINERS,
                ),
                Query(
                    f"{CONTAINER} ({HEALTH})",
                    "health",
                    why.NO_HEALTH_CHECK,
                ),
                Query(
                    f"{CONTAINER} (trainwarden_container_last_exit_code{{RUN}})",
                    "code",
                    why.NO_CONTAINER_ENDED,
                ),
                Query(
                    f"1000 * {CONTAINER} ("
                    "trainwarden_container_last_exit_timestamp_seconds{RUN})",
                    "ended",
                    why.NO_CONTAINER_ENDED,
                ),
                Query(
                    "max by (run, container, instance, line)"
                    " (trainwarden_container_last_line{RUN})",
                    "line there",
                    why.NO_CONTAINER_ENDED,
                ),
            ],
            width=24,
            height=5,
            columns=[
                Column(name="run", width=120),
                Column(name="container", width=160),
                Column(
                    name="starts",
                    title="starts in 10 min",
                    decimals=0,
                    width=120,
                    scale=rising(None, limits.CONTAINER_LOOP.value),
                ),
                Column(name="health", meanings=HEALTH_WORDS, width=100),
                Column(name="code", title="exit code", width=90, unit=NAME),
                Column(name="ended", unit="dateTimeFromNow", width=140),
                Column(name="line", title="last line"),
                Column(name="instance"),
            ],
        ),
        Table(
            title="Disks",
            about=(
                "Good: writable, answers, and room for many checkpoints. Under 5 % of the inodes "
                "TrainingDiskInodes warns; under 1 % nothing can be created soon, however much "
                "space there is."
            ),
            queries=[
                Query(f"{DISK} (trainwarden_disk_up{{BOX}})", "answers", why.NO_DISKS),
                Query(f"{DISK} (trainwarden_disk_read_only{{BOX}})", "writable", why.NO_DISKS),
                Query(f"{DISK} (trainwarden_disk_probe_success{{BOX}})", "probe", why.NO_PROBE),
                Query(
                    f"1 - {DISK} (trainwarden_disk_free_bytes{{BOX}}"
                    " / trainwarden_disk_size_bytes{BOX})",
                    "used",
                    why.NO_DISKS,
                ),
                Query(
                    f"{DISK} (trainwarden_disk_free_inodes{{BOX}}"
                    " / trainwarden_disk_inodes{BOX})",
                    "inodes",
                    why.NO_INODES,
                ),
            ],
            width=24,
            height=5,
            columns=[
                Column(name="path"),
                Column(name="answers", meanings=NO_YES),
                Column(
                    name="writable", meanings=words(("yes", style.GOOD), ("no", style.CRITICAL))
                ),
                Column(name="probe", title="test file written", meanings=NO_YES),
                Column(name="used", title="space used", unit=SHARE, decimals=0),
                Column(
                    name="inodes",
                    title="free inodes",
                    unit=SHARE,
                    decimals=0,
                    scale=falling(limits.FEW_INODES.value, limits.NO_INODES.value),
                ),
                Column(name="instance"),
            ],
        ),
        Graph(
            title="Free on disk",
            about="What ordinary users may still write, and what should stay free. Good: above.",
            queries=[
                Query("trainwarden_disk_free_bytes{BOX}", "{{instance}} {{path}}", why.NO_DISKS),
                Query(
                    "trainwarden_disk_free_floor_bytes{BOX}",
                    "{{instance}} {{path}} floor",
                    why.NO_DISKS,
                    limit=True,
                ),
            ],
            unit=BYTES,
            width=12,
        ),
        Graph(
            title="Disk write speed",
            about=(
                "Speed of writing a test file down to the disk, and the speed under which "
                "TrainingDiskSlow warns. Good: above, and even."
            ),
            queries=[
                Query(
                    "trainwarden_disk_probe_bytes_per_second{BOX}",
                    "{{instance}} {{path}}",
                    why.NO_PROBE,
                ),
                Query(
                    "trainwarden_disk_probe_floor_bytes_per_second{BOX}",
                    "{{instance}} {{path}} floor",
                    why.NO_PROBE,
                    limit=True,
                ),
            ],
            unit="Bps",
            width=12,
        ),
    ],
)
