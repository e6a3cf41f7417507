"""Who holds a GPU, and which of them belong to no worker: the leftovers of a run that has ended."""

from __future__ import annotations

import operator
import os
import pwd
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trainwarden_exporter.gpu.devicefiles import (
    COMPUTE_FILE,
    DeviceFileWatch,
    Sightings,
)
from trainwarden_exporter.gpu.reading import NO_GPU, GpuKey, GpuReading
from trainwarden_exporter.processes.matching import Tree, WorkerKey, read_own_pid
from trainwarden_exporter.processes.procfs import (
    PROC,
    Identity,
    Process,
    parent,
    read_command_line,
    read_process,
    read_text,
)

# What is on a GPU, or looks at it, for good: displays, NVIDIA's own services, other observers. By
# the name of the program (of the script, where an interpreter runs it).
_PROTECTED_PROGRAMS = re.compile(
    r"""
      X | Xorg | Xwayland | Xvnc | (gnome|plasma|cinnamon|kwin|sway|weston|mutter|hyprland)[\w.-]*
    | gdm[\w.-]* | sddm | lightdm | steamwebhelper | Hyprland
    | nvidia-(smi|persistenced|powerd|settings|fabricmanager|imex|topologyd|gridd|modprobe)
    | nv-(fabricmanager|hostengine) | nvidia-cuda-mps-(control|server) | nvsm[\w-]* | nvlsm
    | nvidia-(device-plugin|mig-manager|container-[\w-]+|ctk) | gpu-feature-discovery
    | dcgm[\w-]* | gpud | nvidia[_-]gpu[_-]exporter | [\w-]*[_-]exporter | trainwarden[\w.-]*
    | nvtop | nvitop[\w.-]* | nvidia-htop[\w.]* | gpustat | btop | glances
    | telegraf | netdata | datadog-agent | gpu\.plugin | zabbix_agent[\w]* | all-smi
    """,
    re.VERBOSE,
)
_PROTECTED_PATHS = re.compile(r"/datadog-agent/|/ray/dashboard/")
_INTERPRETER = re.compile(r"python[\d.]*|sh|bash|dash|node|perl|ruby|env")

# Of a /proc/<pid>/ns/pid, in the first of all pid namespaces (PROC_PID_INIT_INO, linux/proc_ns.h).
_INITIAL_PID_NAMESPACE = 0xEFFFFFFC

# The first release of the driver that gives out pids as its caller's namespace counts them
# (os_find_ns_pid in NVIDIA/open-gpu-kernel-modules); those before give out the host's.
_TRANSLATES_PIDS = (535, 113, 1)


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that holds a GPU, or the driver.

    `listed` is what the driver says: GPUs, with the bytes held there (None: not said). `files` are
    the names of the device files that it has open, `opened` the GPUs among them.
    """

    process: Process
    command: str
    owner: str
    listed: Mapping[GpuKey, int | None] = field(default_factory=dict)
    opened: frozenset[GpuKey] = frozenset()
    files: frozenset[str] = frozenset()
    worker: WorkerKey | None = None
    protected: bool = False
    looks_only: bool = False
    """The driver does not list it, and it has not open what every CUDA program opens."""

    @property
    def gpus(self) -> tuple[GpuKey, ...]:
        """Where it is: by the driver's word, which knows better than the open files.

        A program opens the files of all GPUs and yet uses one.
        """
        return tuple(sorted(self.listed or self.opened)) or (NO_GPU,)

    @property
    def orphan(self) -> bool:
        """Whether it belongs to no worker, and is nothing that should be there anyhow.

        What only looks takes nothing from a run, as monitors do: that is an `observer`.
        """
        return self.worker is None and not self.protected and not self.looks_only

    @property
    def observer(self) -> bool:
        """Whether it only looks, and is not known to be there for that."""
        return self.worker is None and not self.protected and self.looks_only

    @property
    def memory_bytes(self) -> int | None:
        """What it holds on all GPUs, as far as the driver says."""
        known = [amount for amount in self.listed.values() if amount is not None]
        return sum(known) if known else None


@dataclass(frozen=True, slots=True)
class Survey:
    """All holders; how many listed processes could not be found; how many could not be looked into.

    `unmapped` counts by GPU what the driver lists and is no process that we can see.
    """

    holders: tuple[Holder, ...] = ()
    unmapped: Mapping[GpuKey, int] = field(default_factory=dict)
    unreadable: int = 0

    @property
    def orphans(self) -> tuple[Holder, ...]:
        """Those that belong to nobody. Means nothing where no worker is configured."""
        return tuple(holder for holder in self.holders if holder.orphan)

    @property
    def observers(self) -> tuple[Holder, ...]:
        """Those that only look. Means nothing where no worker is configured."""
        return tuple(holder for holder in self.holders if holder.observer)


class HolderSearch:
    """Finds who holds GPUs, by the driver's list and by open device files.

    A process is joined to what the driver says of a pid only if it was there, with the same start
    time, before and after the driver was asked, and only if the number is ours (see `Numbering`).
    """

    def __init__(
        self,
        *,
        device_root: Path = Path("/dev"),
        protected: Sequence[re.Pattern[str]] = (),
        root: Path = PROC,
        watch: DeviceFileWatch | None = None,
        name_workers: bool = True,
    ) -> None:
        """`name_workers`: whether to say also of what is a worker's by whom it was started and how.

        That is left empty where not, which spares three files of /proc for each.
        """
        self._name_workers = name_workers
        self._protected = tuple(protected)
        self._root = root
        self._watch = watch or DeviceFileWatch(device_root, root=root)

    def find(
        self,
        processes: Mapping[int, Process],
        trees: Mapping[WorkerKey, Tree],
        gpus: Iterable[GpuReading],
        *,
        driver_version: str = "",
    ) -> Survey:
        """Who holds what. `processes` must have been read before `gpus`; `trees` are of them."""
        gpus = tuple(gpus)
        if not gpus and not processes:
            return Survey()
        workers = {member.identity: key for key, tree in trees.items() for member in tree.members}
        ourselves = _line_of(processes, read_own_pid(self._root))
        numbering = read_numbering(processes.values(), driver_version, self._root)
        passed_over = {one.pid for one in ourselves}
        if numbering != "translated":
            # a worker is no orphan, whatever it holds: only to prove a pid it is looked into
            passed_over.update(one.pid for one in workers)
        sightings = self._watch.find(
            process for pid, process in processes.items() if pid not in passed_over
        )
        device_files = {f"nvidia{gpu.minor}": gpu.key for gpu in gpus if gpu.minor is not None}
        listed: dict[Identity, dict[GpuKey, int | None]] = {}
        unmapped: dict[GpuKey, int] = {}
        for gpu in gpus:
            for row in gpu.processes or ():
                process = processes.get(row.pid)
                if process is not None and self._is_meant(process, gpu, numbering, sightings):
                    listed.setdefault(process.identity, {})[gpu.key] = row.memory_bytes
                else:
                    unmapped[gpu.key] = unmapped.get(gpu.key, 0) + 1
        found = {**dict.fromkeys(listed), **dict.fromkeys(sightings.held)}
        holders = [
            self._holder(
                processes[one.pid], listed.get(one, {}), sightings, device_files, workers.get(one)
            )
            for one in found
            if one not in ourselves
        ]
        return Survey(tuple(holders), unmapped, sightings.unreadable)

    def _is_meant(
        self, process: Process, gpu: GpuReading, numbering: str, sightings: Sightings
    ) -> bool:
        now = read_process(process.pid, self._root)
        if now is None or now.identity != process.identity:
            return False
        if numbering == "host":
            return True
        # what the driver translates is ours; that it has this GPU open, too, proves it
        held = sightings.held.get(process.identity, frozenset())
        return numbering == "translated" and f"nvidia{gpu.minor}" in held

    def _holder(
        self,
        process: Process,
        listed: Mapping[GpuKey, int | None],
        sightings: Sightings,
        device_files: Mapping[str, GpuKey],
        worker: WorkerKey | None,
    ) -> Holder:
        files = sightings.held.get(process.identity, frozenset())
        opened = frozenset(device_files[name] for name in files & device_files.keys())
        if worker is not None and not self._name_workers:
            return Holder(process, "", "", listed, opened, files, worker)
        arguments = read_command_line(process.pid, self._root) or ()
        command = " ".join(arguments) or f"[{process.name}]"
        return Holder(
            process=process,
            command=command,
            owner=read_owner(process.pid, self._root),
            listed=listed,
            opened=opened,
            files=files,
            worker=worker,
            protected=is_protected(arguments or (process.name,))
            or any(pattern.search(command) for pattern in self._protected),
            looks_only=not listed and COMPUTE_FILE in sightings.present - files,
        )


def is_protected(arguments: Sequence[str]) -> bool:
    """Whether a program is one of those that may always be on a GPU, or look at it.

    By its own name, so that a command line which merely mentions one is not taken for it.
    """
    name = program_name(arguments)
    return _PROTECTED_PROGRAMS.fullmatch(name) is not None or any(
        _PROTECTED_PATHS.search(argument) for argument in arguments[:2]
    )


def program_name(arguments: Sequence[str]) -> str:
    """The name of the program, or of the script or module that an interpreter runs."""
    names = [argument.rpartition("/")[2] for argument in arguments]
    name, rest = (names[0], names[1:]) if names else ("", [])
    if not _INTERPRETER.fullmatch(name):
        return name
    for position, argument in enumerate(rest):
        if argument == "-m" and position + 1 < len(rest):
            return rest[position + 1].partition(".")[0]
        if argument == "-c":
            return name
        if not argument.startswith("-"):
            return argument
    return name


def read_numbering(processes: Iterable[Process], driver_version: str, root: Path = PROC) -> str:
    """Whose pids the driver gives us: `host` (ours, too), `translated` to ours, or `foreign`.

    Kernel threads live in the first pid namespace alone: whoever sees one sees the host's pids.
    """
    if any(map(operator.attrgetter("kernel_thread"), processes)):
        return "host"
    try:
        if (root / "self" / "ns" / "pid").stat().st_ino == _INITIAL_PID_NAMESPACE:
            return "host"
    except OSError:
        return "foreign"
    return "translated" if parse_version(driver_version) >= _TRANSLATES_PIDS else "foreign"


def parse_version(text: str) -> tuple[int, ...]:
    """A version's numbers, as far as there are any."""
    parts = text.split(".")
    return tuple(int(part) for part in parts if part.isdecimal())


def read_owner(pid: int, root: Path = PROC) -> str:
    """The name of the user a process runs as, or the number where it has none; empty if gone."""
    try:
        uid = os.stat(f"{root}/{pid}").st_uid  # noqa: PTH116 - beside the other reads of /proc
        status = read_text(f"{root}/{pid}/status") or ""
    except OSError:
        return ""
    for line in status.splitlines():
        if line.startswith("Uid:"):  # the folder of a process that may not be traced is root's
            uid = int(line.split()[2])
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _line_of(processes: Mapping[int, Process], pid: int) -> frozenset[Identity]:
    """A process and its ancestors."""
    line: set[Identity] = set()
    step = processes.get(pid)
    while step is not None and step.identity not in line:
        line.add(step.identity)
        step = parent(step, processes)
    return frozenset(line)
