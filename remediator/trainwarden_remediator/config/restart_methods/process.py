"""Restart method `process`: a plain process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import ClassVar, Self

from pydantic import model_validator

from trainwarden_exporter.config_file.loader import LocatedError
from trainwarden_exporter.config_file.types import LocalPath, Name, Seconds
from trainwarden_remediator.config.restart_methods.base import (
    Arguments,
    RestartMethod,
    command_warnings,
)

CHECKPOINT = "{checkpoint}"
"""Stands for the path of the newest proved checkpoint of the run."""
CHECKPOINT_VARIABLE = "TRAINWARDEN_CHECKPOINT"
"""The environment variable with that path."""


class ProcessTarget(RestartMethod):
    """A worker that is a plain process: stopped by signals, started by a command line."""

    renamed_keys: ClassVar[Mapping[str, str]] = {
        "port_free_within": "port_release_timeout",
        "memory_back_within": "gpu_memory_release_timeout",
    }

    start: Arguments
    """The command line, as a list of arguments without a shell. If the worker has several
    processes, it must start all of them. `{checkpoint}` in an argument stands for the path of the
    newest proved checkpoint of the run; without one, the worker is not restarted."""
    cwd: LocalPath = Path()
    """The working directory; default: the directory of this file. Where it is set, a process that
    neither runs nor was started in it or below it is not terminated."""
    environment: Mapping[str, str] = {}
    """Environment variables to add to those passed on (PATH, HOME, USER, LANG, LC_*, TZ,
    TMPDIR), to PYTHONUNBUFFERED=1, so that the log is not late, and to TRAINWARDEN_CHECKPOINT, the
    path of the newest proved checkpoint of the run, if there is one."""
    log: LocalPath | None = None
    """The file to append the worker's output to; default: the output is discarded."""
    grace: Seconds = 10
    """Seconds between SIGTERM and SIGKILL."""
    user: Name | None = None
    """The account to run the worker as, by name or number; default: under root the `user` of the
    worker's `match` or of its run, otherwise the account of the remediator. A worker that belongs
    to another account is started as root only with `user: root`."""
    set_damaged_aside: bool = False
    """Whether a damaged or half-written checkpoint that the next start would take is renamed before
    it, within its folder, to a hidden name (`.damaged.…`) that the framework ignores. Only if the
    run has a proved checkpoint, for frameworks that resume from the highest number, without
    `{checkpoint}` in `start`, and for files of the account that the worker is started as."""
    port_release_timeout: Seconds = 30
    """How long to wait for the worker's listening ports to become free before the start."""
    gpu_memory_release_timeout: Seconds = 30
    """How long to wait for the driver to release the worker's GPU memory before the start."""

    @property
    def summary(self) -> str:
        return " ".join(self.start)

    @property
    def needs_checkpoint(self) -> bool:
        """Whether the command line contains the path of a checkpoint."""
        return any(CHECKPOINT in argument for argument in self.start)

    def with_checkpoint(self, path: str) -> ProcessTarget:
        """Returns the target that resumes from the checkpoint at `path`; empty: none is proved."""
        if not path:
            return self
        start = tuple(argument.replace(CHECKPOINT, path) for argument in self.start)
        environment = {CHECKPOINT_VARIABLE: path, **self.environment}
        return self.model_copy(update={"start": start, "environment": environment})

    @model_validator(mode="after")
    def _sets_aside_without_a_choice(self) -> Self:
        if self.set_damaged_aside and self.needs_checkpoint:
            raise LocatedError("of no use with {checkpoint} in start", "set_damaged_aside")
        return self

    @model_validator(mode="after")
    def _names_a_program(self) -> Self:
        if CHECKPOINT in self.start[0]:
            raise LocatedError("the program cannot be a checkpoint", "start", 0)
        return self

    def warnings(self) -> Iterable[str]:
        return command_warnings("process.start", self.start, self.cwd, user=self.user)

    def restarts_same(self, other: RestartMethod) -> bool:
        del other
        return False  # each start creates another process
