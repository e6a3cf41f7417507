"""The first board: whether a run is well, what is done about it, and when it ends."""

from __future__ import annotations

from boards import healing, limits, style, why
from boards.board import RUNBOOKS, Board
from boards.layout import Row
from boards.panels import COUNT, NAME, SECONDS, SHARE, Bars, Graph, Stat, Text, Timeline
from boards.queries import Query, coded
from boards.serving import REASON_WORDS, REASONS
from boards.style import Word, rising, words
from boards.variables import HOST, INSTANCE, ONE_RUN
from boards.verdict import MARKS, PHASE_WORDS, PHASES, alerts_now, verdict

WORKERS_FROM, SERVERS_FROM = 20, 30
WORKER_WORDS = (("running", style.GOOD), ("missing", style.CRITICAL), ("finished", style.UNKNOWN))
COURSE_WORDS = (
    *PHASE_WORDS,
    *(Word(WORKERS_FROM + place, *pair) for place, pair in enumerate(WORKER_WORDS)),
    *(Word(SERVERS_FROM + word.number, word.text, word.colour) for word in REASON_WORDS),
)

PHASES_FROM = -len(PHASES)
"""Below all steps, which stand beside them."""
WHAT_TO_DO = f"""
- Stop all actions on it: `trainwarden hold --run $run --for 2h 'why'`; undo: `trainwarden resume
  --run $run`
- How it is: `trainwarden status`; what was done last night: `trainwarden report`
- What a stalled run does: `trainwarden stacks $run`
- Silence an alert: in Alertmanager; the remediator does not act on what is silenced
- [Runbooks]({RUNBOOKS}) of all alerts; on the host: `trainwarden runbook NAME`
"""

LEFT = "trainwarden_training_total_steps{RUN} - trainwarden_training_step{RUN}"
PACE = "(deriv(trainwarden_training_step{RUN}[30m]) > 0)"

NOW = Row(
    "Is it well?",
    [
        verdict(5),
        alerts_now(),
        Stat(
            title="Remediator",
            about=(
                "Acts: it heals. Observes: it only records the actions that it would take "
                "(mode: observe). Held: an operator has stopped all actions with a hold. Good: "
                "the mode that you chose."
            ),
            queries=[
                Query(
                    """
                    max(
                      2 * (trainwarden_remediator_paused{HEALER} == 1)
                      or ignoring (mode) trainwarden_remediator_mode{HEALER,mode="act"}
                    )
                    """,
                    "",
                    why.NO_REMEDIATOR,
                )
            ],
            unit=NAME,
            width=6,
            meanings=words(("observes", style.CALM), ("acts", style.GOOD), ("held", style.WARNING)),
            scale=style.Scale(style.CRITICAL),
            empty="not there",
        ),
        Stat(
            title="Progress",
            about=(
                "The phase of the run, the steps done, counted from one, and of how many. Good: "
                "training most of the time, and steps that grow. Saving, evaluating and starting "
                "have limits of their own and are no stalls."
            ),
            queries=[
                Query(
                    coded("trainwarden_training_phase{RUN}", "phase", PHASES, PHASES_FROM),
                    "phase",
                    why.NO_PHASE,
                ),
                Query("max by (run) (trainwarden_training_step{RUN})", "step", why.NO_STEPS),
                Query("max by (run) (trainwarden_training_total_steps{RUN})", "of", why.NO_TOTAL),
            ],
            unit=NAME,
            width=6,
            named=True,
            meanings=tuple(
                Word(PHASES_FROM + word.number, word.text, word.colour) for word in PHASE_WORDS
            ),
            empty="not reported",
        ),
        Stat(
            title="Ends",
            about=(
                "When the last step is made, at the pace of the last half hour. Good: in time. Not "
                "moving: the run made no step in that time."
            ),
            queries=[
                Query(f"1000 * (time() + max by (run) (({LEFT}) / {PACE}))", "", why.NO_TOTAL)
            ],
            unit="dateTimeFromNow",
            width=6,
            empty="not moving",
        ),
        Bars(
            title="Time without progress, of its limit",
            about=(
                "Time since the last step or change of phase, as a share of what the present phase "
                "may take. Good: a few percent; at 100 % TrainingStepStalled fires, and the run is "
                "restarted."
            ),
            queries=[Query("max(run:trainwarden_training_stall:ratio{RUN})", "used", why.RUN_OVER)],
            unit=SHARE,
            low=0,
            high=1,
            width=6,
            height=4,
            scale=rising(limits.NEARLY_STALLED.value, limits.STALLED.value),
        ),
        Stat(
            title="Last checkpoint",
            about=(
                "Age of the newest complete checkpoint: what a crash would cost now. Good: less "
                "than the interval; at twice the interval TrainingCheckpointOverdue warns."
            ),
            queries=[
                Query(
                    "min by (run) (time() - trainwarden_checkpoint_timestamp_seconds{RUN})",
                    "age",
                    why.NO_CHECKPOINTS,
                ),
                Query(
                    "min by (run) (trainwarden_checkpoint_interval_seconds{RUN})",
                    "every",
                    why.NO_INTERVAL,
                ),
            ],
            unit=SECONDS,
            width=6,
            named=True,
            empty="none known",
        ),
    ],
)

COURSE = Row(
    "How does it go?",
    [
        Graph(
            title="Steps per hour",
            about="At the pace of ten minutes, and as usual. Good: close together.",
            queries=[
                Query(
                    "3600 * max by (run) (deriv(trainwarden_training_step{RUN}[10m]) >= 0)",
                    "now",
                    why.NO_STEPS,
                ),
                Query(
                    "3600"
                    " / max by (run) (trainwarden_training_step_duration_median_seconds{RUN} > 0)",
                    "usual",
                    why.NO_STEPS,
                ),
            ],
            unit=COUNT,
            width=12,
            height=7,
        ),
        Graph(
            title="Loss and reward",
            about="From the log, under the names that it has there. Good: as expected.",
            queries=[
                Query(
                    'trainwarden_log_value{RUN,name=~".*(loss|reward).*"}',
                    "{{name}} in {{log}}",
                    why.NO_NUMBER,
                )
            ],
            unit=COUNT,
            width=12,
            height=7,
        ),
        Timeline(
            title="Phase, workers and servers",
            about=(
                "What the run did when, and how each of its workers and servers was. Good: mostly "
                "training, running and ok. Missing for 20 s is TrainingWorkerGone; a server that "
                "refuses for 10 s is TrainingInferenceDown."
            ),
            queries=[
                Query(
                    coded("trainwarden_training_phase{RUN}", "phase", PHASES),
                    "phase",
                    why.NO_PHASE,
                ),
                Query(
                    f"""
                    {WORKERS_FROM + 2} * (trainwarden_worker_finished{{RUN}} == 1)
                    or {WORKERS_FROM} + (
                      trainwarden_worker_processes{{RUN}}
                        < bool trainwarden_worker_expected_processes{{RUN}}
                    )
                    """,
                    "{{worker}}",
                    why.NO_WORKERS,
                ),
                Query(
                    coded("trainwarden_inference_reason{RUN}", "reason", REASONS, SERVERS_FROM),
                    "{{server}}",
                    why.NO_SERVERS,
                ),
            ],
            width=24,
            height=6,
            meanings=COURSE_WORDS,
        ),
        healing.actions_by_worker(),
        Graph(
            title="GPUs busy",
            about=(
                "The least and the most busy GPU of the host, the mean, and the memory in use of "
                "the fullest. Good: high and even."
            ),
            queries=[
                Query(f"{function}(trainwarden_gpu_utilization_ratio{{BOX}})", legend, why.NO_GPU)
                for function, legend in (("min", "lowest"), ("avg", "mean"), ("max", "highest"))
            ]
            + [
                Query(
                    "max(1 - trainwarden_gpu_memory_free_bytes{BOX}"
                    " / trainwarden_gpu_memory_total_bytes{BOX})",
                    "memory of the fullest",
                    why.NO_GPU,
                )
            ],
            unit=SHARE,
            high=1,
            width=12,
            height=6,
        ),
        Bars(
            title="Nearest to its limit",
            about=(
                "How much of each limit is used: at 100 % its alert is critical. Good: well under "
                "100 %."
            ),
            queries=[
                Query(
                    "max(trainwarden_worker_memory_bytes{RUN}"
                    " / trainwarden_worker_memory_limit_bytes{RUN})",
                    "memory of a worker",
                    why.NO_MEMORY_LIMIT,
                ),
                Query(
                    "max(trainwarden_memory_available_floor_bytes{BOX}"
                    " / trainwarden_memory_effective_available_bytes{BOX})",
                    "memory of the host",
                ),
                Query(
                    "1 / (min(trainwarden_disk_checkpoints_left{RUN}) > 0)",
                    "disk for a checkpoint",
                    why.NO_CHECKPOINTS,
                ),
                Query(
                    "max(trainwarden_inference_kv_cache_usage_ratio{RUN})",
                    "KV cache",
                    why.NOT_REPORTED,
                ),
            ],
            unit=SHARE,
            low=0,
            high=1,
            width=12,
            height=6,
            scale=rising(limits.NEARLY_STALLED.value, limits.STALLED.value),
        ),
        Text(
            title="What you can do",
            about="Commands, on the host of the run. Good: nothing to do.",
            content=WHAT_TO_DO,
            width=12,
            height=6,
        ),
    ],
)

BOARD = Board(
    uid="trainwarden-run",
    title="Run",
    about="Is this run well, what is done about it, how does it go and when does it end?",
    variables=[INSTANCE, HOST, ONE_RUN],
    rows=[NOW, COURSE],
    marks=MARKS,
    since="now-3h",
    refresh="15s",
)
