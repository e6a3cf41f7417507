"""Where the time of a run went, what its interruptions cost, and in what."""

from __future__ import annotations

from boards import why
from boards.board import Board
from boards.layout import Row
from boards.panels import COUNT, NAME, SECONDS, SHARE, Bars, Graph, Stat, number
from boards.queries import Query
from boards.style import falling
from boards.tables import Column, Table
from boards.variables import HOST, INSTANCE, RUN
from boards.verdict import ALERT_MARKS, START_MARKS

GOAL = 0.9
"""Effective training time ratio that a well-kept run reaches."""
POOR = 0.7
"""The default of `progress.ettr_minimum`."""
LOST = 'state=~"starting|first_step|stalled|redoing|down|held"'


def _ratio(title: str, over: str, metric: str) -> Stat:
    return Stat(
        title=title,
        about=(
            f"Effective training time ratio {over}: the share of the time in which the run makes "
            "new steps, evaluates and saves. Good: over 90 %; under `progress.ettr_minimum` (70 %) "
            "over six hours, TrainingTimeLost warns."
        ),
        queries=[Query(f"min by (run, instance) ({metric}{{RUN}})", "{{run}}", why.NO_RUN)],
        unit=SHARE,
        decimals=1,
        width=6,
        scale=falling(GOAL, POOR),
        empty="not yet known",
    )


EFFECTIVE = Row(
    "Effective training time",
    [
        _ratio("Last hour", "over the last hour", "run:trainwarden_run_ettr:ratio1h"),
        _ratio("Last 24 hours", "over the last day", "run:trainwarden_run_ettr:ratio1d"),
        _ratio("Whole run", "since the run was first watched", "run:trainwarden_run_ettr:ratio"),
        number(
            "Interruptions",
            "Times in the time shown in which a run was down or stalled, until its next new step. "
            "Good: 0.",
            "sum(round(increase(trainwarden_run_interruptions_total{RUN}[$__range])))",
            why.NO_RUN,
            width=6,
            unit=COUNT,
            empty="not yet known",
        ),
    ],
)

_BY = "max by (run, instance)"

STATES = Row(
    "Time by state",
    [
        Bars(
            title="Time by state, by run",
            about="In the time shown; each second of a run is in one state. Good: mostly training.",
            queries=[
                Query(
                    "sum by (run, instance, state) ("
                    "increase(trainwarden_run_time_seconds_total{RUN}[$__range])) > 1",
                    "{{run}} {{state}} {{instance}}",
                    why.NO_RUN,
                )
            ],
            unit=SECONDS,
            width=8,
            height=10,
        ),
        Graph(
            title="Share of each state over time",
            about="Good: training, and what belongs to a step. The gaps are faults.",
            queries=[
                Query(
                    """
                    avg by (run, instance, state) (
                      rate(trainwarden_run_time_seconds_total{RUN}[$__rate_interval])
                    )
                    """,
                    "{{run}} {{state}} {{instance}}",
                    why.NO_RUN,
                )
            ],
            unit=SHARE,
            width=16,
            height=10,
            stacked=True,
        ),
        Graph(
            title="ETTR over six hours",
            about="Effective training time ratio, and its limit. Good: over 90 %.",
            queries=[
                Query("run:trainwarden_run_ettr:ratio6h{RUN}", "{{run}} {{instance}}", why.NO_RUN),
                Query(
                    "trainwarden_run_ettr_minimum_ratio{RUN}",
                    "{{run}} {{instance}} limit",
                    why.NO_RUN,
                    limit=True,
                ),
            ],
            unit=SHARE,
            high=1,
            width=12,
        ),
        Table(
            title="Interruptions and attempts",
            about=(
                "The last interruption of each run, and how its last attempts ended. Good: no "
                "interruption, and no attempts that end alike: these are a loop."
            ),
            queries=[
                Query(f"{_BY} (trainwarden_run_ended_attempts{{RUN}})", "ended", why.NO_ATTEMPT),
                Query(
                    f"{_BY} (trainwarden_run_ended_alike_attempts{{RUN}})", "alike", why.NO_ATTEMPT
                ),
                Query(
                    f"1000 * {_BY} (trainwarden_run_interruption_start_timestamp_seconds{{RUN}})",
                    "began",
                    why.NO_INTERRUPTION,
                ),
                Query(
                    f"{_BY} (trainwarden_run_interruption_end_timestamp_seconds{{RUN}}"
                    " - trainwarden_run_interruption_start_timestamp_seconds{RUN})",
                    "lasted",
                    why.NO_INTERRUPTION,
                ),
                Query(
                    f"{_BY} (trainwarden_run_interruption_steps_redone{{RUN}})",
                    "redone",
                    why.NO_INTERRUPTION,
                ),
            ],
            width=12,
            columns=[
                Column(name="run"),
                Column(name="instance"),
                Column(name="began", title="last interruption", unit="dateTimeFromNow"),
                Column(name="lasted", unit=SECONDS),
                Column(name="redone", title="steps redone", decimals=0),
                Column(name="ended", title="ended attempts", decimals=0, unit=NAME),
                Column(name="alike", title="alike", decimals=0, unit=NAME),
            ],
        ),
    ],
)

_COSTLY = f"""
$__interval_ms / 1000 * sum by (alertname) (sum_over_time((
  max by (alertname, run, instance) (ALERTS{{RUN,alertstate="firing",severity="critical"}})
  and on (run, instance)
    sum by (run, instance) (
      rate(trainwarden_run_time_seconds_total{{RUN,{LOST}}}[$__rate_interval])
    ) > 0.1
)[$__range:$__interval]))
"""
_A_DAY = "sum by (run, instance, state)"

COST = Row(
    "What it cost",
    [
        Bars(
            title="Most expensive causes of the week",
            about=(
                "For how long each critical alert fired in the last seven days while its run lost "
                "time. Time with two alerts counts for both. Good: none."
            ),
            is_of_the_week=True,
            queries=[Query(_COSTLY, "{{alertname}}", why.NO_INTERRUPTION)],
            unit=SECONDS,
            width=12,
        ),
        Table(
            title="Cost by state, last 24 hours",
            about=(
                "GPUs that a run holds, or held before it was down, and the price in the currency "
                "of `host.price_per_hour`. Good: mostly training."
            ),
            queries=[
                Query(
                    f"{_A_DAY} (run_state:trainwarden_run_gpu_seconds:increase1d{{RUN}}) / 3600 "
                    "> 0.01",
                    "hours",
                    why.NO_GPU_HELD,
                ),
                Query(
                    f"{_A_DAY} (run_state:trainwarden_run_price:increase1d{{RUN}}) > 0",
                    "price",
                    why.NO_PRICE,
                ),
            ],
            width=12,
            columns=[
                Column(name="run"),
                Column(name="instance"),
                Column(name="state"),
                Column(name="hours", title="GPU hours", decimals=1),
                Column(name="price", decimals=2),
            ],
        ),
    ],
)

BOARD = Board(
    uid="trainwarden-time",
    title="Where the time went",
    about="How much of the time was training, what did each interruption cost, and in what?",
    variables=[INSTANCE, HOST, RUN],
    marks=[ALERT_MARKS, START_MARKS],
    since="now-24h",
    refresh="1m",
    rows=[EFFECTIVE, STATES, COST],
)
