"""Says whether the script of a run is over though a process of it lives. Pure."""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

from trainwarden_exporter.processes.stacks.model import Activity, Diagnosis, Finding, ThreadStack
from trainwarden_exporter.processes.stacks.py_spy import MAX_FRAMES
from trainwarden_exporter.processes.stacks.waits import waits_for_forks

_SCHEDULERS = ("/gevent/", "/greenlet/", "/eventlet/")
"""Their main thread may run a stack that begins elsewhere than in the script."""


_HELPERS = ("multiprocessing/resource_tracker.py", "torch/utils/data/_utils/worker.py")


class EndKind(Enum):
    """How the script that makes the steps is over."""

    LEFT = auto()
    """Its main thread has left it, and waits for other threads or runs what `atexit` has."""
    LEFT_TO_THREAD = auto()
    """So it has, and another thread has calls of the script's own: it may make the steps."""
    GONE = auto()
    """No Python of it is left: what started it, or what it has left behind, lives on."""


class ScriptEnd(NamedTuple):
    """How a script is over, and what its processes wait for, as one line."""

    kind: EndKind
    waits: str = ""


def script_end(diagnosis: Diagnosis) -> ScriptEnd | None:
    """Returns how the script of a run is over; None if it may not be.

    A process whose stack cannot be read, or that runs, may make the next step.
    """
    trainers = {one.member.key for one in diagnosis.findings if one.member.is_trainer}
    own = [one for one in diagnosis.findings if one.member.key in trainers]
    if not own or any(one.activity is Activity.MOVING for one in own):
        return None
    pythons = [one for one in own if one.stacks.is_python and not _is_helper(one)]
    if not pythons:
        return ScriptEnd(EndKind.GONE, diagnosis.chain)
    if not all(map(_has_left_script, pythons)):
        return None
    kind = EndKind.LEFT_TO_THREAD if any(map(_has_own_thread, pythons)) else EndKind.LEFT
    return ScriptEnd(kind, diagnosis.chain)


def _is_helper(one: Finding) -> bool:
    """Whether it is a process that a library has started, and that ends only with its parent."""
    if waits_for_forks(_main_thread(one)):
        return True
    return any(
        frame.file.endswith(_HELPERS) for thread in one.stacks.threads for frame in thread.frames
    )


def _main_thread(one: Finding) -> ThreadStack | None:
    pid = one.member.identity.pid
    return next((thread for thread in one.stacks.threads if thread.tid == pid), None)


def _has_left_script(one: Finding) -> bool:
    """Whether no call of a module is left, as a script that runs has, also by `python -m`."""
    main = _main_thread(one)
    if main is None or not main.frames or len(main.frames) >= MAX_FRAMES:
        return False
    begins_elsewhere = any(name in main.frames[-1].file for name in (*_SCHEDULERS, "<frozen "))
    return not begins_elsewhere and all(one.function != "<module>" for one in main.frames)


def _has_own_thread(one: Finding) -> bool:
    main = _main_thread(one)
    others = [thread for thread in one.stacks.threads if thread is not main]
    return any(not frame.is_of_library for thread in others for frame in thread.frames)
