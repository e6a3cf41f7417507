"""Recognises what runs have left in folders: a framework's traces, or numbered work of any kind."""

from __future__ import annotations

import os
import re
import stat
import time
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from trainwarden_exporter.entries.folder import EntryFolder
from trainwarden_exporter.entries.naming import Naming
from trainwarden_exporter.layouts.base import CheckpointLayout, Layout, RolloutLayout
from trainwarden_exporter.layouts.places import Instance, instances
from trainwarden_exporter.layouts.proofs import Renamed, Settled

MOST_FOLDERS = 300
DEEPEST = 4
MOST_NAMES = 2_000
"""What is read of one folder; more of it is more of the same."""
LOOK_SHARE = 0.1
"""Of what a round of a collector may cost, for each folder that may be one of checkpoints."""

_DIGITS = re.compile(r"\d+")
# What is called rollout-0 is a worker's, not the batch of a step.
_NUMBERED_FOLDER = re.compile(r"step|ckpt|checkpoint|iter|epoch|weight|version", re.IGNORECASE)
_NUMBERED_FILE = re.compile(rf"{_NUMBERED_FOLDER.pattern}|batch|model", re.IGNORECASE)
_UNFINISHED = re.compile(r"tmp|temp|partial|incomplete|\.part$", re.IGNORECASE)
_ROLLOUTS = re.compile(r"rollout|batch|traject|episode|sample", re.IGNORECASE)
_WEIGHTS = re.compile(r"broadcast|weight_update|policy", re.IGNORECASE)
_MARKERS = re.compile(r"complete|done|success|stable|finished|ready|\.metadata$", re.IGNORECASE)
_LOGS = re.compile(r"\.(?:log|out|err|stdout|stderr)$")

ENOUGH = 3
"""The score from which on a framework counts as recognised."""

_WEAK = (Renamed, Settled)
"""Proofs that another framework's work passes as well."""

Kind = Literal["checkpoints", "batches", "weights"]


@dataclass(frozen=True, slots=True)
class Recognised:
    """A folder from which a framework's layout finds things."""

    layout: Layout
    path: Path
    score: int
    instance: Instance


@dataclass(frozen=True, slots=True)
class Numbered:
    """A folder of entries that bear the number of a step."""

    path: Path
    kind: Kind
    entry: str
    """Regular expression with the group `step`."""
    count: int
    partial: str = ""
    marker: str = ""
    """A file that stands in all but perhaps the newest, and was written last."""


def folders_below(path: Path) -> tuple[Path, ...]:
    """`path` and the folders in it, the nearest first; neither hidden ones nor numbered work."""
    found: list[Path] = []
    waiting = deque([(path, 0)])
    while waiting and len(found) < MOST_FOLDERS:
        folder, depth = waiting.popleft()
        found.append(folder)
        if depth < DEEPEST:
            inner = (name for name, is_folder in names_in(folder) if is_folder)
            waiting.extend(
                (folder / name, depth + 1)
                for name in inner
                if not name.startswith(".") and not _is_entry(name, folder=True)
            )
    return tuple(found)


def names_in(folder: Path) -> list[tuple[str, bool]]:
    """What stands in `folder`, sorted, and whether each is a folder; nothing where it is closed."""
    found: list[tuple[str, bool]] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if len(found) >= MOST_NAMES:
                    break
                found.append((entry.name, entry.is_dir(follow_symlinks=False)))
    except OSError:
        pass
    return sorted(found)


def recognise(
    folders: Sequence[Path], layouts: Sequence[Layout], running: Collection[str] = ()
) -> Recognised | None:
    """The framework of which most is found, and the nearest folder that leads to all of it.

    None where too little is found to say; of the frameworks whose names are in `running`, because
    programs of theirs run here, less will do.
    """
    best: Recognised | None = None
    for folder in folders:
        for layout in layouts:
            if not layout.checkpoints and not layout.rollouts and not layout.progress_files:
                continue
            instance = instances(folder, layout.templates, {}, most=2, limit=MOST_NAMES)[0]
            score = _score(layout, instance)
            if score and layout.name in running:
                score += ENOUGH
            if score >= ENOUGH and (best is None or score > best.score):
                best = Recognised(layout, folder, score, instance)
    return best


def _score(layout: Layout, instance: Instance) -> int:
    """3 for work with the framework's own proof, 2 for a state file, 1 for what others have too.

    That names are as they should be is not enough: half of all frameworks write `step_10`.
    """
    places: tuple[CheckpointLayout | RolloutLayout, ...] = (*layout.checkpoints, *layout.rollouts)
    score = sum(
        1 if isinstance(place.proof, _WEAK) else 3
        for place in places
        if any(_has_complete(folder, place) for folder in instance.folders(place.folder)[:3])
    )
    score += sum(2 for source in layout.progress_files if instance.files(source.file))
    recovery = (place.recovery for place in layout.checkpoints if place.recovery)
    score += sum(2 for record in recovery if instance.files(record.file))
    if score:  # a log alone is nobody's in particular
        score += sum(1 for log in layout.logs if any(map(instance.files, log.files)))
    return score


def _has_complete(folder: Path, place: CheckpointLayout | RolloutLayout) -> bool:
    partial = place.partial if isinstance(place, CheckpointLayout) else ""
    entries = EntryFolder(str(folder), Naming(place.entry, partial), place.proof, now=_much_later)
    try:
        return entries.look(share=LOOK_SHARE).complete_count > 0
    except OSError:
        return False


def _much_later() -> float:
    """A time at which whatever lies there now has been at rest."""
    return time.time() + 86_400


def numbered_work(folders: Sequence[Path]) -> tuple[Numbered, ...]:
    """The folders whose entries bear step numbers, whoever wrote them."""
    return tuple(found for folder in folders if (found := _numbered(folder)) is not None)


def _numbered(folder: Path) -> Numbered | None:
    groups: dict[str, list[str]] = {}
    for name, is_folder in names_in(folder):
        if _is_entry(name, folder=is_folder) and not _LOGS.search(name):
            groups.setdefault(_shape(name), []).append(name)
    finished = {shape: names for shape, names in groups.items() if not _UNFINISHED.search(shape)}
    if not finished:
        return None
    shape, names = max(finished.items(), key=lambda group: len(group[1]))
    unfinished = [other for other in groups if _UNFINISHED.search(other)]
    newest_first = sorted(names, key=lambda name: -int(_DIGITS.findall(name)[-1]))
    return Numbered(
        folder,
        _kind(folder),
        shape,
        len(names),
        partial=unfinished[0] if unfinished else "",
        marker=_marker([folder / name for name in newest_first]),
    )


def _is_entry(name: str, *, folder: bool) -> bool:
    words = _NUMBERED_FOLDER if folder else _NUMBERED_FILE
    return bool(words.search(name) and _DIGITS.search(name))


def _shape(name: str) -> str:
    """`name` as a regular expression in which the last number is the step."""
    *_, last = _DIGITS.finditer(name)
    head = "".join(
        (r"\d+" if index % 2 else re.escape(piece))
        for index, piece in enumerate(re.split(r"(\d+)", name[: last.start()]))
    )
    return rf"{head}(?P<step>\d+){re.escape(name[last.end() :])}"


def _kind(folder: Path) -> Kind:
    for name in (folder.name, folder.parent.name):
        if _ROLLOUTS.search(name):
            return "batches"
        if _WEIGHTS.search(name):
            return "weights"
    return "checkpoints"


def _marker(entries: Sequence[Path]) -> str:
    """The file that was written last in each entry; the newest entry may still lack it."""
    settled = entries[1:5] or entries[:1]
    last = [_by_age(entry) for entry in settled]
    if not last or not all(last):
        return ""
    common = set.intersection(*(set(files) for files in last))
    named = sorted(name for name in common if _MARKERS.search(name))
    if named:
        return named[0]
    newest = {max(files, key=lambda name: files[name]) for files in last}
    return newest.pop() if len(newest) == 1 and len(last[0]) > 1 else ""


def _by_age(entry: Path) -> Mapping[str, float]:
    return dict(_files(entry))


def _files(entry: Path) -> Iterator[tuple[str, float]]:
    for name, is_folder in names_in(entry):
        if is_folder:
            continue
        try:
            status = (entry / name).stat()
        except OSError:
            continue
        if stat.S_ISREG(status.st_mode):
            yield name, status.st_mtime


def logs_below(folders: Sequence[Path]) -> tuple[Path, ...]:
    """The files in `folders` that are named as logs are."""
    return tuple(
        folder / name
        for folder in folders
        for name, is_folder in names_in(folder)
        if not is_folder and _LOGS.search(name)
    )
