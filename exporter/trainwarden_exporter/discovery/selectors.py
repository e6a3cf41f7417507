"""Finds for each program a name, and the shortest pattern that tells it from all others. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from trainwarden_exporter.discovery.programs import Program

_INTERPRETERS = re.compile(r"(?:python|pypy)[\d.]*|bash|sh|dash|zsh|node|ruby|perl|uv|env")
_TELLING = ("--name", "--role", "--worker", "--worker-index", "--index", "--rank", "--port")
"""Options by whose values the copies of a program tend to be told apart, the best first."""
_UNFIT = re.compile(r"[^A-Za-z0-9_.:-]+")
LONGEST = 100


@dataclass(frozen=True, slots=True)
class Selected:
    """Programs that are one worker."""

    name: str
    pattern: str
    """Regular expression for the selector's `command`."""
    programs: tuple[Program, ...]


def select(chosen: Sequence[Program], everything: Collection[Program]) -> tuple[Selected, ...]:
    """One worker for each command line among `chosen`, found by none of the others' patterns.

    Of programs in one tree, give the topmost alone: a worker's children are counted with it.
    """
    groups: dict[str, list[Program]] = {}
    for program in chosen:
        groups.setdefault(program.command, []).append(program)
    names = _distinct([name_of(group[0]) for group in groups.values()])
    return tuple(
        Selected(name, pattern_for(group, everything), tuple(group))
        for name, group in zip(names, groups.values(), strict=True)
    )


def name_of(program: Program) -> str:
    """A name for the worker: what its options say, else the script it runs."""
    options = _options(program.arguments)
    if name := options.get("--name"):
        return _fit(name)
    script = _script(program.arguments)
    if script is None:
        stem = PurePath(program.arguments[0]).name.split()[0]
    else:
        stem = PurePath(script).stem if script.endswith(".py") else script.rpartition(".")[2]
    role = options.get("--role", stem)
    index = next((options[key] for key in _TELLING[3:-1] if options.get(key, "").isdigit()), "")
    return _fit(f"{role}-{index}" if index else role)


def pattern_for(group: Sequence[Program], everything: Collection[Program]) -> str:
    """The shortest regular expression that is found in the commands of `group` and no other's."""
    own = group[0].command
    others = {program.command for program in everything} - {own}
    for pattern in _candidates(group[0].arguments):
        regex = re.compile(pattern)
        if regex.search(own) and not any(map(regex.search, others)):
            return pattern
    return f"^{re.escape(own)}$"


def _candidates(arguments: Sequence[str]) -> Iterator[str]:
    script = _script(arguments)
    # what a process has titled itself is all that it shows
    start = re.escape(arguments[0] if script is None else _last_parts(script))
    yield rf"(?:^|[ /]){start}(?: |$)"
    options = _options(arguments)
    for key in _TELLING:
        if key in options:
            separator = "[ =]"
            value = re.escape(options[key])
            yield rf"(?:^|[ /]){start} (?:.* )?{re.escape(key)}{separator}{value}(?: |$)"
    for position in range(1, len(arguments)):
        tail = re.escape(" ".join(arguments[position:]))
        if len(arguments) - position <= _MOST_TAIL:
            yield rf"(?:^|[ /]){start} (?:.* )?{tail}$"


_MOST_TAIL = 4


def _script(arguments: Sequence[str]) -> str | None:
    """The script or module that an interpreter was told to run; None for another program."""
    if not _INTERPRETERS.fullmatch(PurePath(arguments[0]).name):
        return None
    rest = iter(arguments[1:])
    for argument in rest:
        if argument == "-m":
            return next(rest, None)
        if argument in ("-c", "-"):
            return None
        if argument in ("-W", "-X"):
            next(rest, None)
        elif not argument.startswith("-"):
            return argument
    return None


def _last_parts(script: str) -> str:
    return PurePath(script).name if "/" in script else script


def _options(arguments: Sequence[str]) -> dict[str, str]:
    """The first value of each long option."""
    found: dict[str, str] = {}
    for argument, following in zip(arguments, (*arguments[1:], ""), strict=True):
        if not argument.startswith("--"):
            continue
        key, equals, value = argument.partition("=")
        if equals or (following and not following.startswith("-")):
            found.setdefault(key, value if equals else following)
    return found


def _fit(text: str) -> str:
    """`text` as a name may be written."""
    return _UNFIT.sub("-", text).strip("-_.:")[:LONGEST] or "worker"


def _distinct(names: Sequence[str]) -> list[str]:
    """`names`, those that come twice with a number behind."""
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
