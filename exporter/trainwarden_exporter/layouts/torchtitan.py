"""torchtitan: https://github.com/pytorch/torchtitan, read at its main of August 2026.

Sources: torchtitan/trainer.py, torchtitan/components/{metrics.py,checkpointer/}, and
torch/distributed/checkpoint/filesystem.py, which renames `.metadata` into place last of all.
"""

from __future__ import annotations

from trainwarden_exporter.layouts.base import (
    KEPT_OUTPUT,
    CheckpointLayout,
    Layout,
    LinePattern,
    LogLayout,
    Phase,
    RoleLayout,
    points,
)
from trainwarden_exporter.layouts.numbers import NUMBER
from trainwarden_exporter.layouts.proofs import AnyOf, Marker

_RUN = "{run? not step-*}"

LAYOUT = Layout(
    name="torchtitan",
    title="torchtitan",
    versions="main of August 2026",
    checkpoints=(
        CheckpointLayout(
            "default",
            folder=f"{_RUN}/{{has step-*}}",
            entry=r"step-(?P<step>\d+)",
            proof=AnyOf(
                (
                    Marker((".metadata",), last=True),
                    Marker(("model.safetensors.index.json",), last=True),
                )
            ),
        ),
    ),
    logs=(LogLayout("trainer", KEPT_OUTPUT, role="trainer"),),
    lines=(
        LinePattern(
            "step",
            rf"INFO - step: +(?P<step>\d+) +loss: +(?P<loss>{NUMBER})"
            rf"(?: +grad_norm: +(?P<grad_norm>{NUMBER}))?",
            phase=Phase.TRAINING,
        ),
        LinePattern("memory", rf"memory: +[\d.]+GiB\((?P<gpu_memory_percent>{NUMBER})%\)"),
        LinePattern("total", r"Trainer is initialized with .*\btotal steps (?P<total>\d+)"),
        LinePattern(
            "started",
            r"Training starts at step (?P<step>\d+)",
            phase=Phase.STARTING,
            step_offset=-1,
        ),
        LinePattern("saving", r"(?:Saving|Staging) the checkpoint\.", phase=Phase.SAVING),
        LinePattern(
            "saved",
            r"(?:Finished (?:saving|staging) the checkpoint|Last step checkpoint completed) in "
            rf"(?P<save_seconds>{NUMBER})",
            ends=Phase.SAVING,
        ),
        LinePattern("evaluated", rf"validate step: +\d+ +loss: +(?P<validation_loss>{NUMBER})"),
        LinePattern("finished", r"Training completed", phase=Phase.FINISHED),
        LinePattern("data_at_an_end", r"Ran out of data; last step was canceled", trouble=True),
        LinePattern("memory_retried", r"CUDA memory allocation retries\.", trouble=True),
        LinePattern("oom_thrown", r"\d+ CUDA OOM errors thrown\.", trouble=True),
    ),
    roles=(
        RoleLayout(
            "trainer", r"-m torchtitan\.(?:\w+\.)*train\b|torchtitan/train\.py", finishes=True
        ),
    ),
    notes=points("""
        - path is job.dump_folder (./outputs), or the folder of checkpoints in it.
        - It logs to standard output alone: send that into a file in path, or name the file in
          logs.
        - Steps are logged each metrics.log_freq steps (10).
        - After the first step a collective may take 100 s; a new file in comm_traces is a hang
          that was caught.
        - Saving asynchronously, a checkpoint is complete long after its step, and the last one
          can be lost when the program ends.
        - keep_latest_k deletes all but ten checkpoints; folders without .metadata are not
          counted, and some versions leave them for ever.
    """),
)
