"""Restart method `slurm`: a Slurm job."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import StringConstraints

from trainwarden_exporter.config_file.types import LocalPath, Name, Seconds
from trainwarden_remediator.config.restart_methods.base import RestartMethod

JOB_NAME = r"^[A-Za-z0-9_][A-Za-z0-9_.:+=/-]*$"
"""The job names that a target may have; Slurm allows any name."""


class SlurmTarget(RestartMethod):
    """A worker that runs in a Slurm job; the job is requeued or cancelled.

    The remediator does not act on a job that is held, pending, suspended, completing or cancelled:
    an operator or Slurm controls it. It acts on each task of a job array separately, and never on a
    component of a heterogeneous job.
    """

    renamed_keys: ClassVar[Mapping[str, str]] = {
        "starts_within": "start_timeout",
        "way": "method",
        "at_once": "start_immediately",
    }

    job: Annotated[str, StringConstraints(pattern=JOB_NAME, max_length=100)] | None = None
    """The name of the job, which must be unique in Slurm; default: the job that the worker's
    processes run in. Without a name, a worker without processes has no job."""
    user: Name | None = None
    """The account that owns `job`; default: any account."""
    method: Literal["requeue", "cancel"] = "requeue"
    """`requeue`: run the job again (the job must allow it: `--requeue`). `cancel`: end the job, for
    another program to submit it again."""
    start_immediately: bool = True
    """Whether to start a requeued job without the two minutes that Slurm waits before it runs a job
    again."""
    grace: Seconds = 60
    """How long the job may take to end, including `KillWait` and epilogs."""
    start_timeout: Seconds = 300
    """How long to wait for the job to run again; then it stays in Slurm's queue."""
    programs: LocalPath | None = None
    """The directory of `squeue`, `scontrol` and `scancel`; default: found through PATH."""
    conf: LocalPath | None = None
    """The path of slurm.conf; default: Slurm's own."""

    @property
    def summary(self) -> str:
        return f"{self.method} job {self.job}" if self.job else f"{self.method} its job"

    def warnings(self) -> Iterable[str]:
        for name in ("squeue", "scontrol" if self.method == "requeue" else "scancel"):
            if shutil.which(self.program(name)) is None:
                yield f"slurm.programs: no such program: {self.program(name)}"

    def restarts_same(self, other: RestartMethod) -> bool:
        if not isinstance(other, SlurmTarget) or self.job is None:
            return False  # without a name, each target acts on the job of its own worker
        return (self.job, self.user) == (other.job, other.user)

    def program(self, name: str) -> str:
        """Returns the path of a Slurm program, or only its name if PATH is searched."""
        return name if self.programs is None else str(Path(self.programs) / name)
