"""Data model of a framework: what it writes to disk and to logs, and how its processes look.

Definitions are data only; the collectors read them, and the configuration overrides any part.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from trainwarden_exporter.frameworks.completeness_rules import CompletenessRule

CONSOLE_LOGS = ("*.log", "*.out", "*log.txt", "logs/*.log", "logs/*.out", "logs/*.txt")
"""Where standard output is usually redirected, in the folder of the run."""


def bullet_points(text: str) -> tuple[str, ...]:
    """Splits `text` into its points; each begins with a dash at the start of a line."""
    return tuple(" ".join(point.split()) for point in re.split(r"(?m)^\s*- ", text)[1:])


class Phase(StrEnum):
    """The activity of a run. Steps are expected only in `TRAINING` and `STARTING`."""

    STARTING = "starting"
    TRAINING = "training"
    SAVING = "saving"
    EVALUATING = "evaluating"
    UPDATING_WEIGHTS = "updating_weights"
    WAITING_FOR_ROLLOUTS = "waiting_for_rollouts"
    FINISHED = "finished"


class Provable(StrEnum):
    """What the content of a checkpoint shows, as the exporter reads it."""

    ARCHIVES = "every checksum of `torch.save`"
    TENSORS = "header, offsets and size of safetensors"
    SHARDS = "every shard of its index with its tensors"
    ITEMS = "every item that `.metadata` names"
    RANKS = "a file of every rank"


@dataclass(frozen=True, slots=True)
class CheckpointLayout:
    """A folder that holds one checkpoint per entry (a folder or a file)."""

    name: str
    """Label `checkpoint`."""
    folder: str
    """Template of the folder, relative to the run's path; see `path_templates`."""
    entry: str
    """Regular expression for the whole name of an entry, with the group `step`. Names that contain
    a time have no such group: the last name is the newest, and the step is unknown."""
    completeness: CompletenessRule
    partial: str = ""
    """Regular expression for the temporary names of entries that are being written; with the group
    `step` if they contain it."""
    step_offset: int = 0
    """Completed steps, counted from one, minus the number in the name."""
    recovery: RecoveryLayout | None = None
    resumes_incomplete: bool | None = False
    """Whether the framework resumes from the highest step even if that is incomplete; None if that
    is not known, of checkpoints that no framework writes."""
    provable: tuple[Provable, ...] = ()
    """What can be proved of what the framework writes, beyond each single file by its format."""


@dataclass(frozen=True, slots=True)
class RecoveryLayout:
    """The record from which a run resumes, kept beside the checkpoints."""

    file: str
    """Template of the file, relative to the run's path."""
    step: str
    """Regular expression with the group `step`, searched in the file's text."""
    step_offset: int = 0
    newer: str = ""
    """Template of a file: the record is complete once it is at least as new as this file. For a
    recovery checkpoint that is overwritten in place."""
    written_last: str = ""
    """Template of the last written file of the record; if empty, `file`."""


@dataclass(frozen=True, slots=True)
class RolloutLayout:
    """A folder that holds one batch (or one set of weights) per step."""

    name: str
    """Label `rollout`."""
    folder: str
    entry: str
    """Regular expression for the whole name of an entry, with the group `step`."""
    completeness: CompletenessRule
    rank: str = ""
    """Regular expression for the files in an entry that one rank writes, with the group `rank`;
    empty if ranks do not write separate files."""
    carries: Literal["batches", "weights"] = "batches"
    """`batches` flow from rollout workers to the trainer, `weights` the other way."""
    step_offset: int = 0
    """The trainer's step, from one, that consumes a batch or produces weights, minus the number in
    the name."""
    lag_limit: int | None = None
    """Allowed steps between the newest batch and the one the trainer needs next, or between the
    trainer and the newest weights; None means 1 for batches and no limit for weights."""
    staleness_limit: int | None = None
    """Allowed steps between the policy that generated a batch and the trainer's."""


@dataclass(frozen=True, slots=True)
class LogLayout:
    """A log of one or more files."""

    name: str
    """Label `log`."""
    files: tuple[str, ...]
    """Templates of its files, relative to the run's path; globs are allowed."""
    role: str = ""
    """The part of the run that writes it: `trainer`, `inference`, `rollout`, …."""
    deduplication_group: str = ""
    """Logs of a run with the same group repeat each other's lines; repeated lines count once."""


@dataclass(frozen=True, slots=True)
class LinePattern:
    """A kind of log line, as a regular expression in RE2 syntax.

    It may match anywhere in the line; colour codes are removed first. Named groups: `step`, `total`
    (steps), `epoch`, `epochs` (how many), `seconds` (of the step; also as `1m 12s` or `800ms`),
    `trainer_version` and `rollout_version` (of the policy), `staleness` (their difference). Any
    other group is a number that becomes the gauge of that name, as `epoch` does, too. Underscores
    behind a name do not count.
    """

    name: str
    """Label `pattern`."""
    regex: str
    phase: Phase | None = None
    """The phase that the line begins. With `STARTING`, the group `step` is the step from which the
    run resumes."""
    ends: Phase | None = None
    """The phase that the line ends; the run is training again."""
    step_offset: int = 0
    """Completed steps, counted from one, minus the group `step`."""
    error: bool = False
    """Whether the line reports an error: errors are counted and shown on the status page."""
    resets: str = ""
    """The pattern whose count of consecutive lines the line resets."""
    advances: bool = False
    """Whether the line shows progress although it contains no step."""
    values: tuple[str, ...] = ()
    """Keys of `key: number` in the line whose numbers become gauges too."""
    role: str = ""
    """Restricts the pattern to logs of this role, if others contain the same line."""
    other_writers: str = ""
    """Regular expression; where it matches in the group `writer`, the prefix of the message, the
    line is that of another part of the run, and does not match."""
    hints_at_step: bool = False
    """Whether an operator reads a step in the line, though it may be in a form that is not read."""
    redrawn: bool = False
    """Whether the line is a progress bar, whose current state has no line end yet."""
    total_of: Literal["run", "bar", "epoch", "line", "other"] = "run"
    """What the group `total` counts. `bar`: the steps of a progress bar, which is that of the run
    unless the run has another total. `epoch`: the steps until the count begins again at zero; they
    are added up, and the total of the run stays unknown. `line`: as `epoch`, but it is the total of
    a run that reports no epochs, until the count begins again. `other`: something else than steps,
    as of an evaluation, which shows only that the run does not hang."""


def error_line(name: str, *regexes: str) -> LinePattern:
    """A pattern of lines that report an error, in any of several forms."""
    return LinePattern(name, "|".join(regexes), error=True)


@dataclass(frozen=True, slots=True)
class PhaseLimit:
    """A time after which the framework itself gives up a phase."""

    phase: Phase
    seconds: float
    reason: str


@dataclass(frozen=True, slots=True)
class ProgressFile:
    """A file from which the step is read: a state file, a tracker, the end of a table."""

    name: str
    """Label `source`."""
    file: str
    """Template, relative to the run's path; the newest match is read."""
    kind: Literal["json", "text", "jsonl", "csv"]
    """`jsonl` and `csv` are read from their end."""
    step: str
    """For `json`, `jsonl` and `csv` the key, parts joined by `/`; for `text` a regular expression
    with the group `step`."""
    total: str = ""
    """The key of the total number of steps."""
    step_offset: int = 0
    save_interval: str = ""
    """For `json`, the key of the number of steps between two saves."""


@dataclass(frozen=True, slots=True)
class ProcessPattern:
    """The processes of one part of a run."""

    role: str
    command: str
    """Regular expression searched in the command line or the process title."""
    engine: str = ""
    """The inference engine, if the process is one."""
    finishes: bool = False


def trainer_process(command: str) -> ProcessPattern:
    """A pattern of the trainer's processes, which end when the run finishes."""
    return ProcessPattern("trainer", command, finishes=True)


@dataclass(frozen=True, slots=True)
class MetricsEndpoint:
    """A metrics page that a framework can serve."""

    name: str
    port: int
    """The default port."""
    path: str = "/metrics"


@dataclass(frozen=True, slots=True)
class Framework:
    """The definition of one framework."""

    name: str
    """The value of `framework:` in exporter.yml."""
    title: str
    """The name as the authors spell it."""
    versions: str = ""
    """The versions from which the definition was read."""
    checkpoints: tuple[CheckpointLayout, ...] = ()
    rollouts: tuple[RolloutLayout, ...] = ()
    logs: tuple[LogLayout, ...] = ()
    lines: tuple[LinePattern, ...] = ()
    """Used in addition to `error_lines.COMMON_ERROR_PATTERNS`."""
    default_lines: tuple[LinePattern, ...] = ()
    """Used unless the configuration of the run names a source of the step. The run need not log
    such lines, so that their absence means nothing."""
    own_files: tuple[str, ...] = ()
    """Templates of files that distinguish a run from one of another framework with the same
    checkpoints, as `discover` recognises it."""
    modules: tuple[str, ...] = ()
    """Python modules that a script of the framework imports, as `discover` recognises it."""
    log_signature: str = ""
    """Regular expression of lines that only this framework writes, as `discover` recognises it."""
    announces_evaluations: bool = False
    """Whether the framework, by default, logs one of `lines` when an evaluation begins."""
    phase_limits: tuple[PhaseLimit, ...] = ()
    """Limits that the framework itself has; the configuration of the run overrides them."""
    progress_files: tuple[ProgressFile, ...] = ()
    roles: tuple[ProcessPattern, ...] = ()
    endpoints: tuple[MetricsEndpoint, ...] = ()
    notes: tuple[str, ...] = ()
    """Known pitfalls in monitoring this framework."""

    @property
    def templates(self) -> tuple[str, ...]:
        """All templates of folders and files; together they show which run is the newest."""
        recoveries = [layout.recovery for layout in self.checkpoints if layout.recovery is not None]
        templates = (
            *(layout.folder for layout in self.checkpoints),
            *(name for one in recoveries for name in (one.file, one.newer, one.written_last)),
            *(layout.folder for layout in self.rollouts),
            *(file for log in self.logs for file in log.files),
            *(source.file for source in self.progress_files),
            *self.own_files,
        )
        return tuple(dict.fromkeys(filter(None, templates)))
