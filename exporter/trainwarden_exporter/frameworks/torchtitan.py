"""torchtitan: https://github.com/pytorch/torchtitan, read at its main of August 2026.

Sources: torchtitan/trainer.py, torchtitan/components/{metrics.py,checkpointer/}, and
torch/distributed/checkpoint/filesystem.py, which renames `.metadata` into place last.
"""

from __future__ import annotations

from trainwarden_exporter.frameworks import base as fw
from trainwarden_exporter.frameworks.common_patterns import NUMBER
from trainwarden_exporter.frameworks.completeness_rules import AnyOf, MarkerRule

_RUN = "{run? not step-*}"

FRAMEWORK = fw.Framework(
    name="torchtitan",
    title="torchtitan",
    versions="main of August 2026",
    checkpoints=(
        fw.CheckpointLayout(
            "default",
            f"{_RUN}/{{has step-*}}",
            r"step-(?P<step>\d+)",
            AnyOf(
                (
                    MarkerRule((".metadata",), last=True),
                    MarkerRule(("model.safetensors.index.json",), last=True),
                )
            ),
            provable=(fw.Provable.ITEMS, fw.Provable.TENSORS, fw.Provable.SHARDS),
        ),
    ),
    logs=(fw.LogLayout("trainer", fw.CONSOLE_LOGS, role="trainer"),),
    lines=(
        fw.LinePattern(
            "step",
            rf"INFO - step: +(?P<step>\d+) +loss: +(?P<loss>{NUMBER})"
            rf"(?: +grad_norm: +(?P<grad_norm>{NUMBER}))?",
            fw.Phase.TRAINING,
        ),
        fw.LinePattern("memory", rf"memory: +[\d.]+GiB\((?P<gpu_memory_percent>{NUMBER})%\)"),
        fw.LinePattern("total", r"Trainer is initialized with .*\btotal steps (?P<total>\d+)"),
        fw.LinePattern(
            "started", r"Training starts at step (?P<step>\d+)", fw.Phase.STARTING, step_offset=-1
        ),
        fw.LinePattern("saving", r"(?:Saving|Staging) the checkpoint\.", fw.Phase.SAVING),
        fw.LinePattern(
            "saved",
            r"(?:Finished (?:saving|staging) the checkpoint|Last step checkpoint completed) in "
            rf"(?P<save_seconds>{NUMBER})",
            ends=fw.Phase.SAVING,
        ),
        fw.LinePattern("evaluated", rf"validate step: +\d+ +loss: +(?P<validation_loss>{NUMBER})"),
        fw.LinePattern("finished", r"Training completed", fw.Phase.FINISHED),
        fw.error_line("data_at_an_end", r"Ran out of data; last step was canceled"),
        fw.error_line("memory_retried", r"CUDA memory allocation retries\."),
    ),
    modules=("torchtitan",),
    roles=(
        fw.trainer_process(
            r"-m torchtitan\.(?:\w+\.)*train\b|(?:^|/)python[\d.]* (?:.*[ /])?torchtitan/train\.py"
        ),
    ),
    notes=fw.bullet_points("""
        - path is job.dump_folder (./outputs), or the folder of checkpoints in it.
        - It logs only to standard output: redirect it to a file. Without a log in path, the output
          file of the trainer's process is read.
        - Steps are logged every metrics.log_freq steps (10).
        - After the first step a collective may take 100 s; a new file in comm_traces is a detected
          hang.
        - With asynchronous saves a checkpoint is complete long after its step, and the last one can
          be lost when the program ends.
        - keep_latest_k deletes all but ten checkpoints; folders without .metadata are not counted,
          and some versions never delete them.
    """),
)
