"""The main board of a run: its health, and the actions taken."""

from __future__ import annotations

from boards import healing, limits, run_box, run_training, style, why
from boards.board import Board
from boards.layout import Row
from boards.panels import COUNT, NAME, SHARE, Stat
from boards.queries import Query
from boards.style import NONE_IS_GOOD, falling, rising, words
from boards.variables import HOST, INSTANCE, RUN
from boards.verdict import MARKS, alerts_now, phase, verdict

VERDICT = Row(
    "Verdict",
    [
        verdict(5),
        phase(5),
        Stat(
            title="Step",
            about="Steps done, counted from one. Good: it grows.",
            queries=[
                Query("max by (run) (trainwarden_training_step{RUN})", "{{run}}", why.NO_STEPS)
            ],
            unit=NAME,
            width=3,
            empty="not reported",
        ),
        Stat(
            title="Done",
            about="Of all steps of the run, as reported or configured. Good: it grows.",
            queries=[
                Query(
                    "max by (run) (trainwarden_training_step{RUN}"
                    " / trainwarden_training_total_steps{RUN})",
                    "{{run}}",
                    why.NO_TOTAL,
                )
            ],
            unit=SHARE,
            width=3,
            empty="no total known",
        ),
        Stat(
            title="Silence, relative to the limit",
            about=(
                "Time since the last sign of progress, as a share of the time after which the run "
                "counts as stalled in its present phase. Good: well under 60 %, where the warning "
                "TrainingStepStalled begins; at 100 % it is critical and the run is restarted."
            ),
            queries=[
                Query(
                    "max by (run) (run:trainwarden_training_stall:ratio{RUN})",
                    "{{run}}",
                    why.RUN_OVER,
                )
            ],
            unit=SHARE,
            decimals=0,
            width=4,
            scale=rising(limits.NEARLY_STALLED.value, limits.STALLED.value),
            empty="no sign yet",
        ),
        Stat(
            title="Checkpoint age, in intervals",
            about=(
                "Age of the newest complete checkpoint over the time between two, as configured "
                "or as seen. Good: up to 1. From 2 on TrainingCheckpointOverdue warns: if the run "
                "died now, this much would be lost."
            ),
            queries=[
                Query(
                    """
                    max by (run, checkpoint) (
                      (
                        trainwarden_checkpoint_seen_timestamp_seconds{RUN}
                          - trainwarden_checkpoint_timestamp_seconds{RUN}
                      )
                      / trainwarden_checkpoint_interval_seconds{RUN}
                    )
                    """,
                    "{{checkpoint}}",
                    why.NO_CHECKPOINTS,
                )
            ],
            unit=NAME,
            decimals=1,
            width=4,
            scale=rising(limits.CHECKPOINT_OVERDUE.value, None),
            empty="none known",
        ),
        Stat(
            title="Worker processes missing",
            about="Of the configured number of processes. Good: 0.",
            queries=[
                Query(
                    """
                    sum(
                      clamp_min(
                        trainwarden_worker_expected_processes{RUN}
                          - trainwarden_worker_processes{RUN},
                        0
                      )
                      unless trainwarden_worker_finished{RUN} == 1
                    )
                    or 0 * max(trainwarden_worker_expected_processes{RUN})
                    """,
                    "",
                    why.NO_WORKERS,
                )
            ],
            unit=NAME,
            width=4,
            scale=NONE_IS_GOOD,
            empty="none configured",
        ),
        Stat(
            title="Inference servers down",
            about="Servers that do not serve, unintentionally. Good: 0.",
            queries=[Query("sum(1 - trainwarden_inference_up{RUN})", "", why.NO_SERVERS)],
            unit=NAME,
            width=4,
            scale=NONE_IS_GOOD,
            empty="none configured",
        ),
        Stat(
            title="GPUs lost · held by leftovers",
            about=(
                "GPUs that have fallen off the bus, and processes that hold a GPU and belong to "
                "no run. Good: 0 and 0. Leftovers are ended by the remediator."
            ),
            queries=[
                Query("sum(1 - trainwarden_gpu_up{BOX})", "lost", why.NO_GPU),
                Query("sum(trainwarden_gpu_orphan_holders{BOX})", "leftovers", why.NO_GPU),
            ],
            unit=NAME,
            width=4,
            scale=NONE_IS_GOOD,
            empty="no GPU",
        ),
        Stat(
            title="Memory above the floor",
            about=(
                "Memory available within host and cgroup, minus the floor that should stay "
                "available. Good: far above 0; under 0 TrainingMemoryFloor fires and a worker is "
                "restarted to relieve the host."
            ),
            queries=[
                Query(
                    """
                    min(
                      trainwarden_memory_effective_available_bytes{BOX}
                        - trainwarden_memory_available_floor_bytes{BOX}
                    )
                    """
                )
            ],
            unit="bytes",
            decimals=1,
            width=4,
            scale=falling(None, 0),
            empty="not seen",
        ),
        Stat(
            title="Checkpoints that still fit",
            about=(
                "How often the newest checkpoint still fits on its disk. Good: "
                "many. Under 3 TrainingDiskFilling warns; under 1 the next save fails, and "
                "restarts are held."
            ),
            queries=[Query("min(trainwarden_disk_checkpoints_left{RUN})", "", why.NO_CHECKPOINTS)],
            unit=COUNT,
            decimals=0,
            width=4,
            scale=falling(limits.LITTLE_ROOM.value, limits.NO_ROOM.value),
            empty="none known",
        ),
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
            width=4,
            meanings=words(("observes", style.CALM), ("acts", style.GOOD), ("held", style.WARNING)),
            scale=style.Scale(style.CRITICAL),
            empty="not there",
        ),
        alerts_now(),
    ],
)


REMEDIATOR = Row(
    "What the remediator did",
    [
        healing.acted(),
        healing.healed(),
        healing.not_healed(),
        healing.given_up(),
        healing.count(
            "Needs an operator",
            "Workers whose alert fires and was given up: no further automatic action. Good: 0.",
            "trainwarden_remediator_incident_abandoned{HEALED}",
            NONE_IS_GOOD,
        ),
        healing.count(
            "Open incidents",
            "Alerts with a playbook, neither over nor given up, of all runs of the host. Good: 0.",
            "trainwarden_remediator_open_incidents{HEALER}",
        ),
        healing.actions_by_worker(12),
        healing.decisions(12),
    ],
)

BOARD = Board(
    uid="trainwarden-run",
    title="Run",
    about=(
        "Is my run healthy? From the verdict to its causes: actions of the remediator, progress "
        "and checkpoints, rollouts and inference, GPUs, workers and memory, logs, the exporter."
    ),
    variables=[INSTANCE, HOST, RUN],
    rows=[
        VERDICT,
        REMEDIATOR,
        run_training.PROGRESS,
        run_training.ROLLOUTS,
        run_box.GPUS,
        run_box.WORKERS,
        run_box.LOGS,
        run_box.EXPORTER,
    ],
    marks=MARKS,
    since="now-3h",
    refresh="15s",
)
