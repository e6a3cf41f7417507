"""Of the board of training: what the logs of a run say, and its heartbeats."""

from __future__ import annotations

from boards import limits, style, why
from boards.layout import Row
from boards.panels import COUNT, NAME, SHARE, Graph
from boards.queries import Query
from boards.style import rising, words
from boards.tables import Column, Table

NUMBER = "max by (run, log, name)"
PATTERN = "max by (run, log, pattern)"
LOG = "max by (run, log)"


def _numbers(title: str, about: str, names: str, empty_when: str = why.NO_NUMBER) -> Graph:
    return Graph(
        title=title,
        about=about,
        queries=[
            Query(
                f'trainwarden_log_value{{RUN,name=~"{names}"}}',
                "{{run}} {{name}}",
                empty_when,
            )
        ],
        unit=COUNT,
    )


def _limited(title: str, about: str, query: Query, limit: limits.Limit) -> Graph:
    """A graph of one query that is shaded from `limit` on."""
    return Graph(
        title=title,
        about=about,
        queries=[query],
        unit=COUNT,
        width=12,
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
            title="Logs",
            about=(
                "Good: one file or more, none skipped, written under its limit of silence "
                "(TrainingLogSilent). Held back: the program buffers its output, and steps and "
                "errors are seen minutes late (TrainingLogBuffered)."
            ),
            queries=[
                Query(f"{LOG} (trainwarden_log_files{{RUN}})", "files", why.NO_LOGS),
                Query(
                    f"sum by (run, log) (trainwarden_log_skipped_files{{RUN}})"
                    f" or 0 * {LOG} (trainwarden_log_files{{RUN}})",
                    "skipped",
                    why.NO_LOGS,
                ),
                Query(
                    f"1000 * {LOG} (trainwarden_log_last_write_timestamp_seconds{{RUN}})",
                    "written",
                    why.NO_LOGS,
                ),
                Query(
                    f"""
                    {LOG} (
                      (
                        trainwarden_log_seen_timestamp_seconds{{RUN}}
                          - trainwarden_log_last_write_timestamp_seconds{{RUN}}
                      )
                      / trainwarden_log_silence_limit_seconds{{RUN}}
                    )
                    """,
                    "of limit",
                    why.NO_SILENCE_LIMIT,
                ),
                Query(f"{LOG} (trainwarden_log_block_buffered{{RUN}})", "held back", why.NO_LOGS),
            ],
            width=24,
            height=6,
            columns=[
                Column(name="run"),
                Column(name="log"),
                Column(name="files", decimals=0, unit=NAME),
                Column(name="skipped", title="files skipped", decimals=0, scale=rising(1, None)),
                Column(name="written", title="last written", unit="dateTimeFromNow"),
                Column(
                    name="of limit",
                    title="silence, of its limit",
                    unit=SHARE,
                    decimals=0,
                    scale=rising(limits.SILENT.value, None),
                ),
                Column(
                    name="held back", meanings=words(("no", style.GOOD), ("yes", style.WARNING))
                ),
            ],
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
