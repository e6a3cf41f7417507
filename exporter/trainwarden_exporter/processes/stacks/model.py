"""What one look at a process shows, and what several looks say about it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.processes.procfs import Identity


class Activity(StrEnum):
    """What a process does; the label `activity`."""

    MOVING = "moving"
    COLLECTIVE = "collective"
    GPU = "gpu"
    """It waits for its GPU, which works or hangs: the stack is the same."""
    SERVER = "server"
    QUEUE = "queue"
    PIPE = "pipe"
    LOCK = "lock"
    SLEEP = "sleep"
    DISK = "disk"
    CHILD = "child"
    PROMPT = "prompt"
    """It waits for an operator, at a terminal or in a debugger."""
    STOPPED = "stopped"
    GONE = "gone"
    IDLE = "idle"
    """It does not run, and nothing shows for what it waits."""
    UNKNOWN = "unknown"
    """Its stack cannot be read, or was read too rarely."""


class Movement(StrEnum):
    """What the processes of a run show together; the label `movement`."""

    MOVING = "moving"
    STUCK = "stuck"
    UNKNOWN = "unknown"
    UNDECIDED = "undecided"
    """The run was silent before the exporter looked, and it has looked for too short a time."""


_LIBRARY = re.compile(r"/lib(?:64)?/(?:python|pypy)3\.\d+t?/|-packages/|/debugpy/|^<frozen ")


class Frame(NamedTuple):
    """One call of a stack. `file` is the path as Python knows it."""

    function: str
    file: str
    line: int

    @property
    def is_of_library(self) -> bool:
        return _LIBRARY.search(self.file) is not None


@dataclass(frozen=True, slots=True)
class ThreadStack:
    """The Python stack of one thread, the innermost call first. `tid` is 0 if unknown."""

    name: str
    tid: int
    frames: tuple[Frame, ...]

    @property
    def is_training_thread(self) -> bool:
        """Whether a worker of Ray Train makes its steps in it (thread_runner.py in ray.train)."""
        in_ray = any("/ray/train/" in one.file for one in self.frames)
        return in_ray and self.name.startswith("TrainingThread(")

    @property
    def is_spawned_rank(self) -> bool:
        """Whether `torch.multiprocessing.spawn` has started its process, as a rank."""
        return any(
            one.function == "_wrap" and one.file.endswith("/torch/multiprocessing/spawn.py")
            for one in self.frames
        )


@dataclass(frozen=True, slots=True)
class KernelState:
    """What /proc shows of a process and of its thread that makes the steps.

    None for what is not readable.
    """

    state: str
    cpu_seconds: float
    switches: int | None = None
    """Context switches of the thread."""
    io_bytes: int | None = None
    """Bytes that system calls read and wrote."""
    wait_channel: str = ""
    """The kernel function in which the thread waits; empty if it runs or if unknown."""
    file_number: int | None = None
    """The file descriptor or the awaited pid of the call in which the thread waits."""
    sleeps_for: float | None = None
    """Seconds for which the thread still sleeps."""
    is_endless: bool = False
    """Whether the thread waits in a system call without a timeout."""


@dataclass(frozen=True, slots=True)
class Stacks:
    """The stacks of a process, or why there are none."""

    threads: tuple[ThreadStack, ...] = ()
    problem: str = ""
    is_python: bool = True
    """False if the process runs no Python, so that it has no such stacks."""

    def main(self, pid: int) -> ThreadStack | None:
        """Returns the stack of the thread that makes the steps.

        It is the main thread, which has the number of its process, but in a worker of Ray Train.
        """
        for thread in self.threads:
            if thread.is_training_thread:
                return thread
        for thread in self.threads:
            if thread.tid == pid:
                return thread
        return next((one for one in self.threads if one.name == "MainThread"), None)


class Look(NamedTuple):
    """What the kernel showed of a process at a monotonic time."""

    at: float
    kernel: KernelState


@dataclass(frozen=True, slots=True)
class Member:
    """A process of a run."""

    key: WorkerKey
    role: str
    identity: Identity
    parent_pid: int
    threads: int = 1
    rank: int | None = None
    world: int | None = None
    """Number of ranks of the job."""
    local_world: int | None = None
    """Number of ranks on this host."""
    is_trainer: bool = False
    """Whether it makes the steps: a rank, or the first process of a trainer without ranks."""
    with_ray: bool = False
    """Whether the workers of Ray Train make the steps of its trainer."""
    recorder: str = ""
    """Where it writes the dumps of its Flight Recorder, without the rank; empty if unknown."""
    recorder_pipe: str = ""
    """Its pipe by which a dump is asked for, without the rank and `.pipe`."""


class FarEnd(NamedTuple):
    """What a process waits for. `identity` is None if no process of this host is known for it."""

    text: str
    identity: Identity | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """What a process does, after several looks."""

    member: Member
    activity: Activity
    detail: str = ""
    """The collective, the call or the kernel function in which it waits; or the only call in which
    it was seen running."""
    phase: str = ""
    """What its stack shows it to be at; empty if that is not well known."""
    stacks: Stacks = Stacks()
    kernel: KernelState | None = None
    far_ends: tuple[FarEnd, ...] = ()
    may_end: bool = False
    """Whether its wait may end without the others: it was woken meanwhile, or a thread of it may be
    at work."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """The process that the others wait for. `finding` is None for a rank that does not run."""

    rank: int | None
    key: WorkerKey
    activity: Activity
    finding: Finding | None = None


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What the processes of a run show together."""

    movement: Movement
    findings: tuple[Finding, ...] = ()
    suspects: tuple[Suspect, ...] = ()
    chain: str = ""
    """Which process waits for which, as one line; empty if that is not known."""
    confirmed: bool = False
    """Whether a second round found the run stuck in the same stacks."""
    dumps: str = ""
    """What dumps of Flight Recorders show, and their age."""
