"""Finds the holders of GPUs, and which of them belong to no worker: leftovers of ended runs."""

from __future__ import annotations

import operator
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from trainwarden_exporter.gpu.device_files import COMPUTE_FILE, DeviceFileScanner, HeldDeviceFiles
from trainwarden_exporter.gpu.interactive import interactive_reason
from trainwarden_exporter.gpu.model import NO_GPU, GpuKey, GpuReading
from trainwarden_exporter.gpu.system_services import is_system_service
from trainwarden_exporter.processes.accounts import RunAccounts
from trainwarden_exporter.processes.ancestry import parent
from trainwarden_exporter.processes.matching import ProcessTree, WorkerKey
from trainwarden_exporter.processes.procfs import (
    PROC,
    Identity,
    Process,
    read_command_line,
    read_own_pid,
    read_owner,
    read_process,
    read_uid,
)
from trainwarden_exporter.processes.start_times import start_timestamp
from trainwarden_exporter.runtime.formatting import format_duration, format_size
from trainwarden_exporter.runtime.redaction import redact_command

# Programs that are expected on a GPU or observe it: display servers, NVIDIA's services and
# monitoring tools. By the name of the program (of the script, if an interpreter runs it).
_PROTECTED_PROGRAMS = re.compile(
    r"""
      X | Xorg | Xwayland | Xvnc | (gnome|plasma|cinnamon|kwin|sway|weston|mutter|hyprland)[\w.-]*
    | gdm[\w.-]* | sddm | lightdm | steamwebhelper | Hyprland
    | nvidia-(smi|persistenced|powerd|settings|fabricmanager|imex|topologyd|gridd|modprobe)
    | nv-(fabricmanager|hostengine) | nvidia-cuda-mps-(control|server) | nvsm[\w-]* | nvlsm
    | nvidia-(device-plugin|mig-manager|container-[\w-]+|ctk) | gpu-feature-discovery
    | dcgm[\w-]* | gpud | nvidia[_-]gpu[_-]exporter | [\w-]*[_-]exporter | trainwarden[\w.-]*
    | nvtop | nvitop[\w.-]* | nvidia-htop[\w.]* | gpustat | btop | glances
    | dbus-(daemon|broker)[\w-]* | systemd[\w-]* | elogind[\w-]* | polkitd | sshd[\w-]*
    | telegraf | netdata | datadog-agent | gpu\.plugin | zabbix_agent[\w]* | all-smi
    """,
    re.VERBOSE,
)
_PROTECTED_PATHS = re.compile(r"/datadog-agent/|/ray/dashboard/")
_INTERPRETER = re.compile(r"python[\d.]*|sh|bash|dash|node|perl|ruby|env")

# Inode of /proc/<pid>/ns/pid in the initial pid namespace (PROC_PID_INIT_INO, linux/proc_ns.h).
_INITIAL_PID_NAMESPACE = 0xEFFFFFFC

# First driver release that reports pids of the caller's namespace (os_find_ns_pid in
# NVIDIA/open-gpu-kernel-modules); earlier ones report the host's pids.
_FIRST_TRANSLATING_VERSION = (535, 113, 1)


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that holds a GPU or the driver.

    `listed` is the driver's list: GPUs with bytes in use (None: unknown). `files` are the open
    device files, `opened` the GPUs among them.
    """

    process: Process
    command: str
    """Its command line with secrets redacted."""
    owner: str
    listed: Mapping[GpuKey, int | None] = field(default_factory=dict)
    opened: frozenset[GpuKey] = frozenset()
    files: frozenset[str] = frozenset()
    worker: WorkerKey | None = None
    protected: bool = False
    attended: str = ""
    """How somebody works with it, or "": an operator's notebook or script is no leftover."""
    foreign: bool = False
    """Whether it is of no worker and of no account that is known to be of a run (RunAccounts)."""
    monitor_only: bool = False
    """Whether it only observes: not listed by the driver, and without the files that CUDA
    programs open.
    """

    @property
    def gpus(self) -> tuple[GpuKey, ...]:
        """Returns the GPUs that it holds; the driver's list takes precedence over open files.

        A program may open the files of all GPUs and use only one.
        """
        return tuple(sorted(self.listed or self.opened)) or (NO_GPU,)

    @property
    def shown(self) -> str:
        """Returns what a page, a log or a report shows of its command line.

        Of a foreign process only the name of its program: its arguments are no matter of the run.
        """
        return f"[{self.process.name}]" if self.foreign else self.command

    @property
    def orphan(self) -> bool:
        """Whether it belongs to no worker and is not protected.

        Processes that only observe, such as monitoring tools, are an `observer` instead.
        """
        return self._unowned and not self.monitor_only and not self.attended

    @property
    def in_use(self) -> bool:
        """Whether it belongs to no worker and somebody works with it."""
        return self._unowned and not self.monitor_only and bool(self.attended)

    @property
    def _unowned(self) -> bool:
        return self.worker is None and not self.protected

    @property
    def observer(self) -> bool:
        """Whether it only observes, and is not protected."""
        return self._unowned and self.monitor_only

    @property
    def memory_bytes(self) -> int | None:
        """Returns its memory on all GPUs, as far as the driver reports it."""
        known = [amount for amount in self.listed.values() if amount is not None]
        return sum(known) if known else None


@dataclass(frozen=True, slots=True)
class Survey:
    """All holders.

    `unmapped` counts, by GPU, listed processes that are not visible here; `unreadable` counts
    processes that cannot be inspected.
    """

    holders: tuple[Holder, ...] = ()
    unmapped: Mapping[GpuKey, int] = field(default_factory=dict)
    unreadable: int = 0

    @property
    def orphans(self) -> tuple[Holder, ...]:
        """Returns the orphans. Undefined without configured workers."""
        return tuple(holder for holder in self.holders if holder.orphan)

    @property
    def in_use(self) -> tuple[Holder, ...]:
        """Returns the holders that somebody works with. Undefined without configured workers."""
        return tuple(holder for holder in self.holders if holder.in_use)

    @property
    def observers(self) -> tuple[Holder, ...]:
        """Returns the observers. Undefined without configured workers."""
        return tuple(holder for holder in self.holders if holder.observer)


class HolderSearch:
    """Finds holders of GPUs by the driver's list and by open device files.

    A process is matched to a listed pid only if it existed, with the same start time, before and
    after the driver call, and if the number is of our namespace (see `read_pid_numbering`).
    """

    def __init__(
        self,
        *,
        device_root: Path = Path("/dev"),
        protected: Sequence[re.Pattern[str]] = (),
        root: Path = PROC,
        describe_workers: bool = True,
        users: Iterable[str | None] = (),
    ) -> None:
        """`describe_workers`: whether to read owner and command of workers (three files each).

        `users`: the accounts of workers in the configuration.
        """
        self.accounts = RunAccounts(users, root)
        self._describe_workers = describe_workers
        self._protected = tuple(protected)
        self._root = root
        self._own_pid = read_own_pid(root)
        self._scanner = DeviceFileScanner(device_root, root=root)

    def find(
        self,
        processes: Mapping[int, Process],
        trees: Mapping[WorkerKey, ProcessTree],
        gpus: Iterable[GpuReading],
        *,
        driver_version: str = "",
    ) -> Survey:
        """Returns all holders. `processes` must be read before `gpus`, and contain `trees`."""
        gpus = tuple(gpus)
        if not gpus and not processes:
            return Survey()
        workers = {member.identity: key for key, tree in trees.items() for member in tree.members}
        own_processes = _with_ancestors(processes, self._own_pid)
        pid_numbering = read_pid_numbering(processes.values(), driver_version, self._root)
        skipped_pids = {one.pid for one in own_processes}
        if pid_numbering != "translated":
            # a worker is no orphan: it is examined only to confirm a pid
            skipped_pids.update(one.pid for one in workers)
        held_files = self._scanner.find(
            process for pid, process in processes.items() if pid not in skipped_pids
        )
        device_files = {f"nvidia{gpu.minor}": gpu.key for gpu in gpus if gpu.minor is not None}
        listed: dict[Identity, dict[GpuKey, int | None]] = {}
        unmapped: dict[GpuKey, int] = {}
        for gpu in gpus:
            for row in gpu.processes or ():
                process = processes.get(row.pid)
                if process is not None and self._is_listed_process(
                    process, gpu, pid_numbering, held_files
                ):
                    listed.setdefault(process.identity, {})[gpu.key] = row.memory_bytes
                else:
                    unmapped[gpu.key] = unmapped.get(gpu.key, 0) + 1
        found = dict.fromkeys((*listed, *held_files.held))
        holders = [
            self._holder(
                processes[one.pid], listed.get(one, {}), held_files, device_files, workers.get(one)
            )
            for one in found
            if one not in own_processes
        ]
        attended = [self._with_interactive_reason(one, processes) for one in holders]
        marked = self._mark_foreign(attended, trees.values())
        return Survey(marked, unmapped, held_files.unreadable)

    def _mark_foreign(
        self, holders: Sequence[Holder], trees: Iterable[ProcessTree]
    ) -> tuple[Holder, ...]:
        if all(one.worker is not None for one in holders):
            # most scrapes: few accounts are read, those of the processes that may be left over
            self.accounts.add_workers(one.process for one in holders)
            return tuple(holders)
        self.accounts.add_workers(one for tree in trees for one in tree.members)
        return tuple(
            one
            if one.worker is not None or read_uid(one.process.pid, self._root) in self.accounts
            else replace(one, foreign=True)
            for one in holders
        )

    def _with_interactive_reason(self, holder: Holder, processes: Mapping[int, Process]) -> Holder:
        if not holder.orphan:
            return holder
        arguments = read_command_line(holder.process.pid, self._root) or ()
        found = interactive_reason(holder.process, arguments, processes, self._root)
        return replace(holder, attended=found) if found else holder

    def _is_listed_process(
        self, process: Process, gpu: GpuReading, pid_numbering: str, held_files: HeldDeviceFiles
    ) -> bool:
        now = read_process(process.pid, self._root)
        if now is None or now.identity != process.identity:
            return False
        if pid_numbering == "host":
            return True
        # a translated pid is of our namespace; an open file of this GPU confirms it
        held = held_files.held.get(process.identity, frozenset())
        return pid_numbering == "translated" and f"nvidia{gpu.minor}" in held

    def _holder(
        self,
        process: Process,
        listed: Mapping[GpuKey, int | None],
        held_files: HeldDeviceFiles,
        device_files: Mapping[str, GpuKey],
        worker: WorkerKey | None,
    ) -> Holder:
        files = held_files.held.get(process.identity, frozenset())
        opened = frozenset(device_files[name] for name in files & device_files.keys())
        if worker is not None and not self._describe_workers:
            return Holder(process, "", "", listed, opened, files, worker)
        arguments = read_command_line(process.pid, self._root) or ()
        command = " ".join(arguments) or f"[{process.name}]"
        return Holder(
            process=process,
            command=redact_command(arguments) or command,
            owner=read_owner(process.pid, self._root),
            listed=listed,
            opened=opened,
            files=files,
            worker=worker,
            protected=is_protected(arguments or (process.name,))
            or any(pattern.search(command) for pattern in self._protected)
            or (worker is None and is_system_service(process.pid, self._own_pid, self._root)),
            monitor_only=not listed and COMPUTE_FILE in held_files.present - files,
        )


def is_protected(arguments: Sequence[str]) -> bool:
    """Whether a program may always hold or observe a GPU.

    Uses its own name, so that a command line that merely mentions such a program does not count.
    """
    name = program_name(arguments)
    return _PROTECTED_PROGRAMS.fullmatch(name) is not None or any(
        _PROTECTED_PATHS.search(argument) for argument in arguments[:2]
    )


def program_name(arguments: Sequence[str]) -> str:
    """Returns the name of the program, or of the script or module that an interpreter runs."""
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


def read_pid_numbering(processes: Iterable[Process], driver_version: str, root: Path = PROC) -> str:
    """Returns the namespace of the driver's pids: `host` (also ours), `translated` or `foreign`.

    Kernel threads exist only in the initial pid namespace: if they are visible, so are the host's
    pids.
    """
    if any(map(operator.attrgetter("kernel_thread"), processes)):
        return "host"
    try:
        if (root / "self" / "ns" / "pid").stat().st_ino == _INITIAL_PID_NAMESPACE:
            return "host"
    except OSError:
        return "foreign"
    version = parse_version(driver_version)
    return "translated" if version >= _FIRST_TRANSLATING_VERSION else "foreign"


def parse_version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdecimal())


def _with_ancestors(processes: Mapping[int, Process], pid: int) -> frozenset[Identity]:
    ancestors: set[Identity] = set()
    current = processes.get(pid)
    while current is not None and current.identity not in ancestors:
        ancestors.add(current.identity)
        current = parent(current, processes)
    return frozenset(ancestors)


def describe_holder(holder: Holder, now: float) -> str:
    """Describes a holder in one line: pid, owner, age, use and command. `now` in Unix seconds."""
    age = format_duration(max(0, round(now - start_timestamp(holder.process.identity))))
    held = "unknown memory" if holder.memory_bytes is None else format_size(holder.memory_bytes)
    gpus = [key.gpu for key in holder.gpus if key.gpu]
    place = f"GPU {', '.join(gpus)}" if gpus else "the driver"
    listed = "" if holder.listed else ", not listed by the driver"
    kind = " (observes only: no CUDA)" if holder.monitor_only else ""
    # a process chooses its command line, which could contain terminal control sequences
    command = "".join(letter if letter.isprintable() else "?" for letter in holder.shown)
    return (
        f"pid {holder.process.pid}, {holder.owner}, {age} old, {held} on {place}{listed}{kind}: "
        f"{textwrap.shorten(command, 120, placeholder=' …')}"
    )
