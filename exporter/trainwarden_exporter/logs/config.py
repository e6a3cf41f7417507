"""Configuration of a run's logs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field, StringConstraints

from trainwarden_exporter.config_file.loader import LocatedError, Section, unique_by
from trainwarden_exporter.config_file.types import Bytes, Name, Seconds
from trainwarden_exporter.frameworks.base import Framework, LinePattern, Phase
from trainwarden_exporter.frameworks.error_lines import COMMON_ERROR_PATTERNS, OTHER_NAMES
from trainwarden_exporter.frameworks.path_resolution import PathTemplate
from trainwarden_exporter.logs.re2_patterns import check_regex

MAX_LINE_BYTES = 64 << 10

BRAKE = "brake"
"""Part of the names of patterns that TrainingBrakeFiring judges by their streak."""

Text = Annotated[str, StringConstraints(min_length=1, max_length=100)]
Regex = Annotated[
    str, StringConstraints(min_length=1, max_length=2000), AfterValidator(check_regex)
]


def _check_template(template: str) -> str:
    PathTemplate(template)
    return template


Template = Annotated[
    str, StringConstraints(min_length=1, max_length=1000), AfterValidator(_check_template)
]


class LogPatternConfig(Section):
    """A log line pattern."""

    renamed_keys: ClassVar[Mapping[str, str]] = {"trouble": "error"}

    name: Name
    """Label `pattern`; a name of the framework's own patterns replaces that pattern."""

    regex: Regex
    """Regular expression searched in each line, in RE2 syntax (no look-around, no backreferences).

    The named groups `step`, `total` and `seconds` report the run's progress, `trainer_version` and
    `rollout_version` the policy versions; a number in any other group becomes a gauge of that name.
    """

    error: bool = False
    """Whether the line reports an error."""

    resets: Name | None = None
    """Pattern whose streak a matching line ends."""

    values: Annotated[tuple[Text, ...], Field(max_length=50)] = ()
    """Keys whose numbers in a matching line become gauges too, as in `loss: 0.5` or `'loss':
    0.5`.
    """

    phase: Phase | None = None
    """Phase of the run that a matching line begins."""

    ends: Phase | None = None
    """Phase of the run that a matching line ends."""

    step_offset: int = 0
    """Number added to the group `step` to get completed steps, counted from one."""

    advances: bool = False
    """Whether a matching line shows progress although it contains no step."""

    def pattern(self) -> LinePattern:
        """Returns the equivalent layout pattern."""
        return LinePattern(
            name=self.name,
            regex=self.regex,
            phase=self.phase,
            ends=self.ends,
            step_offset=self.step_offset,
            error=self.error,
            resets=self.resets or "",
            advances=self.advances,
            values=self.values,
        )


class LogConfig(Section):
    """A log of a run, in one or more files."""

    renamed_keys: ClassVar[Mapping[str, str]] = {
        "copies": "deduplication_group",
        "without": "disabled_patterns",
    }

    name: Name
    """Label `log`. A name of the framework's own logs overrides their settings."""

    files: Annotated[tuple[Template, ...], Field(max_length=50)] = ()
    """Files, relative to the run's path; names in braces and globs are allowed."""

    role: Text | None = None
    """Label `role`: the part of the run that writes the log; default: the role of the worker."""

    worker: Name | None = None
    """Label `worker`: the worker that writes the log; default: the only worker of the role."""

    silence_limit: Annotated[Seconds, Field(gt=0)] | None = None
    """Maximum time without a write."""

    deduplication_group: Text | None = None
    """Logs of the run with the same value repeat each other: a line that occurs in several of
    them, or in several `files`, counts once."""

    patterns: Annotated[tuple[LogPatternConfig, ...], Field(max_length=200)] = ()
    """Patterns in addition to those of the framework."""

    disabled_patterns: tuple[Name, ...] = ()
    """Patterns of the framework, or of those for all frameworks, to disable."""

    longest_line: Annotated[Bytes, Field(ge=256, le=1 << 20)] = MAX_LINE_BYTES
    """Maximum length of a line; the rest of a longer line is ignored."""


class AnnouncedLog(LogConfig):
    """The log of a run that announced itself; no section of the file."""

    offset: int
    """Its size in bytes when the run was announced."""

    announced_at: float

    checkpoint_folder: Path | None = None
    """Where its writer saves; None of another account's;"""
    working_folder: Path | None = None
    """and where it was started: these disks are watched."""


def check_names(logs: Sequence[LogConfig]) -> Sequence[LogConfig]:
    """Raises LocatedError for duplicate names of logs, or of patterns of one log."""
    for index, log in enumerate(logs):
        unique_by(log.patterns, "name", "pattern", index, "patterns")
    return unique_by(logs, "name", "log")


Logs = Annotated[tuple[LogConfig, ...], AfterValidator(check_names)]


def check_logs(
    logs: Sequence[LogConfig], known: Framework, *, workers: Collection[str], has_path: bool
) -> None:
    """Raises LocatedError, relative to the run, for references in `logs` to something undefined.

    Defined are its `workers` and all that its framework is `known` to have.
    """
    known_logs = {log.name for log in known.logs} if has_path else set()
    known_patterns = {
        pattern.name for pattern in (*COMMON_ERROR_PATTERNS, *known.lines, *known.default_lines)
    } | OTHER_NAMES.keys()
    for index, log in enumerate(logs):
        place = ("logs", index)
        names = {*known_patterns, *(pattern.name for pattern in log.patterns)} - {
            *log.disabled_patterns,
            *(OTHER_NAMES.get(name, name) for name in log.disabled_patterns),
        }
        if log.worker is not None and log.worker not in workers:
            raise LocatedError(f"no worker of this run has the name {log.worker}", *place, "worker")
        if not log.files and log.name not in known_logs:
            raise LocatedError("files required: the framework has no log of this name", *place)
        for number, file in enumerate(log.files):
            if not has_path and not file.startswith("/"):
                raise LocatedError(
                    "relative to the path of the run, which has none", *place, "files", number
                )
        for number, name in enumerate(log.disabled_patterns):
            if name not in known_patterns:
                raise LocatedError(
                    f"no pattern has the name {name}", *place, "disabled_patterns", number
                )
        for number, pattern in enumerate(log.patterns):
            if pattern.resets is not None and pattern.resets not in names:
                raise LocatedError(
                    f"no pattern has the name {pattern.resets}",
                    *place,
                    "patterns",
                    number,
                    "resets",
                )


def check_brakes(logs: Sequence[LogConfig], known: Framework) -> None:
    """Raises LocatedError, relative to the run, for a brake whose streak nothing resets."""
    resets = {pattern.resets for log in logs for pattern in log.patterns}
    resets |= {pattern.resets for pattern in known.lines}
    for index, log in enumerate(logs):
        for number, pattern in enumerate(log.patterns):
            if BRAKE in pattern.name and pattern.name not in resets:
                raise LocatedError(
                    "no pattern resets it, so that TrainingBrakeFiring never fires: add a pattern "
                    f"with `resets: {pattern.name}` for a line that a healthy worker logs",
                    *("logs", index, "patterns", number, "name"),
                )
