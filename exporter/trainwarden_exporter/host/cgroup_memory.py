"""Reads what the memory controller of cgroup v1 and v2 says of one cgroup.

Sources: Documentation/admin-guide/cgroup-v2.rst ("Memory Interface Files"),
Documentation/admin-guide/cgroup-v1/memory.rst and Documentation/accounting/psi.rst.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from trainwarden_exporter.exceptions import CollectError

T = TypeVar("T")

_NO_LIMIT_BYTES = 1 << 60  # v1 writes "none" as the largest multiple of a page below 2^63


@dataclass(frozen=True, slots=True)
class CgroupVersion:
    """The file names of one cgroup version, and what they call page cache that can be dropped."""

    limit: str
    usage: str
    events: str
    inactive_file: str


V1 = CgroupVersion(
    "memory.limit_in_bytes", "memory.usage_in_bytes", "memory.oom_control", "total_inactive_file"
)
V2 = CgroupVersion("memory.max", "memory.current", "memory.events", "inactive_file")


@dataclass(frozen=True, slots=True)
class MemoryCgroup:
    """The folder of a cgroup that has a memory controller, and the top of its hierarchy."""

    folder: Path
    hierarchy_root: Path
    version: CgroupVersion


@dataclass(frozen=True, slots=True)
class CgroupUsage:
    """What a cgroup may hold, and what it holds that cannot simply be dropped (working set)."""

    limit_bytes: int
    working_set_bytes: int

    @property
    def available_bytes(self) -> int:
        return max(0, self.limit_bytes - self.working_set_bytes)


@dataclass(frozen=True, slots=True)
class MemoryPressure:
    """Seconds in which some, or all, tasks waited for memory. `full` is None where not kept."""

    some: float
    full: float | None


def find_memory_cgroup(cgroup_root: Path, folder: Path | None = None) -> MemoryCgroup | None:
    """The memory cgroup at `folder`, or the visible root of the hierarchy when that is None.

    In a container the visible root is the container's own cgroup. Of a machine as a whole it has
    no memory files in v2 and no limit in v1. None where there is no memory controller.
    """
    for version, hierarchy_root in ((V2, cgroup_root), (V1, cgroup_root / "memory")):
        candidate = hierarchy_root if folder is None else folder
        if (candidate / version.usage).exists():
            return MemoryCgroup(candidate, hierarchy_root, version)
    return None


def read_cgroup_usage(cgroup: MemoryCgroup) -> CgroupUsage | None:
    """The tightest allowance of the cgroup and those above it that can be seen; None for none."""
    found = [
        cgroup_usage
        for folder in _ancestors(cgroup)
        if (cgroup_usage := _read_folder_usage(folder, cgroup.version)) is not None
    ]
    return min(found, key=lambda cgroup_usage: cgroup_usage.available_bytes, default=None)


def read_oom_kills(cgroup: MemoryCgroup) -> int | None:
    """Processes the kernel killed for want of memory in this cgroup (v2: and below).

    None where the kernel does not count them (v1 before Linux 4.13).
    """
    path = cgroup.folder / cgroup.version.events
    return read_optional(path, lambda text: parse_counts(text).get("oom_kill"))


def read_pressure(path: Path) -> MemoryPressure | None:
    """The pressure file at `path`; None where the kernel keeps no pressure."""
    return read_optional(path, parse_pressure)


def parse_counts(text: str) -> dict[str, int]:
    """Lines of a name and a number, as in memory.stat, memory.events and /proc/vmstat."""
    pairs = (line.split() for line in text.splitlines())
    return {name: int(value) for name, value in pairs}


def parse_limit(text: str) -> int | None:
    """Bytes, or None for no limit: `max` in v2, an absurdly large number in v1."""
    value = text.strip()
    limit = None if value == "max" else int(value)
    return None if limit is None or limit >= _NO_LIMIT_BYTES else limit


def parse_pressure(text: str) -> MemoryPressure:
    """The totals, in microseconds, of a pressure file (`some avg10=… total=…` and `full …`)."""
    totals: dict[str, float] = {}
    for line in text.splitlines():
        kind, *pairs = line.split()
        totals[kind] = int(dict(pair.split("=", 1) for pair in pairs)["total"]) / 1e6
    return MemoryPressure(totals["some"], totals.get("full"))


def read_optional(path: Path, parse: Callable[[str], T]) -> T | None:
    """What `parse` makes of the file; None where there is none to read.

    Raises CollectError naming the file when reading fails or makes no sense.
    """
    try:
        return parse(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, PermissionError):
        return None
    except OSError as error:
        # a kernel started with psi=0 shows the file and refuses to be asked; a cgroup that is
        # removed while it is read is gone
        if error.errno in (errno.EOPNOTSUPP, errno.ENODEV):
            return None
        raise CollectError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, LookupError) as error:
        raise CollectError(f"cannot understand {path}: {error}") from error


def _ancestors(cgroup: MemoryCgroup) -> Iterator[Path]:
    yield cgroup.folder
    for folder in cgroup.folder.parents:
        if folder.is_relative_to(cgroup.hierarchy_root):
            yield folder


def _read_folder_usage(folder: Path, version: CgroupVersion) -> CgroupUsage | None:
    limit = read_optional(folder / version.limit, parse_limit)
    usage = read_optional(folder / version.usage, int)
    counts: Mapping[str, int] | None = read_optional(folder / "memory.stat", parse_counts)
    if limit is None or usage is None or counts is None:
        return None
    return CgroupUsage(limit, max(0, usage - counts.get(version.inactive_file, 0)))
