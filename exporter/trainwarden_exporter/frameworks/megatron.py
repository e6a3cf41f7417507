"""Megatron-LM: https://github.com/NVIDIA/Megatron-LM, read at its main of August 2026.

Sources: megatron/training/{training,checkpointing}.py; the rank that logs is the last one. Logs of
2021 (bigscience-workshop/bigscience) have no time at the beginning of a line.
"""

from __future__ import annotations

from trainwarden_exporter.frameworks import base as fw
from trainwarden_exporter.frameworks.common_patterns import NUMBER
from trainwarden_exporter.frameworks.completeness_rules import TrackerRule

_RUN = "{run? not iter_*}"
_TRACKER = "latest_checkpointed_iteration.txt"

ITERATION = fw.LinePattern(
    "iteration",
    r"\biteration +(?P<step>\d+)/ *(?P<total>\d+) \|"
    rf"(?:.*\blm[ -]loss: (?P<loss>{NUMBER}))?(?:.*\bgrad norm: (?P<grad_norm>{NUMBER}))?",
    fw.Phase.TRAINING,
)
"""Megatron-DeepSpeed logs it too."""

FRAMEWORK = fw.Framework(
    name="megatron",
    title="Megatron-LM",
    versions="2021 to main of August 2026",
    checkpoints=(
        fw.CheckpointLayout(
            "default",
            f"{_RUN}/{{has iter_*}}",
            r"iter_(?P<step>\d{7,})",
            TrackerRule(_TRACKER),
            provable=(fw.Provable.ARCHIVES, fw.Provable.RANKS, fw.Provable.ITEMS),
        ),
    ),
    logs=(fw.LogLayout("trainer", fw.CONSOLE_LOGS, role="trainer"),),
    lines=(
        ITERATION,
        fw.LinePattern(
            "resumed",
            r"successfully loaded checkpoint from .* at iteration +(?P<step>\d+)",
            fw.Phase.STARTING,
        ),
        fw.LinePattern(
            "saving",
            r"(?:^|\] *)saving checkpoint at iteration +(?P<step>\d+) to ",
            fw.Phase.SAVING,
        ),
        fw.LinePattern(
            "saved",
            r"(?:successfully saved checkpoint from|scheduled an async checkpoint save at) "
            r"iteration +(?P<step>\d+) to ",
            ends=fw.Phase.SAVING,
        ),
        fw.LinePattern(
            "evaluated",
            rf"validation loss at .*\| lm[ -]loss value: (?P<validation_loss>{NUMBER})",
            ends=fw.Phase.EVALUATING,
        ),
        fw.LinePattern("evaluating", r"Evaluating on \d+ samples", fw.Phase.EVALUATING),
        fw.LinePattern(
            "finished",
            r"\[after training is done\] datetime: "
            r"|\bexiting program (?:at iteration \d|after [\d.]+ minutes)",
            fw.Phase.FINISHED,
        ),
        fw.error_line("errored", r"\bfound NaN in |ERROR: Invalid metadata file "),
    ),
    progress_files=(
        fw.ProgressFile("tracker", f"{_RUN}/{_TRACKER}", "text", r"^\s*(?P<step>\d+)"),
    ),
    modules=("megatron",),
    log_signature=r"\biteration +\d+/ *\d+ \|.*\belapsed time per iteration \(ms\): ",
    roles=(
        fw.trainer_process(
            r"(?:python[\d.]*|torchrun|torch\.distributed\.(?:run|launch)) .*\bpretrain_\w+\.py\b"
        ),
    ),
    notes=fw.bullet_points("""
        - path is the folder of --save, or the one above it.
        - It logs only to standard output: redirect it to a file, of the last rank at least.
        - Steps are logged every --log-interval (100) iterations.
        - Evaluations within the training are not logged before they end.
        - With --async-save a checkpoint is complete when the tracker names it, during later
          iterations.
        - --exit-interval and --exit-duration-in-mins end the program with status 0; that counts as
          the end of the run.
        - Old checkpoints are never deleted, unless a limit is set in a recent version.
    """),
)
