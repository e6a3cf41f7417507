"""Of the board of the programs: the exporter, and the way of an alert to the remediator."""

from __future__ import annotations

from boards import exporters, style, why
from boards.layout import Row
from boards.panels import SECONDS, Graph, Timeline
from boards.queries import Query
from boards.style import words

UP_WORDS = words(("down", style.CRITICAL), ("up", style.GOOD))
SEEING = Row(
    "The exporter",
    [
        exporters.collectors(8, 9, "{{instance}} "),
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
        exporters.blind(8, 9),
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
