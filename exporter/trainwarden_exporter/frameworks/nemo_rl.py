"""NeMo-RL: https://github.com/NVIDIA-NeMo/RL, read at 0.6.

Sources: nemo_rl/utils/checkpoint.py, nemo_rl/algorithms/{grpo,sft,single_controller}.py.
"""

from __future__ import annotations

from trainwarden_exporter.frameworks import base as fw
from trainwarden_exporter.frameworks.common_patterns import NUMBER, SGLANG, VLLM
from trainwarden_exporter.frameworks.completeness_rules import RenamedRule

_RUN = "{run? not *step_*}"

FRAMEWORK = fw.Framework(
    name="nemo_rl",
    title="NeMo-RL",
    versions="0.6",
    checkpoints=(
        fw.CheckpointLayout(
            "default",
            f"{_RUN}/{{has *step_*}}",
            r"step_(?P<step>\d+)",
            RenamedRule(),
            partial=r"tmp_step_(?P<step>\d+)",
            provable=(fw.Provable.ITEMS, fw.Provable.TENSORS, fw.Provable.SHARDS),
        ),
    ),
    logs=(fw.LogLayout("trainer", fw.CONSOLE_LOGS, role="trainer"),),
    lines=(
        fw.LinePattern(
            "step",
            r"={25} Step (?P<step>\d+)/(?P<total>\d+) ={25}",
            fw.Phase.TRAINING,
            step_offset=-1,
        ),
        fw.LinePattern(
            "generating",
            r"Generating responses for batch of size|Wait iteration \d+: buffer_size=\d+",
            fw.Phase.WAITING_FOR_ROLLOUTS,
        ),
        fw.LinePattern(
            "generated",
            r"Processing rewards\.\.\.|Buffer ready for step \d+",
            ends=fw.Phase.WAITING_FOR_ROLLOUTS,
        ),
        fw.LinePattern(
            "training", r"\b(?:Training policy\.\.\.|Taking a training step)", fw.Phase.TRAINING
        ),
        fw.LinePattern("refit", r"Performing policy generation refit", fw.Phase.UPDATING_WEIGHTS),
        fw.LinePattern(
            "refitted", r"Resuming generation starts after refit", ends=fw.Phase.UPDATING_WEIGHTS
        ),
        fw.LinePattern("evaluating", r"Starting validation at step \d+", fw.Phase.EVALUATING),
        fw.LinePattern("evaluated", r"Total validation time: ", ends=fw.Phase.EVALUATING),
        fw.LinePattern(
            "saving", r"Saving checkpoint for step (?P<step>\d+)\.\.\.", fw.Phase.SAVING
        ),
        fw.LinePattern("saved", r"Training Results:", ends=fw.Phase.SAVING),
        fw.LinePattern(
            "finished",
            r"Max number of (?:steps|epochs) has been reached, stopping training early"
            r"|Timeout has been reached, stopping training early",
            fw.Phase.FINISHED,
        ),
        fw.LinePattern("step_time", rf"Total step time: (?P<seconds>{NUMBER})s", advances=True),
        fw.LinePattern("loss", rf"(?:^|\) )\s*\S{{1,3}} Loss: (?P<loss>{NUMBER})"),
        fw.LinePattern("reward", rf"Avg (?:Filtered )?Reward: (?P<reward>{NUMBER})"),
        fw.LinePattern("kl", rf"Generation KL Error: (?P<kl>{NUMBER})"),
        fw.LinePattern(
            "staleness", rf"(?:Average trajectory age|Avg Trajectory Age): (?P<staleness>{NUMBER})"
        ),
        fw.error_line("starved", r"STALLING: Need \d+"),
        fw.error_line("rollouts_stalled", r"WARNING: rollout stall -- "),
        fw.error_line("refit_failed", r"Policy generation refit failed: "),
        fw.error_line("checkpoint_failed", r"Error finalizing pending checkpoint: "),
    ),
    announces_evaluations=True,
    modules=("nemo_rl",),
    roles=(
        fw.trainer_process(
            r"(?:^|/)python[\d.]* (?:.*[ /])?examples/(?:nemo_gym/)?run_\w+\.py"
            r"|ray::\w*PolicyWorker|ray::SingleControllerActor"
        ),
        fw.ProcessPattern("rollout", r"ray::AsyncTrajectoryCollector|ray::ReplayBuffer"),
        fw.ProcessPattern(
            "inference", r"ray::VllmGenerationWorker|ray::VllmAsyncGenerationWorker", "vllm"
        ),
        VLLM,
        SGLANG,
    ),
    notes=fw.bullet_points("""
        - path is checkpointing.checkpoint_dir (results/grpo in the examples), or the folder above
          it.
        - A checkpoint is written as tmp_step_N and renamed when complete. An old tmp_step_N is a
          save that failed, or a save that is finalised in the background.
        - Its log counts steps within an epoch: with several epochs over the data the step falls
          back at each, which looks like a resume. The checkpoints count over all epochs.
        - An asynchronous run can stop at the end of the data without a log line.
        - checkpoint_must_save_by ends the run on time: that is a finish.
        - It logs only to standard output: redirect it to a file. Without a log in path, the output
          file of the trainer's process is read.
    """),
)
