"""Memory of the host and its cgroup, and the floor of available memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

import psutil

from trainwarden_exporter.exceptions import CollectError
from trainwarden_exporter.host.cgroup_memory import (
    CgroupUsage,
    find_memory_cgroup,
    read_cgroup_usage,
)
from trainwarden_exporter.host.config import CGROUP_ROOT, HostConfig

P = ParamSpec("P")
T = TypeVar("T")

_FLOOR_SHARE = 0.08
_FLOOR_BYTES = 8 << 30


def call_psutil(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Returns the result of a function of psutil. Raises CollectError."""
    try:
        return function(*args, **kwargs)
    except (psutil.Error, OSError, RuntimeError, ValueError, LookupError) as error:
        # psutil does not convert errors of its parsers
        reason = f"{type(error).__name__}: {error}"
        raise CollectError(f"psutil.{function.__name__} failed: {reason}") from error


def effective_memory(
    total: int, available: int, cgroup_usage: CgroupUsage | None
) -> tuple[int, int]:
    """Returns total and available bytes within host and cgroup: the smaller of each."""
    if cgroup_usage is None:
        return total, available
    return min(total, cgroup_usage.limit_bytes), min(available, cgroup_usage.available_bytes)


def read_available_memory(
    config: HostConfig, *, cgroup_root: Path = CGROUP_ROOT
) -> tuple[int, int, int]:
    """Returns total and available bytes, as `effective_memory`, and the floor.

    Raises CollectError.
    """
    cgroup = find_memory_cgroup(cgroup_root, config.cgroup)
    memory = call_psutil(psutil.virtual_memory)
    cgroup_usage = None if cgroup is None else read_cgroup_usage(cgroup)
    total, available = effective_memory(memory.total, memory.available, cgroup_usage)
    return total, available, available_floor(config, total)


def available_floor(config: HostConfig, total: int) -> int:
    asked = config.memory_available_floor
    return default_floor(total) if asked is None else asked


def default_floor(total: int) -> int:
    """Returns the default floor of available memory in bytes for `total`."""
    return min(int(total * _FLOOR_SHARE), _FLOOR_BYTES)
