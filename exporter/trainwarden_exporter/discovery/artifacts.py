"""Recognises the artifacts of runs in folders: a framework's, or numbered entries of any kind."""

from __future__ import annotations

import os
import re
import time
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from trainwarden_exporter.frameworks.base import CheckpointLayout, Framework, RolloutLayout
from trainwarden_exporter.frameworks.completeness_rules import RenamedRule, SettledRule
from trainwarden_exporter.frameworks.path_resolution import RunInstance, find_instances
from trainwarden_exporter.step_dirs.names import NameParser
from trainwarden_exporter.step_dirs.scanner import FolderScanner

MAX_FOLDERS = 300
MAX_DEPTH = 4
MAX_NAMES = 2_000
"""Maximum number of names read from one folder."""
SCAN_SHARE = 0.1
"""Share of a collector's scan budget for each possible checkpoint folder."""

_NUMBER = re.compile(r"\d+(?:\.\d+)*")
# A name like rollout-0 is that of a worker, not the batch of a step.
_NUMBERED_FOLDER = re.compile(r"step|ckpt|checkpoint|iter|epoch|weight|version", re.IGNORECASE)
_NUMBERED_FILE = re.compile(rf"{_NUMBERED_FOLDER.pattern}|batch|model", re.IGNORECASE)
_UNFINISHED = re.compile(r"tmp|temp|partial|incomplete|\.part$", re.IGNORECASE)
_ROLLOUTS = re.compile(r"rollout|batch|traject|episode|sample", re.IGNORECASE)
_WEIGHTS = re.compile(r"broadcast|weight_update|policy", re.IGNORECASE)
_MARKERS = re.compile(r"complete|done|success|stable|finished|ready|\.metadata$", re.IGNORECASE)
_LOGS = re.compile(r"\.(?:log|out|err|stdout|stderr)$")

MIN_SCORE = 3
"""Minimum score for a recognised framework."""

_WEAK = (RenamedRule, SettledRule)
"""Rules that entries of other frameworks satisfy too."""

Kind = Literal["checkpoints", "batches", "weights"]


@dataclass(frozen=True, slots=True)
class DetectedFramework:
    """A folder that matches a framework's layout."""

    framework: Framework
    path: Path
    score: int
    instance: RunInstance


@dataclass(frozen=True, slots=True)
class StepFolder:
    """A folder of entries with step numbers."""

    path: Path
    kind: Kind
    entry: str
    """Regular expression with the group `step`."""
    count: int
    partial: str = ""
    marker: str = ""
    """File that is written last and exists in all entries, possibly except the newest."""
    renamed: bool = False
    """Whether the script that writes the entries renames temporary files."""


def folders_below(path: Path) -> tuple[Path, ...]:
    """Returns `path` and its subfolders, nearest first; no hidden folders, no numbered entries."""
    found: list[Path] = []
    waiting = deque([(path, 0)])
    while waiting and len(found) < MAX_FOLDERS:
        folder, depth = waiting.popleft()
        found.append(folder)
        if depth < MAX_DEPTH:
            inner = (name for name, is_folder in names_in(folder) if is_folder)
            waiting.extend(
                (folder / name, depth + 1)
                for name in inner
                if not name.startswith(".") and not _is_entry(name, folder=True)
            )
    return tuple(found)


def names_in(folder: Path) -> list[tuple[str, bool]]:
    """Returns the sorted names in `folder`, and whether each is a folder; empty if unreadable."""
    found: list[tuple[str, bool]] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if len(found) >= MAX_NAMES:
                    break
                found.append((entry.name, entry.is_dir(follow_symlinks=False)))
    except OSError:
        pass
    return sorted(found)


def detect_framework(
    folders: Sequence[Path], frameworks: Sequence[Framework], running: Collection[str] = ()
) -> DetectedFramework | None:
    """Returns the best-matching framework, with the nearest folder that leads to all of it.

    Returns None without sufficient evidence; frameworks in `running`, whose processes run here,
    need less.
    """
    best: DetectedFramework | None = None
    for folder in folders:
        for framework in frameworks:
            if not (framework.checkpoints or framework.rollouts or framework.progress_files):
                continue
            try:
                instance = find_instances(
                    folder, framework.templates, {}, max_instances=2, max_names=MAX_NAMES
                )[0]
            except OSError:  # as of a folder in /proc whose process ends
                continue
            score = _score(framework, instance)
            if score and framework.name in running:
                score += MIN_SCORE
            if score >= MIN_SCORE and (best is None or score > best.score):
                best = DetectedFramework(framework, folder, score, instance)
    return best


def detect_by_lines(text: str, frameworks: Sequence[Framework]) -> Framework | None:
    """Returns the framework that writes such lines, or None."""
    return next(
        (
            framework
            for framework in frameworks
            if framework.log_signature and re.search(framework.log_signature, text)
        ),
        None,
    )


def detect_by_modules(modules: Collection[str], frameworks: Sequence[Framework]) -> str:
    """Returns the name of the framework that such modules belong to; empty if unknown or unclear.

    The most specific one: TRL imports Transformers, and a search imports what it tunes.
    """
    order = ("optuna", "ray_train")
    found = [one.name for one in frameworks if set(one.modules) & set(modules)]
    return next((name for name in order if name in found), found[0] if found else "")


def fresh_folders(folders: Sequence[Path], since: float) -> tuple[Path, ...]:
    """Returns the first of `folders`, and those in or below which entries changed after `since`."""
    changed: set[Path] = set()
    for folder in folders:
        with suppress(OSError):
            if folder.stat().st_mtime >= since:
                changed.update((folder, *folder.parents))
    return tuple(folder for folder in folders if folder in changed or folder == folders[0])


def _score(framework: Framework, instance: RunInstance) -> int:
    """Returns 3 for entries with the framework's own rule, 2 for a state file, 1 for common traces.

    Matching names are not enough: half of all frameworks write `step_10`.
    """
    places: tuple[CheckpointLayout | RolloutLayout, ...] = (
        *framework.checkpoints,
        *framework.rollouts,
    )
    score = sum(
        1 if isinstance(place.completeness, _WEAK) else 3
        for place in places
        if any(_has_complete(folder, place) for folder in instance.folders(place.folder)[:3])
    )
    score += sum(2 for source in framework.progress_files if instance.files(source.file))
    recovery = (place.recovery for place in framework.checkpoints if place.recovery)
    score += sum(2 for record in recovery if instance.files(record.file))
    if score and framework.own_files and not any(map(instance.files, framework.own_files)):
        score -= 1
    if score:  # a log alone is not specific
        score += sum(1 for log in framework.logs if any(map(instance.files, log.files)))
    return score


def _has_complete(folder: Path, place: CheckpointLayout | RolloutLayout) -> bool:
    partial = place.partial if isinstance(place, CheckpointLayout) else ""
    entries = FolderScanner(
        str(folder), NameParser(place.entry, partial), place.completeness, now=_future_time
    )
    try:
        return entries.scan(share=SCAN_SHARE).complete_count > 0
    except OSError:
        return False


def _future_time() -> float:
    """Returns a time at which everything that exists now counts as settled."""
    return time.time() + 86_400


def find_step_folders(folders: Sequence[Path]) -> tuple[StepFolder, ...]:
    """Returns the folders whose entries have step numbers, of any framework."""
    return tuple(found for folder in folders if (found := _read_step_folder(folder)) is not None)


def _read_step_folder(folder: Path) -> StepFolder | None:
    groups: dict[str, list[str]] = {}
    for name, is_folder in names_in(folder):
        if _is_entry(name, folder=is_folder) and not _LOGS.search(name):
            groups.setdefault(_entry_pattern(name), []).append(name)
    finished = {shape: names for shape, names in groups.items() if not _UNFINISHED.search(shape)}
    if not finished:
        return None
    shape, names = max(finished.items(), key=lambda group: len(group[1]))
    unfinished = [other for other in groups if _UNFINISHED.search(other)]
    newest_first = sorted(names, key=lambda name: -int(_numbers(name)[-1][0]))
    return StepFolder(
        folder,
        _kind(folder),
        shape,
        len(names),
        partial=unfinished[0] if unfinished else "",
        marker=_marker([folder / name for name in newest_first]),
    )


def _is_entry(name: str, *, folder: bool) -> bool:
    words = _NUMBERED_FOLDER if folder else _NUMBERED_FILE
    return bool(words.search(name) and _numbers(name))


def _numbers(name: str) -> list[re.Match[str]]:
    """Returns the whole numbers in a name: a step is none with a point, as a loss of 0.52 is."""
    return [found for found in _NUMBER.finditer(name) if "." not in found[0]]


def _entry_pattern(name: str) -> str:
    """Returns `name` as a regular expression in which the last whole number is the step."""
    last = _numbers(name)[-1]
    head = "".join(
        (r"\d+" if index % 2 else re.escape(piece))
        for index, piece in enumerate(re.split(r"(\d+)", name[: last.start()]))
    )
    tail = r"\d+".join(map(re.escape, re.split(r"\d+", name[last.end() :])))
    return rf"{head}(?P<step>\d+){tail}"


def _kind(folder: Path) -> Kind:
    for name in (folder.name, folder.parent.name):
        if _ROLLOUTS.search(name):
            return "batches"
        if _WEIGHTS.search(name):
            return "weights"
    return "checkpoints"


def _marker(entries: Sequence[Path]) -> str:
    """Returns the file written last in each entry; the newest entry may lack it."""
    settled = entries[1:5] or entries[:1]
    last = [_modification_times(entry) for entry in settled]
    if not last or not all(last):
        return ""
    common = set.intersection(*(set(files) for files in last))
    named = sorted(name for name in common if _MARKERS.search(name))
    if named:
        return named[0]
    newest = {max(files, key=lambda name: files[name]) for files in last}
    return newest.pop() if len(newest) == 1 and len(last[0]) > 1 else ""


def _modification_times(entry: Path) -> Mapping[str, float]:
    """Returns the last change of each regular file in a folder, by name."""
    times = {}
    for name, is_folder in names_in(entry):
        with suppress(OSError):
            if not is_folder and (entry / name).is_file():
                times[name] = (entry / name).stat().st_mtime
    return times


def logs_below(folders: Sequence[Path]) -> tuple[Path, ...]:
    """Returns the files in `folders` that are named like logs."""
    return tuple(
        folder / name
        for folder in folders
        for name, is_folder in names_in(folder)
        if not is_folder and _LOGS.search(name)
    )
