"""Many hosts at a glance, and which of them needs attention."""

from __future__ import annotations

from boards import fleet_tables, style, why
from boards.board import Board
from boards.layout import Row
from boards.panels import COUNT, NAME, Graph, Stat
from boards.queries import Query
from boards.style import NONE_IS_GOOD, rising
from boards.variables import HOST, INSTANCE
from boards.verdict import ALERT_OF_BOX_MARKS


def _stat(title: str, about: str, text: str, scale: style.Scale, empty: str) -> Stat:
    return Stat(
        title=title,
        about=about,
        queries=[Query(text)],
        unit=NAME,
        width=6,
        scale=scale,
        empty=empty,
    )


def _firing(severity: str) -> str:
    return (
        f'count(ALERTS{{ALERT_OF_BOX,alertstate="firing",severity="{severity}"}})'
        ' or 0 * max(up{BOX,job="trainwarden-exporter"} == 1'
        ' and on () ALERTS{alertname="TrainingWatchdog",alertstate="firing"})'
    )


GLANCE = Row(
    "At a glance",
    [
        _stat(
            "Hosts not scraped",
            "Exporters that do not answer: their hosts are not monitored. Good: 0.",
            'sum(1 - up{BOX,job="trainwarden-exporter"})',
            NONE_IS_GOOD,
            "none known",
        ),
        _stat(
            "Critical alerts",
            "That fire. Good: 0.",
            _firing("critical"),
            NONE_IS_GOOD,
            "not watched",
        ),
        _stat(
            "Warnings",
            "That fire. Good: 0; for today, not for now.",
            _firing("warning"),
            rising(1, None),
            "not watched",
        ),
        Stat(
            title="Acting remediators",
            about="Others observe, are on hold or down. Good: one per host, if they should act.",
            queries=[
                Query(
                    """
                    sum(
                      trainwarden_remediator_mode{HEALER,mode="act"}
                        * on (instance, job) (1 - trainwarden_remediator_paused{HEALER})
                    )
                    """,
                    "",
                    why.NO_REMEDIATOR,
                )
            ],
            unit=NAME,
            width=6,
            empty="none",
        ),
    ],
)

OVER_TIME = Row(
    "Over time",
    [
        Graph(
            title="Firing alerts, by host",
            about="Warnings and critical ones. Good: nothing.",
            queries=[
                Query(
                    'count by (instance) (ALERTS{ALERT_OF_BOX,alertstate="firing",'
                    'severity=~"critical|warning"})',
                    "{{instance}}",
                    why.NO_ALERT,
                )
            ],
            unit=COUNT,
            decimals=0,
            width=12,
            stacked=True,
            stepped=True,
        ),
        Graph(
            title="Steps per hour",
            about="Of each run, by the slope of ten minutes. Good: even; negative is a resume.",
            queries=[
                Query(
                    "max by (instance, run) (3600 * deriv(trainwarden_training_step{BOX}[10m]))",
                    "{{run}} on {{instance}}",
                    why.NO_STEPS,
                )
            ],
            unit=COUNT,
            width=12,
        ),
    ],
)

BOARD = Board(
    uid="trainwarden-fleet",
    title="Fleet",
    about="Many hosts: which run, host or remediator needs attention?",
    variables=[INSTANCE, HOST],
    marks=[ALERT_OF_BOX_MARKS],
    rows=[GLANCE, fleet_tables.TABLES, OVER_TIME],
)
