"""Restarts a worker by a command that the operator supplies."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from trainwarden_exporter.processes.matching import Matcher, ProcessTree, WorkerKey
from trainwarden_exporter.processes.procfs import (
    Identity,
    Process,
    read_command_line,
    read_environment,
    read_process,
    read_processes,
)
from trainwarden_exporter.processes.start_times import start_timestamp
from trainwarden_exporter.runtime.bounded_calls import bounded_call
from trainwarden_exporter.runtime.safe_open import open_regular
from trainwarden_remediator.actions.base import (
    ActionState,
    RecordStep,
    action_errors,
    reading_processes,
)
from trainwarden_remediator.actions.manager_target import ManagedAction, ManagedInstance
from trainwarden_remediator.actions.process_count import exporter_problem, surplus_problem
from trainwarden_remediator.actions.spawn import ACTION_VARIABLE, runs_command, start_process
from trainwarden_remediator.actions.termination import terminate
from trainwarden_remediator.config.restart_methods.command import CommandTarget
from trainwarden_remediator.config.restart_methods.process import ProcessTarget
from trainwarden_remediator.config.schema import Setup
from trainwarden_remediator.config.targets import Target
from trainwarden_remediator.exceptions import (
    ActionDeferredError,
    ActionError,
    JournalError,
    OutcomeUnknownError,
)
from trainwarden_remediator.model import TargetInstance
from trainwarden_remediator.observation.model import ExporterState

NO_PROCESS = "no process"
"""The identity of a worker without processes."""


class CommandAction(ManagedAction[CommandTarget]):
    """Runs the configured command once for each action, whatever its result.

    The processes that the exporter's selectors find identify the worker.
    """

    kind = "command"
    restarts_atomically = True

    def __init__(
        self,
        target: Target,
        command: CommandTarget,
        setup: Setup,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(target, command, clock=clock)
        self._matcher = Matcher(setup.selectors)
        self._workers = {key: setup.workers[key] for key in target.keys if key in setup.workers}

    def read_instance(self) -> ManagedInstance:
        roots = self._processes(roots=True)
        identities = ", ".join(f"{root.pid} (start {root.identity.start_ticks})" for root in roots)
        return ManagedInstance(
            identity=identities or NO_PROCESS,
            running=bool(roots),
            blocker=self._blocker(),
            pid=roots[0].pid if roots else None,
        )

    def proof_problem(self, exporter: ExporterState) -> str:
        trees = self._trees()
        return surplus_problem(trees, self._workers) or exporter_problem(
            trees, self._target.keys, exporter
        )

    def restart(self, instance: ManagedInstance, token: str, record_step: RecordStep) -> None:
        record_step("restart", manager="command", what=" ".join(self._method.restart))
        ended = run_command(self._method, token, self._worker_processes)
        with suppress(JournalError):  # the command has already run
            record_step("output", status=ended.status, output=ended.output)
        if ended.status is None:
            raise OutcomeUnknownError(
                f"the command took longer than {self._method.timeout:g} s and was terminated; "
                "checking its outcome"
            )
        if ended.status in self._method.retry_exit_codes:
            self._not_before = self._clock() + self._method.retry_after
            raise ActionDeferredError(
                f"the command reports that it cannot restart the worker now (status {ended.status})"
            )
        if ended.status < 0:
            raise ActionError(f"the command was terminated by signal {-ended.status}")
        if ended.status > 0:
            raise ActionError(f"the command failed with status {ended.status}")

    def start(self, instance: ManagedInstance, token: str, record_step: RecordStep) -> None:
        raise ActionError("the action was interrupted; its command is not run again")

    def inspect(self, action_token: str, before: Collection[TargetInstance]) -> ActionState:
        for process in self._running_commands(action_token):
            if time.time() - start_timestamp(process.identity) < self._method.timeout:
                raise ActionError(f"the command is still running (pid {process.pid})")
            terminate_session(process.identity, self._method.grace, self._worker_processes())
        instance = self.read_instance()
        if not instance.running:
            return ActionState.ENDED
        return ActionState.UNTOUCHED if instance.identity in before else ActionState.STARTED

    def _blocker(self) -> str:
        if self._is_deferred:
            return "the command has reported that it cannot restart the worker now"
        # Of any action on this worker: after a crash, the command of an earlier one may still run.
        if running := self._running_commands(f"{self._target.run}/{self._target.worker}/"):
            return f"the command of an earlier action is still running (pid {running[0].pid})"
        return ""

    def _running_commands(self, action_token: str) -> list[Process]:
        """Running commands with this token, without the workers they started, which inherit it."""
        workers = set(self._worker_processes())
        found = running_commands(self._method, action_token)
        return [process for process in found if process.identity not in workers]

    def _worker_processes(self) -> list[Identity]:
        return [process.identity for process in self._processes(roots=False)]

    def _processes(self, *, roots: bool) -> list[Process]:
        """The live processes of the target's workers, or only their roots."""
        trees = self._trees()
        chosen = [trees[key].roots if roots else trees[key].members for key in self._target.keys]
        return [process for processes in chosen for process in processes if process.alive]

    def _trees(self) -> Mapping[WorkerKey, ProcessTree]:
        with reading_processes():
            trees = self._matcher.find()
        if missing := [key for key in self._target.keys if key not in trees]:
            raise ActionError(f"worker {missing[0].worker} is no longer in the exporter's file")
        return trees


OUTPUT_TAIL_BYTES = 4096
"""The number of bytes to keep of the end of the command's output."""

MAX_SCRATCH_BYTES = 64 << 20
"""The maximum size of the output of a command without a log; then the output is truncated."""

POLL_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The result of a command. `status`: the returncode as in subprocess, None after a timeout."""

    status: int | None
    output: str


def run_command(
    command: CommandTarget, action_token: str, excluded: Callable[[], Collection[Identity]]
) -> CommandResult:
    """Runs a command in its own session, with `action_token` in its environment.

    After a timeout, terminates the command and the rest of its session, except `excluded`. Raises
    ActionError if the command cannot be started or terminated.
    """
    with ExitStack() as stack:
        with action_errors(f"cannot store output of {command.restart[0]}", OSError):
            if command.log is None:
                # Not a pipe: processes that the command leaves running must survive its reader.
                file = stack.enter_context(tempfile.NamedTemporaryFile(prefix="trainwarden-"))
                log, start_offset = Path(file.name), 0
            else:
                log = command.log
                start_offset = bounded_call(log, partial(_size, log))
        child = start_process(_process_target(command, log), action_token)
        status = _wait_for_exit(child, command, log if command.log is None else None)
        if status is None:
            _terminate(child, command, excluded())
        return CommandResult(status, _output_tail(log, start_offset))


def running_commands(command: CommandTarget, action_token: str) -> tuple[Process, ...]:
    """Returns the running processes of a command whose token begins with `action_token`.

    Processes that a command leaves running carry its token too, but have another command line.
    """
    with reading_processes():
        return tuple(
            process
            for process in read_processes().values()
            if process.alive
            and not process.kernel_thread
            and (read_environment(process.pid) or {})
            .get(ACTION_VARIABLE, "")
            .startswith(action_token)
            and runs_command(command.restart, read_command_line(process.pid) or ())
            and _session(process.pid) == process.pid
        )


def terminate_session(first: Identity, grace: float, excluded: Collection[Identity]) -> None:
    """Terminates a process and the rest of its session, except `excluded`."""
    with reading_processes():
        living = [process for process in read_processes().values() if process.alive]
    session = [process.identity for process in living if _session(process.pid) == first.pid]
    terminate([first], [one for one in session if one not in excluded], grace=grace)


def _process_target(command: CommandTarget, log: Path) -> ProcessTarget:
    return ProcessTarget(
        start=command.restart,
        cwd=command.cwd,
        environment=command.environment,
        log=log,
        user=command.user,
    )


def _wait_for_exit(
    child: subprocess.Popen[bytes], command: CommandTarget, scratch: Path | None
) -> int | None:
    """Waits for the exit status; None after the timeout. Limits the size of `scratch` meanwhile."""
    deadline = time.monotonic() + command.timeout
    while (left := deadline - time.monotonic()) > 0:
        with suppress(subprocess.TimeoutExpired):
            return child.wait(min(left, POLL_SECONDS))
        if scratch is not None and scratch.stat().st_size > MAX_SCRATCH_BYTES:
            os.truncate(scratch, 0)  # the command appends to it
    return child.poll()


def _terminate(
    child: subprocess.Popen[bytes], command: CommandTarget, excluded: Collection[Identity]
) -> None:
    # The child is not reaped yet, so its pid is not reused.
    process = read_process(child.pid)
    if process is not None:
        terminate_session(process.identity, command.grace, excluded)
    with suppress(subprocess.TimeoutExpired):
        child.wait(POLL_SECONDS)


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:
        return None


def _output_tail(log: Path, start_offset: int) -> str:
    """Reads the end of the output since `start_offset`, as text.

    The account of the command may have put a link in the place of its log meanwhile.
    """
    try:
        return bounded_call(log, partial(_read_tail, log, start_offset))
    except OSError:
        return ""


def _read_tail(log: Path, start_offset: int) -> str:
    descriptor = open_regular(log)
    if descriptor is None:
        return ""
    with open(descriptor, "rb") as file:  # noqa: PTH123 - a descriptor
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - OUTPUT_TAIL_BYTES, start_offset if size >= start_offset else 0))
        return file.read(OUTPUT_TAIL_BYTES).decode("utf-8", "replace").strip()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
