"""AReaL: https://github.com/areal-project/AReaL, read from 0.3.0 to 2.0.0.

Its names and records count steps from zero, its log from one: `globalstep1869` is the 1870th step.
Sources: areal/utils/{saver,recover,stats_logger,name_resolve}.py, areal/infra/.
"""

from __future__ import annotations

from trainwarden_exporter.layouts.base import (
    CheckpointLayout,
    Layout,
    LinePattern,
    LogLayout,
    Phase,
    RecoveryLayout,
    RoleLayout,
    points,
)
from trainwarden_exporter.layouts.engines import SGLANG, VLLM
from trainwarden_exporter.layouts.numbers import NUMBER
from trainwarden_exporter.layouts.proofs import AnyOf, Settled

_TRIAL = "checkpoints/{user}/{experiment}/{trial}"
_LOGS = "logs/{user}/{experiment}/{trial}"
_ENTRY = r"epoch\d+epochstep\d+globalstep(?P<step>\d+)"
# The line between two cells is no ASCII: one character, or three where text is read as bytes.
_CELL = rf"\s+\S{{1,3}}\s+(?P<value>{NUMBER})"

# The weights are written in place, and the tokenizer after them; of a LoRA there is none.
_PROOF = AnyOf(
    (
        Settled(("*.safetensors", "config.json", "tokenizer_config.json")),
        Settled(("pytorch_model*.bin", "config.json", "tokenizer_config.json")),
        Settled(("adapter_model.safetensors", "adapter_config.json")),
    )
)


def _cell(key: str, name: str) -> LinePattern:
    """A number of the table that follows each step."""
    return LinePattern(name, rf"\b{key}{_CELL.replace('value', name)}")


LAYOUT = Layout(
    name="areal",
    title="AReaL",
    versions="0.3.0 to 2.0.0",
    checkpoints=(
        CheckpointLayout(
            "default",
            folder=f"{_TRIAL}/default",
            entry=_ENTRY,
            proof=_PROOF,
            partial=rf"{_ENTRY}\.tmp",
            step_offset=1,
            recovery=RecoveryLayout(
                file=f"{_TRIAL}/recover_info/step_info.json",
                step=r'"global_step"\s*:\s*(?P<step>\d+)',
                step_offset=1,
                newer=f"{_TRIAL}/default/recover_checkpoint/.metadata",
                written_last=f"{_TRIAL}/recover_info/dataloader_info.pkl",
            ),
        ),
        CheckpointLayout(
            "critic", folder=f"{_TRIAL}/critic", entry=_ENTRY, proof=_PROOF, step_offset=1
        ),
    ),
    logs=(
        LogLayout(
            "trainer",
            (f"{_LOGS}/main.log", f"{_LOGS}/trainer.log", "trainer.log"),
            role="trainer",
            copies="trainer",
        ),
        LogLayout(
            "wandb",
            (
                f"{_LOGS}/wandb/*run-*/files/output.log",
                f"{_LOGS}/wandb/output.log",
                "wandb/*run-*/files/output.log",
                "wandb/output.log",
            ),
            role="trainer",
            copies="trainer",
        ),
        LogLayout(
            "workers",
            (f"{_LOGS}/actor.log", f"{_LOGS}/critic.log", f"{_LOGS}/ref.log"),
            role="trainer",
        ),
        LogLayout(
            "inference",
            (f"{_LOGS}/llm_server.log", f"{_LOGS}/rollout.log", f"{_LOGS}/eval-rollout.log"),
            role="inference",
        ),
    ),
    lines=(
        LinePattern(
            "step",
            r"Epoch \d+/\d+ Step \d+/\d+ Train step (?P<step>\d+)/(?P<total>\d+) done\.",
            phase=Phase.TRAINING,
        ),
        LinePattern(
            "resumed",
            r"Recovering from StepInfo\(.*\bglobal_step=(?P<step>\d+)",
            phase=Phase.STARTING,
        ),
        LinePattern("finished", r"Training completes! Total time elapsed", phase=Phase.FINISHED),
        LinePattern(
            "weights_loaded",
            rf"Loading weights from disk done in (?P<weight_update_seconds>{NUMBER})s",
            ends=Phase.UPDATING_WEIGHTS,
        ),
        LinePattern(
            "rollouts",
            r"(?:Submit|Enqueue|Finish and accept|Finish but reject) rollout\. "
            r"enqueued: -?\d+, running: (?P<rollouts_running>-?\d+), "
            r"accepted: (?P<rollouts_accepted>\d+), rejected: (?P<rollouts_rejected>\d+)\.",
        ),
        LinePattern(
            "memory",
            rf"Memory-Usage .*device memory used/total \(GB\): (?P<gpu_memory_gib>{NUMBER})/",
        ),
        _cell("task_reward/avg", "reward"),
        _cell("(?:actor_)?loss/avg", "loss"),
        _cell("grad_norm(?:/avg)?", "grad_norm"),
        _cell("sample_staleness_theta_max", "staleness"),
        LinePattern("rollout_timeout", r"Rollout timed out after [\d.]+s", trouble=True),
        LinePattern("worker_failed", r"Worker '[^']+' failed with exit code", trouble=True),
        LinePattern("method_failed", r"Method '\w+' failed on worker", trouble=True),
        LinePattern("queue_full", r"Output queue is full", trouble=True),
        LinePattern(
            "inference_unhealthy",
            r"Inference server at \S+ failed to become healthy",
            trouble=True,
        ),
    ),
    roles=(
        RoleLayout("launcher", r"-m areal\.(?:infra\.)?launcher\.(?:local|ray|slurm)\b"),
        RoleLayout(
            "inference",
            r"-m areal\.\S*sglang\.launch_server|-m areal\.\S*launcher\.sglang_server"
            r"|-m areal\.engine\.awex\.sglang_plugin",
            engine="sglang",
        ),
        RoleLayout(
            "inference",
            r"-m areal\.\S*areal_vllm_server|-m areal\.\S*launcher\.vllm_server",
            engine="vllm",
        ),
        RoleLayout(
            "trainer",
            r"\btorchrun\b.*--config|\.py\b.*\bscheduler\.type="
            r"|-m areal\.\S*rpc_server\b.*--role (?:actor|critic|ref)\b",
            finishes=True,
        ),
        SGLANG,
        VLLM,
    ),
    notes=points("""
        - A checkpoint is written in place and leaves no mark when it is whole (FSDP): it counts
          as complete once weights, config and tokenizer are there and nothing has changed for 30
          s.
        - The recovery checkpoint is overwritten in place: a crash in the middle of a save
          destroys the only copy. It is whole when dataloader_info.pkl is newer than its
          .metadata.
        - Names and records count steps from zero: globalstep1869 is shown as step 1870, and a run
          that resumes from it makes step 1871 next, which its log calls Train step 1871.
        - Saves, weight updates and evaluations are not told as they begin. The first that is long
          is warned of, and what it took is remembered; raise restart_floor above the longest if
          that is more than half an hour.
        - A weight update by disk fails when the trainer needs more than 120 s to save the
          weights.
        - A hang in NCCL is silent for up to two hours, the timeout of its process groups.
        - Nothing is ever deleted: checkpoints grow until the disk is full.
        - The local launcher starts a run again that ended well, as often as recover.retries says.
    """),
)
