"""Of the board of the programs: the exporter, and the way of an alert to the remediator."""

from __future__ import annotations

from boards import limits, style, why
from boards.layout import Row
from boards.panels import SECONDS, Graph, Timeline
from boards.queries import Query
from boards.style import rising, words

WATCHES = (
    ("checkpoint_seen", "checkpoints of {{run}}", why.NO_CHECKPOINTS),
    ("rollout_seen", "rollouts of {{run}}", why.NO_ROLLOUTS),
    ("log_seen", "logs of {{run}}", why.NO_LOGS),
    ("inference_seen", "servers of {{run}}", why.NO_SERVERS),
    ("container_seen", "containers of {{run}}", why.NO_CONTAINERS),
)
"""(beginning of a metric, what it is about, why there may be none)"""


def collectors() -> Timeline:
    return Timeline(
        title="Collectors",
        about=(
            "Whether each collector succeeded, also when it has nothing to report. Good: all. "
            "A collector that fails for a minute is TrainingCollectorFailing: its values are "
            "unknown, and no stale values are shown in their place."
        ),
        queries=[Query("trainwarden_collector_success{BOX}", "{{instance}} {{collector}}")],
        width=8,
        height=9,
        meanings=words(("fails", style.CRITICAL), ("sees", style.GOOD)),
    )


def blind() -> Graph:
    """Age of the last background observations."""
    queries = [
        Query(
            f"max by (run, instance) (time() - trainwarden_{what}_timestamp_seconds{{BOX}})",
            legend,
            reason,
        )
        for what, legend, reason in WATCHES
    ]
    queries.append(
        Query(
            "time() - trainwarden_disk_seen_timestamp_seconds{BOX}",
            "{{instance}} disk {{path}}",
            why.NO_DISKS,
        )
    )
    return Graph(
        title="Age of background observations",
        about=(
            "How long ago. Good: seconds. After a minute TrainingWatchBlind warns: a mount, a "
            "socket or a server hangs, and what is known of it is the past."
        ),
        queries=queries,
        unit=SECONDS,
        width=8,
        height=9,
        scale=rising(limits.BLIND.value, None),
        shaded=True,
    )


UP_WORDS = words(("down", style.CRITICAL), ("up", style.GOOD))
SEEING = Row(
    "The exporter",
    [
        collectors(),
        Graph(
            title="Collector duration",
            about=(
                "Of a collector that has not answered, the time since it began. Good: "
                "milliseconds; all collectors share a scrape of four seconds."
            ),
            queries=[
                Query(
                    "max by (collector) (trainwarden_collector_duration_seconds{BOX})",
                    "{{collector}}",
                )
            ],
            unit=SECONDS,
            height=9,
        ),
        blind(),
    ],
)

PIPELINE = Row(
    "The way between them",
    [
        Timeline(
            title="Targets of Prometheus",
            about="Good: up, all of them.",
            queries=[Query("up", "{{job}} {{instance}}")],
            width=12,
            height=7,
            meanings=UP_WORDS,
        ),
        Graph(
            title="Failures of rules and notifications",
            about="Of rules, by Prometheus; of notifications to people and to the remediator, by "
            "Alertmanager. Good: 0.",
            queries=[
                Query(
                    "sum(rate(prometheus_rule_evaluation_failures_total[$__rate_interval]))",
                    "rules",
                    why.NO_PROMETHEUS,
                ),
                Query(
                    "sum(rate(alertmanager_notifications_failed_total[$__rate_interval]))",
                    "notifications",
                    why.NO_ALERTMANAGER,
                ),
            ],
            unit="cps",
            width=12,
            height=7,
        ),
    ],
)
