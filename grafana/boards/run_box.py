"""Of the board of a run: its GPUs, workers and logs, and the exporter that sees all this."""

from __future__ import annotations

from boards import limits, style, why
from boards.containers import container_states
from boards.exporters import blind, collectors
from boards.gpus import leftovers, memory_share, throttled, utilization, worker_memory, xids
from boards.layout import Row
from boards.memory import box_memory, oom_kills, worker_memory_and_limit
from boards.panels import COUNT, SHARE, Graph
from boards.queries import Query
from boards.style import rising, words
from boards.tables import Column, Table
from boards.working import restarts, worker_states

NUMBER = "max by (run, log, name)"
PATTERN = "max by (run, log, pattern)"

GPUS = Row(
    "GPUs",
    [
        utilization("{BOX}"),
        memory_share("{BOX}"),
        worker_memory("{RUN}"),
        leftovers("{BOX}"),
        throttled("{BOX}"),
        xids("{BOX}"),
    ],
)

WORKERS = Row(
    "Workers and memory",
    [
        worker_states("{RUN}", 24),
        worker_memory_and_limit("{RUN}", 12),
        box_memory(12),
        restarts("{RUN}"),
        container_states("{RUN}", 8, 8),
        oom_kills(8),
    ],
)


def _numbers(title: str, about: str, names: str, empty_when: str = why.NO_NUMBER) -> Graph:
    return Graph(
        title=title,
        about=about,
        queries=[
            Query(
                f'trainwarden_log_value{{RUN,name=~"{names}"}}',
                "{{name}}",
                empty_when,
            )
        ],
        unit=COUNT,
    )


def _limited(
    title: str, about: str, query: Query, limit: limits.Limit, *, unit: str = COUNT
) -> Graph:
    """A graph of one query that is shaded from `limit` on."""
    return Graph(
        title=title,
        about=about,
        queries=[query],
        unit=unit,
        scale=rising(limit.value, None),
        shaded=True,
    )


LOGS = Row(
    "Logs",
    [
        _numbers(
            "Loss",
            "From the log. Good: as expected; a non-finite number leaves a gap "
            "here and fires TrainingNotFinite.",
            ".*loss.*",
        ),
        _numbers(
            "Reward",
            "From the log. Good: slowly up. A sudden fall, or a jump to the most there "
            "can be, is a run that broke or learned to cheat.",
            ".*reward.*",
        ),
        _numbers(
            "KL, entropy, gradients",
            "From the log. Good: small and even. Entropy that falls to 0 is a policy "
            "that says one thing only.",
            ".*(kl|entropy|grad).*",
            why.NO_SUCH_NUMBER,
        ),
        _limited(
            "Error lines, in 5 minutes",
            "By log; a line that several patterns match counts once, and so do copies. Good: "
            "0. From 20 on TrainingErrorStorm warns.",
            Query(
                "increase(trainwarden_log_error_lines_total{RUN}[5m])",
                "{{run}} {{log}}",
                why.NO_LOGS,
            ),
            limits.ERROR_STORM,
        ),
        _limited(
            "Log silence, relative to the limit",
            "Time since something was written, as a share of its limit. Good: under 100 %, "
            "where TrainingLogSilent warns.",
            Query(
                """
                (
                  trainwarden_log_seen_timestamp_seconds{RUN}
                    - trainwarden_log_last_write_timestamp_seconds{RUN}
                )
                / trainwarden_log_silence_limit_seconds{RUN}
                """,
                "{{run}} {{log}}",
                why.NO_SILENCE_LIMIT,
            ),
            limits.SILENT,
            unit=SHARE,
        ),
        Graph(
            title="Files of each log",
            about="Good: 1 or more. At 0 for every log, TrainingRunNotFound warns: the path of the "
            "run is wrong, or the run writes elsewhere.",
            queries=[Query("trainwarden_log_files{RUN}", "{{run}} {{log}}", why.NO_LOGS)],
            unit=COUNT,
        ),
        Graph(
            title="Logs that their writer holds back",
            about="Good: 0. At 1 the program buffers its output, so that steps and errors are seen "
            "minutes late: TrainingLogBuffered informs.",
            queries=[Query("trainwarden_log_block_buffered{RUN}", "{{run}} {{log}}", why.NO_LOGS)],
            unit=COUNT,
        ),
        Graph(
            title="Files of logs that are not read",
            about="By reason. Good: none. A file that another account can replace is not read.",
            queries=[
                Query(
                    "trainwarden_log_skipped_files{RUN}"
                    " or on (run, log) 0 * trainwarden_log_files{RUN}",
                    "{{log}} {{reason}}",
                    why.NO_LOGS,
                )
            ],
            unit=COUNT,
        ),
        _limited(
            "Heartbeats, age in intervals",
            "Of brakes, watchdogs and cron jobs, which must themselves be watched. Good: up to "
            "1; from 2 on TrainingHeartbeatMissed warns.",
            Query(
                """
                (time() - trainwarden_heartbeat_timestamp_seconds{BEAT})
                / trainwarden_heartbeat_interval_seconds{BEAT}
                """,
                "{{run}} {{name}}",
                why.NO_HEARTBEATS,
            ),
            limits.HEARTBEAT_MISSED,
        ),
        Table(
            title="Latest metrics",
            about=(
                "The last number of each name in a log. Good: finite, and of just now. What is "
                "not finite and is trained by fires TrainingNotFinite."
            ),
            queries=[
                Query(f"{NUMBER} (trainwarden_log_value{{RUN}})", "value", why.NO_NUMBER),
                Query(f"{NUMBER} (trainwarden_log_value_finite{{RUN}})", "finite", why.NO_NUMBER),
                Query(
                    f"1000 * {NUMBER} (trainwarden_log_value_timestamp_seconds{{RUN}})",
                    "written",
                    why.NO_NUMBER,
                ),
            ],
            width=12,
            columns=[
                Column(name="run"),
                Column(name="log"),
                Column(name="name", title="number"),
                Column(name="value", decimals=4),
                Column(name="finite", meanings=words(("no", style.CRITICAL), ("yes", style.GOOD))),
                Column(name="written", unit="dateTimeFromNow"),
            ],
        ),
        Table(
            title="Lines by pattern",
            about=(
                "Since the exporter began to follow the log, and how many came in a row since a "
                "line that ends it. Good: none of trouble of just now; patterns that tell the step "
                "stand here too."
            ),
            queries=[
                Query(
                    f"{PATTERN} (trainwarden_log_matches_total{{RUN}}) > 0", "lines", why.NO_LOGS
                ),
                Query(
                    f"{PATTERN} (trainwarden_log_match_streak{{RUN}}) > 0", "in a row", why.NO_ROW
                ),
                Query(
                    f"1000 * {PATTERN} (trainwarden_log_last_match_timestamp_seconds{{RUN}})",
                    "last",
                    why.NO_MATCH,
                ),
            ],
            width=12,
            columns=[
                Column(name="run"),
                Column(name="log"),
                Column(name="pattern"),
                Column(name="lines"),
                Column(name="in a row"),
                Column(name="last", unit="dateTimeFromNow"),
            ],
            sorted_by="last",
        ),
    ],
)

EXPORTER = Row(
    "The exporter itself",
    [
        collectors(12),
        blind(12),
    ],
)
