"""A target that is a plain process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

from pydantic import Field

from trainwarden_exporter.units import LocalPath, Name, Seconds
from trainwarden_remediator.means.base import Argument, Means, program_doubts


class ProcessTarget(Means):
    """A worker that is a plain process: ended by signals, started by a command line."""

    start: Annotated[tuple[Argument, ...], Field(min_length=1)]
    """The command line, as a list; no shell reads it. Where several processes are expected, it has
    to start them all."""
    cwd: LocalPath = Path()
    """Where it starts; the folder of this file when not given."""
    environment: Mapping[str, str] = {}
    """Variables added to the few that are passed on (PATH, HOME, USER, LANG, LC_*, TZ, TMPDIR)."""
    log: LocalPath | None = None
    """Its output is appended here; discarded when not given."""
    grace: Seconds = 10
    """Seconds between SIGTERM and SIGKILL: what the worker needs to put its work away."""
    user: Name | None = None
    """The account it runs as; needed where the worker's differs from the remediator's own."""
    port_free_within: Seconds = 30
    """How long the ports that it listened on may take to become free before it is started."""
    memory_back_within: Seconds = 30
    """How long the driver may take to give back the GPU memory that it held."""

    @property
    def told(self) -> str:
        return " ".join(self.start)

    def doubts(self) -> Iterable[str]:
        return program_doubts("process.start", self.start, self.cwd)

    def is_same(self, other: Means) -> bool:
        del other
        return False  # each start is a process of its own
