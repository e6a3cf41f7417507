"""OpenRLHF: https://github.com/OpenRLHF/OpenRLHF, read at 0.11.

Sources: openrlhf/trainer/ppo_trainer.py, ppo_trainer_async.py, openrlhf/utils/deepspeed/, and
DeepSpeed's engine, which writes the file `latest` after all ranks have saved.
"""

from __future__ import annotations

from trainwarden_exporter.frameworks import base as fw
from trainwarden_exporter.frameworks.common_patterns import NUMBER, VLLM, number_in_dict
from trainwarden_exporter.frameworks.completeness_rules import TrackerRule

_ENTRY = r"global_step(?P<step>\d+)"
_COMPLETENESS = TrackerRule("latest", r"global_step(?P<step>\d+)\s*$")
_PROVABLE = (fw.Provable.ARCHIVES, fw.Provable.RANKS)

FRAMEWORK = fw.Framework(
    name="openrlhf",
    title="OpenRLHF",
    versions="0.9 to 0.11",
    checkpoints=(
        fw.CheckpointLayout("actor", "{run?}/_actor", _ENTRY, _COMPLETENESS, provable=_PROVABLE),
        fw.CheckpointLayout("critic", "{run?}/_critic", _ENTRY, _COMPLETENESS, provable=_PROVABLE),
    ),
    logs=(fw.LogLayout("trainer", fw.CONSOLE_LOGS, role="trainer"),),
    lines=(
        fw.LinePattern(
            "step",
            rf"Global step (?P<step>\d+): \{{(?:.*'timing/step_total': (?P<seconds>{NUMBER}))?",
            fw.Phase.TRAINING,
        ),
        fw.LinePattern("evaluating", r"Evaluation start time: ", fw.Phase.EVALUATING),
        fw.LinePattern("evaluated", r"Evaluation completed in ", ends=fw.Phase.EVALUATING),
        fw.LinePattern(
            "resumed",
            r"checkpoint_states: \{.*'global_step': (?P<step>[1-9]\d*)",
            fw.Phase.STARTING,
        ),
        fw.LinePattern("experience", r"Experience making completed in ", advances=True),
        fw.LinePattern("loss", number_in_dict("policy_loss", "loss")),
        fw.LinePattern("reward", number_in_dict("rollout/reward_mean", "reward")),
        fw.LinePattern("grad_norm", number_in_dict("actor_grad_norm", "grad_norm")),
        fw.LinePattern("kl", number_in_dict("kl", "kl")),
        fw.LinePattern("data_at_an_end", r"Prompt dataloader is exhausted"),
        fw.error_line("no_checkpoint", r"Warning: \[deepspeed\] No checkpoint found"),
    ),
    announces_evaluations=True,
    progress_files=(
        fw.ProgressFile("latest", "{run?}/_actor/latest", "text", r"global_step(?P<step>\d+)"),
    ),
    modules=("openrlhf",),
    roles=(
        fw.trainer_process(
            r"-m openrlhf\.cli\.train_\w+|ray::(?:Policy|Critic|Reference|Reward)ModelActor"
            r"|ray::TrainingActor|ray::PPOTrainer"
        ),
        fw.ProcessPattern("rollout", r"ray::GenerateSamplesActor"),
        fw.ProcessPattern("inference", r"ray::(?:RolloutRay|LLMRay)Actor", "vllm"),
        VLLM,
    ),
    notes=fw.bullet_points("""
        - path is ckpt.path (by default ./ckpt/checkpoints_ppo_ray) or the folder above it.
        - ckpt.save_steps is -1 by default: no checkpoint is ever written.
        - The oldest or worst checkpoint is deleted before the new one is saved; with ckpt.max_num 1
          there is no checkpoint during a save.
        - The copies for Hugging Face (…_hf) are never deleted.
        - Trainer and rollouts wait for each other without limit and do not log it.
        - It logs only to standard output: redirect it to a file. Without a log in path, the output
          file of the trainer's process is read.
    """),
)
