"""Asks a worker for a last checkpoint before it is ended, and waits until there is one."""

from __future__ import annotations

import asyncio
import logging
import signal
import subprocess
from collections.abc import Callable, Collection
from contextlib import closing
from functools import partial

from trainwarden_exporter.lane import Lane
from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.processes.procfs import Identity, read_text
from trainwarden_remediator.carrying import Clock
from trainwarden_remediator.ending import lives, tell
from trainwarden_remediator.exceptions import ActionError, UnknownError
from trainwarden_remediator.journal import Journal
from trainwarden_remediator.means.saverequest import SaveRequest
from trainwarden_remediator.records import NOT_ASKED
from trainwarden_remediator.sight import RunSight
from trainwarden_remediator.subjects import Subject
from trainwarden_remediator.world import Eyes

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""How often it is looked whether there is one."""


async def save_first(
    request: SaveRequest,
    key: WorkerKey,
    roots: Collection[Identity],
    newest: float | None,
    *,
    subjects: Collection[Subject],
    journal: Journal,
    remember: float,
    eyes: Callable[[], Eyes],
    lane: Callable[[str], Lane],
    clock: Clock,
) -> str:
    """Ask `subjects`, of which `roots` take a signal, and wait for one newer than `newest`.

    Returns what came of it, or nothing where there is nobody to ask; never raises for what the
    worker does. Whom it has asked it remembers for so many seconds. Raises JournalError.
    """
    since = clock.now() - max(request.within, remember)
    before = await asyncio.to_thread(journal.asked_to_save, key, subjects, since)
    if before is not None:
        # Whether it was done cannot be told where a crash came between. It is not done again: a
        # second SIGINT, or a second save on top of the first, can spoil the very checkpoint that is
        # wanted, while not to have asked costs the steps since the last one, as it does where no
        # worker can be asked. It is for these processes only, and not for longer than an alert is
        # remembered: what is told to save a while later has new steps to save.
        ago = max(clock.now() - before.at, 0.0)
        came = await _await(request, key, roots, before.checkpoint, eyes=eyes, clock=clock, ago=ago)
        return f"asked already: {came}"
    if request.signal is not None and not roots:
        return ""
    try:
        asking = lane("ask for a checkpoint")
    except RuntimeError as none:  # the box has run out of threads
        return f"{NOT_ASKED}: {none}"
    with closing(asking):
        who = asking.call(partial(_who, request, roots))
        await asyncio.wait([who], timeout=request.within)
        if not who.done():
            return f"{NOT_ASKED}: no word of its signals within {request.within:g} s"
        if (error := who.exception()) is not None:
            return _not_asked(error)
        about = {"run": key.run, "worker": key.worker, "subjects": list(subjects)}
        await asyncio.to_thread(journal.note, "save", **about, checkpoint=newest)
        asked = asking.call(partial(_ask, request, who.result()))
    return await _await(request, key, roots, newest, eyes=eyes, clock=clock, asked=asked)


async def _await(
    request: SaveRequest,
    key: WorkerKey,
    roots: Collection[Identity],
    newest: float | None,
    *,
    eyes: Callable[[], Eyes],
    clock: Clock,
    asked: asyncio.Future[None] | None = None,
    ago: float = 0.0,
) -> str:
    """Wait for what was asked for so many seconds `ago`, or is once `asked` has a result."""
    deadline = clock.monotonic() + request.within - ago
    while True:
        done = asked is None or asked.done()
        if asked is not None and done and (error := asked.exception()) is not None:
            return _not_asked(error)
        step = await _saved(eyes(), key, newest)
        if step is not None:
            return f"saved step {step:g}"
        if clock.monotonic() >= deadline:
            return f"no newer checkpoint within {request.within:g} s"
        if roots and done and not any(map(lives, roots)):
            return "it has ended"
        await clock.sleep(LOOK_SECONDS)


def _not_asked(error: BaseException) -> str:
    log.warning("cannot ask for a checkpoint", extra={"error": str(error)})
    return f"{NOT_ASKED}: {error}"


async def _saved(eyes: Eyes, key: WorkerKey, newest: float | None) -> float | None:
    """The step of a complete checkpoint newer than `newest`, if the exporter shows one."""
    try:
        sight = await eyes.look()
    except UnknownError:
        return None
    run = sight.runs.get(key.run, RunSight())
    newer = run.checkpoint is not None and (newest is None or run.checkpoint > newest)
    return run.checkpoint if newer and not run.saving else None


def _who(request: SaveRequest, roots: Collection[Identity]) -> Collection[Identity]:
    """Those that a signal may be sent to. Blocks. Raises ActionError where there is none."""
    if request.signal is None:
        return ()
    number = signal.Signals[request.signal]
    handling = [root for root in roots if _handles(root.pid, number)]
    if not handling:
        raise ActionError(f"it does not handle {number.name}")
    return handling


def _ask(request: SaveRequest, handling: Collection[Identity]) -> None:
    """Blocks. Raises ActionError."""
    if request.signal is not None:
        tell(handling, signal.Signals[request.signal])
        return
    command = request.command or ()
    try:
        subprocess.run(  # noqa: S603 - the operator's own argument list, no shell
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=request.within,
            check=True,
        )
    except subprocess.TimeoutExpired:
        log.warning("a checkpoint was asked for, without an answer", extra={"program": command[0]})
    except (OSError, subprocess.SubprocessError) as error:
        raise ActionError(f"{command[0]}: {error}") from error


def _handles(pid: int, number: signal.Signals) -> bool:
    """Whether a process has a handler for a signal (SigCgt, proc_pid_status(5))."""
    for line in (read_text(f"/proc/{pid}/status") or "").splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False
