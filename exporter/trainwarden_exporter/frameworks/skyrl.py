"""SkyRL: https://github.com/NovaSky-AI/SkyRL, read at 0.3.

Sources: skyrl/train/{trainer,fully_async_trainer}.py, skyrl/train/utils/{utils,tracking}.py.
"""

from __future__ import annotations

from trainwarden_exporter.frameworks import base as fw
from trainwarden_exporter.frameworks.common_patterns import (
    NUMBER,
    SGLANG,
    VLLM,
    number_after_colon,
    number_in_dict,
)
from trainwarden_exporter.frameworks.completeness_rules import TrackerRule

_RUN = "{run? not global_step_*}"
_TRACKER = "latest_ckpt_global_step.txt"

FRAMEWORK = fw.Framework(
    name="skyrl",
    title="SkyRL",
    versions="0.3",
    checkpoints=(
        fw.CheckpointLayout(
            "default",
            f"{_RUN}/{{has global_step_*}}",
            r"global_step_(?P<step>\d+)",
            TrackerRule(_TRACKER),
            provable=(
                fw.Provable.ARCHIVES,
                fw.Provable.RANKS,
                fw.Provable.TENSORS,
                fw.Provable.SHARDS,
            ),
        ),
    ),
    logs=(
        fw.LogLayout("trainer", fw.CONSOLE_LOGS, role="trainer"),
        fw.LogLayout("infra", ("/tmp/skyrl-logs/infra-*.log",), role="inference"),  # noqa: S108 - where it writes
    ),
    lines=(
        fw.LinePattern("step", r"\bStep (?P<step>\d+): *$", fw.Phase.TRAINING),
        fw.LinePattern(
            "bar",
            r"Training (?:Step Progress|Batches Processed): +\d+%\|[^|]*\| *"
            r"(?P<step>\d+)/(?P<total>\d+) \[",
        ),
        fw.LinePattern(
            "resumed",
            r"(?:Resuming from global_step:|Resumed training from global_step) (?P<step>\d+)",
            fw.Phase.STARTING,
        ),
        fw.LinePattern("generating", r"Started: 'generate'", fw.Phase.WAITING_FOR_ROLLOUTS),
        fw.LinePattern("generated", r"Finished: 'generate'", ends=fw.Phase.WAITING_FOR_ROLLOUTS),
        fw.LinePattern("saving", r"Started: 'save_(?:checkpoints|hf_model)'", fw.Phase.SAVING),
        fw.LinePattern("saved", r"Finished: 'save_(?:checkpoints|hf_model)'", ends=fw.Phase.SAVING),
        fw.LinePattern("syncing", r"Started: 'sync_weights", fw.Phase.UPDATING_WEIGHTS),
        fw.LinePattern(
            "synced",
            rf"Finished: 'sync_weights\w*', time cost: (?P<weight_update_seconds>{NUMBER})s",
            ends=fw.Phase.UPDATING_WEIGHTS,
        ),
        fw.LinePattern("evaluating", r"Started: 'eval'", fw.Phase.EVALUATING),
        fw.LinePattern("evaluated", r"Finished: 'eval'", ends=fw.Phase.EVALUATING),
        fw.LinePattern("training", r"Started: 'train_critic_and_policy'", fw.Phase.TRAINING),
        fw.LinePattern(
            "step_time", rf"Finished: 'step', time cost: (?P<seconds>{NUMBER})s", advances=True
        ),
        fw.LinePattern("finished", r"Training done!", fw.Phase.FINISHED),
        fw.LinePattern("loss", number_in_dict("policy/final_loss", "loss")),
        fw.LinePattern("reward", number_after_colon("reward/avg_raw_reward", "reward")),
        fw.LinePattern("grad_norm", number_in_dict("policy/raw_grad_norm", "grad_norm")),
        fw.error_line("generator_failed", r"Generator worker errored out"),
        fw.error_line("staleness_violated", r"Staleness control violated"),
    ),
    announces_evaluations=True,
    progress_files=(
        fw.ProgressFile("tracker", f"{_RUN}/{_TRACKER}", "text", r"^\s*(?P<step>\d+)"),
    ),
    modules=("skyrl", "skyrl_train"),
    roles=(
        fw.trainer_process(
            r"-m (?:skyrl\.train|skyrl_train)\.entrypoints\.\w+|ray::skyrl_entrypoint"
            r"|ray::(?:Policy|Critic|Ref)Worker"
        ),
        fw.ProcessPattern("inference", r"ray::(?:Async)?VLLM\w*(?:Engine|Actor)", "vllm"),
        VLLM,
        SGLANG,
    ),
    notes=fw.bullet_points("""
        - path is trainer.ckpt_path (~/ckpts), or the folder above it.
        - The fully asynchronous trainer writes fully_async_state.pt after the tracker: a crash in
          between leaves a checkpoint that counts as complete and resumes with data already used.
        - A phase that Started and never Finished in the log is where the run hangs.
        - Step lines are printed only with trainer.logger=console; otherwise the progress bar is
          read.
        - Engines and workers log to /tmp/skyrl-logs, shared by all runs on the host.
        - Checkpoints are deleted only if max_ckpts_to_keep is set.
    """),
)
