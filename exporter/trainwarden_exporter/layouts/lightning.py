"""PyTorch Lightning 2: https://github.com/Lightning-AI/pytorch-lightning.

Sources: lightning/pytorch/callbacks/model_checkpoint.py, lightning/fabric/utilities/cloud_io.py,
lightning/fabric/strategies/fsdp.py, lightning/pytorch/loggers/csv_logs.py.
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
from trainwarden_exporter.layouts.numbers import NUMBER
from trainwarden_exporter.layouts.proofs import AnyOf, Marker, Settled

_RUN = "{logger?}/{version?}"

LAYOUT = Layout(
    name="lightning",
    title="PyTorch Lightning",
    versions="2.0 to 2.6",
    checkpoints=(
        CheckpointLayout(
            "default",
            folder=f"{_RUN}/checkpoints",
            entry=r".*\bstep=(?P<step>\d+)(?:[-_].*)?\.ckpt",
            # One file is moved into place, which is a copy where /tmp is another disk.
            proof=AnyOf((Marker((".metadata", "meta.pt"), last=True), Settled(("",), seconds=10))),
        ),
    ),
    logs=(LogLayout("trainer", KEPT_OUTPUT, role="trainer"),),
    lines=(
        LinePattern("loss", rf"Epoch \d+: +\d+%\|.*\bloss=(?P<loss>{NUMBER})"),
        LinePattern(
            "resumed",
            r"Restoring states from the checkpoint path at (?:.*\bstep=(?P<step>\d+))?",
            phase=Phase.STARTING,
        ),
        LinePattern(
            "evaluating",
            r"Validation DataLoader \d+: +\d+%\||Sanity Checking DataLoader \d+: +\d+%\|",
            phase=Phase.EVALUATING,
        ),
        LinePattern("bar", r"Epoch \d+: +\d+%\|", ends=Phase.EVALUATING, advances=True),
        LinePattern(
            "finished",
            r"`Trainer\.fit` stopped: `max_(?:steps|epochs|time)=.*` reached",
            phase=Phase.FINISHED,
        ),
        LinePattern("requeued", r"Handling auto-requeue signal"),
    ),
    tells_evaluations=True,
    progress_files=(ProgressFile("metrics", f"{_RUN}/metrics.csv", "csv", "step", step_offset=1),),
    roles=(RoleLayout("trainer", r"\btorchrun\b|\blightning run\b|\bfabric run\b", finishes=True),),
    notes=points("""
        - path is default_root_dir or the logger's save_dir; checkpoints are found in it, or up to
          two folders down (lightning_logs/version_N).
        - A file name made without {step} tells no step, and last.ckpt neither: both are passed
          over.
        - save_top_k is 1: the checkpoint before is deleted when a better one is there, and
          training that gets no better saves nothing.
        - The progress bar tells no step over all epochs: log with CSVLogger, whose metrics.csv
          does.
        - Processes may hang in the checkpoint callback with GPUs at 100 % or 0 %: only the step
          that does not move tells.
    """),
)
