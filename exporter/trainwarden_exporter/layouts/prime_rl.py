"""PRIME-RL: https://github.com/PrimeIntellect-ai/prime-rl, read from 0.1 to August 2026.

Steps are its own numbers. Since 0.7 they count from one; before, from zero: there the step shown is
one less than the steps done, in logs and batches alike, so that the lag is right in both.
Sources: src/prime_rl/{trainer/ckpt,utils/pathing,transports,orchestrator}.
"""

from __future__ import annotations

from trainwarden_exporter.layouts.base import (
    CheckpointLayout,
    EndpointLayout,
    Layout,
    LinePattern,
    LogLayout,
    Phase,
    RoleLayout,
    RolloutLayout,
    points,
)
from trainwarden_exporter.layouts.engines import VLLM
from trainwarden_exporter.layouts.numbers import NUMBER
from trainwarden_exporter.layouts.proofs import AnyOf, Marker

# Until 0.8 the orchestrator kept its own files in run_default, a folder of the trainer's.
_RUN = "{run? not run_default}"
_OLD = f"{_RUN}/run_default"
_STEP = r"step_(?P<step>\d+)"
_STALENESS = 8  # max_off_policy_steps, beyond which episodes are cancelled
_TIME = r"(?P<seconds>\d[\d.]*(?:d|h|m|s|ms)(?: \d+[hms])?)"

LAYOUT = Layout(
    name="prime_rl",
    title="PRIME-RL",
    versions="0.1 to 0.8, and main of August 2026",
    checkpoints=(
        CheckpointLayout(
            "default",
            folder=f"{_RUN}/checkpoints",
            entry=_STEP,
            proof=AnyOf(
                (
                    Marker(
                        ("trainer/.metadata", "orchestrator/progress.pt"),
                        none_of=("*.tmp",),
                        last=True,
                    ),
                    Marker(("trainer/.metadata",), none_of=("orchestrator/*",), last=True),
                )
            ),
        ),
        CheckpointLayout(
            "orchestrator",
            folder=f"{_OLD}/checkpoints",
            entry=_STEP,
            proof=Marker(("orchestrator/progress.pt",), none_of=("*.tmp",)),
        ),
        CheckpointLayout(
            "weights", folder=f"{_RUN}/weights", entry=_STEP, proof=Marker(("STABLE",))
        ),
    ),
    rollouts=(
        RolloutLayout(
            "batches",
            folder=f"{_RUN}/rollouts/{{has step_*/rank_*}}",
            entry=_STEP,
            proof=AnyOf(
                (
                    Marker(("rank_*.bin",), none_of=("rank_*.tmp",)),
                    Marker(("rank_*.pt",), none_of=("rank_*.tmp",)),
                )
            ),
            rank=r"rank_(?P<rank>\d+)\.(?:bin|pt)",
            staleness_limit=_STALENESS,
        ),
        RolloutLayout(
            "unpacked",
            folder=f"{_OLD}/rollouts/{{has step_*/*rollouts.bin}}",
            entry=_STEP,
            proof=Marker(("*rollouts.bin",), none_of=("*.tmp",)),
        ),
        RolloutLayout(
            "traces",
            folder=f"{_RUN}/rollouts/{{has step_*/train}}",
            entry=_STEP,
            proof=Marker(("train/effective/traces.jsonl",)),
            staleness_limit=_STALENESS,
        ),
        RolloutLayout(
            "broadcasts",
            folder=f"{_RUN}/broadcasts/{{has step_*}}",
            entry=_STEP,
            proof=Marker(("STABLE",)),
            carries="weights",
        ),
        RolloutLayout(
            "broadcasts_old",
            folder=f"{_OLD}/broadcasts/{{has step_*}}",
            entry=_STEP,
            proof=Marker(("STABLE",)),
            carries="weights",
        ),
    ),
    logs=(
        LogLayout(
            "trainer",
            (
                f"{_RUN}/logs/latest/trainer.log",
                f"{_RUN}/logs/trainer.log",
                f"{_RUN}/logs/trainer.stdout",
            ),
            role="trainer",
            copies="trainer",
        ),
        LogLayout("ranks", (f"{_RUN}/logs/trainer/rank_0.log",), role="trainer", copies="trainer"),
        LogLayout(
            "orchestrator",
            (
                f"{_RUN}/logs/latest/orchestrator.log",
                f"{_RUN}/logs/orchestrator.log",
                f"{_RUN}/logs/orchestrator.stdout",
            ),
            role="orchestrator",
            copies="orchestrator",
        ),
        LogLayout(
            "inference",
            (
                f"{_RUN}/logs/latest/inference.log",
                f"{_RUN}/logs/inference.log",
                f"{_RUN}/logs/inference.stdout",
            ),
            role="inference",
        ),
        LogLayout("envs", (f"{_RUN}/logs/latest/envs/*/*.log",), role="environment"),
    ),
    lines=(
        LinePattern(
            "step",
            rf"Step (?P<step>\d+) \| +{_TIME} \| Loss (?P<loss>{NUMBER})",
            phase=Phase.TRAINING,
        ),
        LinePattern(
            "step_before_0_6",
            rf"Step (?P<step>\d+) \| Time: (?P<seconds>{NUMBER}s) \| Loss: (?P<loss>{NUMBER})",
            phase=Phase.TRAINING,
        ),
        LinePattern(
            "batch",
            rf"Step \d+ \| .*\| Reward:? (?P<reward>{NUMBER})"
            rf"(?:.*Max\.? Off-Policy(?: Level:)? (?P<staleness>\d+))?",
        ),
        LinePattern("grad_norm", rf"\| Grad\. Norm:? (?P<grad_norm>{NUMBER})"),
        LinePattern("throughput", rf"\| Throughput:? (?P<throughput>{NUMBER}) tokens/s"),
        LinePattern("waiting", r"Waiting for training batch", phase=Phase.WAITING_FOR_ROLLOUTS),
        LinePattern(
            "waited",
            r"Waited for batch to arrive|Loading batch|Starting forward and backward pass",
            ends=Phase.WAITING_FOR_ROLLOUTS,
        ),
        LinePattern(
            "saving",
            r"Saving checkpoint at step \d+|Writing final checkpoint",
            phase=Phase.SAVING,
            role="trainer",
        ),
        LinePattern(
            "resumed",
            r"Resuming training from checkpoint step `?(?P<step>\d+)",
            phase=Phase.STARTING,
            role="trainer",
        ),
        LinePattern("finished", r"RL trainer finished!", phase=Phase.FINISHED),
        LinePattern("total", r"Starting training loop \(max_steps=(?P<total>\d+)\)"),
        LinePattern("evaluating", r"Starting evals in|Running evals for checkpoint step"),
        LinePattern("collecting", r"Train batch \d+/\d+ \((?P<batch_percent>[\d.]+)%\)"),
        LinePattern(
            "holding",
            r"Holding batch \d+ until the trainer publishes policy v\d+ "
            r"\(currently v(?P<rollout_version>\d+)\)",
        ),
        LinePattern("paused", r"Orchestrator paused: waiting for trainer to broadcast checkpoint"),
        LinePattern(
            "cancelled",
            r"Cancelled (?P<cancelled_episodes>\d+) train episodes past max_off_policy_steps",
            trouble=True,
        ),
        LinePattern("empty_batch", r"Step \d+: empty train batch", trouble=True),
        LinePattern("episode_failed", r"Episode task failed in group", trouble=True),
        LinePattern(
            "inference_unreachable",
            r"Inference server was not reached after \d+ seconds",
            trouble=True,
        ),
        LinePattern(
            "part_failed",
            r"(?:Trainer|Orchestrator|Inference|\w+ server) failed with exit code -?\d+",
            trouble=True,
        ),
    ),
    roles=(
        RoleLayout("launcher", r"^PRIME-RL::Launcher|/bin/rl "),
        RoleLayout(
            "trainer",
            r"PRIME-RL::(?:SFT)?Trainer|-m prime_rl\.trainer\."
            r"|prime_rl/trainer/(?:rl|sft)/train\.py",
            finishes=True,
        ),
        RoleLayout(
            "orchestrator",
            r"PRIME-RL::Orchestrator|-m prime_rl\.orchestrator|/bin/orchestrator\b"
            r"|\buv run orchestrator\b",
            finishes=True,
        ),
        RoleLayout(
            "inference",
            r"PRIME-RL::Inference|-m prime_rl\.inference|/bin/inference\b|\buv run inference\b",
            engine="vllm",
        ),
        RoleLayout("environment", r"PRIME-RL::EnvServer|Verifiers::EnvWorker"),
        VLLM,
    ),
    endpoints=(EndpointLayout("trainer", 8000), EndpointLayout("inference", 8100)),
    notes=points("""
        - Trainer and orchestrator save their halves of a checkpoint on their own; both must be
          there. A step without any half of the orchestrator counts too, as in SFT and until 0.8:
          if the orchestrator died before its first save, such a step cannot be resumed.
        - A resume takes the highest step_N unchecked, complete or not.
        - Batches travel by ZMQ unless rollout_transport.type is filesystem, and leave no files
          then; traces of episodes do, unless the file monitor is off.
        - Trainer and orchestrator wait for each other without limit, and say so at level DEBUG
          alone since December 2025: set log.level to debug, or watch the lag.
        - /health of the trainer always says ok, even in a hang, and its metrics are off by
          default.
        - The whole run ends when one part does; nothing starts it again.
        - Steps before 0.7 count from zero and are shown as they stand in its log.
    """),
)
