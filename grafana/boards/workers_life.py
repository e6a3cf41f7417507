"""Of the board of workers: what they do, and the containers and disks under them."""

from __future__ import annotations

from boards import limits, style, why, working
from boards.containers import container_health, container_states
from boards.layout import Row
from boards.panels import COUNT, NAME, SHARE, Graph, Timeline
from boards.queries import Query
from boards.style import falling, rising, words
from boards.tables import Column, Table

ONE = "{{run}} {{worker}}"
OF = "{{run}} "

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
            title="Host load",
            about="Tasks that run or wait for a disk. Good: under the line, the processors.",
            queries=[
                Query('trainwarden_host_load_average{BOX,period="5m"}', "{{instance}}"),
                Query("trainwarden_host_cpus{BOX}", "{{instance}} processors", limit=True),
            ],
            unit=COUNT,
        ),
        Graph(
            title="Processes in disk sleep or zombie state",
            about="Good: 0. A worker in `disk_sleep` for minutes hangs in a dead mount or device.",
            queries=[
                Query(
                    'trainwarden_worker_process_states{WORKER,state=~"disk_sleep|zombie|stopped"}',
                    "{{worker}} {{state}}",
                    why.NO_WORKERS,
                )
            ],
            unit=COUNT,
            decimals=0,
            stepped=True,
        ),
        working.restarts("{WORKER}", 8, OF),
        Graph(
            title="Ends, by exit code or signal",
            about="In the last ten minutes. Good: none, or status 0.",
            queries=[
                Query(
                    "round(increase(trainwarden_worker_exits_total{WORKER}[10m])) > 0",
                    "{{worker}} {{status}}",
                    why.NO_END_LATELY,
                )
            ],
            unit=COUNT,
            decimals=0,
            stepped=True,
        ),
        Graph(
            title="Open files, relative to the limit",
            about="Of the process nearest its limit. Good: far under 100 %.",
            queries=[
                Query(
                    "trainwarden_worker_open_files{WORKER}"
                    " / trainwarden_worker_open_files_limit{WORKER}",
                    ONE,
                    why.NO_WORKERS,
                )
            ],
            unit=SHARE,
        ),
        Graph(
            title="Threads",
            about="Good: flat.",
            queries=[Query("trainwarden_worker_threads{WORKER}", ONE, why.NO_WORKERS)],
            unit=COUNT,
            decimals=0,
        ),
        Graph(
            title="Read from storage",
            about="Children counted. Good: what is usual for the worker.",
            queries=[
                Query(
                    "rate(trainwarden_worker_read_bytes_total{WORKER}[$__rate_interval])",
                    ONE,
                    why.NO_WORKERS,
                )
            ],
            unit="Bps",
        ),
        Graph(
            title="Written to storage",
            about="Children counted. Good: spikes while a checkpoint is saved.",
            queries=[
                Query(
                    "rate(trainwarden_worker_written_bytes_total{WORKER}[$__rate_interval])",
                    ONE,
                    why.NO_WORKERS,
                )
            ],
            unit="Bps",
        ),
    ],
)

CONTAINERS = Row(
    "Containers and disks",
    [
        container_states("{RUN}", 12, 8),
        Graph(
            title="Starts of containers, in 10 minutes",
            about=(
                "Also those before the exporter's own. Good: 0 or 1; 3 close together are "
                "TrainingContainerRestartLoop, and all restarts of the run are held."
            ),
            queries=[
                Query(
                    "trainwarden_container_recent_starts{RUN}",
                    "{{run}} {{container}}",
                    why.NO_CONTAINERS,
                )
            ],
            unit=COUNT,
            decimals=0,
            width=12,
            stepped=True,
            scale=rising(None, limits.CONTAINER_LOOP.value),
            shaded=True,
        ),
        container_health("{RUN}", 12),
        Timeline(
            title="Disk write probes",
            about=(
                "Whether the last one could be written. Good: yes; two in a row that could not be "
                "are TrainingDiskProbeFailing."
            ),
            queries=[
                Query("trainwarden_disk_probe_success{BOX}", "{{instance}} {{path}}", why.NO_PROBE)
            ],
            width=12,
            meanings=words(("no", style.CRITICAL), ("yes", style.GOOD)),
        ),
        Table(
            title="Last exits of containers",
            about="How the last run of each ended, and what it printed. Good: code 0.",
            queries=[
                Query(
                    "max by (run, container, instance, line)"
                    " (trainwarden_container_last_line{RUN})",
                    "line there",
                    why.NO_CONTAINER_ENDED,
                ),
                Query(
                    "max by (run, container, instance) (trainwarden_container_last_exit_code{RUN})",
                    "code",
                    why.NO_CONTAINER_ENDED,
                ),
                Query(
                    "1000 * max by (run, container, instance)"
                    " (trainwarden_container_last_exit_timestamp_seconds{RUN})",
                    "ended",
                    why.NO_CONTAINER_ENDED,
                ),
            ],
            width=24,
            height=5,
            columns=[
                Column(name="run", width=120),
                Column(name="container", width=160),
                Column(name="code", title="exit code", width=90, unit=NAME),
                Column(name="ended", unit="dateTimeFromNow", width=140),
                Column(name="line", title="last line"),
                Column(name="instance"),
            ],
        ),
        Graph(
            title="Disk space in use",
            about="Share of each file system. Good: room for many checkpoints.",
            queries=[
                Query(
                    "1 - trainwarden_disk_free_bytes{BOX} / trainwarden_disk_size_bytes{BOX}",
                    "{{instance}} {{path}}",
                    why.NO_DISKS,
                )
            ],
            unit=SHARE,
            high=1,
        ),
        Graph(
            title="Free inodes",
            about=(
                "Share of their inodes. Good: many. Under 5 % TrainingDiskInodes warns; under "
                "1 % nothing can be created soon, however much space there is."
            ),
            queries=[
                Query(
                    "trainwarden_disk_free_inodes{BOX} / trainwarden_disk_inodes{BOX}",
                    "{{instance}} {{path}}",
                    why.NO_INODES,
                )
            ],
            unit=SHARE,
            high=1,
            scale=falling(limits.FEW_INODES.value, limits.NO_INODES.value),
            shaded=True,
        ),
        Graph(
            title="Unwritable disks",
            about=(
                "Read-only, or not answering. Good: 0 and 0; read-only holds restarts "
                "(TrainingDiskReadOnly), a disk that does not answer is TrainingWatchBlind."
            ),
            queries=[
                Query("trainwarden_disk_read_only{BOX}", "{{path}} read-only", why.NO_DISKS),
                Query("1 - trainwarden_disk_up{BOX}", "{{path}} does not answer", why.NO_DISKS),
            ],
            unit=COUNT,
            decimals=0,
            stepped=True,
        ),
    ],
)
