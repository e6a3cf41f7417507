"""AReaL: https://github.com/areal-project/AReaL, read from 0.3.0 to 2.0.0.

Names and records count steps from zero, the log from one: `globalstep1869` is the 1870th step.
Sources: areal/utils/{saver,recover,stats_logger,name_resolve}.py, areal/infra/.
"""

from __future__ import annotations

from trainwarden_exporter.frameworks import base as fw
from trainwarden_exporter.frameworks.common_patterns import NUMBER, SGLANG, VLLM
from trainwarden_exporter.frameworks.completeness_rules import AnyOf, SettledRule

_TRIAL = "checkpoints/{user}/{experiment}/{trial}"
_LOGS = "logs/{user}/{experiment}/{trial}"
_ENTRY = r"epoch\d+epochstep\d+globalstep(?P<step>\d+)"
# The line between two cells is not ASCII: one character, or three when text is read as bytes.
_CELL = rf"\s+\S{{1,3}}\s+(?P<value>{NUMBER})"

# The weights are written in place, then the tokenizer; a LoRA has no tokenizer.
_COMPLETENESS = AnyOf(
    (
        SettledRule(("*.safetensors", "config.json", "tokenizer_config.json")),
        SettledRule(("pytorch_model*.bin", "config.json", "tokenizer_config.json")),
        SettledRule(("adapter_model.safetensors", "adapter_config.json")),
    )
)


def _cell(key: str, name: str) -> fw.LinePattern:
    """A number in the table that follows each step."""
    return fw.LinePattern(name, rf"\b{key}{_CELL.replace('value', name)}")


_PROVABLE = (fw.Provable.TENSORS, fw.Provable.SHARDS, fw.Provable.ARCHIVES)

FRAMEWORK = fw.Framework(
    name="areal",
    title="AReaL",
    versions="0.3.0 to 2.0.0",
    checkpoints=(
        fw.CheckpointLayout(
            "default",
            f"{_TRIAL}/default",
            _ENTRY,
            _COMPLETENESS,
            partial=rf"{_ENTRY}\.tmp",
            step_offset=1,
            provable=_PROVABLE,
            recovery=fw.RecoveryLayout(
                file=f"{_TRIAL}/recover_info/step_info.json",
                step=r'"global_step"\s*:\s*(?P<step>\d+)',
                step_offset=1,
                newer=f"{_TRIAL}/default/recover_checkpoint/.metadata",
                written_last=f"{_TRIAL}/recover_info/dataloader_info.pkl",
            ),
        ),
        fw.CheckpointLayout(
            "critic", f"{_TRIAL}/critic", _ENTRY, _COMPLETENESS, step_offset=1, provable=_PROVABLE
        ),
    ),
    logs=(
        fw.LogLayout(
            "trainer",
            (f"{_LOGS}/main.log", f"{_LOGS}/trainer.log", "logs/*/trainer.log", "trainer.log"),
            role="trainer",
            deduplication_group="trainer",
        ),
        fw.LogLayout(
            "wandb",
            (
                f"{_LOGS}/wandb/*run-*/files/output.log",
                f"{_LOGS}/wandb/output.log",
                "wandb/*run-*/files/output.log",
                "wandb/output.log",
            ),
            role="trainer",
            deduplication_group="trainer",
        ),
        fw.LogLayout(
            "workers",
            (f"{_LOGS}/actor.log", f"{_LOGS}/critic.log", f"{_LOGS}/ref.log"),
            role="trainer",
        ),
        fw.LogLayout(
            "inference",
            (f"{_LOGS}/llm_server.log", f"{_LOGS}/rollout.log", f"{_LOGS}/eval-rollout.log"),
            role="inference",
        ),
    ),
    lines=(
        fw.LinePattern(
            "step",
            r"Epoch \d+/\d+ Step \d+/\d+ Train step (?P<step>\d+)/(?P<total>\d+) done\.",
            fw.Phase.TRAINING,
        ),
        fw.LinePattern(
            "resumed", r"Recovering from StepInfo\(.*\bglobal_step=(?P<step>\d+)", fw.Phase.STARTING
        ),
        fw.LinePattern("finished", r"Training completes! Total time elapsed", fw.Phase.FINISHED),
        fw.LinePattern(
            "weights_loaded",
            rf"Loading weights from disk done in (?P<weight_update_seconds>{NUMBER})s",
            ends=fw.Phase.UPDATING_WEIGHTS,
        ),
        fw.LinePattern(
            "rollouts",
            r"(?:Submit|Enqueue|Finish and accept|Finish but reject) rollout\. "
            r"enqueued: -?\d+, running: (?P<rollouts_running>-?\d+), "
            r"accepted: (?P<rollouts_accepted>\d+), rejected: (?P<rollouts_rejected>\d+)\.",
        ),
        fw.LinePattern(
            "memory",
            rf"Memory-Usage .*device memory used/total \(GB\): (?P<gpu_memory_gib>{NUMBER})/",
        ),
        _cell("task_reward/avg", "reward"),
        _cell("(?:actor_)?loss/avg", "loss"),
        _cell("grad_norm(?:/avg)?", "grad_norm"),
        _cell("sample_staleness_theta_max", "staleness"),
        fw.error_line("rollout_timeout", r"Rollout timed out after [\d.]+s"),
        fw.error_line("worker_failed", r"Worker '[^']+' failed with exit code"),
        fw.error_line("method_failed", r"Method '\w+' failed on worker"),
        fw.error_line("queue_full", r"Output queue is full"),
        fw.error_line("inference_unhealthy", r"Inference server at \S+ failed to become healthy"),
    ),
    modules=("areal",),
    roles=(
        fw.ProcessPattern("launcher", r"-m areal\.(?:infra\.)?launcher\.(?:local|ray|slurm)\b"),
        fw.ProcessPattern(
            "inference",
            r"-m areal\.(?:\S*(?:sglang\.launch_|launcher\.sglang_)server"
            r"|engine\.awex\.sglang_plugin)",
            "sglang",
        ),
        fw.ProcessPattern(
            "inference", r"-m areal\.\S*(?:areal_vllm_server|launcher\.vllm_server)", "vllm"
        ),
        fw.trainer_process(
            r"\btorchrun\b.*--config|\.py\b.*\bscheduler\.type="
            r"|-m areal\.\S*rpc_server\b.*--role (?:actor|critic|ref)\b"
        ),
        SGLANG,
        VLLM,
    ),
    phase_limits=(
        fw.PhaseLimit(
            fw.Phase.UPDATING_WEIGHTS,
            120.0,
            "AReaL waits 120 s for the weights; then the step fails, and the run with it",
        ),
    ),
    notes=fw.bullet_points("""
        - A checkpoint is written in place and has no completion marker (FSDP): it counts as
          complete once weights, config and tokenizer exist and nothing has changed for 30 s.
        - The recovery checkpoint is overwritten in place: a crash in the middle of a save destroys
          the only copy. It is complete when dataloader_info.pkl is newer than its .metadata;
          its content is not proved.
        - Names and records count steps from zero: globalstep1869 is shown as step 1870, and a run
          that resumes from it does step 1871 next, which its log calls Train step 1871.
        - The start of saves, weight updates and evaluations is not logged. The first long one
          raises a warning, and its duration is remembered; raise restart_floor above the longest if
          it takes more than half an hour.
        - A weight update by disk fails when the trainer needs more than 120 s to save the weights.
        - A hang in NCCL is silent for up to two hours, the timeout of its process groups.
        - AReaL never deletes checkpoints: they grow until the disk is full.
        - The local launcher restarts even a run that finished, up to recover.retries times.
    """),
)
