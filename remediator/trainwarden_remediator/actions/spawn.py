"""Starts a configured command as an independent process that carries its action's token."""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from threading import Lock

from trainwarden_exporter.processes.procfs import (
    read_command_line,
    read_environment,
    read_processes,
)
from trainwarden_exporter.runtime.blocking_thread import run_with_timeout
from trainwarden_remediator.actions.base import reading_processes
from trainwarden_remediator.actions.start_account import find_account
from trainwarden_remediator.actions.worker_log import open_worker_log
from trainwarden_remediator.config.restart_methods.base import ACCOUNT_PATH
from trainwarden_remediator.config.restart_methods.process import CHECKPOINT, ProcessTarget
from trainwarden_remediator.exceptions import ActionError
from trainwarden_remediator.runtime import oom_score

ACTION_VARIABLE = "TRAINWARDEN_ACTION"
"""The environment variable with the token of the action that started a process. After a crash of
the remediator it shows whether a start took place."""

INHERITED_VARIABLES = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR")
"""Variables of the remediator's environment that the processes it starts inherit, besides LC_*."""

UNBUFFERED = {"PYTHONUNBUFFERED": "1"}
"""Python buffers what it writes into a file: the log would be late by minutes, and its end would be
lost when the process is killed. Overridden by `environment` of the target."""


START_SECONDS = 30.0
"""How long a start may take: a disk or the database of accounts may not answer."""


def start_process(process: ProcessTarget, action_token: str) -> subprocess.Popen[bytes]:
    """Starts the configured command in its own session and appends its output to its log.

    Raises ActionError if the start fails or takes longer than START_SECONDS.
    """
    start = _Start(process, action_token)
    try:
        return run_with_timeout(START_SECONDS, start.run)
    except TimeoutError as error:
        if (child := start.cancel()) is not None:
            return child
        raise ActionError(f"cannot start {process.start[0]}: {error}") from error
    except KeyError as error:
        raise ActionError(f"cannot start {process.start[0]}: no user {process.user}") from error
    except (OSError, subprocess.SubprocessError) as error:
        raise ActionError(f"cannot start {process.start[0]}: {error}") from error


class _Start:
    """One start, which ends its process if it completes after it was cancelled."""

    def __init__(self, process: ProcessTarget, action_token: str) -> None:
        self._process = process
        self._action_token = action_token
        self._lock = Lock()
        self._cancelled = False
        self._child: subprocess.Popen[bytes] | None = None

    def cancel(self) -> subprocess.Popen[bytes] | None:
        """Cancels the start; returns its process if it has completed."""
        with self._lock:
            self._cancelled = self._child is None
            return self._child

    def run(self) -> subprocess.Popen[bytes]:
        """Raises KeyError for an unknown account, OSError or SubprocessError for a failed start."""
        process = self._process
        with ExitStack() as stack:
            account = None if process.user is None else find_account(process.user)
            output = subprocess.DEVNULL
            if process.log is not None:
                uid, gid = (
                    (os.geteuid(), os.getegid())
                    if account is None
                    else (account.pw_uid, account.pw_gid)
                )
                output = open_worker_log(process.log, uid, gid)
                stack.callback(os.close, output)
            # Setting even the own account takes capabilities that the shipped unit does not have.
            other = account if account is not None and account.pw_uid != os.geteuid() else None
            groups = other and os.getgrouplist(other.pw_name, other.pw_gid)
            process.cwd.stat()  # a disk that hangs blocks here, before anything is started
            stack.enter_context(oom_score.PROCESS_SCORE.inheritable())
            if self._cancelled:
                raise TimeoutError("cancelled")
            child = subprocess.Popen(  # noqa: S603 - the operator's own argument list, no shell
                process.start,
                cwd=process.cwd,
                env=_environment(process, account, self._action_token),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                user=None if other is None else other.pw_uid,
                group=None if other is None else other.pw_gid,
                extra_groups=groups,
            )
        with self._lock:
            if not self._cancelled:
                self._child = child
                return child
        child.kill()
        child.wait()
        raise TimeoutError("cancelled")


def inherited_environment() -> dict[str, str]:
    """Returns the part of the remediator's environment that the programs it starts inherit."""
    return {
        name: value
        for name, value in os.environ.items()
        if name in INHERITED_VARIABLES or name.startswith("LC_")
    }


def _environment(
    process: ProcessTarget, account: pwd.struct_passwd | None, action_token: str
) -> dict[str, str]:
    environment = inherited_environment()
    if account is not None:
        environment |= {"HOME": account.pw_dir, "USER": account.pw_name}
        environment |= {"LOGNAME": account.pw_name, "SHELL": account.pw_shell}
    if account is not None and account.pw_uid != os.geteuid():
        environment |= {"PATH": ACCOUNT_PATH}
    # It shows where the process was started, also if that changes its folder (harm 29).
    environment |= {**UNBUFFERED, "PWD": str(process.cwd.absolute())}
    return {**environment, **process.environment, ACTION_VARIABLE: action_token}


def has_process_with_token(action_token: str) -> bool:
    """Whether a process with `action_token` in its environment runs. Raises ActionError."""
    with reading_processes():
        return any(
            (read_environment(process.pid) or {}).get(ACTION_VARIABLE) == action_token
            for process in read_processes().values()
            if process.alive and not process.kernel_thread
        )


def runs_command(command: Sequence[str], line: Sequence[str]) -> bool:
    """Whether a process with command line `line` runs `command`, also through an interpreter."""
    program, *arguments = command
    before = line[: len(line) - len(arguments)]
    if not before or not all(map(_fits, arguments, line[len(before) :])):
        return False
    return Path(before[-1]).name == Path(program).name


def _fits(argument: str, given: str) -> bool:
    """Whether `given` is `argument`, with any checkpoint in its place."""
    start, placeholder, end = argument.partition(CHECKPOINT)
    return given == argument or bool(
        placeholder and given.startswith(start) and given.endswith(end.rpartition(CHECKPOINT)[2])
    )


def find_started(action_token: str, command: Sequence[str]) -> list[int]:
    """Returns the pids of `command` that an action on the same worker started and that still run.

    Other processes with such a token are descendants, which inherit it. Raises ActionError.
    """
    worker = _worker(action_token)
    with reading_processes():
        return [
            process.pid
            for process in read_processes().values()
            if process.alive
            and not process.kernel_thread
            and runs_command(command, read_command_line(process.pid) or ())
            and _worker((read_environment(process.pid) or {}).get(ACTION_VARIABLE, "")) == worker
        ]


def _worker(action_token: str) -> str:
    """Returns the token without the numbers of the action and of the journal."""
    return action_token.rsplit("/", 2)[0]
