"""verl: https://github.com/verl-project/verl, read from 0.8 to 0.10.

Sources: verl/trainer/ppo/ray_trainer.py, verl/trainer/ppo/v1/, verl/utils/checkpoint/,
verl/utils/{tracking,logger/aggregate_logger}.py.
"""

from __future__ import annotations

from trainwarden_exporter.frameworks import base as fw
from trainwarden_exporter.frameworks.common_patterns import NUMBER, SGLANG, VLLM, number_after_colon
from trainwarden_exporter.frameworks.completeness_rules import AllOf, MarkerRule, TrackerRule

_RUN = "{project? not global_step_*}/{experiment? not global_step_*}"
_TRACKER = "latest_checkpointed_iteration.txt"

FRAMEWORK = fw.Framework(
    name="verl",
    title="verl",
    versions="0.8 to 0.10",
    checkpoints=(
        fw.CheckpointLayout(
            "default",
            f"{_RUN}/{{has global_step_*}}",
            r"global_step_(?P<step>\d+)",
            # verl deletes only the actor of old steps.
            AllOf((TrackerRule(_TRACKER), MarkerRule(("actor/*",)))),
            provable=(
                fw.Provable.ARCHIVES,
                fw.Provable.RANKS,
                fw.Provable.TENSORS,
                fw.Provable.SHARDS,
                fw.Provable.ITEMS,
            ),
        ),
    ),
    logs=(fw.LogLayout("trainer", fw.CONSOLE_LOGS, role="trainer"),),
    lines=(
        fw.LinePattern(
            "step",
            rf"\bstep:(?P<step>\d+) - (?:.*\bperf/time_per_step:(?:[\w.]+\()?"
            rf"(?P<seconds>{NUMBER}))?",
            fw.Phase.TRAINING,
        ),
        fw.LinePattern(
            "bar", r"Training Progress: +\d+%\|[^|]*\| *(?P<step>\d+)/(?P<total>\d+) \["
        ),
        fw.LinePattern("resumed", r"[Ss]etting global step to (?P<step>\d+)", fw.Phase.STARTING),
        fw.LinePattern(
            "saving",
            r"local_global_step_folder: |Saving checkpoint to \S*global_step_\d+",
            fw.Phase.SAVING,
        ),
        fw.LinePattern("finished", r"Final validation metrics: ", fw.Phase.FINISHED),
        fw.LinePattern("loss", number_after_colon("actor/pg_loss", "loss")),
        fw.LinePattern("reward", number_after_colon("critic/rewards/mean", "reward")),
        fw.LinePattern("grad_norm", number_after_colon("actor/grad_norm", "grad_norm")),
        fw.LinePattern("kl", number_after_colon("actor/ppo_kl", "kl")),
        fw.LinePattern("throughput", number_after_colon("perf/throughput", "throughput")),
        fw.LinePattern(
            "staleness",
            number_after_colon("training/off_policy/trajectory_staleness/max", "staleness"),
        ),
        fw.LinePattern("rollouter_paused", r"\[FullyAsyncRollouter\]\[ShouldPause\]"),
        fw.error_line("no_resume_data", r"Warning: No dataloader state found at"),
    ),
    progress_files=(
        fw.ProgressFile("tracker", f"{_RUN}/{_TRACKER}", "text", r"^\s*(?P<step>\d+)"),
        fw.ProgressFile("metrics", f"{_RUN}/metrics.jsonl", "jsonl", "step"),
    ),
    modules=("verl",),
    roles=(
        fw.trainer_process(
            r"-m verl\.(?:trainer|experimental)\.\S*main\S*|ray::TaskRunner|ray::WorkerDict"
            r"|ray::FullyAsyncTrainer"
        ),
        fw.ProcessPattern(
            "rollout", r"ray::AgentLoopWorker|ray::FullyAsyncRollouter|ray::MessageQueue"
        ),
        VLLM,
        SGLANG,
    ),
    notes=fw.bullet_points("""
        - path is the folder of the checkpoints (default_local_dir, by default
          checkpoints/PROJECT/EXPERIMENT below the working directory), or one of the two above it.
        - It logs only to standard output: redirect it to a file. Without a log in path, the output
          file of the trainer's process is read.
          With trainer.logger=[console,file] and VERL_FILE_LOGGER_PATH=PATH/metrics.jsonl the step
          is read from that file as well.
        - With async_save the tracker is written when the save is finalised, up to one save later.
        - max_actor_ckpt_to_keep deletes only the actor: folders of old steps with their data.pt
          remain, and after a restart earlier steps are not deleted any more.
        - max_actor_ckpt_to_keep=1 deletes the last checkpoint before the next is complete.
    """),
)
