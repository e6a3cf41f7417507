"""verl: https://github.com/verl-project/verl, read from 0.8 to 0.10.

Sources: verl/trainer/ppo/ray_trainer.py, verl/trainer/ppo/v1/, verl/utils/checkpoint/,
verl/utils/{tracking,logger/aggregate_logger}.py.
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
from trainwarden_exporter.layouts.engines import SGLANG, VLLM
from trainwarden_exporter.layouts.numbers import NUMBER, after_colon
from trainwarden_exporter.layouts.proofs import AllOf, Marker, Tracker

_RUN = "{project? not global_step_*}/{experiment? not global_step_*}"
_TRACKER = "latest_checkpointed_iteration.txt"

LAYOUT = Layout(
    name="verl",
    title="verl",
    versions="0.8 to 0.10",
    checkpoints=(
        CheckpointLayout(
            "default",
            folder=f"{_RUN}/{{has global_step_*}}",
            entry=r"global_step_(?P<step>\d+)",
            # What is deleted of old steps is the actor alone.
            proof=AllOf((Tracker(_TRACKER), Marker(("actor/*",)))),
        ),
    ),
    logs=(LogLayout("trainer", KEPT_OUTPUT, role="trainer"),),
    lines=(
        LinePattern(
            "step",
            rf"\bstep:(?P<step>\d+) - (?:.*\bperf/time_per_step:(?:[\w.]+\()?"
            rf"(?P<seconds>{NUMBER}))?",
            phase=Phase.TRAINING,
        ),
        LinePattern(
            "bar",
            r"Training Progress: +\d+%\|[^|]*\| *(?P<step>\d+)/(?P<total>\d+) \[",
        ),
        LinePattern(
            "resumed",
            r"[Ss]etting global step to (?P<step>\d+)",
            phase=Phase.STARTING,
        ),
        LinePattern(
            "saving",
            r"local_global_step_folder: |Saving checkpoint to \S*global_step_\d+",
            phase=Phase.SAVING,
        ),
        LinePattern("finished", r"Final validation metrics: ", phase=Phase.FINISHED),
        LinePattern("loss", after_colon("actor/pg_loss", "loss")),
        LinePattern("reward", after_colon("critic/rewards/mean", "reward")),
        LinePattern("grad_norm", after_colon("actor/grad_norm", "grad_norm")),
        LinePattern("kl", after_colon("actor/ppo_kl", "kl")),
        LinePattern("throughput", after_colon("perf/throughput", "throughput")),
        LinePattern(
            "staleness",
            rf"\btraining/off_policy/trajectory_staleness/max:(?:[\w.]+\()?(?P<staleness>{NUMBER})",
        ),
        LinePattern("rollouter_paused", r"\[FullyAsyncRollouter\]\[ShouldPause\]"),
        LinePattern("no_resume_data", r"Warning: No dataloader state found at", trouble=True),
    ),
    progress_files=(
        ProgressFile("tracker", f"{_RUN}/{_TRACKER}", "text", r"^\s*(?P<step>\d+)"),
        ProgressFile("metrics", f"{_RUN}/metrics.jsonl", "jsonl", "step"),
    ),
    roles=(
        RoleLayout(
            "trainer",
            r"-m verl\.(?:trainer|experimental)\.\S*main\S*|ray::TaskRunner|ray::WorkerDict"
            r"|ray::FullyAsyncTrainer",
            finishes=True,
        ),
        RoleLayout("rollout", r"ray::AgentLoopWorker|ray::FullyAsyncRollouter|ray::MessageQueue"),
        VLLM,
        SGLANG,
    ),
    notes=points("""
        - path is the folder of the checkpoints (default_local_dir, by default
          checkpoints/PROJECT/EXPERIMENT below the working directory), or one of the two above it.
        - verl logs to standard output alone: send that into a file in path, or name the file in
          logs. With trainer.logger=[console,file] and VERL_FILE_LOGGER_PATH=PATH/metrics.jsonl
          the step is read from there as well.
        - With async_save the tracker is written when the save is finalised, up to a save later.
        - max_actor_ckpt_to_keep deletes the actor alone: shells of old steps with data.pt in them
          stay, and after a restart nothing of the steps before is deleted any more.
        - max_actor_ckpt_to_keep=1 deletes the last checkpoint before the next is whole.
    """),
)
