"""Finds what the templates of a layout stand for on disk, and which run's folders they are."""

from __future__ import annotations

import errno
import heapq
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

from trainwarden_exporter.layouts.templates import Part, Place

__all__ = ["Found", "Instance", "Place", "instances", "resolve"]

LIMIT = 100_000
"""Names that are read from folders for one question, and names that are followed, so that a glob
over a data set ends."""

MOST_FOUND = 1_000
"""Things that are told of one template; of more, those that changed last."""

WITNESSES = 50
"""Entries of a folder that are looked into for what `{has …/…}` asks for."""

MOST_RIVALS = 5

RIVAL_SECONDS = 600.0
"""By how much another run's last change may lie back for it to be taken for alive too."""

_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)
_DENIED = (errno.EACCES, errno.EPERM)


@dataclass(frozen=True, slots=True)
class Found:
    """One thing a template stands for."""

    path: Path
    names: Mapping[str, str]
    """What the names in the template stand for here; empty text for an optional folder left out."""
    folder: bool
    changed: float
    """Its own last change in Unix seconds; of a folder, when an entry came or went."""


@dataclass(frozen=True, slots=True)
class Instance:
    """One run's places: all that agrees on what the names in the templates stand for."""

    names: Mapping[str, str]
    found: Mapping[str, tuple[Found, ...]]
    """By template, each newest first."""
    rivals: tuple[Mapping[str, str], ...] = ()
    """The names of other instances that changed lately too. Where there are any, which is the
    newest may alternate: `variables` should say which is meant."""
    cut: bool = False
    """Whether there was more than is looked at: then something may be missing."""
    unreadable: tuple[Path, ...] = ()
    """Folders that may not be read by us."""

    @property
    def changed(self) -> float:
        """When anything in it last changed; 0 when nothing is there."""
        return max((one.changed for found in self.found.values() for one in found), default=0.0)

    def folders(self, template: str) -> tuple[Path, ...]:
        """The folders that `template`, one of those asked for, stands for; newest first."""
        return tuple(one.path for one in self.found[template] if one.folder)

    def files(self, template: str) -> tuple[Path, ...]:
        """The files that `template`, one of those asked for, stands for; newest first."""
        return tuple(one.path for one in self.found[template] if not one.folder)

    def expected(self, path: Path, template: str) -> Path | None:
        """Where `template` will lie below the run's `path`, whether it is there yet or not.

        None while it may be several places.
        """
        place = _place(template).path(self.names)
        return None if place is None else path / place


def resolve(path: Path, templates: Sequence[str], variables: Mapping[str, str]) -> Instance:
    """The instance with the newest change, jointly over all `templates`.

    Its places are those that exist now; an instance without any is what there is before the run
    wrote anything. Blocks as long as the disk does. Raises OSError where a folder cannot be read
    for another reason than that it is missing or forbidden, ValueError for what is no template.
    """
    return instances(path, templates, variables, most=1 + MOST_RIVALS)[0]


def instances(
    path: Path,
    templates: Sequence[str],
    variables: Mapping[str, str],
    *,
    most: int = 100,
    limit: int = LIMIT,
) -> tuple[Instance, ...]:
    """The instances below `path` that agree with `variables`, newest first, at most so many.

    The same as `resolve` otherwise; where nothing is found, one that is empty.
    """
    walk = _Walk(limit)
    found = {
        template: tuple(
            heapq.nsmallest(
                MOST_FOUND, walk.read(path, _place(template), variables), key=_newest_first
            )
        )
        for template in templates
    }
    told = grouped((one for matches in found.values() for one in matches), most) or [{}]
    changes = [_change_of_its_own(found.values(), names) for names in told]
    return tuple(
        Instance(
            names={**variables, **names},
            found={
                template: tuple(one for one in matches if _agree(one.names, names))
                for template, matches in found.items()
            },
            rivals=tuple(
                other
                for other, when in zip(told, changes, strict=True)
                if other is not names and abs(when - changed) <= RIVAL_SECONDS
            ),
            cut=walk.cut,
            unreadable=tuple(walk.unreadable),
        )
        for names, changed in zip(told, changes, strict=True)
    )


def grouped(found: Iterable[Found], most: int) -> list[dict[str, str]]:
    """What the names stand for in each instance, the one with the newest change first.

    What bears fewer names belongs to every instance that it agrees with.
    """
    everything = sorted(found, key=_newest_first)
    told: list[dict[str, str]] = []
    left = everything
    while left and len(told) < most:
        names = dict(left[0].names)
        for one in everything:
            if _agree(one.names, names):
                names.update(one.names)
        told.append(names)
        left = [one for one in left if not _agree(one.names, names)]
    return told


def _newest_first(found: Found) -> tuple[float, str]:
    return -found.changed, str(found.path)


def _agree(some: Mapping[str, str], others: Mapping[str, str]) -> bool:
    return all(others.get(name, text) == text for name, text in some.items())


def _change_of_its_own(found: Iterable[Sequence[Found]], names: Mapping[str, str]) -> float:
    """The last change of what belongs to this instance alone; 0 where nothing does."""
    return max(
        (
            one.changed
            for matches in found
            for one in matches
            if one.names and _agree(one.names, names)
        ),
        default=0.0,
    )


@lru_cache(maxsize=1024)
def _place(template: str) -> Place:
    return Place(template)


class _Names(NamedTuple):
    """What lies in a folder. A link may lead to a folder, and so counts as one."""

    folders: tuple[str, ...]
    others: tuple[str, ...]


class _Walk:
    """Reads folders, each once, and no more than `limit` names in all; follows as many."""

    def __init__(self, limit: int) -> None:
        self.cut = False
        self.unreadable: list[Path] = []
        self._unread = self._unfollowed = limit
        self._names: dict[str, _Names] = {}

    def read(self, path: Path, place: Place, variables: Mapping[str, str]) -> Iterator[Found]:
        start = "" if place.absolute else str(path)
        # of the names given, only those that it holds are its own
        names = {name: text for name, text in variables.items() if name in place.names}
        yield from self._below(start, place.parts, place.witness, names)

    def _below(
        self, folder: str, parts: Sequence[Part], witness: Sequence[Part], names: Mapping[str, str]
    ) -> Iterator[Found]:
        if not parts:
            if self._holds(folder, witness):
                yield from self._look(folder, names)
            return
        part, rest = parts[0], parts[1:]
        if part.optional and part.optional not in names:
            yield from self._below(folder, rest, witness, {**names, part.optional: ""})
        fixed = part.fixed(names)
        if fixed is not None:
            inner = f"{folder}/{fixed}" if fixed else folder
            yield from self._below(inner, rest, witness, names)
            return
        inside = bool(rest or witness)
        for match in self._choose(folder, part.pattern(names), inside=inside):
            if self._unfollowed <= 0:
                self.cut = True
                return
            self._unfollowed -= 1
            more = {**names, **match.groupdict()}
            yield from self._below(f"{folder}/{match.string}", rest, witness, more)

    def _holds(self, folder: str, witness: Sequence[Part]) -> bool:
        if not witness:
            return True
        inside = len(witness) > 1
        chosen = self._choose(folder, witness[0].pattern({}), inside=inside)
        return any(
            self._holds(f"{folder}/{match.string}", witness[1:])
            for match in islice(chosen, WITNESSES)
        )

    def _choose(
        self, folder: str, pattern: re.Pattern[str], *, inside: bool
    ) -> Iterator[re.Match[str]]:
        """What is so called in `folder`; with `inside`, only what something may lie in."""
        if folder not in self._names:
            self._names[folder] = self._list(folder)
        folders, others = self._names[folder]
        for name in folders if inside else chain(folders, others):
            if match := pattern.fullmatch(name):
                yield match

    def _list(self, folder: str) -> _Names:
        folders: list[str] = []
        others: list[str] = []
        try:
            with os.scandir(folder or "/") as entries:
                for entry in entries:
                    if self._unread <= 0:
                        self.cut = True
                        break
                    self._unread -= 1
                    (folders if _leads_on(entry) else others).append(entry.name)
        except OSError as error:
            self._pass_over(error, folder)
        return _Names(tuple(folders), tuple(others))

    def _look(self, path: str, names: Mapping[str, str]) -> Iterator[Found]:
        try:
            status = os.stat(path or "/")  # noqa: PTH116 - a Path for each of many names costs
        except OSError as error:
            self._pass_over(error, path)
            return
        is_folder = stat.S_ISDIR(status.st_mode)
        if is_folder or stat.S_ISREG(status.st_mode):
            yield Found(Path(path), dict(names), is_folder, status.st_mtime)

    def _pass_over(self, error: OSError, path: str) -> None:
        if error.errno in _DENIED:
            if len(self.unreadable) < MOST_FOUND:
                self.unreadable.append(Path(path))
        elif error.errno not in _ABSENT:
            raise error


def _leads_on(entry: os.DirEntry[str]) -> bool:
    """Whether something may lie in it; that of a link is not asked, for it may hang."""
    try:
        return entry.is_dir(follow_symlinks=False) or entry.is_symlink()
    except OSError:  # where the file system does not tell kinds by name, and it is gone
        return False
