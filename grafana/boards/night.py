"""What happened while you slept: alerts, what was done about them, and what it cost."""

from __future__ import annotations

from boards import healing, night_course, style, why
from boards.board import RUNBOOKS, Board
from boards.layout import Row
from boards.panels import SECONDS, SHARE, Timeline, number
from boards.queries import Query, gained
from boards.style import rising, words
from boards.tables import Column, Table
from boards.variables import HOST, INSTANCE, RUN
from boards.verdict import FIRING, MARKS, WATCHED, with_what

ALERTS_BY = "by (severity, alertname, run, what, instance)"
CRITICAL_AS_TWO = (
    f"2 * {FIRING.replace('critical|warning', 'critical')}"
    f" or {FIRING.replace('critical|warning', 'warning')}"
)
OVER = "[$__range:$__interval]"
"""As many looks at which alerts fired as the panel has points, however long the range is."""
MOMENTS = f"timestamp({FIRING}){OVER}"


NIGHT = Row(
    "The night in numbers",
    [
        number(
            "Alerts",
            "That fired, warnings and critical ones, each place once. Good: few, and all healed.",
            f"count(max {ALERTS_BY} ({with_what(f'last_over_time({FIRING}[$__range])')}))"
            f" or max({WATCHED.strip()})",
            scale=rising(1, None),
            empty="not watched",
        ),
        healing.healed(),
        healing.given_up(),
        number(
            "Steps made",
            "Between the lowest and the highest step in the time shown. Good: as many as usual.",
            """
            sum(
              max by (run) (
                max_over_time(trainwarden_training_step{RUN}[$__range])
                  - min_over_time(trainwarden_training_step{RUN}[$__range])
              )
            )
            """,
            why.NO_STEPS,
        ),
        number(
            "Steps lost",
            "Done again after a resume. Good: 0, or under what lies between two checkpoints.",
            "sum(round(increase(trainwarden_training_steps_repeated_total{RUN}[$__range])))",
            why.NO_RUN,
            rising(1, None),
        ),
        number(
            "Time spent training",
            "Of the time with a reported phase. Good: most of it.",
            'avg(avg_over_time(trainwarden_training_phase{RUN,phase="training"}[$__range]))',
            why.NO_STEPS,
            unit=SHARE,
        ),
    ],
)

ALERTS = Row(
    "Alerts",
    [
        Timeline(
            title="Alert timeline",
            about="Yellow: warnings. Red: critical. Good: empty, or short bars that healed.",
            queries=[
                Query(
                    f"""
                    max by (alertname, what) (
                      {with_what(CRITICAL_AS_TWO)}
                    )
                    """,
                    "{{alertname}} {{what}}",
                    why.NO_ALERT_FIRED,
                )
            ],
            width=24,
            height=8,
            meanings=words(
                ("", style.UNKNOWN), ("warning", style.WARNING), ("critical", style.CRITICAL)
            ),
        ),
        Table(
            title="Alerts in detail",
            about="When each fired, and for how long, with a link to its runbook. Good: no row.",
            queries=[
                Query(
                    f"1000 * min {ALERTS_BY} ({with_what(f'min_over_time({MOMENTS})')})",
                    "first",
                    why.NO_ALERT_FIRED,
                ),
                Query(
                    f"1000 * max {ALERTS_BY} ({with_what(f'max_over_time({MOMENTS})')})",
                    "last",
                    why.NO_ALERT_FIRED,
                ),
                Query(
                    f"$__interval_ms / 1000 * sum {ALERTS_BY} "
                    f"({with_what(f'count_over_time({FIRING}{OVER})')})",
                    "for",
                    why.NO_ALERT_FIRED,
                ),
            ],
            empty="No alert fired in this time, as far as the rules were evaluated.",
            width=24,
            height=8,
            columns=[
                Column(name="first", unit="dateTimeAsLocal", width=180),
                Column(name="last", unit="dateTimeAsLocal", width=180),
                Column(name="for", title="total duration", unit=SECONDS, width=100),
                Column(name="severity", colours=tuple(style.SEVERITY_COLOURS.items()), width=90),
                Column(
                    name="alertname",
                    title="alert",
                    url=f"{RUNBOOKS}/${{__value.text}}.md",
                    width=280,
                ),
                Column(name="run", url="/d/trainwarden-run?var-run=${__value.text}", width=120),
                Column(name="what"),
                Column(name="instance"),
            ],
            sorted_by="first",
        ),
    ],
)

DONE = Row(
    "Actions",
    [
        healing.outcomes_by_worker(),
        Table(
            title="Ends of workers",
            about="By exit code or signal. Good: only ends that you or the remediator asked for.",
            queries=[
                Query(
                    "sum by (run, worker, status) ("
                    f"{gained('trainwarden_worker_exits_total{RUN}')}) > 0",
                    "times",
                    why.NO_END,
                )
            ],
            width=12,
            height=6,
            columns=[
                Column(name="run"),
                Column(name="worker"),
                Column(name="status"),
                Column(name="times", decimals=0),
            ],
        ),
    ],
)

BOARD = Board(
    uid="trainwarden-night",
    title="Night report",
    about="What happened while you slept: alerts, actions, outcomes, steps lost.",
    variables=[INSTANCE, HOST, RUN],
    marks=MARKS,
    since="now-12h",
    refresh="5m",
    rows=[NIGHT, ALERTS, DONE, night_course.BOX],
)
