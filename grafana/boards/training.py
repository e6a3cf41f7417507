"""The training of a run: its progress and checkpoints, and its rollouts."""

from __future__ import annotations

from boards import limits, logs, why
from boards.board import Board
from boards.checkpoints import checkpoints_table, steps
from boards.layout import Row
from boards.panels import COUNT, SECONDS, Graph
from boards.queries import Query
from boards.style import falling
from boards.variables import HOST, INSTANCE, RUN
from boards.verdict import MARKS

PROGRESS = Row(
    "Progress and checkpoints",
    [
        steps(),
        Graph(
            title="Step duration",
            about=(
                "What the last step took, and what one usually takes. Good: close together; a "
                "median that creeps up is a leak of time somewhere."
            ),
            queries=[
                Query(
                    "max by (run) (trainwarden_training_step_duration_seconds{RUN})",
                    "{{run}} last",
                    why.NO_STEPS,
                ),
                Query(
                    "max by (run) (trainwarden_training_step_duration_median_seconds{RUN})",
                    "{{run}} usual",
                    why.NO_STEPS,
                ),
            ],
            unit=SECONDS,
            stepped=True,
        ),
        Graph(
            title="Silent for",
            about=(
                "Time since the last step or change of phase, and its limit in the "
                "present phase. Good: a low saw; at the line TrainingStepStalled fires, and the "
                "run is restarted."
            ),
            queries=[
                Query(
                    "max by (run) (run:trainwarden_training_quiet_seconds:unfinished{RUN})",
                    "{{run}}",
                    why.RUN_OVER,
                ),
                Query(
                    "max by (run) (trainwarden_training_stall_pause_limit_seconds{RUN})",
                    "{{run}} limit",
                    why.NO_RUN,
                    limit=True,
                ),
            ],
            unit=SECONDS,
        ),
        Graph(
            title="Age of the newest checkpoint",
            about=(
                "The work lost if the run died now, in time. Good: a sawtooth under half "
                "of the line; at the line, twice the interval, TrainingCheckpointOverdue warns."
            ),
            queries=[
                Query(
                    """
                    max by (run, checkpoint) (
                      trainwarden_checkpoint_seen_timestamp_seconds{RUN}
                        - trainwarden_checkpoint_timestamp_seconds{RUN}
                    )
                    """,
                    "{{run}} {{checkpoint}}",
                    why.NO_CHECKPOINTS,
                ),
                Query(
                    f"""
                    max by (run, checkpoint) (
                      {limits.CHECKPOINT_OVERDUE.value:g}
                        * trainwarden_checkpoint_interval_seconds{{RUN}}
                    )
                    """,
                    "{{run}} {{checkpoint}} limit",
                    why.NO_CHECKPOINTS,
                    limit=True,
                ),
            ],
            unit=SECONDS,
            width=12,
        ),
        Graph(
            title="Checkpoints that still fit, by disk",
            about=(
                "Free space in newest checkpoints. Good: many. At 3 TrainingDiskFilling warns; at "
                "1 the next save fails, and restarts are held."
            ),
            queries=[
                Query(
                    "min by (run, checkpoint, path) (trainwarden_disk_checkpoints_left{RUN})",
                    "{{run}} {{checkpoint}} on {{path}}",
                    why.NO_CHECKPOINTS,
                )
            ],
            unit=COUNT,
            width=12,
            scale=falling(limits.LITTLE_ROOM.value, limits.NO_ROOM.value),
            shaded=True,
        ),
        checkpoints_table(),
    ],
)

ROLLOUTS = Row(
    "Rollouts",
    [
        Graph(
            title="Rollouts behind the trainer",
            about=(
                "Steps that the newest complete batch is behind what the trainer needs next, and "
                "how many it may be. Good: 0; at the line TrainingRolloutLag warns."
            ),
            queries=[
                Query(
                    "max by (run, rollout) (trainwarden_rollout_lag_steps{RUN})",
                    "{{run}} {{rollout}}",
                    why.NO_ROLLOUTS,
                ),
                Query(
                    "max by (run, rollout) (trainwarden_rollout_lag_limit_steps{RUN})",
                    "{{run}} {{rollout}} limit",
                    why.NO_ROLLOUTS,
                    limit=True,
                ),
            ],
            unit=COUNT,
            stepped=True,
        ),
        Graph(
            title="The trainer waits for a batch",
            about=(
                "For how long. Good: nothing, or short spikes under a step's time. When nobody "
                "can deliver, TrainingWaitingForRollouts says after 30 s who is missing."
            ),
            queries=[
                Query(
                    "max by (run) (run:trainwarden_rollout_waiting_seconds:max{RUN})",
                    "{{run}}",
                    why.NOBODY_WAITS,
                )
            ],
            unit=SECONDS,
        ),
        Graph(
            title="Policy staleness",
            about=(
                "Steps that it is behind the trainer's, and how many it may be. Good: under the "
                "line, where TrainingPolicyStale warns: do new weights reach the servers?"
            ),
            queries=[
                Query(
                    "max by (run, rollout) (trainwarden_rollout_staleness_steps{RUN})",
                    "{{run}} {{rollout}}",
                    why.NO_POLICY,
                ),
                Query(
                    "max by (run, rollout) (trainwarden_rollout_staleness_limit_steps{RUN})",
                    "{{run}} {{rollout}} limit",
                    why.NO_STALENESS_LIMIT,
                    limit=True,
                ),
            ],
            unit=COUNT,
            stepped=True,
        ),
    ],
)


BOARD = Board(
    uid="trainwarden-training",
    title="Training",
    about="How does the training go: steps, checkpoints, rollouts, loss and reward, errors?",
    variables=[INSTANCE, HOST, RUN],
    marks=MARKS,
    since="now-6h",
    rows=[PROGRESS, ROLLOUTS, logs.LOGS],
)
