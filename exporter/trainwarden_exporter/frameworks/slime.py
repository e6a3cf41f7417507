"""slime: https://github.com/THUDM/slime, read at 0.3.1.

A step is a rollout, which slime counts from zero: `iter_0000099` is the 100th. Optimizer steps
within a rollout are not counted.
Sources: train.py, train_async.py, slime/observability/, slime/backends/megatron_utils/, and
Megatron-LM's megatron/training/checkpointing.py.
"""

from __future__ import annotations

from trainwarden_exporter.frameworks import base as fw
from trainwarden_exporter.frameworks.common_patterns import NUMBER, SGLANG, number_in_dict
from trainwarden_exporter.frameworks.completeness_rules import TrackerRule

_RUN = "{run? not iter_*}"
_TRACKER = "latest_checkpointed_iteration.txt"

FRAMEWORK = fw.Framework(
    name="slime",
    title="slime",
    versions="0.3",
    checkpoints=(
        fw.CheckpointLayout(
            "default",
            f"{_RUN}/{{has iter_*}}",
            r"iter_(?P<step>\d{7,})",
            TrackerRule(_TRACKER),
            step_offset=1,
            provable=(fw.Provable.ITEMS, fw.Provable.ARCHIVES),
        ),
    ),
    logs=(fw.LogLayout("trainer", fw.CONSOLE_LOGS, role="trainer"),),
    lines=(
        fw.LinePattern(
            "step",
            r"\bperf (?P<step>\d+): \{.*'perf/train_time'"
            rf"(?:.*'perf/step_time': (?P<seconds>{NUMBER}))?",
            step_offset=1,
        ),
        fw.LinePattern(
            "resumed",
            r"successfully loaded checkpoint from .* at iteration +(?P<step>\d+)",
            fw.Phase.STARTING,
            step_offset=1,
        ),
        fw.LinePattern(
            "saved",
            r"successfully saved checkpoint from iteration +(?P<step>\d+) to ",
            ends=fw.Phase.SAVING,
            step_offset=1,
        ),
        fw.LinePattern("saving", r"Timer save_model start", fw.Phase.SAVING),
        fw.LinePattern(
            "updating_weights", r"Timer update_weights start", fw.Phase.UPDATING_WEIGHTS
        ),
        # The wait begins when a training step ends; saves and updates happen during the wait.
        fw.LinePattern(
            "waiting",
            r"Timer (?:train_wait start|save_model end|update_weights end)",
            fw.Phase.WAITING_FOR_ROLLOUTS,
        ),
        fw.LinePattern("waited", r"Timer train_wait end", ends=fw.Phase.WAITING_FOR_ROLLOUTS),
        fw.LinePattern("training", r"Timer train start", fw.Phase.TRAINING),
        fw.LinePattern("evaluated", r"\beval \d+: \{'eval/", ends=fw.Phase.EVALUATING),
        fw.LinePattern("loss", number_in_dict("train/loss", "loss")),
        fw.LinePattern("grad_norm", number_in_dict("train/grad_norm", "grad_norm")),
        fw.LinePattern("reward", number_in_dict("rollout/raw_reward", "reward")),
        fw.LinePattern("wait_ratio", number_in_dict("perf/wait_time_ratio", "rollout_wait_ratio")),
        fw.error_line("engine_unhealthy", r"Health check failed for rollout engine \d+"),
        fw.error_line("engine_recovered", r"Recovered [1-9]\d* dead rollout engines"),
    ),
    progress_files=(
        fw.ProgressFile(
            "tracker", f"{_RUN}/{_TRACKER}", "text", r"^\s*(?P<step>\d+)", step_offset=1
        ),
    ),
    # Megatron-LM writes the same checkpoints.
    own_files=(f"{_RUN}/rollout/global_dataset_state_dict_*.pt",),
    modules=("slime",),
    roles=(
        fw.trainer_process(
            r"slime/train(?:_async)?\.py\b"
            r"|python3? \S*train(?:_async)?\.py .*--(?:num-rollout|rollout-batch-size|sglang-\S+)\b"
            r"|ray::MegatronTrainRayActor"
        ),
        fw.ProcessPattern("rollout", r"ray::RolloutManager"),
        fw.ProcessPattern("router", r"-m sglang_router\.launch_router|\bslime_router\b"),
        SGLANG,
    ),
    notes=fw.bullet_points("""
        - path is the folder of --save, or the one above it.
        - A step is a rollout, counted from zero in names: iter_0000099 is shown as step 100.
        - A save that was killed leaves an incomplete iter_NNNNNNN, which the tracker does not name.
        - The router serves metrics on a random port; its log has the number (Router launched at …,
          Prometheus port: …).
        - With --use-fault-tolerance, engines are checked from the start, and an engine that is
          still compiling may be killed.
        - It logs to standard output of the Ray job: redirect it to a file in path, or name the file
          in logs.
    """),
)
