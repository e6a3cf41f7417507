"""TRL, and other training with the Trainer of Transformers 4.57 to 5.

LLaMA-Factory, Axolotl, Unsloth and ms-swift derive from this Trainer or patch it, and write as it
does. Sources: transformers/trainer.py, trainer_callback.py; trl/trainer/grpo_trainer.py,
trl/experimental/async_grpo/; llamafactory/launcher.py, axolotl/cli/train.py, swift/cli/main.py.
"""

from __future__ import annotations

from trainwarden_exporter.frameworks import base as fw
from trainwarden_exporter.frameworks.common_patterns import (
    EPOCH_OF,
    NESTED_TQDM_BAR,
    NUMBER,
    VLLM,
    number_in_dict,
    tqdm_bar,
)
from trainwarden_exporter.frameworks.completeness_rules import JsonStepRule

_RUN = "{run? not checkpoint-*}"

FRAMEWORK = fw.Framework(
    name="trl",
    title="TRL, Transformers Trainer",
    versions="TRL 0.20 to 1.16, Transformers 4.57 to 5.23",
    checkpoints=(
        fw.CheckpointLayout(
            "default",
            f"{_RUN}/{{has checkpoint-*}}",
            r"checkpoint-(?P<step>\d+)",
            JsonStepRule(
                "trainer_state.json", "global_step", none_of=("checkpoint-is-incomplete.txt",)
            ),
            resumes_incomplete=True,
            provable=(
                fw.Provable.TENSORS,
                fw.Provable.SHARDS,
                fw.Provable.ARCHIVES,
                fw.Provable.RANKS,
            ),
        ),
    ),
    logs=(fw.LogLayout("trainer", fw.CONSOLE_LOGS, role="trainer"),),
    lines=(
        fw.LinePattern(
            "logged",
            number_in_dict("loss", "loss") + r".*['\"]epoch['\"]: ",
            phase=fw.Phase.TRAINING,
            advances=True,
        ),
        # The rate in the bar is smoothed; the times of its draws are exact.
        fw.LinePattern(
            "bar", tqdm_bar(""), fw.Phase.TRAINING, redrawn=True, total_of="bar", role="trainer"
        ),
        fw.LinePattern(
            "evaluation_bar", NESTED_TQDM_BAR, fw.Phase.EVALUATING, redrawn=True, role="trainer"
        ),
        fw.LinePattern(
            "saving_bar",
            r"^Writing model shards: +\d{1,3}%\|",
            fw.Phase.SAVING,
            redrawn=True,
            role="trainer",
        ),
        EPOCH_OF,
        fw.LinePattern("total", r"Total optimization steps = (?P<total>[\d,]+)"),
        fw.LinePattern(
            "resumed", r"Continuing training from global step (?P<step>\d+)", fw.Phase.STARTING
        ),
        fw.LinePattern(
            "saving", r"Saving model checkpoint to \S*checkpoint-(?P<step>\d+)", fw.Phase.SAVING
        ),
        fw.LinePattern("evaluating", r"\*{5} Running Evaluation \*{5}", fw.Phase.EVALUATING),
        fw.LinePattern("evaluated", r"['\"]eval_runtime['\"]: ", ends=fw.Phase.EVALUATING),
        fw.LinePattern("finished", r"['\"]train_runtime['\"]: ", fw.Phase.FINISHED),
        fw.LinePattern("grad_norm", number_in_dict("grad_norm", "grad_norm")),
        fw.LinePattern("reward", number_in_dict("reward", "reward")),
        fw.LinePattern("kl", number_in_dict("kl", "kl")),
        fw.LinePattern(
            "no_spread", number_in_dict("frac_reward_zero_std", "groups_without_spread_ratio")
        ),
        fw.LinePattern(
            "waited",
            rf"waited (?P<rollout_wait_seconds>{NUMBER})s for sample \(qsize=\d+\)",
            ends=fw.Phase.WAITING_FOR_ROLLOUTS,
        ),
        fw.LinePattern(
            "weights_synced",
            rf"Weight sync: done\. Total (?P<weight_update_seconds>{NUMBER})s",
            ends=fw.Phase.UPDATING_WEIGHTS,
        ),
        fw.error_line("stale_sample", r"dropping stale sample"),
        fw.error_line("rollouts_hung", r"Rollout worker heartbeat stale: \d+s"),
        fw.error_line("vllm_unreachable", r"The vLLM server can't be reached at"),
    ),
    progress_files=(
        fw.ProgressFile(
            "state",
            f"{_RUN}/checkpoint-*/trainer_state.json",
            "json",
            "global_step",
            "max_steps",
            save_interval="save_steps",
        ),
        fw.ProgressFile(
            "final_state", f"{_RUN}/trainer_state.json", "json", "global_step", "max_steps"
        ),
        # of LLaMA-Factory (train/callbacks.py)
        fw.ProgressFile(
            "llamafactory", f"{_RUN}/trainer_log.jsonl", "jsonl", "current_steps", "total_steps"
        ),
    ),
    modules=("trl", "transformers", "llamafactory", "axolotl", "unsloth", "swift"),
    log_signature=r"['\"]train_runtime['\"]: |['\"]grad_norm['\"]: .*['\"]epoch['\"]: ",
    roles=(
        fw.trainer_process(
            r"\baccelerate launch\b|\btrl (?:sft|dpo|grpo|kto|reward|rloo)\b|\btorchrun\b"
            r"|\bllamafactory-cli train\b|\baxolotl train\b|-m axolotl\.cli\.train\b"
            r"|\bswift (?:pt|sft|rlhf)\b|\bswift[/.]cli[/.](?:pt|sft|rlhf)\b"
        ),
        VLLM,
    ),
    notes=fw.bullet_points("""
        - LLaMA-Factory, Axolotl, Unsloth and ms-swift train with this Trainer: `framework: trl`
          fits their runs, and `discover` proposes it. Megatron-SWIFT writes as `megatron` does.
        - path is output_dir, or the folder above it; trials of a hyper-parameter search are found
          in their run-N.
        - The step is read from the progress bar. With disable_tqdm it is that of the last
          checkpoint: touch a heartbeat or post steps to it from a callback.
        - get_last_checkpoint resumes from the highest checkpoint-N, complete or not: delete an
          incomplete one before a resume.
        - Checkpoints are deleted only if save_total_limit is set.
        - Saves and evaluations are logged at level INFO (log_level: info).
        - A vLLM server that survives its run holds port and GPU memory.
    """),
)
