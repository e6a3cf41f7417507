"""Finds the files and folders on disk that path templates match, and groups them by run."""

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

from trainwarden_exporter.frameworks.path_templates import PathTemplate, TemplatePart
from trainwarden_exporter.runtime.safe_open import file_status, scan_folder

__all__ = ["PathMatch", "PathTemplate", "RunInstance", "find_instances", "resolve"]

MAX_NAMES = 100_000
"""Names read from folders in one search, and names followed: bounds a glob over a data set."""

MAX_MATCHES = 1_000
"""Matches kept of one template: the most recently changed."""

MAX_CONTENT_CHECKS = 50
"""Entries of a folder that are searched for `{has …/…}`."""

MAX_OTHER_RUNS = 5

RECENT_SECONDS = 600.0
"""Another run counts as active too if its last change is at most this much older or newer."""

_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)
_DENIED = (errno.EACCES, errno.EPERM)

_parsed = lru_cache(maxsize=1024)(PathTemplate)


@dataclass(frozen=True, slots=True)
class PathMatch:
    """A file or folder that a template matches."""

    path: Path
    names: Mapping[str, str]
    """Values of the names in the template; empty text for an optional folder that is absent."""
    is_folder: bool
    changed: float
    """Last change in Unix seconds; of a folder, when an entry was added or removed."""


@dataclass(frozen=True, slots=True)
class RunInstance:
    """The files and folders of one run: all matches with the same values of the names."""

    names: Mapping[str, str]
    found: Mapping[str, tuple[PathMatch, ...]]
    """By template, each newest first."""
    other_recent_runs: tuple[Mapping[str, str], ...] = ()
    """Names of other instances that changed recently too. The newest may then alternate, and
    `variables` should select one."""
    truncated: bool = False
    """Whether a limit was reached, so that matches may be missing."""
    unreadable: tuple[Path, ...] = ()
    """Folders without read permission."""

    def folders(self, template: str) -> tuple[Path, ...]:
        """Returns the folders that `template` matches, newest first."""
        return tuple(match.path for match in self.found[template] if match.is_folder)

    def files(self, template: str) -> tuple[Path, ...]:
        """Returns the files that `template` matches, newest first."""
        return tuple(match.path for match in self.found[template] if not match.is_folder)

    def expected_path(self, path: Path, template: str) -> Path | None:
        """Returns the path of `template` below `path`, existing or not; None if it is ambiguous."""
        relative = _parsed(template).path_for(self.names)
        return None if relative is None else path / relative


def resolve(path: Path, templates: Sequence[str], variables: Mapping[str, str]) -> RunInstance:
    """Returns the instance with the newest change over all `templates`.

    It contains what exists now, and is empty before the run has written anything. Blocks as long as
    the disk does. Raises OSError if a folder cannot be read for a reason other than absence or
    permission, and ValueError for an invalid template.
    """
    return find_instances(path, templates, variables, max_instances=1 + MAX_OTHER_RUNS)[0]


def find_instances(
    path: Path,
    templates: Sequence[str],
    variables: Mapping[str, str],
    *,
    max_instances: int = 100,
    max_names: int = MAX_NAMES,
) -> tuple[RunInstance, ...]:
    """Returns the instances below `path` that agree with `variables`, newest first.

    Without a match, returns one empty instance. Blocks and raises like `resolve`.
    """
    search = _PathSearch(max_names)
    found: dict[str, tuple[PathMatch, ...]] = {}
    for template in templates:
        matches = _without_repetitions(search.run(path, _parsed(template), variables))
        found[template] = tuple(heapq.nsmallest(MAX_MATCHES, matches, key=_newest_first))
    everything = sorted(chain.from_iterable(found.values()), key=_newest_first)
    groups = _group_names(everything, max_instances) or [{}]
    changes = [_own_last_change(everything, names) for names in groups]
    return tuple(
        RunInstance(
            names={**variables, **names},
            found={
                template: tuple(match for match in matches if _agree(match.names, names))
                for template, matches in found.items()
            },
            other_recent_runs=tuple(
                other
                for other, when in zip(groups, changes, strict=True)
                if other is not names and abs(when - changed) <= RECENT_SECONDS
            ),
            truncated=search.truncated,
            unreadable=tuple(search.unreadable),
        )
        for names, changed in zip(groups, changes, strict=True)
    )


def _without_repetitions(matches: Iterable[PathMatch]) -> Iterator[PathMatch]:
    """Yields the first match of each path.

    If only one of two optional folders exists, either name fits it: its files are not two runs.
    """
    seen: set[Path] = set()
    for match in matches:
        if match.path not in seen:
            seen.add(match.path)
            yield match


def _group_names(matches: Sequence[PathMatch], max_instances: int) -> list[dict[str, str]]:
    """Returns the names of each instance, in the order of `matches`.

    A match with fewer names belongs to every instance that it agrees with.
    """
    groups: list[dict[str, str]] = []
    left = matches
    while left and len(groups) < max_instances:
        names = dict(left[0].names)
        for match in matches:
            if _agree(match.names, names):
                names.update(match.names)
        groups.append(names)
        left = [match for match in left if not _agree(match.names, names)]
    return groups


def _newest_first(match: PathMatch) -> tuple[float, str]:
    return -match.changed, str(match.path)


def _agree(some: Mapping[str, str], others: Mapping[str, str]) -> bool:
    return all(others.get(name, text) == text for name, text in some.items())


def _own_last_change(matches: Iterable[PathMatch], names: Mapping[str, str]) -> float:
    """Returns the last change of the instance, without shared matches; 0 if there is none."""
    own = (match.changed for match in matches if match.names and _agree(match.names, names))
    return max(own, default=0.0)


class _PathSearch:
    """Reads each folder once, and at most `limit` names in total; follows at most as many."""

    def __init__(self, limit: int) -> None:
        self.truncated = False
        self.unreadable: list[Path] = []
        self._names_left = self._matches_left = limit
        self._listed: dict[str, tuple[list[str], list[str]]] = {}
        """Names of folders (and links, which may lead to one) and of other entries, by path."""

    def run(
        self, path: Path, path_template: PathTemplate, variables: Mapping[str, str]
    ) -> Iterator[PathMatch]:
        start = "" if path_template.absolute else str(path)
        names = {name: text for name, text in variables.items() if name in path_template.names}
        return self._search(start, path_template.parts, path_template.required_content, names)

    def _search(
        self,
        folder: str,
        parts: Sequence[TemplatePart],
        required_content: Sequence[TemplatePart],
        names: Mapping[str, str],
    ) -> Iterator[PathMatch]:
        if not parts:
            if self._contains(folder, required_content):
                yield from self._stat(folder, names)
            return
        part, rest = parts[0], parts[1:]
        if part.optional_name and part.optional_name not in names:
            yield from self._search(
                folder, rest, required_content, {**names, part.optional_name: ""}
            )
        literal = part.literal(names)
        if literal is not None:
            inner = f"{folder}/{literal}" if literal else folder
            yield from self._search(inner, rest, required_content, names)
            return
        inside = bool(rest or required_content)
        for match in self._matching_names(folder, part.pattern(names), inside=inside):
            if self._matches_left <= 0:
                self.truncated = True
                return
            self._matches_left -= 1
            more = {**names, **match.groupdict()}
            yield from self._search(f"{folder}/{match.string}", rest, required_content, more)

    def _contains(self, folder: str, required_content: Sequence[TemplatePart]) -> bool:
        if not required_content:
            return True
        inside = len(required_content) > 1
        chosen = self._matching_names(folder, required_content[0].pattern({}), inside=inside)
        return any(
            self._contains(f"{folder}/{match.string}", required_content[1:])
            for match in islice(chosen, MAX_CONTENT_CHECKS)
        )

    def _matching_names(
        self, folder: str, pattern: re.Pattern[str], *, inside: bool
    ) -> Iterator[re.Match[str]]:
        """Yields the names in `folder` that match; with `inside`, only those of folders."""
        if folder not in self._listed:
            self._listed[folder] = self._list_folder(folder)
        folders, other_names = self._listed[folder]
        for name in folders if inside else chain(folders, other_names):
            if match := pattern.fullmatch(name):
                yield match

    def _list_folder(self, folder: str) -> tuple[list[str], list[str]]:
        folders: list[str] = []
        other_names: list[str] = []
        try:
            with scan_folder(folder or "/") as entries:
                for entry in entries:
                    if self._names_left <= 0:
                        self.truncated = True
                        break
                    self._names_left -= 1
                    (folders if _may_be_folder(entry) else other_names).append(entry.name)
        except OSError as error:
            self._skip_unreadable(error, folder)
        return folders, other_names

    def _stat(self, path: str, names: Mapping[str, str]) -> Iterator[PathMatch]:
        try:
            status = file_status(path or "/")
        except OSError as error:
            self._skip_unreadable(error, path)
            return
        is_folder = stat.S_ISDIR(status.st_mode)
        if is_folder or stat.S_ISREG(status.st_mode):
            yield PathMatch(Path(path), dict(names), is_folder, status.st_mtime)

    def _skip_unreadable(self, error: OSError, path: str) -> None:
        if error.errno in _DENIED:
            if len(self.unreadable) < MAX_MATCHES:
                self.unreadable.append(Path(path))
        elif error.errno not in _ABSENT:
            raise error


def _may_be_folder(entry: os.DirEntry[str]) -> bool:
    """Whether it is a folder or a link; the link is not followed, because that may hang."""
    try:
        return entry.is_dir(follow_symlinks=False) or entry.is_symlink()
    except OSError:  # some file systems need a stat here, and the entry may be gone
        return False
