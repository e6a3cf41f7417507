"""OpenRLHF: https://github.com/OpenRLHF/OpenRLHF, read at 0.11.

Sources: openrlhf/trainer/ppo_trainer.py, ppo_trainer_async.py, openrlhf/utils/deepspeed/, and
DeepSpeed's engine, which writes the file `latest` when all ranks have written theirs.
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
from trainwarden_exporter.layouts.engines import VLLM
from trainwarden_exporter.layouts.numbers import NUMBER, in_dict
from trainwarden_exporter.layouts.proofs import Tracker

_ENTRY = r"global_step(?P<step>\d+)"
_PROOF = Tracker("latest", r"global_step(?P<step>\d+)\s*$")

LAYOUT = Layout(
    name="openrlhf",
    title="OpenRLHF",
    versions="0.9 to 0.11",
    checkpoints=(
        CheckpointLayout("actor", folder="{run?}/_actor", entry=_ENTRY, proof=_PROOF),
        CheckpointLayout("critic", folder="{run?}/_critic", entry=_ENTRY, proof=_PROOF),
    ),
    logs=(LogLayout("trainer", KEPT_OUTPUT, role="trainer"),),
    lines=(
        LinePattern(
            "step",
            rf"Global step (?P<step>\d+): \{{(?:.*'timing/step_total': (?P<seconds>{NUMBER}))?",
            phase=Phase.TRAINING,
        ),
        LinePattern("evaluating", r"Evaluation start time: ", phase=Phase.EVALUATING),
        LinePattern("evaluated", r"Evaluation completed in ", ends=Phase.EVALUATING),
        LinePattern(
            "resumed",
            r"checkpoint_states: \{.*'global_step': (?P<step>[1-9]\d*)",
            phase=Phase.STARTING,
        ),
        LinePattern("experience", r"Experience making completed in ", advances=True),
        LinePattern("loss", in_dict("policy_loss", "loss")),
        LinePattern("reward", in_dict("rollout/reward_mean", "reward")),
        LinePattern("grad_norm", in_dict("actor_grad_norm", "grad_norm")),
        LinePattern("kl", in_dict("kl", "kl")),
        LinePattern("data_at_an_end", r"Prompt dataloader is exhausted"),
        LinePattern("no_checkpoint", r"Warning: \[deepspeed\] No checkpoint found", trouble=True),
    ),
    tells_evaluations=True,
    progress_files=(
        ProgressFile("latest", "{run?}/_actor/latest", "text", r"global_step(?P<step>\d+)"),
    ),
    roles=(
        RoleLayout(
            "trainer",
            r"-m openrlhf\.cli\.train_\w+|ray::(?:Policy|Critic|Reference|Reward)ModelActor"
            r"|ray::TrainingActor|ray::PPOTrainer",
            finishes=True,
        ),
        RoleLayout("rollout", r"ray::GenerateSamplesActor"),
        RoleLayout("inference", r"ray::(?:RolloutRay|LLMRay)Actor", engine="vllm"),
        VLLM,
    ),
    notes=points("""
        - path is ckpt.path (by default ./ckpt/checkpoints_ppo_ray) or the folder above it.
        - ckpt.save_steps is -1 by default: no checkpoint is ever written.
        - The oldest or worst checkpoint is deleted before the new one is saved; with ckpt.max_num
          1 there is none at all for as long as a save takes.
        - The copies for Hugging Face (…_hf) are never deleted.
        - Trainer and rollouts wait for each other without limit, and say nothing of it.
        - It logs to standard output alone: send that into a file in path, or name the file in
          logs.
    """),
)
