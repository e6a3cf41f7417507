"""The numbers at which panels change colour: those of the alerts, as the rules write them.

Most limits are metrics, and drawn as such; here are the factors and shares that rules hold.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

_FACTORS = re.compile(r"[<>]=? ((?:[\d.]+(?: \* )?)*)")


@dataclass(frozen=True, slots=True)
class Limit:
    """A number in the expression of an alert."""

    alert: str
    severity: str
    written: str
    """The comparison, as it stands in the rule; or what the exporter tells only above it."""

    @property
    def value(self) -> float:
        """The number that is compared with, or the factor of what is."""
        match = _FACTORS.match(self.written)
        return math.prod(
            float(number) for number in re.findall(r"[\d.]+", match[1] if match else "")
        )


STALLED = Limit("TrainingStepStalled", "critical", "> 1 ")
NEARLY_STALLED = Limit("TrainingStepStalled", "warning", "> 0.6")
CHECKPOINT_OVERDUE = Limit(
    "TrainingCheckpointOverdue",
    "warning",
    "> 2 * last_over_time(trainwarden_checkpoint_interval_seconds",
)
NO_ROOM = Limit("TrainingDiskFilling", "critical", "< 1 ")
LITTLE_ROOM = Limit("TrainingDiskFilling", "warning", "< 3 ")
NO_INODES = Limit("TrainingDiskInodes", "critical", "< 0.01")
FEW_INODES = Limit("TrainingDiskInodes", "warning", "< 0.05")
OVER_MEMORY = Limit(
    "TrainingWorkerMemoryOverLimit",
    "critical",
    "min_over_time(trainwarden_worker_memory_excess_bytes",
)
NEAR_MEMORY = Limit(
    "TrainingWorkerMemoryOverLimit",
    "warning",
    "> 0.9 * last_over_time(trainwarden_worker_memory_limit_bytes",
)
GPU_FULL = Limit("TrainingGpuMemoryNearlyFull", "info", "< 0.03")
KV_CACHE_FULL = Limit("TrainingInferenceKvCacheFull", "warning", "> 0.95")
FLAPPING = Limit("TrainingInferenceFlapping", "warning", ">= 6")
CONTAINER_LOOP = Limit("TrainingContainerRestartLoop", "critical", ">= 3")
HEARTBEAT_MISSED = Limit(
    "TrainingHeartbeatMissed",
    "warning",
    "> 2 * last_over_time(trainwarden_heartbeat_interval_seconds",
)
ERROR_STORM = Limit("TrainingErrorStorm", "warning", "> 20")
SILENT = Limit(
    "TrainingLogSilent", "warning", "> last_over_time(trainwarden_log_silence_limit_seconds"
)
BLOCKED = Limit("TrainingRemediationBlocked", "warning", "> 30 * 60")
BLIND = Limit("TrainingWatchBlind", "warning", "> 60")
DEAF = Limit("TrainingRemediatorDeaf", "critical", "> 2 * 60")

LIMITS = tuple(value for value in list(vars().values()) if isinstance(value, Limit))
