"""A target that is restarted by a command of the operator's own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

from pydantic import Field

from trainwarden_exporter.units import LocalPath, Name, Seconds
from trainwarden_remediator.means.base import Argument, Means, program_doubts

Status = Annotated[int, Field(ge=1, le=255)]
"""An exit status that is no success."""


class CommandTarget(Means):
    """A worker that a command of your own restarts: it ends what runs, and starts it anew.

    Nothing of an alert reaches it. Whether it has helped is told by the exporter, never by the
    command.
    """

    restart: Annotated[tuple[Argument, ...], Field(min_length=1)]
    """The command line, as a list; no shell reads it. It returns when the worker was started: with
    status 0, or else it has failed."""
    cwd: LocalPath = Path()
    """Where it runs; the folder of this file when not given."""
    environment: Mapping[str, str] = {}
    """Variables added to the few that are passed on (PATH, HOME, USER, LANG, LC_*, TZ, TMPDIR)."""
    user: Name | None = None
    """The account it runs as; the remediator's own when not given."""
    log: LocalPath | None = None
    """Its output is appended here, and the end of it (4 KiB) is kept in the journal. Give one where
    the command leaves something running that writes more."""
    within: Annotated[Seconds, Field(gt=0)] = 300
    """How long it may take; one that takes longer is ended, and whether it has done its work is
    looked at: it is not run again for that."""
    grace: Seconds = 10
    """Seconds between SIGTERM and SIGKILL for a command that takes too long."""
    not_now: tuple[Status, ...] = ()
    """Exit statuses by which the command says that it has done nothing, and may not now. That is no
    attempt; it is asked again after `again`."""
    again: Annotated[Seconds, Field(gt=0)] = 60
    """How long after that it is asked again at the earliest."""

    @property
    def told(self) -> str:
        return " ".join(self.restart)

    def is_same(self, other: Means) -> bool:
        if not isinstance(other, CommandTarget):
            return False
        ways = [(one.restart, one.cwd, one.environment, one.user) for one in (self, other)]
        return ways[0] == ways[1]

    def doubts(self) -> Iterable[str]:
        return program_doubts("command.restart", self.restart, self.cwd)
