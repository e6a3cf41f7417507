"""PRIME-RL: https://github.com/PrimeIntellect-ai/prime-rl, read from 0.1 to August 2026.

Steps are shown as PRIME-RL numbers them: from one since 0.7, from zero before. With the older
versions the step is one less than the completed steps, in logs and batches alike, so that the lag
is correct in both.
Sources: src/prime_rl/{trainer/ckpt,utils/pathing,transports,orchestrator}.
"""

from __future__ import annotations

from trainwarden_exporter.frameworks import base as fw
from trainwarden_exporter.frameworks.common_patterns import NUMBER, VLLM
from trainwarden_exporter.frameworks.completeness_rules import AnyOf, MarkerRule

# Until 0.8 the orchestrator wrote its files to run_default, a folder inside the trainer's.
_RUN = "{run? not run_default}"
_OLD = f"{_RUN}/run_default"
_STEP = r"step_(?P<step>\d+)"
_STALENESS = 8  # max_off_policy_steps, beyond which episodes are cancelled
_STABLE = MarkerRule(("STABLE",))
_BOTH_HALVES = MarkerRule(("trainer/.metadata", "orchestrator/progress.pt"), ("*.tmp",), last=True)
_TRAINER_ONLY = MarkerRule(("trainer/.metadata",), ("orchestrator/*",), last=True)
_PROGRESS = MarkerRule(("orchestrator/progress.pt",), ("*.tmp",))
_RANKS = AnyOf(tuple(MarkerRule((file,), ("rank_*.tmp",)) for file in ("rank_*.bin", "rank_*.pt")))
_TRACES = MarkerRule(("train/effective/traces.jsonl",))
_UNPACKED = MarkerRule(("*rollouts.bin",), ("*.tmp",))
_TIME = r"(?P<seconds>\d[\d.]*(?:d|h|m|s|ms)(?: \d+[hms])?)"


def _log_files(part: str) -> tuple[str, ...]:
    names = (f"latest/{part}.log", f"{part}.log", f"{part}.stdout")
    return tuple(f"{_RUN}/logs/{name}" for name in names)


FRAMEWORK = fw.Framework(
    name="prime_rl",
    title="PRIME-RL",
    versions="0.1 to 0.8, and main of August 2026",
    checkpoints=(
        fw.CheckpointLayout(
            "default",
            f"{_RUN}/checkpoints",
            _STEP,
            AnyOf((_BOTH_HALVES, _TRAINER_ONLY)),
            provable=(fw.Provable.ITEMS, fw.Provable.ARCHIVES),
        ),
        fw.CheckpointLayout(
            "orchestrator",
            f"{_OLD}/checkpoints",
            _STEP,
            _PROGRESS,
            provable=(fw.Provable.ARCHIVES,),
        ),
        fw.CheckpointLayout(
            "weights",
            f"{_RUN}/weights",
            _STEP,
            _STABLE,
            provable=(fw.Provable.TENSORS, fw.Provable.SHARDS),
        ),
    ),
    rollouts=(
        fw.RolloutLayout(
            "batches",
            f"{_RUN}/rollouts/{{has step_*/rank_*}}",
            _STEP,
            _RANKS,
            rank=r"rank_(?P<rank>\d+)\.(?:bin|pt)",
            staleness_limit=_STALENESS,
        ),
        fw.RolloutLayout(
            "unpacked", f"{_OLD}/rollouts/{{has step_*/*rollouts.bin}}", _STEP, _UNPACKED
        ),
        fw.RolloutLayout(
            "traces",
            f"{_RUN}/rollouts/{{has step_*/train}}",
            _STEP,
            _TRACES,
            staleness_limit=_STALENESS,
        ),
        *(
            fw.RolloutLayout(
                name, f"{folder}/broadcasts/{{has step_*}}", _STEP, _STABLE, carries="weights"
            )
            for name, folder in (("broadcasts", _RUN), ("broadcasts_old", _OLD))
        ),
    ),
    logs=(
        fw.LogLayout(
            "trainer", _log_files("trainer"), role="trainer", deduplication_group="trainer"
        ),
        fw.LogLayout(
            "ranks",
            (f"{_RUN}/logs/trainer/rank_0.log",),
            role="trainer",
            deduplication_group="trainer",
        ),
        fw.LogLayout(
            "orchestrator",
            _log_files("orchestrator"),
            role="orchestrator",
            deduplication_group="orchestrator",
        ),
        fw.LogLayout("inference", _log_files("inference"), role="inference"),
        fw.LogLayout("envs", (f"{_RUN}/logs/latest/envs/*/*.log",), role="environment"),
    ),
    lines=(
        fw.LinePattern(
            "step", rf"Step (?P<step>\d+) \| +{_TIME} \| Loss (?P<loss>{NUMBER})", fw.Phase.TRAINING
        ),
        fw.LinePattern(
            "step_before_0_6",
            rf"Step (?P<step>\d+) \| Time: (?P<seconds>{NUMBER}s) \| Loss: (?P<loss>{NUMBER})",
            fw.Phase.TRAINING,
        ),
        fw.LinePattern(
            "batch",
            rf"Step \d+ \| .*\| Reward:? (?P<reward>{NUMBER})"
            rf"(?:.*Max\.? Off-Policy(?: Level:)? (?P<staleness>\d+))?",
        ),
        fw.LinePattern("grad_norm", rf"\| Grad\. Norm:? (?P<grad_norm>{NUMBER})"),
        fw.LinePattern("throughput", rf"\| Throughput:? (?P<throughput>{NUMBER}) tokens/s"),
        fw.LinePattern("waiting", r"Waiting for training batch", fw.Phase.WAITING_FOR_ROLLOUTS),
        fw.LinePattern(
            "waited",
            r"Waited for batch to arrive|Loading batch|Starting forward and backward pass",
            ends=fw.Phase.WAITING_FOR_ROLLOUTS,
        ),
        fw.LinePattern(
            "saving",
            r"Saving checkpoint at step \d+|Writing final checkpoint",
            fw.Phase.SAVING,
            role="trainer",
        ),
        fw.LinePattern(
            "resumed",
            r"Resuming training from checkpoint step `?(?P<step>\d+)",
            fw.Phase.STARTING,
            role="trainer",
        ),
        fw.LinePattern("finished", r"RL trainer finished!", fw.Phase.FINISHED),
        fw.LinePattern("total", r"Starting training loop \(max_steps=(?P<total>\d+)\)"),
        fw.LinePattern("evaluating", r"Starting evals in|Running evals for checkpoint step"),
        fw.LinePattern("collecting", r"Train batch \d+/\d+ \((?P<batch_percent>[\d.]+)%\)"),
        fw.LinePattern(
            "holding",
            r"Holding batch \d+ until the trainer publishes policy v\d+ "
            r"\(currently v(?P<rollout_version>\d+)\)",
        ),
        fw.LinePattern(
            "paused", r"Orchestrator paused: waiting for trainer to broadcast checkpoint"
        ),
        fw.error_line(
            "cancelled",
            r"Cancelled (?P<cancelled_episodes>\d+) train episodes past max_off_policy_steps",
        ),
        fw.error_line("empty_batch", r"Step \d+: empty train batch"),
        fw.error_line("episode_failed", r"Episode task failed in group"),
        fw.error_line(
            "inference_unreachable", r"Inference server was not reached after \d+ seconds"
        ),
        fw.error_line(
            "part_failed",
            r"(?:Trainer|Orchestrator|Inference|\w+ server) failed with exit code -?\d+",
        ),
    ),
    modules=("prime_rl",),
    roles=(
        fw.ProcessPattern("launcher", r"^PRIME-RL::Launcher|/bin/rl "),
        fw.trainer_process(
            r"PRIME-RL::(?:SFT)?Trainer|-m prime_rl\.trainer\."
            r"|prime_rl/trainer/(?:rl|sft)/train\.py"
        ),
        fw.ProcessPattern(
            "orchestrator",
            r"PRIME-RL::Orchestrator|-m prime_rl\.orchestrator|/bin/orchestrator\b"
            r"|\buv run orchestrator\b",
            finishes=True,
        ),
        fw.ProcessPattern(
            "inference",
            r"PRIME-RL::Inference|-m prime_rl\.inference|/bin/inference\b|\buv run inference\b",
            "vllm",
        ),
        fw.ProcessPattern("environment", r"PRIME-RL::EnvServer|Verifiers::EnvWorker"),
        VLLM,
    ),
    endpoints=(fw.MetricsEndpoint("trainer", 8000), fw.MetricsEndpoint("inference", 8100)),
    notes=fw.bullet_points("""
        - Trainer and orchestrator save their halves of a checkpoint independently; both are
          required. A step without the orchestrator's half also counts, as in SFT and until 0.8: if
          the orchestrator died before its first save, the run cannot resume from such a step.
        - A resume takes the highest step_N without checking that it is complete.
        - Batches travel by ZMQ and leave no files unless rollout_transport.type is filesystem;
          traces of episodes leave files unless the file monitor is off.
        - Trainer and orchestrator wait for each other without limit. Since December 2025 they log
          this only at level DEBUG: set log.level to debug, or watch the lag.
        - /health of the trainer always returns ok, even in a hang; its metrics are off by default.
        - The whole run ends when one part ends; nothing restarts it.
        - Steps before 0.7 count from zero and are shown as in its log.
    """),
)
