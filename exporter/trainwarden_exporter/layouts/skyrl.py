"""SkyRL: https://github.com/NovaSky-AI/SkyRL, read at 0.3.

Sources: skyrl/train/{trainer,fully_async_trainer}.py, skyrl/train/utils/{utils,tracking}.py.
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
from trainwarden_exporter.layouts.numbers import NUMBER, after_colon, in_dict
from trainwarden_exporter.layouts.proofs import Tracker

_RUN = "{run? not global_step_*}"
_TRACKER = "latest_ckpt_global_step.txt"

LAYOUT = Layout(
    name="skyrl",
    title="SkyRL",
    versions="0.3",
    checkpoints=(
        CheckpointLayout(
            "default",
            folder=f"{_RUN}/{{has global_step_*}}",
            entry=r"global_step_(?P<step>\d+)",
            proof=Tracker(_TRACKER),
        ),
    ),
    logs=(
        LogLayout("trainer", KEPT_OUTPUT, role="trainer"),
        LogLayout("infra", ("/tmp/skyrl-logs/infra-*.log",), role="inference"),  # noqa: S108 - where it writes
    ),
    lines=(
        LinePattern("step", r"\bStep (?P<step>\d+): *$", phase=Phase.TRAINING),
        LinePattern(
            "bar",
            r"Training (?:Step Progress|Batches Processed): +\d+%\|[^|]*\| *"
            r"(?P<step>\d+)/(?P<total>\d+) \[",
        ),
        LinePattern(
            "resumed",
            r"(?:Resuming from global_step:|Resumed training from global_step) (?P<step>\d+)",
            phase=Phase.STARTING,
        ),
        LinePattern("generating", r"Started: 'generate'", phase=Phase.WAITING_FOR_ROLLOUTS),
        LinePattern("generated", r"Finished: 'generate'", ends=Phase.WAITING_FOR_ROLLOUTS),
        LinePattern("saving", r"Started: 'save_(?:checkpoints|hf_model)'", phase=Phase.SAVING),
        LinePattern("saved", r"Finished: 'save_(?:checkpoints|hf_model)'", ends=Phase.SAVING),
        LinePattern("syncing", r"Started: 'sync_weights", phase=Phase.UPDATING_WEIGHTS),
        LinePattern(
            "synced",
            rf"Finished: 'sync_weights\w*', time cost: (?P<weight_update_seconds>{NUMBER})s",
            ends=Phase.UPDATING_WEIGHTS,
        ),
        LinePattern("evaluating", r"Started: 'eval'", phase=Phase.EVALUATING),
        LinePattern("evaluated", r"Finished: 'eval'", ends=Phase.EVALUATING),
        LinePattern("training", r"Started: 'train_critic_and_policy'", phase=Phase.TRAINING),
        LinePattern(
            "step_time", rf"Finished: 'step', time cost: (?P<seconds>{NUMBER})s", advances=True
        ),
        LinePattern("finished", r"Training done!", phase=Phase.FINISHED),
        LinePattern("loss", in_dict("policy/final_loss", "loss")),
        LinePattern("reward", after_colon("reward/avg_raw_reward", "reward")),
        LinePattern("grad_norm", in_dict("policy/raw_grad_norm", "grad_norm")),
        LinePattern("generator_failed", r"Generator worker errored out", trouble=True),
        LinePattern("staleness_violated", r"Staleness control violated", trouble=True),
    ),
    tells_evaluations=True,
    progress_files=(ProgressFile("tracker", f"{_RUN}/{_TRACKER}", "text", r"^\s*(?P<step>\d+)"),),
    roles=(
        RoleLayout(
            "trainer",
            r"-m (?:skyrl\.train|skyrl_train)\.entrypoints\.\w+|ray::skyrl_entrypoint"
            r"|ray::(?:Policy|Critic|Ref)Worker",
            finishes=True,
        ),
        RoleLayout("inference", r"ray::(?:Async)?VLLM\w*(?:Engine|Actor)", engine="vllm"),
        VLLM,
        SGLANG,
    ),
    notes=points("""
        - path is trainer.ckpt_path (~/ckpts), or the folder above it.
        - The fully asynchronous trainer writes fully_async_state.pt after the tracker: a crash in
          between leaves a checkpoint that counts as complete and resumes with data it has seen.
        - A phase that Started and never Finished in the log is where it hangs.
        - Step lines are printed with trainer.logger=console alone; otherwise the progress bar is
          read.
        - Engines and workers log to /tmp/skyrl-logs, that of all runs on the box.
        - Nothing is deleted unless max_ckpts_to_keep is set.
    """),
)
