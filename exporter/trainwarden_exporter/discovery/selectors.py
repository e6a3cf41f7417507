"""Finds for each program a name, and the shortest pattern that distinguishes it. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from os.path import commonpath
from pathlib import Path, PurePath

from trainwarden_exporter.discovery.processes import Candidate, ancestor_pids
from trainwarden_exporter.discovery.programs import INTERPRETERS, find_launched_script, find_script
from trainwarden_exporter.runtime.linear_search import is_found

_NAMING_OPTIONS = ("--name", "--role", "--worker", "--worker-index", "--index", "--rank", "--port")
"""Options whose values usually distinguish the copies of a program, best first."""
_INVALID_CHARACTERS = re.compile(r"[^A-Za-z0-9_.:-]+")
MAX_NAME_LENGTH = 100


@dataclass(frozen=True, slots=True)
class SelectedWorker:
    """Processes that form one worker."""

    name: str
    pattern: str
    """Regular expression for the selector's `command`."""
    candidates: tuple[Candidate, ...]
    conditions: Mapping[str, object] = field(default_factory=dict)
    """Further conditions of the selector."""
    unclear: tuple[Candidate, ...] = ()
    """Other processes that the selector matches too."""


def select_workers(
    chosen: Sequence[Candidate], all_candidates: Collection[Candidate]
) -> tuple[SelectedWorker, ...]:
    """Returns one worker per command line in `chosen`; patterns match no other process.

    Pass only the topmost process of a tree: descendants count as part of their worker.
    """
    groups: dict[str, list[Candidate]] = {}
    for candidate in chosen:
        groups.setdefault(candidate.command, []).append(candidate)
    names = _distinct([worker_name(group[0]) for group in groups.values()])
    return tuple(
        _select(name, group, all_candidates)
        for name, group in zip(names, groups.values(), strict=True)
    )


def _select(
    name: str, group: Sequence[Candidate], all_candidates: Collection[Candidate]
) -> SelectedWorker:
    """Adds conditions until the selector matches no process of another tree, if possible."""
    first, pids = group[0], {one.pid for one in group}
    places = [
        folder
        for folder in (first.start_folder, first.folder, _common_folder(group))
        if folder and all(one.is_of_folder(folder) for one in group)
    ]
    # The next start may have other arguments, but has the same folder.
    beside = [one for one in all_candidates if all(map(one.is_of_folder, places))]
    pattern = pattern_for(group, beside)
    above = ancestor_pids(all_candidates)
    others = [
        one
        for one in all_candidates
        if one.pid not in pids
        and (not first.user or one.user == first.user)
        and is_found(re.compile(pattern), one.command)
        and not pids & set(above[one.pid])
    ]
    conditions: dict[str, object] = {"user": first.user} if first.user else {}
    # One in any case: a copy that starts later in another folder is no part of the run.
    for folder in filter(Path("/").__ne__, places):
        left = [one for one in others if one.is_of_folder(folder)]
        if "cwd" not in conditions or len(left) < len(others):
            others = left
            conditions["cwd"] = str(folder)
    left = [one for one in others if one.cgroup == first.cgroup]
    if {one.cgroup for one in group} == {first.cgroup} != {""} and len(left) < len(others):
        others = left
        conditions["cgroup"] = f"{re.escape(first.cgroup)}$"
    return SelectedWorker(name, pattern, tuple(group), conditions, tuple(others))


def _common_folder(group: Sequence[Candidate]) -> Path | None:
    folders = [one.folder for one in group if one.folder is not None]
    return Path(commonpath(folders)) if len(folders) == len(group) else None


def worker_name(candidate: Candidate) -> str:
    """Returns a name for the worker from its options, else from its script."""
    options = _options(candidate.arguments)
    if name := options.get("--name"):
        return _sanitize(name)
    stem = _stem(candidate.arguments)
    role = options.get("--role", stem)
    index = next(
        (options[key] for key in _NAMING_OPTIONS[3:-1] if options.get(key, "").isdigit()), ""
    )
    return _sanitize(f"{role}-{index}" if index else role)


def _stem(arguments: Sequence[str]) -> str:
    """Returns the name of the script without folder and suffix, else that of the program."""
    script = find_launched_script(arguments) or find_script(arguments)
    if script is None:
        return PurePath((arguments[0].split() or ["worker"])[0]).name
    name = PurePath(script).name
    if name.endswith((".py", ".sh")):
        return name[:-3]
    return name if "/" in script else name.rpartition(".")[2]


def pattern_for(group: Sequence[Candidate], all_candidates: Collection[Candidate]) -> str:
    """Returns the shortest regular expression that matches only the commands of `group`."""
    own = group[0].command
    others = {candidate.command for candidate in all_candidates} - {own}
    for pattern in _candidates(group[0].arguments):
        regex = re.compile(pattern)
        if regex.search(own) and not any(map(regex.search, others)):
            return pattern
    return f"^{re.escape(own)}$"


def _candidates(arguments: Sequence[str]) -> Iterator[str]:
    if find_script(arguments) is None and INTERPRETERS.fullmatch(PurePath(arguments[0]).name):
        return  # a text given with -c is all that tells it from others
    start = _start(arguments)
    yield rf"{start}(?: |$)"
    options = _options(arguments)
    for key in _NAMING_OPTIONS:
        if key in options:
            separator = "[ =]"
            value = re.escape(options[key])
            yield rf"{start} (?:.* )?{re.escape(key)}{separator}{value}(?: |$)"
    for position in range(1, len(arguments)):
        tail = re.escape(" ".join(arguments[position:]))
        if len(arguments) - position <= _MAX_TAIL_PARTS:
            yield rf"{start} (?:.* )?{tail}$"


def _start(arguments: Sequence[str]) -> str:
    """Returns the pattern of the program that runs the script; no editor of it matches."""
    script = find_script(arguments)
    if script is None:
        # the title that a process has set is all that it shows
        title = arguments[0]
        program = PurePath(title).name if title.startswith("/") else title
        start = rf"^(?:\S*/)?{re.escape(program)}"
    else:
        interpreter = PurePath(arguments[0]).name
        program = r"python[\d.]*" if interpreter.startswith("python") else re.escape(interpreter)
        is_module = "-m" in arguments[: arguments.index(script)]
        name = f"-m {re.escape(script)}" if is_module else _path_pattern(script)
        start = rf"^(?:\S*/)?{program}(?: -[WX] ?\S+| -[A-Za-z]+)*? {name}"
    if launched := find_launched_script(arguments):
        start += rf" (?:.*[ /])?{re.escape(PurePath(launched).name)}"
    return start


def _path_pattern(script: str) -> str:
    return rf"(?:\S*/)?{re.escape(PurePath(script).name)}"


_MAX_TAIL_PARTS = 4


def _options(arguments: Sequence[str]) -> dict[str, str]:
    """Returns the first value of each long option."""
    found: dict[str, str] = {}
    for argument, following in zip(arguments, (*arguments[1:], ""), strict=True):
        if not argument.startswith("--"):
            continue
        key, equals, value = argument.partition("=")
        if equals or (following and not following.startswith("-")):
            found.setdefault(key, value if equals else following)
    return found


def _sanitize(text: str) -> str:
    return _INVALID_CHARACTERS.sub("-", text).strip("-_.:")[:MAX_NAME_LENGTH] or "worker"


def _distinct(names: Sequence[str]) -> list[str]:
    """Returns `names` with a number appended to duplicates."""
    given: list[str] = []
    for name in names:
        number, fresh = 0, name
        if names.count(name) > 1:
            fresh = f"{name}-0"
        while fresh in given:
            number += 1
            fresh = f"{name}-{number}"
        given.append(fresh)
    return given
