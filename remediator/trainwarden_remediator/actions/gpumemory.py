"""Waits until the driver has given the memory of ended processes back."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

from trainwarden_exporter.gpu.reading import GpuKey
from trainwarden_exporter.gpu.view import GpuView
from trainwarden_exporter.processes.procfs import PROC
from trainwarden_exporter.wording import size

LOOK_PATIENCE = 15.0
"""Seconds that the driver has to answer: one that hangs must not hold the remediator up."""

LOOK_SECONDS = 0.5
"""How often the GPUs are looked at while memory is waited for."""

SLACK_BYTES = 256 * 1024 * 1024
"""Memory in use by nobody that may come and go: the driver's own, or a context that is made."""


def await_memory(
    look: Callable[[], GpuView], before: GpuView, ended: Collection[int], within: float
) -> Mapping[GpuKey, int]:
    """Wait until the memory of those pids is back; returns the bytes that are late, by GPU.

    The driver gives it back some time after a process has ended, or, when that was in the middle
    of its work, not at all. Until then it may go on listing the process. What others take
    meanwhile is theirs, and accounted for. Raises what `look` raises.
    """
    nobodys = unaccounted(before)
    deadline = time.monotonic() + within
    while True:
        more = {
            key: amount - nobodys.get(key, 0)
            for key, amount in unaccounted(look(), but_for=ended).items()
        }
        late = {key: amount for key, amount in more.items() if amount > SLACK_BYTES}
        if not late or time.monotonic() >= deadline:
            return late
        time.sleep(LOOK_SECONDS)


def unaccounted(view: GpuView, *, but_for: Collection[int] = ()) -> Mapping[GpuKey, int]:
    """Bytes in use on each GPU that the driver says of no process but those pids."""
    return {
        gpu.key: gpu.memory.used
        - sum(row.memory_bytes or 0 for row in gpu.processes or () if row.pid not in but_for)
        for gpu in view.sight.gpus
        if gpu.memory is not None
    }


def describe_late(late: Mapping[GpuKey, int]) -> str:
    return ", ".join(f"{size(amount)} on GPU {key.gpu}" for key, amount in late.items())


def uses_gpu(pids: Iterable[int], device_root: Path) -> bool:
    """Whether one of these processes has a device file of the driver open, as far as can be seen.

    It costs nothing, unlike asking the driver.
    """
    return any(
        link.startswith(f"{device_root}/nvidia") for pid in pids for link in _open_files(pid)
    )


def _open_files(pid: int) -> Iterable[str]:
    folder = f"{PROC}/{pid}/fd"
    try:
        names = os.listdir(folder)  # noqa: PTH208 - names are all that is needed
    except OSError:
        return
    for name in names:
        try:
            yield os.readlink(f"{folder}/{name}")  # noqa: PTH115 - a link of /proc, no path
        except OSError:
            continue
