"""Selectors of workers: the `match:` section of a worker in exporter.yml."""

from __future__ import annotations

import pwd
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Self

from pydantic import BeforeValidator, Field, StringConstraints, model_validator

from trainwarden_exporter.config_file.loader import Section
from trainwarden_exporter.config_file.types import LocalPath
from trainwarden_exporter.processes.procfs import (
    PROC,
    Cgroup,
    read_cgroups,
    read_command_line,
    read_environment,
    read_executable,
    read_owner,
    read_working_folder,
)
from trainwarden_exporter.runtime.linear_search import is_found, is_whole
from trainwarden_exporter.runtime.resolved_path import resolved_path

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


def _selective(value: object) -> re.Pattern[str]:
    pattern = _compiled(value)
    if pattern.search(""):
        raise ValueError("matches any text, and so every process")
    return pattern


def _executable(value: object) -> object:
    if isinstance(value, str) and "/" in value and not value.startswith("/"):
        raise ValueError("neither an absolute path nor a bare name")
    return value


def _unit_name(value: object) -> object:
    # as in systemctl, a name without a suffix is a service
    known = not isinstance(value, str) or not value or value.endswith(_UNIT_KINDS)
    return value if known else f"{value}.service"


_Text = Annotated[str, StringConstraints(min_length=1)]
_Pattern = Annotated[re.Pattern[str], BeforeValidator(_compiled)]
SelectivePattern = Annotated[re.Pattern[str], BeforeValidator(_selective)]


class Selector(Section):
    """Selects the processes of a worker: all given conditions must hold, at least one is given."""

    command: SelectivePattern | None = None
    """Regular expression searched in the command line, with arguments joined by one space. `tmux`,
    `screen`, pagers and editors that only name such a program do not match. A shell that only runs
    it, or stays open after it (`bash -c 'python train.py; sleep 1d'`), is no part of the worker;
    nor are `docker exec`, `srun` and `ssh` beside what they have started on this host."""

    executable: Annotated[_Text, BeforeValidator(_executable)] | None = None
    """The program: an absolute path, or the last part of the path."""

    environment: Annotated[dict[_Text, _Pattern], Field(min_length=1)] | None = None
    """Environment variables at its start, each with a regular expression for the full value."""

    pid_file: LocalPath | None = None
    """File with the pid of the process."""

    cgroup: SelectivePattern | None = None
    """Regular expression searched in each path of /proc/<pid>/cgroup."""

    systemd_unit: Annotated[_Text, BeforeValidator(_unit_name)] | None = None
    """systemd unit of the process; `trainer` is short for `trainer.service`."""

    cwd: LocalPath | None = None
    """Folder in or below which the process runs, or was started (its variable PWD). It tells apart
    runs on one host that have the same command line."""

    user: _Text | None = None
    """Account that the process runs as: its name or its number."""

    descendant_of: _Text | None = None
    """Another worker of the same run that must be an ancestor of the process."""

    @model_validator(mode="after")
    def _check_has_condition(self) -> Self:
        if all(getattr(self, name) is None for name in type(self).model_fields):
            names = ", ".join(type(self).model_fields)
            raise ValueError(f"at least one condition is needed: {names}")
        return self


class ProcessAttributes:
    """Attributes for the conditions, read lazily; None for unreadable ones."""

    def __init__(self, pid: int, root: Path = PROC) -> None:
        self._pid = pid
        self._root = root

    @cached_property
    def arguments(self) -> tuple[str, ...] | None:
        return read_command_line(self._pid, self._root)

    @cached_property
    def executable(self) -> str | None:
        return read_executable(self._pid, self._root)

    @cached_property
    def working_folder(self) -> str | None:
        return read_working_folder(self._pid, self._root)

    @cached_property
    def environment(self) -> Mapping[str, str] | None:
        return read_environment(self._pid, self._root)

    @cached_property
    def owner(self) -> str | None:
        return read_owner(self._pid, self._root) or None

    @cached_property
    def cgroups(self) -> tuple[Cgroup, ...] | None:
        return read_cgroups(self._pid, self._root)


def matches_selector(selector: Selector, attributes: ProcessAttributes) -> bool | None:
    """Whether the conditions hold that stay constant while a program runs.

    None if no condition fails but one is undecided because its file is not readable. Excludes the
    pid file and the ancestry.
    """
    undecided = False
    # cheapest and most selective first: one process may be compared to hundreds of selectors
    if (command := selector.command) is not None:
        arguments = attributes.arguments
        if arguments is not None and not _is_command(command, arguments, selector):
            return False
        undecided = arguments is None
    for condition in _remaining_conditions(selector, attributes):
        if condition is False:
            return False
        undecided = undecided or condition is None
    return None if undecided else True


def _is_command(command: re.Pattern[str], arguments: Sequence[str], selector: Selector) -> bool:
    """Whether `command` is found in the command line, and not merely in what a viewer was given.

    A terminal server or an editor outlives the program that it names, and ending it would end the
    work of an operator. Where another condition names the program, it is meant.
    """
    line = " ".join(arguments)
    if not is_found(command, line):
        return False
    program, _, given = line.partition(" ")
    if selector.executable or not _VIEWERS.fullmatch(program.rpartition("/")[2]):
        return True
    return not is_found(command, given)


_VIEWERS = re.compile(
    r"tmux.*|screen|SCREEN|tail|less|more|cat|tee|grep|watch|vim?|nvim|nano|emacs|man"
)
"""Programs that show, edit or keep running what is named in their arguments."""


def _remaining_conditions(
    selector: Selector, attributes: ProcessAttributes
) -> Iterator[bool | None]:
    # world-readable files first, to leave fewer conditions undecided
    if (user := selector.user) is not None:
        owner = attributes.owner
        yield None if owner is None else is_account(owner, user)
    if (cgroup := selector.cgroup) is not None:
        cgroups = attributes.cgroups
        yield None if cgroups is None else any(is_found(cgroup, path) for _, path in cgroups)
    if (unit := selector.systemd_unit) is not None:
        cgroups = attributes.cgroups
        yield None if cgroups is None else in_systemd_unit(unit, cgroups)
    if (executable := selector.executable) is not None:
        program = attributes.executable
        yield None if program is None else is_executable(executable, program)
    if (folder := selector.cwd) is not None:
        yield is_of_folder(folder, attributes)
    if (patterns := selector.environment) is not None:
        variables = attributes.environment
        yield (
            None
            if variables is None
            else all(
                name in variables and is_whole(pattern, variables[name])
                for name, pattern in patterns.items()
            )
        )


def in_systemd_unit(unit: str, cgroups: tuple[Cgroup, ...]) -> bool:
    """Whether the process is in the systemd `unit` or a sub-cgroup of it.

    systemd names a unit's cgroup after the unit, in cgroup v2 and in its own v1 hierarchy.
    """
    return any(
        unit in path.split("/")
        for controllers, path in cgroups
        if controllers in ("", "name=systemd")
    )


def is_of_folder(folder: Path, attributes: ProcessAttributes) -> bool | None:
    """Whether a process runs in or below `folder`, or was started there (its PWD).

    None if that is unknown because a file of the process is not readable.
    """
    current, variables = attributes.working_folder, attributes.environment
    if current is not None and Path(current).is_relative_to(folder):
        return True
    wanted = resolved_path(str(folder))
    for path in (current, (variables or {}).get("PWD")):
        if path is not None and Path(resolved_path(path)).is_relative_to(wanted):
            return True
    return None if current is None or variables is None else False


def is_account(name: str, wanted: str) -> bool:
    """Whether the account `name` is the `wanted` one, which may be given by its number."""
    if name == wanted or not wanted.isdecimal():
        return name == wanted
    try:
        return pwd.getpwnam(name).pw_uid == int(wanted)
    except KeyError:
        return False


def is_executable(wanted: str, program: str) -> bool:
    """Whether `program`, a resolved path, is the `wanted` name or path (which may be a link)."""
    if wanted.startswith("/"):
        return program == wanted or program == resolved_path(wanted)
    return program.rpartition("/")[2] == wanted
