"""Ray Train and Ray Tune: https://docs.ray.io, read at 2.60.

Names of checkpoints contain a time (Train V2) or a running number (V1, Tune), never a step.
Sources: ray/train/v2/_internal/execution/{storage,checkpoint/checkpoint_manager}.py,
ray/tune/logger/json.py, ray/tune/execution/experiment_state.py.
"""

from __future__ import annotations

from trainwarden_exporter.frameworks import base as fw
from trainwarden_exporter.frameworks.completeness_rules import ListedRule, SettledRule

_RUN = "{run? not checkpoint_*}"
_TRIAL = "{experiment? not checkpoint_*}/{trial? not checkpoint_*}"

FRAMEWORK = fw.Framework(
    name="ray_train",
    title="Ray Train, Ray Tune",
    versions="2.60",
    checkpoints=(
        fw.CheckpointLayout(
            "default",
            f"{_RUN}/{{has checkpoint_[0-9][0-9][0-9][0-9]-*}}",
            r"checkpoint_\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d\.\d+",
            ListedRule("checkpoint_manager_snapshot.json"),
        ),
        fw.CheckpointLayout(
            "trial",
            f"{_TRIAL}/{{has checkpoint_[0-9][0-9][0-9][0-9][0-9][0-9]}}",
            r"checkpoint_\d{6}",
            SettledRule(("*",)),
        ),
    ),
    logs=(fw.LogLayout("driver", fw.CONSOLE_LOGS, role="trainer"),),
    lines=(
        fw.LinePattern(
            "report",
            r"Reporting training result (?P<step>\d+): TrainingReport\(",
            fw.Phase.TRAINING,
            values=("loss", "train_loss", "val_loss", "grad_norm", "reward", "episode_reward_mean"),
        ),
        fw.LinePattern("checkpoint", r"Checkpoint successfully created at: ", advances=True),
        fw.LinePattern("started", r"\[State Transition\] \w+ -> RUNNING", fw.Phase.TRAINING),
        fw.LinePattern(
            "restarting",
            r"\[State Transition\] \w+ -> (?:RESTARTING|RESCHEDULING|SCHEDULING)",
            fw.Phase.STARTING,
        ),
        fw.LinePattern("finished", r"\[State Transition\] \w+ -> FINISHED", fw.Phase.FINISHED),
        fw.error_line("errored", r"\[State Transition\] \w+ -> ERRORED"),
        fw.error_line("failure", r"\[FailurePolicy\] (?:RETRY|RAISE)"),
        fw.error_line("trial_errored", r"Trial task failed for trial|Trial \S+ errored after"),
    ),
    progress_files=(
        fw.ProgressFile("result", f"{_TRIAL}/result.json", "jsonl", "training_iteration"),
    ),
    modules=("ray.train", "ray.tune"),
    log_signature=r"Reporting training result \d+: ",
    roles=(
        fw.ProcessPattern("controller", r"ray::TrainController|ray::TunerInternal|ray::run\b"),
        fw.trainer_process(r"ray::RayTrainWorker|ray::ImplicitFunc|ray::_?TrainTrainable"),
    ),
    notes=fw.bullet_points("""
        - path is storage_path, or the folder of the run in it.
        - Names of checkpoints contain no step: only the time and the size of the last complete one
          are known. The step is the number of reports (ray.train.report), which continues after a
          restart.
        - A checkpoint of Train V2 is copied into place, and complete only when the snapshot of the
          manager lists it. Checkpoints of Tune have no such proof: they count after 30 s without
          changes.
        - Tune copies result.json to storage_path every 10 s, or less often where a copy takes half
          a second or longer (TUNE_GLOBAL_CHECKPOINT_S): steps and values are that late.
        - A run restarts its workers FailureConfig.max_failures times (0).
        - A worker that hangs is noticed after 600 s.
        - The controller's own logs are in /tmp/ray/session_latest/logs, shared with other runs.
    """),
)
