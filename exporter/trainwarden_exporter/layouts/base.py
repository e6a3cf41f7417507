"""What a layout is: how a training framework leaves its traces on disk, in logs and in /proc.

A layout is data. What reads it is the collectors' business; a user's configuration overrides any
part of it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from trainwarden_exporter.layouts.proofs import Proof

KEPT_OUTPUT = ("*.log", "*.out", "logs/*.log", "logs/*.out")
"""Where what a framework only prints is usually kept, in the folder of the run."""


def points(text: str) -> tuple[str, ...]:
    """The points of `text`, each of which begins with a dash on a line of its own."""
    return tuple(" ".join(point.split()) for point in re.split(r"(?m)^\s*- ", text)[1:])


class Phase(StrEnum):
    """What a run is doing. Only `TRAINING` and `STARTING` are expected to bring steps."""

    STARTING = "starting"
    TRAINING = "training"
    SAVING = "saving"
    EVALUATING = "evaluating"
    UPDATING_WEIGHTS = "updating_weights"
    WAITING_FOR_ROLLOUTS = "waiting_for_rollouts"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True)
class CheckpointLayout:
    """A folder that holds one checkpoint per entry (a folder or a file)."""

    name: str
    """Label `checkpoint`."""
    folder: str
    """Template of the folder, relative to the run's path; see `places`."""
    entry: str
    """Regular expression for the whole name of an entry, with the group `step`. Where names hold a
    moment instead there is no group: then the last name is the newest, and no step is told."""
    proof: Proof
    """What proves an entry complete."""
    partial: str = ""
    """Regular expression for the names of entries that are being written under another name; with
    the group `step` where it stands in them."""
    step_offset: int = 0
    """What to add to the number in the name to have the steps done, counted from one."""
    recovery: RecoveryLayout | None = None


@dataclass(frozen=True, slots=True)
class RecoveryLayout:
    """The record from which a run resumes, kept beside the checkpoints."""

    file: str
    """Template of the file, relative to the run's path."""
    step: str
    """Regular expression with the group `step`, searched in the file's text."""
    step_offset: int = 0
    newer: str = ""
    """Template of a file: the record is whole once it is at least as new as this one. For a
    recovery checkpoint that is overwritten in place."""
    written_last: str = ""
    """Template of the file of the record that is written last; `file` itself when empty."""


@dataclass(frozen=True, slots=True)
class RolloutLayout:
    """A folder that holds one batch (or one set of weights) per step."""

    name: str
    """Label `rollout`."""
    folder: str
    entry: str
    """Regular expression for the whole name of an entry, with the group `step`."""
    proof: Proof
    rank: str = ""
    """Regular expression for the files in an entry that are one rank's share, with the group
    `rank`; empty where ranks do not write for themselves."""
    carries: Literal["batches", "weights"] = "batches"
    """`batches` flow from the rollout side to the trainer, `weights` the other way."""
    step_offset: int = 0
    """What to add to an entry's number to have the trainer's step (from one) that consumes, or for
    weights produced, it."""
    lag_limit: int | None = None
    """Steps that the newest batch may be behind what the trainer needs next, or the newest weights
    behind the trainer; where None, 1 for batches, and no limit for weights."""
    staleness_limit: int | None = None
    """Steps that the policy which made a batch may be older than the trainer's."""


@dataclass(frozen=True, slots=True)
class LogLayout:
    """A log, which may be spread over several files."""

    name: str
    """Label `log`."""
    files: tuple[str, ...]
    """Templates of its files, relative to the run's path; globs are allowed."""
    role: str = ""
    """Which part of the run writes it: `trainer`, `inference`, `rollout`, …."""
    copies: str = ""
    """Logs of the same run with the same word here repeat each other's lines: a line that stands in
    several of them counts once."""


@dataclass(frozen=True, slots=True)
class LinePattern:
    """A kind of line that tells something, by a regular expression in RE2's syntax.

    It is searched anywhere in a line from which colours have been taken. Named groups: `step`,
    `total` (steps), `seconds` (of the step; also as `1m 12s` or `800ms`), and for the policy
    version on either side `trainer_version`, `rollout_version`, or by how much they differ,
    `staleness`; any other group's number becomes the gauge of that name.
    """

    name: str
    """Label `pattern`."""
    regex: str
    phase: Phase | None = None
    """The phase that such a line begins. `STARTING` with a group `step` says from which step the
    run goes on."""
    ends: Phase | None = None
    """The phase that such a line ends; then the run trains again."""
    step_offset: int = 0
    """What to add to the group `step` to have the steps done, counted from one."""
    trouble: bool = False
    """Whether the line is a sign of trouble: it is counted, and shown to a person."""
    resets: str = ""
    """The pattern whose streak such a line breaks."""
    advances: bool = False
    """Whether such a line shows that the run goes forward, though it tells no step."""
    values: tuple[str, ...] = ()
    """Keys of `key: number` in such a line whose numbers become gauges too."""
    role: str = ""
    """The role of the logs in which it means what it says, where others bear the same line."""


@dataclass(frozen=True, slots=True)
class ProgressFile:
    """A small file from which the step is read: a state file, a tracker, the end of a table."""

    name: str
    """Label `source`."""
    file: str
    """Template, relative to the run's path; of several that match, the newest is read."""
    kind: Literal["json", "text", "jsonl", "csv"]
    """`jsonl` and `csv` are read from their end."""
    step: str
    """For `json`, `jsonl` and `csv` the key, parts joined by `/`; for `text` a regular expression
    with the group `step`."""
    total: str = ""
    """The key of the number of steps in all."""
    step_offset: int = 0


@dataclass(frozen=True, slots=True)
class RoleLayout:
    """How the processes of one part of a run look."""

    role: str
    command: str
    """Regular expression searched in the command line, or the title a process gives itself."""
    engine: str = ""
    """The inference engine, where the process serves one."""
    finishes: bool = False


@dataclass(frozen=True, slots=True)
class EndpointLayout:
    """A page of metrics that a framework itself can serve."""

    name: str
    port: int
    """Where it listens by default."""
    path: str = "/metrics"


@dataclass(frozen=True, slots=True)
class Layout:
    """One framework."""

    name: str
    """What `framework:` says in exporter.yml."""
    title: str
    """Its name as its authors write it."""
    versions: str = ""
    """The versions it was read from."""
    checkpoints: tuple[CheckpointLayout, ...] = ()
    rollouts: tuple[RolloutLayout, ...] = ()
    logs: tuple[LogLayout, ...] = ()
    lines: tuple[LinePattern, ...] = ()
    """Beside those of `troubles.SHARED`, which all have."""
    tells_evaluations: bool = False
    """Whether one of `lines` is always there when an evaluation begins, as the framework comes."""
    progress_files: tuple[ProgressFile, ...] = ()
    roles: tuple[RoleLayout, ...] = ()
    endpoints: tuple[EndpointLayout, ...] = ()
    notes: tuple[str, ...] = field(default=())
    """Traps that a person who watches this framework should know."""

    @property
    def templates(self) -> tuple[str, ...]:
        """All its templates of folders and files: jointly they tell which run is the newest."""
        recoveries = [place.recovery for place in self.checkpoints if place.recovery is not None]
        return tuple(
            dict.fromkeys(
                (
                    *(place.folder for place in self.checkpoints),
                    *(recovery.file for recovery in recoveries),
                    *(recovery.newer for recovery in recoveries if recovery.newer),
                    *(recovery.written_last for recovery in recoveries if recovery.written_last),
                    *(place.folder for place in self.rollouts),
                    *(file for log in self.logs for file in log.files),
                    *(source.file for source in self.progress_files),
                )
            )
        )
