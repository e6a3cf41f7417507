"""What the trees of frameworks are written with: files of an age, and the states of a run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

NOW = 1_787_300_000.0
"""21 August 2026."""

MINUTE = 60.0
SAVE_SECONDS = 20.0
"""What a save takes here, from its first file to its last."""


class State(Enum):
    """What a run has come to."""

    COMPLETE = "three checkpoints, the last of them ten minutes old"
    HALF_WRITTEN = "two, and a third that is being written since a few seconds"
    REWRITTEN = "two, of which the second is being written again in the same place"
    FINISHED = "three, and what a run leaves when it ends well"
    ROTATED = "three, of which only the last was kept; logs that were rotated"


@dataclass(frozen=True)
class Written:
    """What is true of a tree. Checkpoints and rollouts by their name in the layout."""

    path: Path
    """What `path:` says in exporter.yml."""
    names: Mapping[str, str] = field(default_factory=dict)
    """What the names in the layout's templates stand for."""
    complete: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Names of the complete checkpoints, oldest first."""
    incomplete: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    step: int | None = None
    """Steps done by the newest complete one."""
    recovery: int | None = None
    """Steps done by the recovery record."""
    rollouts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Names of the complete batches."""
    incomplete_rollouts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    logs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The files of each log that is there, relative to the path."""


class Tree:
    """Writes files whose last change lies `age` seconds before `now`."""

    def __init__(self, path: Path, now: float = NOW) -> None:
        self.path = path
        self.now = now

    def file(self, name: str, *, age: float, text: str = "x") -> Path:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        os.utime(path, (self.now - age, self.now - age))
        return path

    def files(self, folder: str, names: Iterable[str], *, age: float) -> None:
        """Files written one after the other; the last of them `age` seconds ago."""
        names = tuple(names)
        pause = SAVE_SECONDS / max(1, len(names) - 1)
        for place, name in enumerate(reversed(names)):
            self.file(f"{folder}/{name}", age=age + place * pause)

    def settle(self) -> None:
        """Give each folder the time of the last change in it."""
        for folder, inner, names in os.walk(self.path, topdown=False):
            times = [(Path(folder) / name).stat().st_mtime for name in (*inner, *names)]
            if times:
                os.utime(folder, (max(times), max(times)))


AGES = (50 * MINUTE, 30 * MINUTE, 10 * MINUTE)
"""Of the three saves."""

FRESH = 3.0
"""Of what is being written."""

HF = ("config.json", "generation_config.json", "model.safetensors")
TOKENIZER = ("tokenizer_config.json", "special_tokens_map.json", "tokenizer.json")
DCP = ("__0_0.distcp", "__1_0.distcp", ".metadata")


@dataclass(frozen=True)
class Saves:
    """How a framework saves: by step, its files in the order in which they are written."""

    folder: str
    steps: tuple[int, int, int]
    name: Callable[[int], str]
    files: tuple[str, ...]
    half: int
    """How many of the files half a checkpoint has."""
    unfinished: Callable[[int], str] | None = None
    """The name while it is being written, if that is another."""
    rewritable: bool = True
    """Whether one that is written again in its place can be told from a complete one."""


def save(tree: Tree, saves: Saves, state: State) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Write the checkpoints, and say which are complete and which are not."""
    names = [saves.name(step) for step in saves.steps]
    kept = names[2:] if state is State.ROTATED else names
    whole = kept[:-1] if state in (State.HALF_WRITTEN, State.REWRITTEN) else kept
    for name in whole:
        tree.files(f"{saves.folder}/{name}", saves.files, age=AGES[names.index(name)])
    if state is State.HALF_WRITTEN:
        name = (saves.unfinished or saves.name)(saves.steps[2])
        tree.files(f"{saves.folder}/{name}", saves.files[: saves.half], age=FRESH)
        return tuple(whole), (name,)
    if state is State.REWRITTEN:
        if saves.unfinished is not None:
            name = saves.unfinished(saves.steps[1])
            tree.files(f"{saves.folder}/{name}", saves.files[: saves.half], age=FRESH)
            return tuple(whole), (name,)
        tree.files(f"{saves.folder}/{whole[-1]}", saves.files[: saves.half], age=FRESH)
        if saves.rewritable:
            return tuple(whole[:-1]), (whole[-1],)
    return tuple(whole), ()


def newest_step(saves: Saves, complete: tuple[str, ...]) -> int:
    return max(step for step in saves.steps if saves.name(step) in complete)
