"""What is followed: the logs that a run's configuration and its framework come to together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from trainwarden_exporter.layouts import layout
from trainwarden_exporter.layouts.base import Layout, LinePattern, LogLayout
from trainwarden_exporter.layouts.places import Place
from trainwarden_exporter.layouts.troubles import SHARED
from trainwarden_exporter.logs.config import LONGEST_LINE, LogConfig
from trainwarden_exporter.runs import RunConfig


@dataclass(frozen=True, slots=True)
class LogSpec:
    """One log, and all that decides how it is followed."""

    run: str
    name: str
    path: Path
    files: tuple[str, ...]
    """Templates of its files."""
    patterns: tuple[LinePattern, ...] = ()
    role: str = ""
    worker: str = ""
    """The worker that writes it; empty where that is not known."""
    beside: tuple[str, ...] = ()
    """Templates that tell, together with those of the files, which instance of the run is meant."""
    variables: tuple[tuple[str, str], ...] = ()
    copies: str = ""
    by_file: bool = False
    """Whether its copies are other files of the same template."""
    silence_limit: float | None = None
    longest_line: int = LONGEST_LINE


def log_specs(run: RunConfig) -> tuple[LogSpec, ...]:
    """The logs of `run`: those that its framework is known to write, and those configured.

    Raises ValueError for a framework that is not known.
    """
    known = layout(run.framework)
    logs = {log.name: (log, LogConfig(name=log.name)) for log in known.logs if run.path}
    for config in run.logs:
        before = logs[config.name][0] if config.name in logs else LogLayout(config.name, ())
        logs[config.name] = (_merged(before, config), config)
    places: dict[str, int] = {}
    for log, _ in logs.values():
        places[log.copies] = places.get(log.copies, 0) + len(log.files)
    return tuple(
        _spec(run, known, log, config, by_file=bool(log.copies) and places[log.copies] == 1)
        for log, config in logs.values()
        if log.files
    )


def patterns_of(known: Layout, config: LogConfig) -> tuple[LinePattern, ...]:
    """What is looked for in a log; of several patterns of one name, the more particular one."""
    everywhere = [*SHARED, *known.lines]
    patterns = {one.name: one for one in everywhere if one.name not in config.without}
    patterns |= {one.name: one.pattern() for one in config.patterns}
    return tuple(patterns.values())


def _merged(log: LogLayout, config: LogConfig) -> LogLayout:
    return replace(
        log,
        files=config.files or log.files,
        copies=log.copies if config.copies is None else config.copies,
    )


def _spec(
    run: RunConfig, known: Layout, log: LogLayout, config: LogConfig, *, by_file: bool
) -> LogSpec:
    roles = {worker.name: worker.role for worker in run.workers}
    role = config.role or (roles[config.worker] if config.worker else log.role)
    alone = [worker for worker in roles if role and roles[worker] == role]
    worker = config.worker or (alone[0] if len(alone) == 1 else "")
    return LogSpec(
        run=run.name,
        name=log.name,
        path=run.path or Path("/"),
        files=log.files,
        patterns=patterns_of(known, config),
        role=role,
        worker=worker,
        beside=() if _told_apart(log, run.variables) else known.templates,
        variables=tuple(sorted(run.variables.items())),
        copies=log.copies,
        by_file=by_file,
        silence_limit=config.silence_limit,
        longest_line=config.longest_line,
    )


def _told_apart(log: LogLayout, variables: Mapping[str, str]) -> bool:
    """Whether the files of `log` can belong to one instance of the run alone."""
    return all(Place(file).names <= variables.keys() for file in log.files)
