"""What exporter.yml says of a run's logs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Annotated

from pydantic import AfterValidator, Field, StringConstraints

from trainwarden_exporter.layouts.base import Layout, LinePattern, Phase
from trainwarden_exporter.layouts.places import Place
from trainwarden_exporter.layouts.troubles import SHARED
from trainwarden_exporter.logs.regexes import check
from trainwarden_exporter.units import Bytes, Name, Seconds
from trainwarden_exporter.yamlfile import MisplacedError, Section

LONGEST_LINE = 64 << 10

Text = Annotated[str, StringConstraints(min_length=1, max_length=100)]
Regex = Annotated[str, StringConstraints(min_length=1, max_length=2000), AfterValidator(check)]


def _check_place(template: str) -> str:
    Place(template)
    return template


Template = Annotated[
    str, StringConstraints(min_length=1, max_length=1000), AfterValidator(_check_place)
]


class LogPatternConfig(Section):
    """A kind of line."""

    name: Name
    """Label `pattern`; one of the framework's own of this name is replaced."""

    regex: Regex
    """What is searched for in each line, in RE2's syntax (no look-around, no references back).

    Of named groups, `step`, `total` and `seconds` tell the run's progress, `trainer_version` and
    `rollout_version` the policy's; the number in any other becomes the gauge of that name.
    """

    trouble: bool = False
    """Whether the line is a sign of trouble."""

    resets: Name | None = None
    """The pattern whose streak such a line breaks."""

    values: Annotated[tuple[Text, ...], Field(max_length=50)] = ()
    """Keys whose numbers in such a line become gauges too, as in `loss: 0.5` or `'loss': 0.5`."""

    phase: Phase | None = None
    """The phase of the run that such a line begins."""

    ends: Phase | None = None
    """The phase of the run that such a line ends."""

    step_offset: int = 0
    """What to add to the group `step` to have the steps done, counted from one."""

    advances: bool = False
    """Whether such a line shows that the run goes forward, though it tells no step."""

    def pattern(self) -> LinePattern:
        """The same in the words of layouts."""
        return LinePattern(
            name=self.name,
            regex=self.regex,
            phase=self.phase,
            ends=self.ends,
            step_offset=self.step_offset,
            trouble=self.trouble,
            resets=self.resets or "",
            advances=self.advances,
            values=self.values,
        )


class LogConfig(Section):
    """A log of a run, which may be spread over several files."""

    name: Name
    """Label `log`. Of one of the framework's own of this name, what is said here is replaced."""

    files: Annotated[tuple[Template, ...], Field(max_length=50)] = ()
    """Its files, relative to the run's path; they may hold names in braces and globs."""

    role: Text | None = None
    """Label `role`: which part of the run writes it; that of the worker when not given."""

    worker: Name | None = None
    """Label `worker`: which worker writes it; the only one of the role when not given."""

    silence_limit: Annotated[Seconds, Field(gt=0)] | None = None
    """Time for which nothing need be written to it."""

    copies: Text | None = None
    """Logs of the run with the same word here repeat each other: a line that stands in several of
    them, or of the entries of `files`, counts once."""

    patterns: Annotated[tuple[LogPatternConfig, ...], Field(max_length=200)] = ()
    """What is looked for in it, beside what the framework is known to write."""

    without: tuple[Name, ...] = ()
    """Patterns of the framework, or of those for all frameworks, that are not looked for in it."""

    longest_line: Annotated[Bytes, Field(ge=256, le=1 << 20)] = LONGEST_LINE
    """What goes beyond this of a line is passed over."""


def check_names(logs: Sequence[LogConfig]) -> Sequence[LogConfig]:
    """Raise MisplacedError where two logs, or two patterns of one, share a name."""
    for place in _doubles(log.name for log in logs):
        raise MisplacedError(f"another log is named {logs[place].name}", place, "name")
    for index, log in enumerate(logs):
        for place in _doubles(pattern.name for pattern in log.patterns):
            name = log.patterns[place].name
            raise MisplacedError(
                f"another pattern is named {name}", index, "patterns", place, "name"
            )
    return logs


Logs = Annotated[tuple[LogConfig, ...], AfterValidator(check_names)]


def check_logs(
    logs: Sequence[LogConfig], known: Layout, *, workers: Collection[str], has_path: bool
) -> None:
    """Raise MisplacedError, from the run, where `logs` speak of what the run does not have.

    It has its `workers`, and all that its framework is `known` to have.
    """
    known_logs = {log.name for log in known.logs} if has_path else set()
    known_patterns = {pattern.name for pattern in (*SHARED, *known.lines)}
    for index, log in enumerate(logs):
        place = ("logs", index)
        names = {*known_patterns, *(pattern.name for pattern in log.patterns)} - {*log.without}
        if log.worker is not None and log.worker not in workers:
            raise MisplacedError(f"no worker of this run is named {log.worker}", *place, "worker")
        if not log.files and log.name not in known_logs:
            raise MisplacedError("which files? The framework has no log of this name", *place)
        for number, file in enumerate(log.files):
            if not has_path and not file.startswith("/"):
                raise MisplacedError(
                    "relative to the path of the run, which has none", *place, "files", number
                )
        for number, name in enumerate(log.without):
            if name not in known_patterns:
                raise MisplacedError(f"no pattern is named {name}", *place, "without", number)
        for number, pattern in enumerate(log.patterns):
            if pattern.resets is not None and pattern.resets not in names:
                raise MisplacedError(
                    f"no pattern is named {pattern.resets}", *place, "patterns", number, "resets"
                )


def _doubles(names: Iterable[str]) -> Iterator[int]:
    """The places of names that stood before."""
    seen: set[str] = set()
    for place, name in enumerate(names):
        if name in seen:
            yield place
        seen.add(name)
