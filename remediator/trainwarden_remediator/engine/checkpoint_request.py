"""Requests a final checkpoint from a worker before it is terminated, and waits for it."""

from __future__ import annotations

import asyncio
import logging
import signal
import subprocess
from collections.abc import Collection
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.processes.procfs import Identity, read_text
from trainwarden_remediator.actions.base import Confirm
from trainwarden_remediator.actions.termination import is_alive, send_signal
from trainwarden_remediator.config.restart_methods.base import SaveRequest
from trainwarden_remediator.engine.context import EngineContext
from trainwarden_remediator.exceptions import ActionError, ObservationError
from trainwarden_remediator.model import TargetInstance
from trainwarden_remediator.observation.model import RunState
from trainwarden_remediator.observation.snapshot import Observer

log = logging.getLogger(__name__)

CHECK_SECONDS = 1.0
"""Seconds between two checks for a new checkpoint."""


@dataclass(frozen=True, slots=True)
class SaveResult:
    """What a request for a checkpoint has led to, in words; `sent`: whether it was sent."""

    text: str
    sent: bool = True


async def request_checkpoint(
    request: SaveRequest,
    key: WorkerKey,
    roots: Collection[Identity],
    newest: float | None,
    *,
    instances: Collection[TargetInstance],
    context: EngineContext,
    confirm: Confirm,
) -> SaveResult | None:
    """Requests a checkpoint from `instances` and waits for one newer than step `newest`.

    A signal is sent to `roots`, and `confirm` is called right before. Returns None if there is no
    process to signal. A failure of the worker does not raise. The same instances are not asked
    again for as long as an alert is remembered. Raises JournalError.
    """
    clock, journal = context.clock, context.journal
    since = clock.now() - max(request.timeout, context.setup.config.alert_stale_after)
    before = await asyncio.to_thread(journal.last_save_request, key, instances, since)
    if before is not None:
        # After a crash it is unknown whether the request was sent. It is not sent again: a second
        # SIGINT, or a second save during the first, can corrupt the checkpoint, while a request
        # that was not sent costs only the steps since the last checkpoint. This applies to the same
        # processes only, and no longer than an alert is remembered: later there are new steps to
        # save.
        ago = max(clock.now() - before.at, 0.0)
        came = await _wait_for_checkpoint(
            request, key, roots, before.checkpoint, context=context, ago=ago
        )
        return replace(came, text=f"already requested: {came.text}")
    if request.signal is not None and not roots:
        return None
    try:
        thread = context.thread_factory("request a checkpoint")
    except RuntimeError as error:  # the host has run out of threads
        return _not_requested(error)
    with closing(thread):
        receivers = thread.call(partial(_signal_receivers, request, roots))
        await asyncio.wait([receivers], timeout=request.timeout)
        if not receivers.done():
            return _not_requested(f"signal handlers not known within {request.timeout:g} s")
        if (failure := receivers.exception()) is not None:
            return _not_requested(failure)
        about = {"run": key.run, "worker": key.worker, "subjects": list(instances)}
        await asyncio.to_thread(journal.record_event, "save_requested", **about, checkpoint=newest)
        sent = thread.call(partial(_send_request, request, receivers.result(), confirm))
    return await _wait_for_checkpoint(request, key, roots, newest, context=context, sent=sent)


async def _wait_for_checkpoint(
    request: SaveRequest,
    key: WorkerKey,
    roots: Collection[Identity],
    newest: float | None,
    *,
    context: EngineContext,
    sent: asyncio.Future[None] | None = None,
    ago: float = 0.0,
) -> SaveResult:
    """Waits for a checkpoint that was requested `ago` seconds earlier, or once `sent` is done."""
    clock = context.clock
    deadline = clock.monotonic() + request.timeout - ago
    while True:
        done = sent is None or sent.done()
        if sent is not None and done and (error := sent.exception()) is not None:
            return _not_requested(error)
        step = await _newer_checkpoint(context.observer_with_fallback, key, newest)
        if step is not None:
            return SaveResult(f"saved step {step:g}")
        if clock.monotonic() >= deadline:
            return SaveResult(f"no newer checkpoint within {request.timeout:g} s")
        if roots and done and not await asyncio.to_thread(_any_alive, roots):
            return SaveResult("the worker has exited")
        await clock.sleep(CHECK_SECONDS)


def _any_alive(roots: Collection[Identity]) -> bool:
    """Whether one of `roots` lives, or may; blocks."""
    try:
        return any(map(is_alive, roots))
    except ActionError:
        return True


def _not_requested(error: BaseException | str) -> SaveResult:
    log.warning("cannot request a checkpoint", extra={"error": str(error)})
    return SaveResult(f"not asked: {error}", sent=False)


async def _newer_checkpoint(
    observer: Observer, key: WorkerKey, newest: float | None
) -> float | None:
    """Returns the step of a complete checkpoint newer than `newest`, or None."""
    try:
        exporter = await observer.observe()
    except ObservationError:
        return None
    run = exporter.runs.get(key.run, RunState())
    newer = run.checkpoint is not None and (newest is None or run.checkpoint > newest)
    return run.checkpoint if newer and not run.saving else None


def _signal_receivers(request: SaveRequest, roots: Collection[Identity]) -> Collection[Identity]:
    """Returns the processes that handle the configured signal; blocks.

    Raises ActionError if there are none.
    """
    if request.signal is None:
        return ()
    number = signal.Signals[request.signal]
    handling = [root for root in roots if _handles(root.pid, number)]
    if not handling:
        raise ActionError(f"the worker does not handle {number.name}")
    return handling


def _send_request(request: SaveRequest, handling: Collection[Identity], confirm: Confirm) -> None:
    """Sends the signal or runs the command; blocks. Raises ActionError, as `confirm` does."""
    confirm()
    if request.signal is not None:
        send_signal(handling, signal.Signals[request.signal])
        return
    command = request.command or ()
    try:
        subprocess.run(  # noqa: S603 - the operator's own argument list, no shell
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=request.timeout,
            check=True,
        )
    except subprocess.TimeoutExpired:
        log.warning("checkpoint command timed out", extra={"program": command[0]})
    except (OSError, subprocess.SubprocessError) as error:
        raise ActionError(f"{command[0]}: {error}") from error


def _handles(pid: int, number: signal.Signals) -> bool:
    """Whether a process has a handler for a signal (SigCgt, proc_pid_status(5))."""
    for line in (read_text(f"/proc/{pid}/status") or "").splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False
