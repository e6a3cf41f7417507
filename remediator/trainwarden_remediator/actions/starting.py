"""Starts a configured command line so that it stands on its own, and can be told later."""

from __future__ import annotations

import os
import pwd
import subprocess
from contextlib import ExitStack
from typing import IO

from trainwarden_exporter.exceptions import CollectError
from trainwarden_exporter.processes.procfs import read_environment, read_processes
from trainwarden_remediator import oomscore
from trainwarden_remediator.exceptions import ActionError
from trainwarden_remediator.means.process import ProcessTarget

MARK = "TRAINWARDEN_ACTION"
"""The environment variable that says which action started a process: after a crash of the
remediator it tells a start that took place from one that did not."""

PASSED_ON = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR")
"""Variables of the remediator's own environment that what it starts may see, beside LC_*."""


def start(process: ProcessTarget, mark: str) -> subprocess.Popen[bytes]:
    """Start the configured command line in a session of its own, its output appended to its log.

    Raises ActionError naming what stands in the way.
    """
    try:
        with ExitStack() as stack:
            output: IO[bytes] | int = subprocess.DEVNULL
            if process.log is not None:
                process.log.parent.mkdir(parents=True, exist_ok=True)
                output = stack.enter_context(process.log.open("ab"))
            account = None if process.user is None else pwd.getpwnam(process.user)
            stack.enter_context(oomscore.OWN.ordinary())
            return subprocess.Popen(  # noqa: S603 - the operator's own argument list, no shell
                process.start,
                cwd=process.cwd,
                env=_environment(process, account, mark),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                user=None if account is None else account.pw_uid,
                group=None if account is None else account.pw_gid,
                extra_groups=(
                    None if account is None else os.getgrouplist(account.pw_name, account.pw_gid)
                ),
            )
    except KeyError as error:
        raise ActionError(f"cannot start {process.start[0]}: no user {process.user}") from error
    except (OSError, subprocess.SubprocessError) as error:
        raise ActionError(f"cannot start {process.start[0]}: {error}") from error


def _environment(
    process: ProcessTarget, account: pwd.struct_passwd | None, mark: str
) -> dict[str, str]:
    environment = {
        name: value
        for name, value in os.environ.items()
        if name in PASSED_ON or name.startswith("LC_")
    }
    if account is not None:
        environment |= {"HOME": account.pw_dir, "USER": account.pw_name}
        environment |= {"LOGNAME": account.pw_name, "SHELL": account.pw_shell}
    return {**environment, **process.environment, MARK: mark}


def find_marked(mark: str) -> bool:
    """Whether a process runs that was started with `mark`."""
    try:
        return any(
            (read_environment(process.pid) or {}).get(MARK) == mark
            for process in read_processes().values()
            if process.alive and not process.kernel_thread
        )
    except CollectError as error:
        raise ActionError(f"cannot see the processes: {error}") from error
