"""What several boards say in the same words: how things stand, and which alerts say so."""

from __future__ import annotations

from dataclasses import replace

from boards import style, why
from boards.board import RUNBOOKS, Mark
from boards.panels import NAME, Stat
from boards.queries import Query
from boards.style import codes, words
from boards.tables import Column, Table

PHASE_WORDS = words(
    ("starting", "semi-dark-blue"),
    ("training", style.GOOD),
    ("saving", "purple"),
    ("evaluating", "semi-dark-purple"),
    ("updating weights", "light-blue"),
    ("waiting for rollouts", style.WARNING),
    ("finished", style.UNKNOWN),
)
PHASES = codes(PHASE_WORDS)
VERDICTS = words(
    ("all well", style.GOOD),
    ("look today", style.WARNING),
    ("act now", style.CRITICAL),
)

SERIOUS = 'severity=~"critical|warning"'
FIRING = f'ALERTS{{ALERT,alertstate="firing",{SERIOUS}}}'
SINCE = f"ALERTS_FOR_STATE{{ALERT,{SERIOUS}}} and ignoring (alertstate) {FIRING}"

_WHAT = ", ".join(
    f'"{part}"'
    for part in (
        *("what", " "),
        *("worker", "server", "rank", "gpu", "path", "container", "checkpoint", "rollout", "log"),
        *("source", "pattern", "name", "collector", "watch", "config", "cause", "reason"),
        "receiver",
    )
)


def with_what(alerts: str) -> str:
    """A query for `alerts` that says in one more label, `what`, what each is about."""
    numbered = f'label_replace({alerts}, "gpu", "GPU $1", "gpu", "(.+)")'
    numbered = f'label_replace({numbered}, "rank", "rank $1", "rank", "(.+)")'
    return f"label_join({numbered}, {_WHAT})"


WATCHED = """
    0 * (up{BOX,job="trainwarden-exporter"} == 1)
      and on () ALERTS{alertname="TrainingWatchdog",alertstate="firing"}
"""
"""0 for each host whose problems would show: it is scraped, and the rules are evaluated."""


def standing(scope: str, by: str = "", watched: str = WATCHED) -> str:
    """How things stand, as a number of `VERDICTS`; nothing for what is not watched."""
    return f"""
    max{by}(
      2 * ALERTS{{{scope},alertstate="firing",severity="critical"}}
      or ALERTS{{{scope},alertstate="firing",severity="warning"}}
      or {watched.strip()}
    )
    """


def verdict(width: int) -> Stat:
    """The verdict: the first panel to read."""
    return Stat(
        title="Verdict",
        about=(
            "From the alerts that fire for the selection above. Good: all well, shown only "
            "while the host is scraped and Prometheus evaluates the rules. Look today: warnings "
            "only. Act now: at least one critical alert; the table below says which."
        ),
        queries=[Query(standing("ALERT"))],
        unit=NAME,
        width=width,
        filled=True,
        meanings=VERDICTS,
        scale=style.Scale(style.CRITICAL),
        empty="not watched",
    )


def alerts_now() -> Table:
    """Every alert that fires."""
    return Table(
        title="Firing alerts",
        about=(
            "Good: no row. An alert links to its runbook, a run to its board. Alertmanager may "
            "mute some of these under their cause."
        ),
        queries=[
            Query(
                f"""
                1000 * max by (severity, alertname, run, what, remediation, instance) (
                  {with_what(SINCE)}
                )
                """,
                "since",
                why.NO_ALERT,
            )
        ],
        empty="No alert fires. Whether the rules are evaluated at all, the verdict says.",
        width=13,
        height=4,
        columns=[
            Column(name="severity", colours=tuple(style.SEVERITY_COLOURS.items()), width=90),
            Column(
                name="alertname",
                title="alert",
                url=f"{RUNBOOKS}/${{__value.text}}.md",
                width=280,
            ),
            Column(name="since", unit="dateTimeFromNow", width=140),
            Column(name="run", url="/d/trainwarden-run?var-run=${__value.text}", width=120),
            Column(name="what", width=300),
            Column(name="remediation", title="remediator", width=200),
            Column(name="instance"),
        ],
    )


ALERT_MARKS = Mark(
    "Alerts",
    FIRING,
    "{{alertname}} {{worker}}",
    style.CRITICAL,
    why.NO_ALERT,
)
START_MARKS = Mark(
    "Starts of workers",
    "1000 * trainwarden_worker_start_timestamp_seconds{RUN}",
    "{{worker}} started",
    style.CALM,
    why.NO_WORKERS,
    moments=True,
)
CHECKPOINT_MARKS = Mark(
    "Checkpoints",
    "1000 * trainwarden_checkpoint_timestamp_seconds{RUN}",
    "checkpoint of {{run}} complete",
    "purple",
    why.NO_CHECKPOINTS,
    moments=True,
    shown=False,
)
ALERT_OF_BOX_MARKS = replace(ALERT_MARKS, text=FIRING.replace("ALERT,", "ALERT_OF_BOX,"))
MARKS = (ALERT_MARKS, START_MARKS, CHECKPOINT_MARKS)
