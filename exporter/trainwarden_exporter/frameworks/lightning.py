"""PyTorch Lightning 2: https://github.com/Lightning-AI/pytorch-lightning.

Sources: lightning/pytorch/callbacks/model_checkpoint.py, lightning/fabric/utilities/cloud_io.py,
lightning/fabric/strategies/fsdp.py, lightning/pytorch/loggers/csv_logs.py.
"""

from __future__ import annotations

from trainwarden_exporter.frameworks import base as fw
from trainwarden_exporter.frameworks.common_patterns import LOSS
from trainwarden_exporter.frameworks.completeness_rules import AnyOf, MarkerRule, SettledRule

_RUN = "{logger?}/{version?}"

FRAMEWORK = fw.Framework(
    name="lightning",
    title="PyTorch Lightning",
    versions="2.0 to 2.6",
    checkpoints=(
        fw.CheckpointLayout(
            "default",
            folder=f"{_RUN}/checkpoints",
            entry=r".*\bstep=(?P<step>\d+)(?:[-_].*)?\.ckpt",
            # The file is moved into place, which is a copy if /tmp is another disk.
            completeness=AnyOf(
                (MarkerRule((".metadata", "meta.pt"), last=True), SettledRule(("",), seconds=10))
            ),
            provable=(fw.Provable.ARCHIVES, fw.Provable.ITEMS),
        ),
    ),
    logs=(fw.LogLayout("trainer", fw.CONSOLE_LOGS, role="trainer"),),
    lines=(
        LOSS,
        fw.LinePattern(
            "resumed",
            r"Restoring states from the checkpoint path at (?:.*\bstep=(?P<step>\d+))?",
            fw.Phase.STARTING,
        ),
        fw.LinePattern(
            "evaluating",
            r"Validation DataLoader \d+: +\d+%\||Sanity Checking DataLoader \d+: +\d+%\|",
            fw.Phase.EVALUATING,
        ),
        fw.LinePattern(
            "bar",
            r"Epoch \d+: +\d+%\||^ *Epoch \d+/-?\d+ +[^\x00-\x7f]{4}",
            ends=fw.Phase.EVALUATING,
            advances=True,
            redrawn=True,
        ),
        fw.LinePattern(
            "finished",
            r"`Trainer\.fit` stopped: `max_(?:steps|epochs|time)=.*` reached",
            fw.Phase.FINISHED,
        ),
        # Logged by EarlyStopping; with min_epochs or min_steps, training may continue, and its next
        # step ends this phase.
        fw.LinePattern("early_stopped", r"Signaling Trainer to stop", fw.Phase.FINISHED),
        fw.LinePattern("requeued", r"Handling auto-requeue signal"),
    ),
    announces_evaluations=True,
    progress_files=(
        fw.ProgressFile("metrics", f"{_RUN}/metrics.csv", "csv", "step", step_offset=1),
    ),
    modules=("lightning", "pytorch_lightning"),
    log_signature=r"`Trainer\.fit` stopped: |Epoch \d+: .*\bv_num=",
    roles=(fw.trainer_process(r"\btorchrun\b|\blightning run\b|\bfabric run\b"),),
    notes=fw.bullet_points("""
        - path is default_root_dir or the logger's save_dir; checkpoints are found in it, or up to
          two folders down (lightning_logs/version_N).
        - A file name without {step} has no step, nor has last.ckpt: both are ignored.
        - save_top_k is 1: a better checkpoint replaces the previous one, and training that does not
          improve saves nothing.
        - The progress bar has no step over all epochs: log with CSVLogger, whose metrics.csv has
          it.
        - Processes may hang in the checkpoint callback with GPUs at 100 % or 0 %: only the step,
          which does not change, shows this.
    """),
)
