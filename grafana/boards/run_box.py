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


LOGS = Row(
    "Logs",
    [
        _numbers(
            "Loss",
            "As the log tells it. Good: what you expect; a number that is not finite leaves a gap "
            "here and fires TrainingNotFinite.",
            ".*loss.*",
        ),
        _numbers(
            "Reward",
            "As the log tells it. Good: slowly up. A sudden fall, or a jump to the most there "
            "can be, is a run that broke or learned to cheat.",
            ".*reward.*",
        ),
        _numbers(
            "KL, entropy, gradients",
            "As the log tells them. Good: small and even. Entropy that falls to 0 is a policy "
            "that says one thing only.",
            ".*(kl|entropy|grad).*",
            why.NO_SUCH_NUMBER,
        ),
        Graph(
            title="Lines of trouble, in 5 minutes",
            about=(
                "By log; a line that several patterns match counts once, and so do copies. Good: "
                "0. From 20 on TrainingErrorStorm warns."
            ),
            queries=[
                Query(
                    "increase(trainwarden_log_troubles_total{RUN}[5m])",
                    "{{run}} {{log}}",
                    why.NO_LOGS,
                )
            ],
            unit=COUNT,
            scale=rising(limits.ERROR_STORM.value, None),
            shaded=True,
        ),
        Graph(
            title="Silence of logs, of what it may be",
            about=(
                "Time since something was written, as a share of its limit. Good: under 100 %, "
                "where TrainingLogSilent warns."
            ),
            queries=[
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
                )
            ],
            unit=SHARE,
            scale=rising(limits.SILENT.value, None),
            shaded=True,
        ),
        Graph(
            title="Heartbeats, age in intervals",
            about=(
                "Of brakes, watchdogs and cron jobs, which must themselves be watched. Good: up to "
                "1; from 2 on TrainingHeartbeatMissed warns."
            ),
            queries=[
                Query(
                    """
                    (time() - trainwarden_heartbeat_timestamp_seconds{BEAT})
                    / trainwarden_heartbeat_interval_seconds{BEAT}
                    """,
                    "{{run}} {{name}}",
                    why.NO_HEARTBEATS,
                )
            ],
            unit=COUNT,
            scale=rising(limits.HEARTBEAT_MISSED.value, None),
            shaded=True,
        ),
        Table(
            title="Last numbers",
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
