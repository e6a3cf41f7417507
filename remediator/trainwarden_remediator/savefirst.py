"""Asks a worker for a last checkpoint before it is ended, and waits until there is one."""

from __future__ import annotations

import logging
import signal
import subprocess
from collections.abc import Callable, Collection
from functools import partial

from trainwarden_exporter.lane import Lane
from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.processes.procfs import Identity, read_text
from trainwarden_remediator.carrying import Clock
from trainwarden_remediator.ending import lives, tell
from trainwarden_remediator.exceptions import ActionError, UnknownError
from trainwarden_remediator.means.saverequest import SaveRequest
from trainwarden_remediator.sight import RunSight
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
    eyes: Callable[[], Eyes],
    lane: Callable[[str], Lane],
    clock: Clock,
) -> str:
    """Ask, and wait. Returns what came of it; never raises for what the worker does."""
    try:
        asking = lane("ask for a checkpoint")
    except RuntimeError as none:  # the box has run out of threads
        return f"not asked: {none}"
    asked = asking.call(partial(_ask, request, roots))
    asking.close()
    deadline = clock.monotonic() + request.within
    while True:
        if asked.done() and (error := asked.exception()) is not None:
            log.warning("cannot ask for a checkpoint", extra={"error": str(error)})
            return f"not asked: {error}"
        step = await _saved(eyes(), key, newest)
        if step is not None:
            return f"saved step {step:g}"
        if clock.monotonic() >= deadline:
            return f"no newer checkpoint within {request.within:g} s"
        if roots and asked.done() and not any(map(lives, roots)):
            return "it has ended"
        await clock.sleep(LOOK_SECONDS)


async def _saved(eyes: Eyes, key: WorkerKey, newest: float | None) -> float | None:
    """The step of a complete checkpoint newer than `newest`, if the exporter shows one."""
    try:
        sight = await eyes.look()
    except UnknownError:
        return None
    run = sight.runs.get(key.run, RunSight())
    newer = run.checkpoint is not None and (newest is None or run.checkpoint > newest)
    return run.checkpoint if newer and not run.saving else None


def _ask(request: SaveRequest, roots: Collection[Identity]) -> None:
    """Blocks. Raises ActionError."""
    if request.command is not None:
        try:
            subprocess.run(  # noqa: S603 - the operator's own argument list, no shell
                request.command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=request.within,
                check=True,
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise ActionError(f"{request.command[0]}: {error}") from error
        return
    number = signal.Signals[request.signal or ""]
    handling = [root for root in roots if _handles(root.pid, number)]
    if not handling:
        raise ActionError(f"it does not handle {number.name}")
    tell(handling, number)


def _handles(pid: int, number: signal.Signals) -> bool:
    """Whether a process has a handler for a signal (SigCgt, proc_pid_status(5))."""
    for line in (read_text(f"/proc/{pid}/status") or "").splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False
