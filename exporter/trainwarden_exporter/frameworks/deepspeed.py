"""DeepSpeed without a trainer of its own: https://github.com/deepspeedai/DeepSpeed, 0.4 to 0.18.

Sources: deepspeed/runtime/engine.py (save_checkpoint writes `latest` after all ranks have saved),
runtime/pipe/engine.py, runtime/checkpoint_engine/ and launcher/launch.py.
"""

from __future__ import annotations

from trainwarden_exporter.frameworks import base as fw
from trainwarden_exporter.frameworks.common_patterns import NUMBER
from trainwarden_exporter.frameworks.completeness_rules import AllOf, MarkerRule, TrackerRule
from trainwarden_exporter.frameworks.megatron import ITERATION

_RUN = "{run? not global_step*}"
_LATEST = r"^\s*global_step(?P<step>\d+)\s*$"

FRAMEWORK = fw.Framework(
    name="deepspeed",
    title="DeepSpeed, Megatron-DeepSpeed",
    versions="0.4 to 0.18",
    checkpoints=(
        fw.CheckpointLayout(
            "default",
            f"{_RUN}/{{has global_step*}}",
            r"global_step(?P<step>\d+)",
            AllOf((TrackerRule("latest", _LATEST), MarkerRule(("*model_states.pt",)))),
            provable=(fw.Provable.ARCHIVES, fw.Provable.RANKS),
        ),
    ),
    logs=(fw.LogLayout("trainer", fw.CONSOLE_LOGS, role="trainer"),),
    lines=(
        fw.LinePattern(
            "step", r"\[Rank 0\] step=(?P<step>\d+), skipped=\d+, lr=", fw.Phase.TRAINING
        ),
        fw.LinePattern(
            "pipeline_step",
            rf"\bsteps: (?P<step>\d+) loss: (?P<loss>{NUMBER}) "
            rf"iter time \(s\): (?P<seconds>{NUMBER})",
            fw.Phase.TRAINING,
        ),
        ITERATION,
        fw.LinePattern(
            "resumed",
            r"Loading checkpoint from \S*global_step(?P<step>\d+)/\S*model_states\.pt",
            fw.Phase.STARTING,
        ),
        fw.LinePattern(
            "saving",
            r"Checkpoint global_step(?P<step>\d+) is (?:about to be saved|begin to save)!",
            fw.Phase.SAVING,
        ),
        fw.LinePattern(
            "saved", r"Checkpoint global_step(?P<step>\d+) is ready now!", ends=fw.Phase.SAVING
        ),
        fw.error_line("errored", r"[Ll]oss scale already at minimum - cannot decrease scale"),
        fw.error_line("worker_failed", r"exits with return code = (?:-\d|[1-9])"),
    ),
    progress_files=(fw.ProgressFile("latest", f"{_RUN}/latest", "text", _LATEST),),
    modules=("deepspeed",),
    log_signature=r"\[Rank 0\] step=\d+, skipped=\d+, lr=",
    roles=(
        fw.trainer_process(
            r"(?:^|/)deepspeed (?:.*[ /])?\w+\.py\b|-m deepspeed\.launcher\.(?:launch|runner)\b"
        ),
    ),
    notes=fw.bullet_points("""
        - path is the save_dir of save_checkpoint, or the folder above it.
        - Only tags of the form global_stepN, which is the default, contain a step; describe others
          under `checkpoints`.
        - A checkpoint has a file of each rank (ZeRO); `latest` is written after all of them.
        - It logs only to standard output: redirect it to a file. Steps are logged every
          steps_per_print (10) steps.
        - A program with the Trainer of Transformers, or with Lightning, is `trl` or `lightning`,
          also where it uses DeepSpeed.
        - Checkpoints are never deleted.
    """),
)
