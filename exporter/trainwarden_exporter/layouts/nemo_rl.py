"""NeMo-RL: https://github.com/NVIDIA-NeMo/RL, read at 0.6.

Sources: nemo_rl/utils/checkpoint.py, nemo_rl/algorithms/{grpo,sft,single_controller}.py.
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
from trainwarden_exporter.layouts.engines import SGLANG, VLLM
from trainwarden_exporter.layouts.numbers import NUMBER
from trainwarden_exporter.layouts.proofs import Renamed

_RUN = "{run? not *step_*}"

LAYOUT = Layout(
    name="nemo_rl",
    title="NeMo-RL",
    versions="0.6",
    checkpoints=(
        CheckpointLayout(
            "default",
            folder=f"{_RUN}/{{has *step_*}}",
            entry=r"step_(?P<step>\d+)",
            proof=Renamed(),
            partial=r"tmp_step_(?P<step>\d+)",
        ),
    ),
    logs=(LogLayout("trainer", KEPT_OUTPUT, role="trainer"),),
    lines=(
        LinePattern(
            "step",
            r"={25} Step (?P<step>\d+)/(?P<total>\d+) ={25}",
            phase=Phase.TRAINING,
            step_offset=-1,
        ),
        LinePattern(
            "generating",
            r"Generating responses for batch of size|Wait iteration \d+: buffer_size=\d+",
            phase=Phase.WAITING_FOR_ROLLOUTS,
        ),
        LinePattern(
            "generated",
            r"Processing rewards\.\.\.|Buffer ready for step \d+",
            ends=Phase.WAITING_FOR_ROLLOUTS,
        ),
        LinePattern(
            "training", r"\b(?:Training policy\.\.\.|Taking a training step)", phase=Phase.TRAINING
        ),
        LinePattern("refit", r"Performing policy generation refit", phase=Phase.UPDATING_WEIGHTS),
        LinePattern(
            "refitted", r"Resuming generation starts after refit", ends=Phase.UPDATING_WEIGHTS
        ),
        LinePattern("evaluating", r"Starting validation at step \d+", phase=Phase.EVALUATING),
        LinePattern("evaluated", r"Total validation time: ", ends=Phase.EVALUATING),
        LinePattern(
            "saving", r"Saving checkpoint for step (?P<step>\d+)\.\.\.", phase=Phase.SAVING
        ),
        LinePattern("saved", r"Training Results:", ends=Phase.SAVING),
        LinePattern(
            "finished",
            r"Max number of (?:steps|epochs) has been reached, stopping training early"
            r"|Timeout has been reached, stopping training early",
            phase=Phase.FINISHED,
        ),
        LinePattern("step_time", rf"Total step time: (?P<seconds>{NUMBER})s", advances=True),
        LinePattern("loss", rf"(?:^|\) )\s*\S{{1,3}} Loss: (?P<loss>{NUMBER})"),
        LinePattern("reward", rf"Avg (?:Filtered )?Reward: (?P<reward>{NUMBER})"),
        LinePattern("kl", rf"Generation KL Error: (?P<kl>{NUMBER})"),
        LinePattern(
            "staleness", rf"(?:Average trajectory age|Avg Trajectory Age): (?P<staleness>{NUMBER})"
        ),
        LinePattern("starved", r"STALLING: Need \d+", trouble=True),
        LinePattern("rollouts_stalled", r"WARNING: rollout stall -- ", trouble=True),
        LinePattern("refit_failed", r"Policy generation refit failed: ", trouble=True),
        LinePattern("checkpoint_failed", r"Error finalizing pending checkpoint: ", trouble=True),
    ),
    tells_evaluations=True,
    roles=(
        RoleLayout(
            "trainer",
            r"examples/(?:nemo_gym/)?run_\w+\.py|ray::\w*PolicyWorker|ray::SingleControllerActor",
            finishes=True,
        ),
        RoleLayout("rollout", r"ray::AsyncTrajectoryCollector|ray::ReplayBuffer"),
        RoleLayout(
            "inference", r"ray::VllmGenerationWorker|ray::VllmAsyncGenerationWorker", "vllm"
        ),
        VLLM,
        SGLANG,
    ),
    notes=points("""
        - path is checkpointing.checkpoint_dir (results/grpo in the examples), or the folder above
          it.
        - A checkpoint is written as tmp_step_N and renamed when whole. An old tmp_step_N is a
          save that failed, or one that is finalised in the background.
        - Its log counts steps within an epoch: with more than one epoch over the data the step
          falls back at each, which looks like a resume. The checkpoints count on.
        - The end of the data can stop an asynchronous run without a word.
        - checkpoint_must_save_by ends the run on time: that is a finish.
        - It prints to standard output alone: send that into a file in path, or name the file in
          logs.
    """),
)
