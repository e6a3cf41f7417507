"""Restart method `command`: a command that the operator supplies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field

from trainwarden_exporter.config_file.types import LocalPath, Name, Seconds
from trainwarden_remediator.config.restart_methods.base import (
    Arguments,
    RestartMethod,
    command_warnings,
)

Status = Annotated[int, Field(ge=1, le=255)]
"""An exit status other than 0."""


class CommandTarget(RestartMethod):
    """A worker that a command of your own stops and starts again.

    The command receives no data of the alert. The exporter, not the command, decides whether the
    restart was successful.
    """

    renamed_keys: ClassVar[Mapping[str, str]] = {
        "within": "timeout",
        "not_now": "retry_exit_codes",
        "again": "retry_after",
    }

    restart: Arguments
    """The command line, as a list of arguments without a shell. It must exit with status 0 once the
    worker has started; any other status is a failure."""
    cwd: LocalPath = Path()
    """The working directory; default: the directory of this file."""
    environment: Mapping[str, str] = {}
    """Environment variables to add to those passed on (PATH, HOME, USER, LANG, LC_*, TZ,
    TMPDIR), and to PYTHONUNBUFFERED=1."""
    user: Name | None = None
    """The account to run the command as; default: the account of the remediator."""
    log: LocalPath | None = None
    """The file to append the command's output to; the last 4 KiB also go to the journal. Set it if
    the command leaves a process running that continues to write."""
    timeout: Annotated[Seconds, Field(gt=0)] = 300
    """Timeout of the command. Then it is terminated, and the exporter shows whether the worker was
    restarted; the command is not repeated."""
    grace: Seconds = 10
    """Seconds between SIGTERM and SIGKILL for a command that takes too long."""
    retry_exit_codes: tuple[Status, ...] = ()
    """Exit statuses that mean: nothing done, a restart is not possible now. Such a run does not
    count as an attempt; the command is retried after `retry_after`."""
    retry_after: Annotated[Seconds, Field(gt=0)] = 60
    """Minimum time before such a retry."""

    @property
    def summary(self) -> str:
        return " ".join(self.restart)

    def restarts_same(self, other: RestartMethod) -> bool:
        if not isinstance(other, CommandTarget):
            return False
        ways = [(one.restart, one.cwd, one.environment, one.user) for one in (self, other)]
        return ways[0] == ways[1]

    def warnings(self) -> Iterable[str]:
        return command_warnings("command.restart", self.restart, self.cwd, user=self.user)
