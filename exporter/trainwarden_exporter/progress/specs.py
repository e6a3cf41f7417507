"""What is known of a run's progress before it is looked at: its configuration and its layout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trainwarden_exporter.layouts import layout
from trainwarden_exporter.layouts.base import LinePattern, Phase
from trainwarden_exporter.logs.specs import log_specs
from trainwarden_exporter.progress.files import FileSubject
from trainwarden_exporter.progress.limits import Limits
from trainwarden_exporter.runs import RunConfig

TRAINER = "trainer"
"""The role of the log and of the worker that make steps."""


@dataclass(frozen=True, slots=True)
class ProgressSpec:
    """How the progress of one run is followed."""

    run: str
    framework: str = ""
    """As its authors write it."""
    limits: Limits = field(default_factory=Limits)
    total: int | None = None
    """Steps in all, as configured."""
    lines: Mapping[tuple[str, str], LinePattern] = field(default_factory=dict)
    """By the log and the name of the pattern."""
    files: tuple[FileSubject, ...] = ()
    trainers: tuple[str, ...] = ()
    """The workers that make the steps."""
    tells_evaluations: bool = False
    """Whether a line says when an evaluation begins, so that a silence is none."""

    @property
    def is_told(self) -> bool:
        """Whether a line or a file may tell of steps, so that none being told means something."""
        return bool(self.files) or any(_tells(line) for line in self.lines.values())


def _tells(line: LinePattern) -> bool:
    if line.trouble:
        return False
    return bool(line.phase or line.ends or line.advances or "(?P<step>" in line.regex)


def progress_spec(run: RunConfig) -> ProgressSpec:
    """How the progress of `run` is followed. Raises ValueError for an unknown framework."""
    known = layout(run.framework)
    files = {file.name: file for file in known.progress_files}
    files |= {file.name: file.source() for file in run.progress.files}
    templates = tuple(dict.fromkeys((*known.templates, *(one.file for one in files.values()))))
    subjects = (
        ()
        if run.path is None
        else tuple(
            FileSubject(run.name, run.path, tuple(sorted(run.variables.items())), templates, file)
            for file in files.values()
        )
    )
    lines = {(log.name, line.name): line for log in log_specs(run) for line in log.patterns}
    own = {pattern.name for log in run.logs for pattern in log.patterns}
    return ProgressSpec(
        run=run.name,
        framework="" if run.framework == "generic" else known.title,
        limits=run.progress.limits(),
        total=run.progress.total_steps,
        lines=lines,
        files=subjects,
        trainers=trainers(run),
        tells_evaluations=any(
            line.phase is Phase.EVALUATING and (known.tells_evaluations or line.name in own)
            for line in lines.values()
        ),
    )


def trainers(run: RunConfig) -> tuple[str, ...]:
    """The workers that make the steps.

    Those of the role `trainer`; else the one so named; else the only one, unless its role says that
    it is for something else.
    """
    by_role = tuple(worker.name for worker in run.workers if worker.role == TRAINER)
    by_name = tuple(worker.name for worker in run.workers if worker.name == TRAINER)
    plain = tuple(worker.name for worker in run.workers if worker.role == "worker")
    return by_role or by_name or (plain if len(run.workers) == 1 else ())
