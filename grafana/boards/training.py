"""The training of a run: its progress and checkpoints, its rollouts, and what its logs say."""

from __future__ import annotations

from boards import limits, style, why
from boards.board import Board
from boards.checkpoints import checkpoints_table, steps
from boards.layout import Row
from boards.panels import BYTES, COUNT, SECONDS, SHARE, Graph
from boards.queries import Query
from boards.style import falling, rising, words
from boards.tables import Column, Table
from boards.variables import HOST, INSTANCE, RUN
from boards.verdict import MARKS

NUMBER = "max by (run, log, name)"
PATTERN = "max by (run, log, pattern)"

PROGRESS = Row(
    "Progress and checkpoints",
    [
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


def _numbers(title: str, about: str, names: str, empty_when: str = why.NO_NUMBER) -> Graph:
    return Graph(
        title=title,
        about=about,
        queries=[
            Query(
                f'trainwarden_log_value{{RUN,name=~"{names}"}}',
                "{{run}} {{name}}",
                empty_when,
            )
        ],
        unit=COUNT,
    )


def _limited(
    title: str, about: str, query: Query, limit: limits.Limit, *, unit: str = COUNT
) -> Graph:
    """A graph of one query that is shaded from `limit` on."""
    return Graph(
        title=title,
        about=about,
        queries=[query],
        unit=unit,
        scale=rising(limit.value, None),
        shaded=True,
    )


LOGS = Row(
    "Logs",
    [
        _numbers(
            "Loss",
            "From the log. Good: as expected; a non-finite number leaves a gap "
            "here and fires TrainingNotFinite.",
            ".*loss.*",
        ),
        _numbers(
            "Reward",
            "From the log. Good: slowly up. A sudden fall, or a jump to the most there "
            "can be, is a run that broke or learned to cheat.",
            ".*reward.*",
        ),
        _numbers(
            "KL, entropy, gradients",
            "From the log. Good: small and even. Entropy that falls to 0 is a policy "
            "that says one thing only.",
            ".*(kl|entropy|grad).*",
            why.NO_SUCH_NUMBER,
        ),
        _limited(
            "Error lines, in 5 minutes",
            "By log; a line that several patterns match counts once, and so do copies. Good: "
            "0. From 20 on TrainingErrorStorm warns.",
            Query(
                "increase(trainwarden_log_error_lines_total{RUN}[5m])",
                "{{run}} {{log}}",
                why.NO_LOGS,
            ),
            limits.ERROR_STORM,
        ),
        _limited(
            "Log silence, relative to the limit",
            "Time since something was written, as a share of its limit. Good: under 100 %, "
            "where TrainingLogSilent warns.",
            Query(
                """
                (
                  trainwarden_log_seen_timestamp_seconds{RUN}
                    - trainwarden_log_last_write_timestamp_seconds{RUN}
                )
                / trainwarden_log_silence_limit_seconds{RUN}
                """,
                "{{run}} {{log}}",
                why.NO_SILENCE_LIMIT,
            ),
            limits.SILENT,
            unit=SHARE,
        ),
        Graph(
            title="Files of each log",
            about="Good: 1 or more. At 0 for every log, TrainingRunNotFound warns: the path of the "
            "run is wrong, or the run writes elsewhere.",
            queries=[Query("trainwarden_log_files{RUN}", "{{run}} {{log}}", why.NO_LOGS)],
            unit=COUNT,
        ),
        Graph(
            title="Logs that their writer holds back",
            about="Good: 0. At 1 the program buffers its output, so that steps and errors are seen "
            "minutes late: TrainingLogBuffered informs.",
            queries=[Query("trainwarden_log_block_buffered{RUN}", "{{run}} {{log}}", why.NO_LOGS)],
            unit=COUNT,
        ),
        Graph(
            title="Files of logs that are not read",
            about="By reason. Good: none. A file that another account can replace is not read.",
            queries=[
                Query(
                    "trainwarden_log_skipped_files{RUN}"
                    " or on (run, log) 0 * trainwarden_log_files{RUN}",
                    "{{log}} {{reason}}",
                    why.NO_LOGS,
                )
            ],
            unit=COUNT,
        ),
        _limited(
            "Heartbeats, age in intervals",
            "Of brakes, watchdogs and cron jobs, which must themselves be watched. Good: up to "
            "1; from 2 on TrainingHeartbeatMissed warns.",
            Query(
                """
                (time() - trainwarden_heartbeat_timestamp_seconds{BEAT})
                / trainwarden_heartbeat_interval_seconds{BEAT}
                """,
                "{{run}} {{name}}",
                why.NO_HEARTBEATS,
            ),
            limits.HEARTBEAT_MISSED,
        ),
        Table(
            title="Latest metrics",
            about=(
                "The last number of each name in a log. Good: finite, and of just now. What is "
                "not finite and is trained by fires TrainingNotFinite."
            ),
            queries=[
                Query(f"{NUMBER} (trainwarden_log_value{{RUN}})", "value", why.NO_NUMBER),
                Query(f"{NUMBER} (trainwarden_log_value_finite{{RUN}})", "finite", why.NO_NUMBER),
                Query(
                    f"1000 * {NUMBER} (trainwarden_log_value_timestamp_seconds{{RUN}})",
                    "written",
                    why.NO_NUMBER,
                ),
            ],
            width=12,
            columns=[
                Column(name="run"),
                Column(name="log"),
                Column(name="name", title="number"),
                Column(name="value", decimals=4),
                Column(name="finite", meanings=words(("no", style.CRITICAL), ("yes", style.GOOD))),
                Column(name="written", unit="dateTimeFromNow"),
            ],
        ),
        Table(
            title="Lines by pattern",
            about=(
                "Since the exporter began to follow the log, and how many came in a row since a "
                "line that ends it. Good: none of trouble of just now; patterns that tell the step "
                "stand here too."
            ),
            queries=[
                Query(
                    f"{PATTERN} (trainwarden_log_matches_total{{RUN}}) > 0", "lines", why.NO_LOGS
                ),
                Query(
                    f"{PATTERN} (trainwarden_log_match_streak{{RUN}}) > 0", "in a row", why.NO_ROW
                ),
                Query(
                    f"1000 * {PATTERN} (trainwarden_log_last_match_timestamp_seconds{{RUN}})",
                    "last",
                    why.NO_MATCH,
                ),
            ],
            width=12,
            columns=[
                Column(name="run"),
                Column(name="log"),
                Column(name="pattern"),
                Column(name="lines"),
                Column(name="in a row"),
                Column(name="last", unit="dateTimeFromNow"),
            ],
            sorted_by="last",
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
    rows=[PROGRESS, ROLLOUTS, LOGS],
)
