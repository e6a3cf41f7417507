"""Of the board of the programs: the exporter, and the way of an alert to the remediator."""

from __future__ import annotations

from boards import exporters, style, why
from boards.layout import Row
from boards.panels import BYTES, COUNT, SECONDS, Graph, Timeline
from boards.queries import Query
from boards.style import words
from boards.tables import Column, Table

UP_WORDS = words(("down", style.CRITICAL), ("up", style.GOOD))
EXPORTER, REMEDIATOR = 'BOX,job="trainwarden-exporter"', 'HEALER,job="trainwarden-remediator"'


def _programs(metric: str, around: str = "{}") -> list[Query]:
    """`metric` of both programs; `around` holds {} where it stands."""
    return [
        Query(around.format(f"{metric}{{{EXPORTER}}}"), "exporter {{instance}}"),
        Query(
            around.format(f"{metric}{{{REMEDIATOR}}}"),
            "remediator {{instance}}",
            why.NO_REMEDIATOR,
        ),
    ]


SEEING = Row(
    "The exporter",
    [
        exporters.collectors(12, 9, "{{instance}} "),
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
            width=12,
            height=9,
        ),
        exporters.blind(12),
        Graph(
            title="Scrape duration",
            about="As Prometheus sees it. Good: well under a second.",
            queries=_programs("scrape_duration_seconds"),
            unit=SECONDS,
            width=12,
        ),
        Graph(
            title="CPU use",
            about="Cores. Good: a few hundredths.",
            queries=_programs("process_cpu_seconds_total", "rate({}[$__rate_interval])"),
            unit=COUNT,
            width=12,
        ),
        Graph(
            title="Memory used",
            about="Resident. Good: flat.",
            queries=_programs("process_resident_memory_bytes"),
            unit=BYTES,
            width=12,
        ),
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
        Table(
            title="Versions",
            about="Good: the same everywhere.",
            queries=[
                Query(
                    "max by (job, instance, version, python_version) ("
                    "trainwarden_build_info{BOX} or trainwarden_build_info{HEALER})",
                    "is there",
                )
            ],
            width=12,
            height=7,
            columns=[
                Column(name="job", title="program"),
                Column(name="instance"),
                Column(name="version"),
                Column(name="python_version", title="Python"),
            ],
        ),
        Graph(
            title="Rule evaluation failures",
            about="By Prometheus. Good: 0.",
            queries=[
                Query(
                    "sum(rate(prometheus_rule_evaluation_failures_total[$__rate_interval]))",
                    "failures",
                    why.NO_PROMETHEUS,
                )
            ],
            unit="cps",
            width=12,
        ),
        Graph(
            title="Notifications that failed",
            about="By Alertmanager, to people and to the remediator. Good: 0.",
            queries=[
                Query(
                    "sum(rate(alertmanager_notifications_failed_total[$__rate_interval]))",
                    "failures",
                    why.NO_ALERTMANAGER,
                )
            ],
            unit="cps",
            width=12,
        ),
    ],
)
