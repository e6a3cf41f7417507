"""Builders of the folder trees of frameworks: files of a given age, and the states of a run."""

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
"""Duration of a save, from its first file to its last."""


class State(Enum):
    """The state of a run."""

    COMPLETE = "three checkpoints, the last ten minutes old"
    HALF_WRITTEN = "two, and a third that has been written for a few seconds"
    REWRITTEN = "two, and the second is being written again in the same place"
    FINISHED = "three, and the final files of a finished run"
    ROTATED = "three, and only the last was kept; rotated logs"


@dataclass(frozen=True)
class Written:
    """The expected facts about a tree. Checkpoints and rollouts by the name of their layout."""

    path: Path
    """`path:` in exporter.yml."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Values of the names in the templates."""
    complete: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Names of the complete checkpoints, oldest first."""
    incomplete: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    step: int | None = None
    """Completed steps of the newest complete checkpoint."""
    recovery: int | None = None
    """Completed steps of the recovery record."""
    rollouts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Names of the complete batches."""
    incomplete_rollouts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    logs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The files of each existing log, relative to the path."""


class Tree:
    """Writes files whose last change is `age` seconds before `now`."""

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
        """Writes files one after the other, the last `age` seconds ago."""
        names = tuple(names)
        pause = SAVE_SECONDS / max(1, len(names) - 1)
        for index, name in enumerate(reversed(names)):
            self.file(f"{folder}/{name}", age=age + index * pause)

    def settle(self) -> None:
        """Sets the time of each folder to that of the last change in it."""
        for folder, inner, names in os.walk(self.path, topdown=False):
            times = [(Path(folder) / name).stat().st_mtime for name in (*inner, *names)]
            if times:
                os.utime(folder, (max(times), max(times)))


AGES = (50 * MINUTE, 30 * MINUTE, 10 * MINUTE)
"""Ages of the three saves."""

FRESH = 3.0
"""Age of files that are being written."""

HF = ("config.json", "generation_config.json", "model.safetensors")
TOKENIZER = ("tokenizer_config.json", "special_tokens_map.json", "tokenizer.json")
DCP = ("__0_0.distcp", "__1_0.distcp", ".metadata")


@dataclass(frozen=True)
class Saves:
    """How a framework saves: its files in the order in which they are written."""

    folder: str
    steps: tuple[int, int, int]
    name: Callable[[int], str]
    files: tuple[str, ...]
    half: int
    """Number of files in an incomplete checkpoint."""
    unfinished: Callable[[int], str] | None = None
    """The temporary name, if there is one."""
    rewritable: bool = True
    """Whether a checkpoint that is being rewritten in place is recognisably incomplete."""


def save(tree: Tree, saves: Saves, state: State) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Writes the checkpoints; returns the names of the complete and of the incomplete ones."""
    names = [saves.name(step) for step in saves.steps]
    kept = names[2:] if state is State.ROTATED else names
    unfinished = state in (State.HALF_WRITTEN, State.REWRITTEN)
    complete = kept[:-1] if unfinished else kept
    for name in complete:
        tree.files(f"{saves.folder}/{name}", saves.files, age=AGES[names.index(name)])
    if not unfinished:
        return tuple(complete), ()
    step = saves.steps[2 if state is State.HALF_WRITTEN else 1]
    name = (saves.unfinished or saves.name)(step)
    tree.files(f"{saves.folder}/{name}", saves.files[: saves.half], age=FRESH)
    if name in complete:
        return (tuple(complete[:-1]), (name,)) if saves.rewritable else (tuple(complete), ())
    return tuple(complete), (name,)


def newest_step(saves: Saves, complete: tuple[str, ...]) -> int:
    return max(step for step in saves.steps if saves.name(step) in complete)


def finish(
    tree: Tree,
    saves: Saves,
    saved: tuple[tuple[str, ...], tuple[str, ...]],
    names: Mapping[str, str],
    *,
    layout: str = "default",
    log: str = "train.log",
    step_offset: int = 0,
) -> Written:
    """Writes the trainer's log; returns the facts about a run with one layout of checkpoints."""
    complete, incomplete = saved
    tree.file(log, age=FRESH)
    tree.settle()
    return Written(
        tree.path,
        names,
        {layout: complete},
        {layout: incomplete},
        step=newest_step(saves, complete) + step_offset,
        logs={"trainer": (log,)},
    )
