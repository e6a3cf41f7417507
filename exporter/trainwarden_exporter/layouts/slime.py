"""slime: https://github.com/THUDM/slime, read at 0.3.1.

A step is a rollout, which slime counts from zero: `iter_0000099` is the 100th. Optimizer steps
within a rollout are not counted.
Sources: train.py, train_async.py, slime/observability/, slime/backends/megatron_utils/, and
Megatron-LM's megatron/training/checkpointing.py.
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
from trainwarden_exporter.layouts.engines import SGLANG
from trainwarden_exporter.layouts.numbers import NUMBER, in_dict
from trainwarden_exporter.layouts.proofs import Tracker

_RUN = "{run? not iter_*}"
_TRACKER = "latest_checkpointed_iteration.txt"

LAYOUT = Layout(
    name="slime",
    title="slime",
    versions="0.3",
    checkpoints=(
        CheckpointLayout(
            "default",
            folder=f"{_RUN}/{{has iter_*}}",
            entry=r"iter_(?P<step>\d{7,})",
            proof=Tracker(_TRACKER),
            step_offset=1,
        ),
    ),
    logs=(LogLayout("trainer", KEPT_OUTPUT, role="trainer"),),
    lines=(
        LinePattern(
            "step",
            r"\bperf (?P<step>\d+): \{.*'perf/train_time'"
            rf"(?:.*'perf/step_time': (?P<seconds>{NUMBER}))?",
            step_offset=1,
        ),
        LinePattern(
            "resumed",
            r"successfully loaded checkpoint from .* at iteration +(?P<step>\d+)",
            phase=Phase.STARTING,
            step_offset=1,
        ),
        LinePattern(
            "saved",
            r"successfully saved checkpoint from iteration +(?P<step>\d+) to ",
            ends=Phase.SAVING,
            step_offset=1,
        ),
        LinePattern("saving", r"Timer save_model start", phase=Phase.SAVING),
        LinePattern(
            "updating_weights", r"Timer update_weights start", phase=Phase.UPDATING_WEIGHTS
        ),
        # The wait, in which both happen, begins when a training step ends and goes on after them.
        LinePattern(
            "waiting",
            r"Timer (?:train_wait start|save_model end|update_weights end)",
            phase=Phase.WAITING_FOR_ROLLOUTS,
        ),
        LinePattern("waited", r"Timer train_wait end", ends=Phase.WAITING_FOR_ROLLOUTS),
        LinePattern("training", r"Timer train start", phase=Phase.TRAINING),
        LinePattern("evaluated", r"\beval \d+: \{'eval/", ends=Phase.EVALUATING),
        LinePattern("loss", in_dict("train/loss", "loss")),
        LinePattern("grad_norm", in_dict("train/grad_norm", "grad_norm")),
        LinePattern("reward", in_dict("rollout/raw_reward", "reward")),
        LinePattern("wait_ratio", in_dict("perf/wait_time_ratio", "rollout_wait_ratio")),
        LinePattern(
            "engine_unhealthy", r"Health check failed for rollout engine \d+", trouble=True
        ),
        LinePattern("engine_recovered", r"Recovered [1-9]\d* dead rollout engines", trouble=True),
    ),
    progress_files=(
        ProgressFile("tracker", f"{_RUN}/{_TRACKER}", "text", r"^\s*(?P<step>\d+)", step_offset=1),
    ),
    roles=(
        RoleLayout(
            "trainer",
            r"python3? \S*train(?:_async)?\.py\b|ray::MegatronTrainRayActor",
            finishes=True,
        ),
        RoleLayout("rollout", r"ray::RolloutManager"),
        RoleLayout("router", r"-m sglang_router\.launch_router|\bslime_router\b"),
        SGLANG,
    ),
    notes=points("""
        - path is the folder of --save, or the one above it.
        - A step is a rollout, and names count them from zero: iter_0000099 is shown as step 100.
        - A save that was killed leaves half an iter_NNNNNNN beside a tracker that does not name
          it.
        - The router serves metrics on a port that it draws; its log says which (Router launched
          at …, Prometheus port: …).
        - With --use-fault-tolerance, engines are checked from the first moment on, and one that
          compiles still may be killed.
        - It logs to standard output of the Ray job: send that into a file in path, or name the
          file in logs.
    """),
)
