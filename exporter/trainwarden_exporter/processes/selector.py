"""What a worker is known by: the `match:` section of a worker in exporter.yml."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Self

from pydantic import BeforeValidator, Field, StringConstraints, model_validator

from trainwarden_exporter.processes.procfs import (
    PROC,
    Cgroup,
    read_cgroups,
    read_command_line,
    read_environment,
    read_executable,
)
from trainwarden_exporter.units import LocalPath
from trainwarden_exporter.yamlfile import Section

_UNIT_KINDS = (".service", ".scope", ".slice")


def _compiled(value: object) -> re.Pattern[str]:
    if not isinstance(value, str):
        raise ValueError("not text: put it in quotes")  # noqa: TRY004 - what pydantic reports
    if not value:
        raise ValueError("must not be empty")
    try:
        return re.compile(value)
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from error


def _choosing(value: object) -> re.Pattern[str]:
    pattern = _compiled(value)
    if pattern.search(""):
        raise ValueError("matches any text, and so every process")
    return pattern


def _path(value: object) -> object:
    if value == "":
        raise ValueError("must not be empty")
    return value


def _executable(value: object) -> object:
    if isinstance(value, str) and "/" in value and not value.startswith("/"):
        raise ValueError("neither an absolute path nor a bare name")
    return value


def _unit(value: object) -> object:
    # as systemctl does: a name without a kind is a service
    known = not isinstance(value, str) or not value or value.endswith(_UNIT_KINDS)
    return value if known else f"{value}.service"


_Text = Annotated[str, StringConstraints(min_length=1)]
_Pattern = Annotated[re.Pattern[str], BeforeValidator(_compiled)]
ChoosingPattern = Annotated[re.Pattern[str], BeforeValidator(_choosing)]


class Selector(Section):
    """Which processes are a worker: all conditions given must hold, at least one is given.

    A process whose file for a condition may not be read does not meet that condition.
    """

    command: ChoosingPattern | None = None
    """Regular expression searched in the command line, arguments joined by one space."""

    executable: Annotated[_Text, BeforeValidator(_executable)] | None = None
    """The program: an absolute path for the whole path, else its last part."""

    environment: Annotated[dict[_Text, _Pattern], Field(min_length=1)] | None = None
    """Variables at its start, each with a regular expression that must match the whole value."""

    pid_file: Annotated[LocalPath, BeforeValidator(_path)] | None = None
    """A file that holds the pid of the process."""

    cgroup: ChoosingPattern | None = None
    """Regular expression searched in each path of /proc/<pid>/cgroup."""

    systemd_unit: Annotated[_Text, BeforeValidator(_unit)] | None = None
    """The systemd unit the process runs in; `trainer` is short for `trainer.service`."""

    descendant_of: _Text | None = None
    """Another worker of the same run, in whose tree the process must be."""

    @model_validator(mode="after")
    def _has_a_condition(self) -> Self:
        if all(getattr(self, name) is None for name in type(self).model_fields):
            names = ", ".join(type(self).model_fields)
            raise ValueError(f"at least one condition is needed: {names}")
        return self


class Facts:
    """What the conditions are about, read when first asked for; None when it may not be read."""

    def __init__(self, pid: int, root: Path = PROC) -> None:
        self._pid = pid
        self._root = root

    @cached_property
    def command_line(self) -> str | None:
        arguments = read_command_line(self._pid, self._root)
        return None if arguments is None else " ".join(arguments)

    @cached_property
    def executable(self) -> str | None:
        return read_executable(self._pid, self._root)

    @cached_property
    def environment(self) -> Mapping[str, str] | None:
        return read_environment(self._pid, self._root)

    @cached_property
    def cgroups(self) -> tuple[Cgroup, ...] | None:
        return read_cgroups(self._pid, self._root)


def meets(selector: Selector, facts: Facts) -> bool | None:
    """Whether those conditions hold that stay the same while a program runs.

    None when no condition fails but one cannot be decided, its file not being readable. The pid
    file and the ancestry are left out.
    """
    undecided = False
    # first what everybody may read and most are told by: one process may meet hundreds of selectors
    if (command := selector.command) is not None:
        line = facts.command_line
        if line is not None and command.search(line) is None:
            return False
        undecided = line is None
    for condition in _further(selector, facts):
        if condition is False:
            return False
        undecided = undecided or condition is None
    return None if undecided else True


def _further(selector: Selector, facts: Facts) -> Iterator[bool | None]:
    # what everybody may read comes first, so that less is left undecided
    if (cgroup := selector.cgroup) is not None:
        cgroups = facts.cgroups
        yield None if cgroups is None else any(cgroup.search(path) for _, path in cgroups)
    if (unit := selector.systemd_unit) is not None:
        cgroups = facts.cgroups
        yield None if cgroups is None else in_systemd_unit(unit, cgroups)
    if (executable := selector.executable) is not None:
        program = facts.executable
        yield None if program is None else is_executable(executable, program)
    if (patterns := selector.environment) is not None:
        variables = facts.environment
        yield (
            None
            if variables is None
            else all(
                name in variables and pattern.fullmatch(variables[name]) is not None
                for name, pattern in patterns.items()
            )
        )


def in_systemd_unit(unit: str, cgroups: tuple[Cgroup, ...]) -> bool:
    """Whether systemd put the process into `unit`, which may have divided its cgroup further.

    systemd names a unit's cgroup after the unit, in cgroup v2 or in its own v1 hierarchy.
    """
    return any(
        unit in path.split("/")
        for controllers, path in cgroups
        if controllers in ("", "name=systemd")
    )


def is_executable(wanted: str, program: str) -> bool:
    """Whether `program`, links resolved, is the `wanted` name or path (which may be a link)."""
    if wanted.startswith("/"):
        return program in (wanted, os.path.realpath(wanted))
    return program.rpartition("/")[2] == wanted
