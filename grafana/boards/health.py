"""Who watches the watch: the exporter, the remediator, and the way of an alert between them."""

from __future__ import annotations

from boards import healing, health_parts, limits, style, why
from boards.board import Board
from boards.layout import Row
from boards.panels import COUNT, NAME, SECONDS, Graph, Stat
from boards.queries import Query
from boards.style import falling, rising, words
from boards.variables import HOST, INSTANCE
from boards.verdict import ALERT_OF_BOX_MARKS

UP_WORDS = words(("down", style.CRITICAL), ("up", style.GOOD))
YES_NO = words(("no", style.CRITICAL), ("yes", style.GOOD))
EXPORTER, REMEDIATOR = 'BOX,job="trainwarden-exporter"', 'HEALER,job="trainwarden-remediator"'


NOW = Row(
    "Are both there?",
    [
        Stat(
            title="Exporter",
            about="Good: up. While down, the host is not monitored: TrainingExporterDown.",
            queries=[Query(f"min(up{{{EXPORTER}}})")],
            unit=NAME,
            width=4,
            meanings=UP_WORDS,
            empty="not scraped",
        ),
        Stat(
            title="Scrapes per minute",
            about=(
                "Good: 12, one every 5 s. Under 10 TrainingScrapedTooSeldom warns: rules that "
                "lead to an action would come too late."
            ),
            queries=[Query(f"min(count_over_time(up{{{EXPORTER}}}[1m]))")],
            unit=NAME,
            width=4,
            scale=falling(limits.SELDOM_SCRAPED.value, None),
            empty="not scraped",
        ),
        Stat(
            title="Remediator, by its scrape",
            about="Good: up. While down, no automatic healing: TrainingRemediatorDown.",
            queries=[Query(f"min(up{{{REMEDIATOR}}})", "", why.NO_REMEDIATOR)],
            unit=NAME,
            width=4,
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
            width=4,
            scale=rising(None, limits.DEAF.value),
            empty="not received yet",
        ),
        Stat(
            title="Journal readable",
            about="Good: yes. Without its journal the remediator accepts no alerts.",
            queries=[
                Query("min(trainwarden_remediator_journal_success{HEALER})", "", why.NO_REMEDIATOR)
            ],
            unit=NAME,
            width=4,
            meanings=YES_NO,
            empty="no remediator",
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
            width=4,
            meanings=YES_NO,
            empty="not reported",
        ),
    ],
)

HEALING = Row(
    "The remediator",
    [
        healing.decisions(8, 8),
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
                    "heartbeat",
                    why.NO_REMEDIATOR,
                ),
                Query(
                    "time() - trainwarden_remediator_last_evaluation_timestamp_seconds{HEALER}",
                    "decisions",
                    why.NO_REMEDIATOR,
                ),
                Query(
                    "time() - trainwarden_remediator_oldest_action_timestamp_seconds{HEALER}",
                    "oldest action",
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
        Graph(
            title="Delayed actions",
            about=(
                "How long the oldest alert has been refused or delayed, by the reason that is "
                "given now. Good: nothing, or minutes; half an hour is TrainingRemediationBlocked."
            ),
            queries=[
                Query(
                    "time() - trainwarden_remediator_blocked_since_timestamp_seconds{HEALER}",
                    "{{reason}}",
                    why.NOTHING_WAITS,
                )
            ],
            unit=SECONDS,
            width=12,
        ),
        Graph(
            title="Actions that the breaker counts",
            about=(
                "On all targets together. Good: well under the line. Over it the remediator stops "
                "itself until an operator resumes: TrainingRemediationBreakerOpen."
            ),
            queries=[
                Query(
                    "trainwarden_remediator_breaker_actions{HEALER}",
                    "{{instance}}",
                    why.NO_REMEDIATOR,
                ),
                Query(
                    "trainwarden_remediator_breaker_limit_actions{HEALER}",
                    "{{instance}} allowed",
                    why.NO_REMEDIATOR,
                    limit=True,
                ),
                Query(
                    "trainwarden_remediator_breaker_open{HEALER}",
                    "{{instance}} open",
                    why.NO_REMEDIATOR,
                ),
            ],
            unit=COUNT,
            decimals=0,
            width=12,
            stepped=True,
        ),
        Graph(
            title="Aborted decision cycles",
            about=(
                "Decision cycles aborted for lack of memory, in five minutes. Good: none; "
                "otherwise it is TrainingRemediatorStarved."
            ),
            queries=[
                Query(
                    "increase(trainwarden_remediator_evaluations_aborted_total{HEALER}[5m])",
                    "{{instance}}",
                    why.NO_REMEDIATOR,
                )
            ],
            unit=COUNT,
            decimals=0,
            width=8,
            stepped=True,
        ),
        Graph(
            title="Pending notifications",
            about=(
                "Notifications that the remediator could not deliver yet. Good: none; "
                "after two minutes it is TrainingPersonNotReached."
            ),
            queries=[
                Query(
                    "trainwarden_remediator_notifications_waiting{HEALER}",
                    "{{receiver}}",
                    why.NOBODY_TO_CALL,
                )
            ],
            unit=COUNT,
            decimals=0,
            width=8,
            stepped=True,
        ),
        Graph(
            title="Holds in force",
            about=(
                "Holds set by an operator on a worker, a run, or everything. Good: "
                "nothing, or minutes; after four hours it is TrainingRemediationHeld."
            ),
            queries=[
                Query(
                    "trainwarden_remediator_hold_info{HEALER}",
                    "{{instance}} {{run}} {{worker}}",
                    why.NOTHING_HELD,
                )
            ],
            unit=COUNT,
            decimals=0,
            width=8,
            stepped=True,
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
