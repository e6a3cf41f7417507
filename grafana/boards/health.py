"""Who watches the watch: the exporter, the remediator, and the way of an alert between them."""

from __future__ import annotations

from boards import healing, health_parts, limits, style, why
from boards.board import Board
from boards.layout import Row
from boards.panels import NAME, SECONDS, Graph, Stat, Timeline
from boards.queries import Query
from boards.style import rising, words
from boards.variables import HOST, INSTANCE
from boards.verdict import ALERT_OF_BOX_MARKS

UP_WORDS = words(("down", style.CRITICAL), ("up", style.GOOD))
YES_NO = words(("no", style.CRITICAL), ("yes", style.GOOD))
EXPORTER, REMEDIATOR = 'BOX,job="trainwarden-exporter"', 'HEALER,job="trainwarden-remediator"'
BLOCKED = "time() - trainwarden_remediator_blocked_since_timestamp_seconds{HEALER}"


NOW = Row(
    "Are both there?",
    [
        Stat(
            title="Exporter",
            about="Good: up. While down, the host is not monitored: TrainingExporterDown.",
            queries=[Query(f"min(up{{{EXPORTER}}})")],
            unit=NAME,
            width=6,
            meanings=UP_WORDS,
            empty="not scraped",
        ),
        Stat(
            title="Remediator, by its scrape",
            about="Good: up. While down, no automatic healing: TrainingRemediatorDown.",
            queries=[Query(f"min(up{{{REMEDIATOR}}})", "", why.NO_REMEDIATOR)],
            unit=NAME,
            width=6,
            meanings=UP_WORDS,
            empty="none scraped",
        ),
        Stat(
            title="Alert heartbeat received",
            about=(
                "Time since the remediator last received the alert that always fires. Good: "
                "under half a minute; after two minutes TrainingRemediatorDeaf is critical."
            ),
            queries=[
                Query(
                    "max(time() - trainwarden_remediator_watchdog_timestamp_seconds{HEALER})",
                    "",
                    why.NO_REMEDIATOR,
                )
            ],
            unit=SECONDS,
            decimals=0,
            width=6,
            scale=rising(None, limits.DEAF.value),
            empty="not received yet",
        ),
        Stat(
            title="Configuration is up to date",
            about=(
                "Of both programs. Good: yes. No: a file was refused and the old one is in force, "
                "or the two have read different workers: TrainingConfigsDiffer."
            ),
            queries=[
                Query(
                    """
                    min(
                      trainwarden_config_last_reload_successful{BOX}
                      or trainwarden_remediator_config_last_reload_successful{HEALER}
                      or trainwarden_web_config_last_reload_successful{HEALER}
                      or max by (host) (
                        label_replace(
                          trainwarden_config_workers_hash{BOX},
                          "host", "$1", "instance", "(.+):[0-9]+"
                        )
                        == bool on (host) group_left () max by (host) (
                          label_replace(
                            trainwarden_remediator_exporter_config_workers_hash{HEALER},
                            "host", "$1", "instance", "(.+):[0-9]+"
                          )
                        )
                      )
                    )
                    """
                )
            ],
            unit=NAME,
            width=6,
            meanings=YES_NO,
            empty="not reported",
        ),
    ],
)

REMEDIATOR_STATES = (
    ("works", style.GOOD, ""),
    ("held", style.CALM, "trainwarden_remediator_hold_info{HEALER} > 0"),
    ("blocked", style.WARNING, f"{BLOCKED} > {limits.BLOCKED.value:g}"),
    ("cannot notify", style.WARNING, "trainwarden_remediator_notifications_waiting{HEALER} > 0"),
    ("breaker open", style.CRITICAL, "trainwarden_remediator_breaker_open{HEALER} > 0"),
    (
        "short of memory",
        style.CRITICAL,
        "increase(trainwarden_remediator_evaluations_aborted_total{HEALER}[5m]) > 0",
    ),
    ("no journal", style.CRITICAL, "trainwarden_remediator_journal_success{HEALER} == 0"),
)
"""(word, colour, what holds then), the worst last."""


def _states() -> str:
    """The worst that holds of each remediator, by its place in REMEDIATOR_STATES."""
    arms = [
        f"{place} * (1 + 0 * max by (instance) ({condition}))"
        for place, (*_, condition) in reversed(list(enumerate(REMEDIATOR_STATES)))
        if condition
    ]
    arms.append("0 * max by (instance) (trainwarden_remediator_journal_success{HEALER})")
    return "\nor ".join(arms)


HEALING = Row(
    "The remediator",
    [
        Timeline(
            title="The remediator, over time",
            about=(
                "Held: an operator stops actions. Blocked: an alert is refused or delayed for half "
                "an hour (TrainingRemediationBlocked). Breaker open: too many actions, none until "
                "an operator resumes. Good: works."
            ),
            queries=[Query(_states(), "{{instance}}", why.NO_REMEDIATOR)],
            width=24,
            meanings=words(*((word, colour) for word, colour, _ in REMEDIATOR_STATES)),
        ),
        healing.decisions(),
        Graph(
            title="Time since",
            about=(
                "The last heartbeat, the last decision on each open incident, and the oldest "
                "action that goes on was begun. Good: seconds; the line is where the remediator "
                "counts as deaf."
            ),
            queries=[
                Query(
                    "time() - trainwarden_remediator_watchdog_timestamp_seconds{HEALER}",
                    "{{instance}} heartbeat",
                    why.NO_REMEDIATOR,
                ),
                Query(
                    "time() - trainwarden_remediator_last_evaluation_timestamp_seconds{HEALER}",
                    "{{instance}} decisions",
                    why.NO_REMEDIATOR,
                ),
                Query(
                    "time() - trainwarden_remediator_oldest_action_timestamp_seconds{HEALER}",
                    "{{instance}} oldest action",
                    why.NO_ACTION,
                ),
            ],
            unit=SECONDS,
            scale=rising(None, limits.DEAF.value),
            shaded=True,
        ),
        Graph(
            title="Webhooks answered",
            about="By HTTP status. Good: 200 only; 401 is a wrong token, 503 a broken journal.",
            queries=[
                Query(
                    "sum by (code) ("
                    "rate(trainwarden_remediator_webhooks_total{HEALER}[$__rate_interval]))",
                    "{{code}}",
                    why.NO_REMEDIATOR,
                )
            ],
            unit="reqps",
        ),
    ],
)

BOARD = Board(
    uid="trainwarden-health",
    title="Remediator and exporter",
    about="Monitoring of Trainwarden itself: exporter, alert delivery and actions.",
    variables=[INSTANCE, HOST],
    marks=[ALERT_OF_BOX_MARKS],
    rows=[NOW, HEALING, health_parts.SEEING, health_parts.PIPELINE],
)
