"""XIDs, the numbered errors of NVIDIA's driver: meaning and number of occurrences.

The meanings and the severities follow NVIDIA's XID catalogue and its recommended actions
(docs.nvidia.com/deploy/xid-errors, "Analyzing Xid Errors with the Xid Catalog"), compared with the
classifications of leptonai/gpud (components/accelerator/nvidia/xid) and of
utkuozdemir/nvidia_gpu_exporter (its chart's alert rules), facts only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Literal, NamedTuple

from trainwarden_exporter.gpu.model import GpuKey

Severity = Literal["fatal", "warning", "application", "info", "unknown"]
"""`fatal`: the programs on the GPU have failed, and it needs a reset, a reboot or an inspection.
`warning`: a program has failed, or the hardware is suspect, but the GPU continues to work.
`application`: a fault of the program. `info`: no action needed. `unknown`: not in the catalogue."""


class Xid(NamedTuple):
    """Severity and short description of a code."""

    severity: Severity
    meaning: str


_CATALOGUE: tuple[tuple[Severity, str, Iterable[int]], ...] = (
    ("warning", "GPU stopped processing", (8,)),
    ("application", "invalid or corrupted push buffer stream", (11, 25, 32)),
    ("application", "graphics engine exception, such as an out-of-range access", (13,)),
    ("application", "GPU memory page fault", (31,)),
    ("info", "driver firmware error", (37, 38)),
    ("warning", "copy engine error", (39, 40, 41, 70, 71, 72, 75, 76, 77, 85, *range(126, 136))),
    ("application", "GPU stopped processing, reset by its program's fault", (43,)),
    ("info", "graphics engine fault during a context switch", (44,)),
    ("info", "channels cleaned up after an earlier error or a killed program", (45,)),
    ("fatal", "GPU stopped processing, time-out", (46,)),
    ("fatal", "double-bit ECC error", (48,)),
    ("fatal", "auxiliary power is not connected", (54,)),
    ("warning", "internal micro-controller breakpoint", (61,)),
    ("fatal", "internal micro-controller halt", (62, 169)),
    ("info", "memory page retired or row remapped", (63,)),
    ("fatal", "memory page could not be retired or row not remapped", (64,)),
    ("info", "illegal access by the driver", (66, 67)),
    ("warning", "video or image engine error", (60, 68, 83, 84, 86, 88, 89, *range(96, 99), 139)),
    ("warning", "video or image engine error", (82, *range(99, 106), 142)),
    ("application", "graphics engine class error", (69,)),
    ("fatal", "NVLink error", (74,)),
    ("warning", "vGPU could not start", (78,)),
    ("fatal", "GPU has fallen off the bus", (79,)),
    ("application", "corrupted data sent to the GPU", (80,)),
    ("info", "high rate of single-bit ECC errors", (92,)),
    ("info", "InfoROM written too often", (93,)),
    ("warning", "contained memory error: the program that was hit has ended", (94,)),
    ("fatal", "uncontained memory error", (95,)),
    ("info", "test message", (106, 107)),
    ("info", "NVLink remote translation error", (108,)),
    ("fatal", "context switch time-out", (109,)),
    ("fatal", "security fault", (110,)),
    ("fatal", "GSP firmware did not answer", (119,)),
    ("fatal", "GSP firmware error", (120,)),
    ("warning", "chip-to-chip link error", (121,)),
    ("fatal", "link training failed", (136,)),
    ("application", "NVLink access without privilege", (137,)),
    ("fatal", "ECC error that could not be recovered", (140,)),
    ("info", "CUDA fast path error", (141,)),
    ("fatal", "GPU could not be initialised", (143,)),
    ("warning", "NVLink error, of the fifth generation", range(144, 151)),
    ("fatal", "key rotation error", (151,)),
    ("info", "deep-learning accelerator error", (152, 153)),
    ("info", "the driver changed what it recommends after another error", (154,)),
    ("fatal", "NVLink error defined by software", (155,)),
    ("fatal", "resource retired: the GPU needs a reset", (156,)),
    ("warning", "resource could not be retired", (157,)),
    ("fatal", "GPU time-out that cannot be recovered", (158,)),
    ("warning", "CHI bus error without data", (159,)),
    ("info", "channel retired, or not", (160, 161)),
    ("info", "power smoothing changed or wore out", range(162, 166)),
    ("warning", "confidential computing: traffic or interrupt not foreseen", (166, 170)),
    ("fatal", "PCIe time-out that cannot be recovered", (167,)),
    ("warning", "GPU memory capacity reduced", (168,)),
    ("warning", "more on a double-bit ECC error (48)", (171, 172)),
    ("fatal", "chip-to-chip link has failed", (173,)),
)
XIDS: Mapping[int, Xid] = {
    code: Xid(severity, meaning) for severity, meaning, codes in _CATALOGUE for code in codes
}
_UNKNOWN = Xid("unknown", "not in the catalogue")


def describe(code: int) -> Xid:
    """Returns the meaning of `code`; severity `unknown` if the catalogue does not define it."""
    return XIDS.get(code, _UNKNOWN)


@dataclass(frozen=True, slots=True)
class XidCount:
    """Number of occurrences of a code on a GPU, and the last one (Unix seconds of arrival)."""

    gpu: GpuKey
    code: int
    count: int
    last_timestamp: float


class XidCounts:
    """Counts XIDs by GPU and code. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._counts: dict[tuple[GpuKey, int], XidCount] = {}

    def add(self, gpu: GpuKey, code: int, now: float) -> None:
        """Adds a `code` of `gpu` at `now` (Unix seconds)."""
        with self._lock:
            before = self._counts.get((gpu, code))
            count = 1 if before is None else before.count + 1
            self._counts[gpu, code] = XidCount(gpu, code, count, now)

    def all(self) -> tuple[XidCount, ...]:
        """Returns all counts by GPU and code."""
        with self._lock:
            return tuple(self._counts[key] for key in sorted(self._counts))
