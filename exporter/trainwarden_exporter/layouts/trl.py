"""TRL, and whatever else trains with the Trainer of Transformers 4.57 to 5.

Sources: transformers/trainer.py, trainer_callback.py; trl/trainer/grpo_trainer.py,
trl/experimental/async_grpo/.
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
from trainwarden_exporter.layouts.proofs import JsonStep

_RUN = "{run? not checkpoint-*}"

LAYOUT = Layout(
    name="trl",
    title="TRL, Transformers Trainer",
    versions="TRL 0.20 to 1.16, Transformers 4.57 to 5.23",
    checkpoints=(
        CheckpointLayout(
            "default",
            folder=f"{_RUN}/{{has checkpoint-*}}",
            entry=r"checkpoint-(?P<step>\d+)",
            proof=JsonStep(
                "trainer_state.json", "global_step", none_of=("checkpoint-is-incomplete.txt",)
            ),
        ),
    ),
    logs=(LogLayout("trainer", KEPT_OUTPUT, role="trainer"),),
    lines=(
        LinePattern(
            "logged",
            in_dict("loss", "loss") + r".*['\"]epoch['\"]: ",
            phase=Phase.TRAINING,
            advances=True,
        ),
        LinePattern("total", r"Total optimization steps = (?P<total>[\d,]+)"),
        LinePattern(
            "resumed", r"Continuing training from global step (?P<step>\d+)", phase=Phase.STARTING
        ),
        LinePattern(
            "saving",
            r"Saving model checkpoint to \S*checkpoint-(?P<step>\d+)",
            phase=Phase.SAVING,
        ),
        LinePattern("evaluating", r"\*{5} Running Evaluation \*{5}", phase=Phase.EVALUATING),
        LinePattern("evaluated", r"['\"]eval_runtime['\"]: ", ends=Phase.EVALUATING),
        LinePattern("finished", r"['\"]train_runtime['\"]: ", phase=Phase.FINISHED),
        LinePattern("grad_norm", in_dict("grad_norm", "grad_norm")),
        LinePattern("reward", in_dict("reward", "reward")),
        LinePattern("kl", in_dict("kl", "kl")),
        LinePattern("no_spread", in_dict("frac_reward_zero_std", "groups_without_spread_ratio")),
        LinePattern(
            "waited",
            rf"waited (?P<rollout_wait_seconds>{NUMBER})s for sample \(qsize=\d+\)",
            ends=Phase.WAITING_FOR_ROLLOUTS,
        ),
        LinePattern(
            "weights_synced",
            rf"Weight sync: done\. Total (?P<weight_update_seconds>{NUMBER})s",
            ends=Phase.UPDATING_WEIGHTS,
        ),
        LinePattern("stale_sample", r"dropping stale sample", trouble=True),
        LinePattern("rollouts_hung", r"Rollout worker heartbeat stale: \d+s", trouble=True),
        LinePattern("vllm_unreachable", r"The vLLM server can't be reached at", trouble=True),
    ),
    progress_files=(
        ProgressFile(
            "state",
            f"{_RUN}/checkpoint-*/trainer_state.json",
            "json",
            "global_step",
            total="max_steps",
        ),
        ProgressFile(
            "final_state", f"{_RUN}/trainer_state.json", "json", "global_step", total="max_steps"
        ),
    ),
    roles=(
        RoleLayout(
            "trainer",
            r"\baccelerate launch\b|\btrl (?:sft|dpo|grpo|kto|reward|rloo)\b|\btorchrun\b",
            finishes=True,
        ),
        VLLM,
    ),
    notes=points("""
        - path is output_dir, or the folder above it; trials of a hyper-parameter search are found
          in their run-N.
        - Log lines tell no step, only that there was one: the step is that of the last
          checkpoint. For more, touch a heartbeat or post steps to it from a callback.
        - get_last_checkpoint resumes from the highest checkpoint-N, complete or not: delete a
          half-written one before a resume.
        - Nothing is deleted unless save_total_limit is set.
        - Saves and evaluations are told from level INFO on (log_level: info).
        - A vLLM server that outlived its run holds port and GPU memory.
    """),
)
