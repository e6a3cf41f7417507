"""A target that is a job of Slurm."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

from pydantic import StringConstraints

from trainwarden_exporter.units import LocalPath, Name, Seconds
from trainwarden_remediator.means.base import Means

JOB_NAME = r"^[A-Za-z0-9_][A-Za-z0-9_.:+=/-]*$"
"""A job may be called anything; one that is acted upon is called by a plain word."""


class SlurmTarget(Means):
    """A worker that is a job of Slurm, which is told to run it again, or to cancel it.

    One that is held, pending, suspended, completing or cancelled is left alone: a person, or Slurm,
    has it in hand. An array's tasks are acted upon one by one, and no part of a heterogeneous job.
    """

    job: Annotated[str, StringConstraints(pattern=JOB_NAME, max_length=100)] | None = None
    """Its name; exactly one job of that name may be known to Slurm. When not given, it is the job
    that the worker's processes run in, so that a worker of which nothing runs has none."""
    user: Name | None = None
    """The account that `job` has to belong to; any when not given."""
    way: Literal["requeue", "cancel"] = "requeue"
    """`requeue` runs the job again (it has to allow that: `--requeue`); `cancel` ends it, for
    something else to submit it anew."""
    at_once: bool = True
    """Whether a job that was put back need not wait for the two minutes that Slurm lets pass before
    it runs a job again."""
    grace: Seconds = 60
    """How long its end may take: `KillWait` and epilogs."""
    starts_within: Seconds = 300
    """How long it is waited for until it runs again; then Slurm is left to find it a place."""
    programs: LocalPath | None = None
    """The folder with `squeue`, `scontrol` and `scancel`; found by PATH when not given."""
    conf: LocalPath | None = None
    """The file slurm.conf, where it is not in its usual place."""

    @property
    def told(self) -> str:
        return f"{self.way} job {self.job}" if self.job else f"{self.way} its job"

    def doubts(self) -> Iterable[str]:
        for name in ("squeue", "scontrol" if self.way == "requeue" else "scancel"):
            if shutil.which(self.program(name)) is None:
                yield f"slurm.programs: no such program: {self.program(name)}"

    def is_same(self, other: Means) -> bool:
        if not isinstance(other, SlurmTarget) or self.job is None:
            return False  # the job of its own worker
        return (self.job, self.user) == (other.job, other.user)

    def program(self, name: str) -> str:
        """What is run for a program of Slurm's."""
        return name if self.programs is None else str(Path(self.programs) / name)
