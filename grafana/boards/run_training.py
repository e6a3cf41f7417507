"""Of the board of a run: its progress and checkpoints, its rollouts and inference servers."""

from __future__ import annotations

from boards import limits, why
from boards.checkpoints import checkpoints_table, steps
from boards.layout import Row
from boards.panels import BYTES, COUNT, SECONDS, SHARE, Graph
from boards.queries import Query
from boards.serving import server_states
from boards.style import falling, rising
from boards.verdict import phases

PROGRESS = Row(
    "Progress and checkpoints",
    [
        phases(24),
        steps(
            "Steps",
            "Steps done, and the step of the newest complete checkpoint: the distance is what "
            "would be lost. Good: a straight line up; a step down is a resume.",
            8,
        ),
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
        ),
        Graph(
            title="Save duration",
            about=(
                "From the first to the last write of the newest complete checkpoint. Good: even; "
                "a disk that fills up or slows down shows here first."
            ),
            queries=[
                Query(
                    "max by (run, checkpoint) (trainwarden_checkpoint_save_seconds{RUN})",
                    "{{run}} {{checkpoint}}",
                    why.NO_FOLDER,
                )
            ],
            unit=SECONDS,
            stepped=True,
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
            scale=falling(limits.LITTLE_ROOM.value, limits.NO_ROOM.value),
            shaded=True,
        ),
        checkpoints_table(),
        Graph(
            title="Free on disk",
            about="What ordinary users may still write, and what should stay free. Good: above.",
            queries=[
                Query("trainwarden_disk_free_bytes{BOX}", "{{path}}", why.NO_DISKS),
                Query(
                    "trainwarden_disk_free_floor_bytes{BOX}",
                    "{{path}} floor",
                    why.NO_DISKS,
                    limit=True,
                ),
            ],
            unit=BYTES,
            width=12,
            height=7,
        ),
        Graph(
            title="Disk write speed",
            about=(
                "Speed of writing a test file down to the disk, and the speed under which "
                "TrainingDiskSlow warns. Good: above, and even."
            ),
            queries=[
                Query("trainwarden_disk_probe_bytes_per_second{BOX}", "{{path}}", why.NO_PROBE),
                Query(
                    "trainwarden_disk_probe_floor_bytes_per_second{BOX}",
                    "{{path}} floor",
                    why.NO_PROBE,
                    limit=True,
                ),
            ],
            unit="Bps",
            width=12,
            height=7,
        ),
    ],
)

ROLLOUTS = Row(
    "Rollouts and inference",
    [
        server_states("{RUN}", 24),
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
        Graph(
            title="Requests",
            about=(
                "Worked on and waiting, by server. Good: some are running whenever the trainer "
                "waits; a queue that only grows is too much for the servers."
            ),
            queries=[
                Query(
                    "trainwarden_inference_running_requests{RUN}",
                    "{{server}} running",
                    why.NO_SERVERS,
                ),
                Query(
                    "trainwarden_inference_waiting_requests{RUN}",
                    "{{server}} waiting",
                    why.NO_SERVERS,
                ),
            ],
            unit=COUNT,
        ),
        Graph(
            title="Tokens generated",
            about="By server. Good: even while there is work; a server at 0 with requests is hung.",
            queries=[
                Query(
                    "rate(trainwarden_inference_generated_tokens_total{RUN}[$__rate_interval])",
                    "{{server}}",
                    why.NOT_REPORTED,
                )
            ],
            unit="cps",
        ),
        Graph(
            title="KV cache in use",
            about=(
                "Of the fullest engine. Good: high and steady. At 95 % with requests put back, "
                "TrainingInferenceKvCacheFull warns: work is done twice."
            ),
            queries=[
                Query(
                    "trainwarden_inference_kv_cache_usage_ratio{RUN}",
                    "{{server}}",
                    why.NOT_REPORTED,
                )
            ],
            unit=SHARE,
            high=1,
            scale=rising(limits.KV_CACHE_FULL.value, None),
            shaded=True,
        ),
    ],
)
