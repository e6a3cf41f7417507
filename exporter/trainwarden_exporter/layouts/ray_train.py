"""Ray Train and Ray Tune: https://docs.ray.io, read at 2.60.

Names of checkpoints hold a moment (Train V2) or a running number (V1, Tune), never a step.
Sources: ray/train/v2/_internal/execution/{storage,checkpoint/checkpoint_manager}.py,
ray/tune/logger/json.py.
"""

from __future__ import annotations

from trainwarden_exporter.layouts.base import (
    KEPT_OUTPUT,
    CheckpointLayout,
    Layout,
    LinePattern,
    LogLayout,
    Phase,
    ProgressFile,
    RoleLayout,
    points,
)
from trainwarden_exporter.layouts.proofs import Listed, Settled

_RUN = "{run? not checkpoint_*}"
_TRIAL = "{experiment? not checkpoint_*}/{trial? not checkpoint_*}"

LAYOUT = Layout(
    name="ray_train",
    title="Ray Train, Ray Tune",
    versions="2.60",
    checkpoints=(
        CheckpointLayout(
            "default",
            folder=f"{_RUN}/{{has checkpoint_[0-9][0-9][0-9][0-9]-*}}",
            entry=r"checkpoint_\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d\.\d+",
            proof=Listed("checkpoint_manager_snapshot.json"),
        ),
        CheckpointLayout(
            "trial",
            folder=f"{_TRIAL}/{{has checkpoint_[0-9][0-9][0-9][0-9][0-9][0-9]}}",
            entry=r"checkpoint_\d{6}",
            proof=Settled(("*",)),
        ),
    ),
    logs=(LogLayout("driver", KEPT_OUTPUT, role="trainer"),),
    lines=(
        LinePattern("checkpoint", r"Checkpoint successfully created at: ", advances=True),
        LinePattern("started", r"\[State Transition\] \w+ -> RUNNING", phase=Phase.TRAINING),
        LinePattern(
            "restarting",
            r"\[State Transition\] \w+ -> (?:RESTARTING|RESCHEDULING|SCHEDULING)",
            phase=Phase.STARTING,
        ),
        LinePattern("finished", r"\[State Transition\] \w+ -> FINISHED", phase=Phase.FINISHED),
        LinePattern("errored", r"\[State Transition\] \w+ -> ERRORED", trouble=True),
        LinePattern("failure", r"\[FailurePolicy\] (?:RETRY|RAISE)", trouble=True),
        LinePattern(
            "trial_errored", r"Trial task failed for trial|Trial \S+ errored after", trouble=True
        ),
    ),
    progress_files=(
        ProgressFile("result", f"{_TRIAL}/result.json", "jsonl", "training_iteration"),
    ),
    roles=(
        RoleLayout("controller", r"ray::TrainController|ray::TunerInternal|ray::run\b"),
        RoleLayout(
            "trainer", r"ray::RayTrainWorker|ray::ImplicitFunc|ray::_?TrainTrainable", finishes=True
        ),
    ),
    notes=points("""
        - path is storage_path, or the folder of the run in it.
        - Names of checkpoints tell no step: only when the last one was complete, and how large it
          is. Post steps to a heartbeat for the rest.
        - A checkpoint of Train V2 is copied into place, and complete only when the snapshot of
          the manager lists it. Those of Tune leave no such proof: they count after 30 s of
          silence.
        - A run restarts its workers FailureConfig.max_failures times (0).
        - A worker that hangs is noticed after 600 s.
        - The controller's own logs lie in /tmp/ray/session_latest/logs, which other runs write
          to.
    """),
)
