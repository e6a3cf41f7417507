"""Reads what programs report of themselves with `trainwarden.beat` (docs/heartbeat.md)."""

from __future__ import annotations

import heapq
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, ValidationError

from trainwarden_exporter.frameworks.base import Phase
from trainwarden_exporter.processes.procfs import Identity, read_process, read_uid
from trainwarden_exporter.processes.rank_lags import lag_ratios
from trainwarden_exporter.progress.events import (
    PhaseBegan,
    ProgressEvent,
    RunFinished,
    StepReported,
    TotalAnnounced,
)
from trainwarden_exporter.progress.log_lines import is_value_name, parse_count
from trainwarden_exporter.runtime.safe_open import open_regular

SOURCE = "beat"
"""Label `source` of steps and values from beats."""

MAX_FILES = 1000
"""Number of files that are read, those written last."""
MAX_LISTED = 100_000
SPEAKER_SECONDS = 60.0
"""How long a process that no longer reports still speaks for its run while another one does."""
MAX_BYTES = 64 << 10
MAX_NUMBERS = 50
MAX_STEPS = 120


@dataclass(frozen=True, slots=True)
class Beat:
    """The last values of one process. Times are Unix seconds; None means not reported."""

    written: float
    """Time of the last call."""
    run: str | None = None
    """The run whose command the process is part of, by name."""
    identity: Identity | None = None
    """The process; None if its pid belongs to another PID namespace."""
    started: tuple[int, int] = (0, 0)
    """Start of the process in ticks since boot, and its pid: the order of the processes."""
    ended: bool = False
    """Whether that process is known to have ended."""
    step: int | None = None
    step_time: float = 0.0
    """Since when `step` is reported."""
    total: int | None = None
    phase: Phase | None = None
    phase_time: float = 0.0
    numbers: Mapping[str, float] = field(default_factory=dict)
    number_times: Mapping[str, float] = field(default_factory=dict)
    """When each number was last reported; `written` for those without a time."""
    rank: int | None = 0
    steps: Mapping[int, float] = field(default_factory=dict)
    """Earlier steps of this process, and when they were reported."""


def default_beats_folder() -> Path | None:
    """Returns where programs of this account leave their beats; None for one without a home."""
    if folder := os.environ.get("TRAINWARDEN_FOLDER"):
        return Path(folder) / "beats"
    # the base directory specification ignores a relative path
    state = os.environ.get("XDG_STATE_HOME", "")
    try:
        base = Path(state) if state.startswith("/") else Path.home() / ".local" / "state"
    except RuntimeError:
        return None
    return base / "trainwarden" / "beats"


def read_beats(folder: Path) -> tuple[Beat, ...]:
    """Returns the beats in `folder`. A file without one is ignored. Raises OSError."""
    try:
        return tuple(_read_all(folder, _read_namespace()))
    except FileNotFoundError:
        return ()  # no program of this account has reported yet


def events_from_beat(beat: Beat) -> list[ProgressEvent]:
    """Returns what a beat reports, in the order of time."""
    events: list[ProgressEvent] = []
    if beat.step is not None:
        events.append(StepReported(SOURCE, beat.step, beat.step_time, total=beat.total))
    elif beat.total is not None:
        events.append(TotalAnnounced(beat.total, beat.written))
    if beat.phase is Phase.FINISHED:
        events.append(RunFinished(beat.phase_time))
    elif beat.phase is not None:
        events.append(PhaseBegan(beat.phase, beat.phase_time))
    return sorted(events, key=lambda event: event.timestamp)


def newest_by_run(
    beats: Iterable[Beat], run_of: Callable[[Beat], str | None]
) -> Mapping[str, Beat]:
    """Returns the beat that speaks for each run: of rank 0, alive, with a step, the newest.

    Of several such processes that report, the oldest speaks: two counts in turn would look like
    resumes.
    """

    def weight(beat: Beat) -> tuple[bool, bool, float]:
        return (not beat.ended, beat.step is not None, beat.written)

    by_run: dict[str, list[Beat]] = {}
    for beat in beats:
        if beat.rank == 0 and (run := run_of(beat)) is not None:
            by_run.setdefault(run, []).append(beat)
    return {run: _speaker(sorted(of_run, key=weight)) for run, of_run in by_run.items()}


def lags_by_run(
    beats: Iterable[Beat], run_of: Callable[[Beat], str | None], now: float
) -> Mapping[str, Mapping[int, float]]:
    """Returns how much later than the others each living rank of a run reports, in steps.

    `now` is in Unix seconds.
    """
    by_run: dict[str, dict[int, Beat]] = {}
    for beat in sorted(beats, key=lambda beat: beat.written):
        run = None if beat.ended or not beat.steps else run_of(beat)
        if run is not None and beat.rank is not None:
            by_run.setdefault(run, {})[beat.rank] = beat
    return {
        run: lag_ratios({rank: beat.steps for rank, beat in ranks.items()}, now)
        for run, ranks in by_run.items()
    }


def _speaker(beats: list[Beat]) -> Beat:
    """Returns the beat that counts; `beats` are those of a run, the newest of the best last."""
    newest = beats[-1]
    if newest.ended:
        return newest
    reporting = (
        beat
        for beat in beats
        if not beat.ended
        and (beat.step is None) == (newest.step is None)
        and newest.written - beat.written <= SPEAKER_SECONDS
    )
    return min(reporting, key=lambda beat: beat.started)


def parse_beat(content: bytes, *, namespace: int) -> Beat | None:
    """Returns the beat in a file, as seen from the PID namespace; None if there is none."""
    try:
        file = _File.model_validate_json(content)
    except ValidationError:
        return None
    identity = Identity(file.pid, file.start_ticks) if file.pid_namespace == namespace else None
    return Beat(
        written=file.written,
        run=file.run,
        identity=identity,
        started=(file.start_ticks, file.pid),
        step=file.step,
        step_time=file.step_time,
        total=file.total or None,
        phase=file.phase,
        phase_time=file.phase_time,
        numbers=dict(islice(file.numbers.items(), MAX_NUMBERS)),
        number_times=file.number_times,
        rank=file.rank,
        steps=dict(file.steps[-MAX_STEPS:]),
    )


def _known_phase(value: object) -> Phase | None:
    return next((phase for phase in Phase if phase == value), None)  # others are the program's own


def _usable_labels(numbers: dict[str, float]) -> dict[str, float]:
    return {name: number for name, number in numbers.items() if is_value_name(name)}


_Time = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_Count = Annotated[int | None, BeforeValidator(parse_count)]


class _File(BaseModel):
    written: _Time
    run: str | None = None
    pid: int
    start_ticks: int
    pid_namespace: int
    step: _Count = None
    step_time: _Time = 0.0
    total: _Count = None
    phase: Annotated[Phase | None, BeforeValidator(_known_phase)] = None
    phase_time: _Time = 0.0
    numbers: Annotated[dict[str, float], AfterValidator(_usable_labels)] = {}
    number_times: dict[str, _Time] = {}
    rank: _Count = 0
    steps: list[tuple[Annotated[int, Field(ge=0)], _Time]] = []


def _read_namespace() -> int:
    return os.stat("/proc/self/ns/pid").st_ino  # noqa: PTH116 - a link of proc(5), not a path


def _read_all(folder: Path, namespace: int) -> Iterator[Beat]:
    for path in _newest_files(folder):
        found = _read_file(path)
        beat = None if found is None else parse_beat(found[0], namespace=namespace)
        if beat is not None and found is not None:
            yield from _checked(beat, owner=found[1])


def _newest_files(folder: Path) -> list[str]:
    found: list[tuple[float, str]] = []
    with os.scandir(folder) as entries:
        for entry in islice(entries, MAX_LISTED):
            if entry.name.endswith(".beat"):
                with suppress(OSError):  # removed since
                    found.append((entry.stat(follow_symlinks=False).st_mtime, entry.path))
    return [path for _, path in heapq.nlargest(MAX_FILES, found)]


def _read_file(path: str) -> tuple[bytes, int] | None:
    """Returns content and owner of a file; None if it has gone, is unreadable or is no file."""
    try:
        descriptor = open_regular(path)
    except OSError:
        return None
    if descriptor is None:
        return None
    with os.fdopen(descriptor, "rb") as file:
        return file.read(MAX_BYTES), os.fstat(file.fileno()).st_uid


def _checked(beat: Beat, *, owner: int) -> Iterator[Beat]:
    """Yields the beat with what is known of its process, unless another account wrote it."""
    if beat.identity is None:
        yield beat
        return
    pid = beat.identity.pid
    process = read_process(pid)
    if process is None or process.identity != beat.identity or not process.alive:
        yield replace(beat, ended=True)
    elif owner in (0, read_uid(pid)):
        yield beat
