"""Reads the dumps of PyTorch's Flight Recorder: which rank enters collectives late, or not at all.

A dump is a pickle of plain containers, or JSON (FlightRecorderDetail.hpp of PyTorch 2.13): the last
collectives of a process, each with its number in its group. Nothing of it is executed. PyTorch
writes one per rank when a collective times out, and when its pipe is written to (DumpPipe in
ProcessGroupNCCL.hpp).
"""

from __future__ import annotations

import json
import os
import re
import stat
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from statistics import median
from typing import Any, NamedTuple

from trainwarden_exporter.processes.rank_lags import MIN_STEPS, lags
from trainwarden_exporter.processes.stacks.model import Member
from trainwarden_exporter.processes.start_times import start_timestamp
from trainwarden_exporter.runtime.formatting import format_duration, on_one_line, plural
from trainwarden_exporter.runtime.inert_pickle import read_pickle
from trainwarden_exporter.runtime.safe_open import open_handle, open_regular

MAX_BYTES = 4 << 20
"""Size up to which a dump is read; one of 2,000 collectives with their stacks has less."""

READ_SECONDS = 10.0
"""Seconds after which no more dumps are read at a look; the next look goes on."""

LAST_SHARE = 0.9
"""Share of the collectives that a slow rank enters last."""

LATE_SECONDS = 0.01
"""What is less is the scheduler of the operating system."""

_DEFAULT = "default_pg"
"""The description of the group of all ranks."""

Group = tuple[str, str]
"""Name and description of a process group."""


class Collective(NamedTuple):
    """The newest collective of a group that a rank has entered. `number` counts from 1."""

    number: int
    name: str = ""
    completed: bool = True


@dataclass(frozen=True, slots=True)
class Recording:
    """What a rank has recorded."""

    newest: Mapping[Group, Collective]
    ranks: Mapping[str, frozenset[int]]
    """The ranks of a group by its name."""
    is_whole: bool
    """Whether it goes back to the first collective."""
    entered: Mapping[Group, Mapping[int, float]] = field(default_factory=dict)
    """When the rank entered a collective (Unix seconds), by its number in the group."""


@dataclass(frozen=True, slots=True)
class Absences:
    """Which ranks have not entered the collective in which others wait."""

    waiting: Mapping[int | None, str]
    """The collective in which a rank waits, as `name number`."""
    absent: Mapping[int | None, str]
    """The collective that a rank has not entered, of ranks that wait in no other one."""


NO_ABSENCES = Absences({}, {})
_NONE = Collective(0)


def find_absences(recordings: Mapping[int, Recording]) -> Absences:
    """Compares the dumps of ranks. A rank without a dump is not known to be absent."""
    waiting: dict[int | None, str] = {}
    behind: dict[int | None, str] = {}
    for group in {name for one in recordings.values() for name in one.newest}:
        known = _entered(group, recordings)
        newest = max(known.values(), default=_NONE)
        text = f"{newest.name} {newest.number}"
        late = [rank for rank, one in known.items() if one.number < newest.number]
        inside = [
            rank for rank, one in known.items() if one.number == newest.number and not one.completed
        ]
        if late and inside:
            waiting |= dict.fromkeys(inside, text)
            behind |= dict.fromkeys(late, text)
    absent = {rank: text for rank, text in behind.items() if rank not in waiting}
    return Absences(waiting, absent) if absent else NO_ABSENCES


def find_last(recordings: Mapping[int, Recording]) -> Iterator[tuple[int, int, int, float]]:
    """Yields for each group the rank that is nearly always the last to enter a collective.

    With the number of collectives that it entered last, that of all, and by how many seconds later
    than the others it usually enters. A slow GPU shows only where the CPU of its rank waits for it:
    the times are those of the CPU.
    """
    for group in sorted({name for one in recordings.values() for name in one.entered}):
        ranks = {
            rank: one.entered[group] for rank, one in recordings.items() if group in one.entered
        }
        found = lags(ranks)
        total = len(next(iter(found.values()), ()))
        last = Counter(max(found, key=lambda rank: found[rank][number]) for number in range(total))
        for rank, times in last.most_common(1):
            late = median(found[rank])
            if total >= MIN_STEPS and times >= LAST_SHARE * total and late >= LATE_SECONDS:
                yield rank, times, total, late


def _entered(group: Group, recordings: Mapping[int, Recording]) -> dict[int, Collective]:
    """Returns the newest collective of the ranks that are in a group."""
    name, description = group
    members = next((one.ranks[name] for one in recordings.values() if name in one.ranks), None)
    found = {}
    for rank, one in recordings.items():
        if group in one.newest:
            found[rank] = one.newest[group]
        elif one.is_whole and (description == _DEFAULT or rank in (members or ())):
            found[rank] = _NONE
    return found


def parse_dump(data: bytes, *, pause: Callable[[], None] = lambda: None) -> Recording:
    """Parses a dump; calls `pause` now and then. Raises ValueError if it is none."""
    try:
        dump = json.loads(data) if data[:1] == b"{" else read_pickle(data, pause=pause).root
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    entries = dump.get("entries") if isinstance(dump, dict) else None
    if not isinstance(entries, list):
        raise ValueError("not a dump of a Flight Recorder")  # noqa: TRY004 - malformed content
    newest: dict[Group, Collective] = {}
    entered: dict[Group, dict[int, float]] = {}
    for entry in entries:
        match entry:
            case {
                "process_group": [str(name), str(description)],
                "collective_seq_id": int(number),
                "profiling_name": str(text),
                "state": str(state),
                "is_p2p": False,
            }:
                created = entry.get("time_created_ns")
                if isinstance(created, int) and 0 < created < 1 << 63:
                    entered.setdefault((name, description), {})[number] = created / 1e9
                if number < newest.get((name, description), _NONE).number:
                    continue
                # gloo has no events: what it has retired is complete, of NCCL it may have timed out
                retired = entry.get("retired") is True and text.startswith("gloo:")
                newest[name, description] = Collective(
                    number,
                    on_one_line(text.partition(":")[2][:100] or text[:100]),
                    retired or state == "completed",
                )
    match entries:
        case [{"record_id": int(first)}, *_]:
            is_whole = first == 0
        case _:
            is_whole = not entries
    return Recording(newest, dict(_ranks(dump.get("pg_config"))), is_whole, entered)


def _ranks(config: Any) -> Iterator[tuple[str, frozenset[int]]]:
    for name, group in config.items() if isinstance(config, dict) else ():
        match name, group:
            case str(), {"ranks": str(text)} if name:  # gloo leaves the name out
                yield name, frozenset(map(int, re.findall(r"\d{1,7}", text)))


class FlightRecorders:
    """The dumps of the ranks of a run on this host, each read once."""

    def __init__(self) -> None:
        self._read: dict[str, tuple[int, Recording | None]] = {}

    def ask(self, members: Iterable[Member]) -> None:
        """Asks the processes that offer it for a dump, which they write within seconds."""
        for member in members:
            if member.recorder_pipe and member.rank is not None:
                with suppress(OSError):
                    _write_to_pipe(f"{member.recorder_pipe}{member.rank}.pipe", _account(member))

    def find_absences(self, members: Iterable[Member], since: float) -> Absences:
        """Returns what the dumps that were written after `since` (Unix seconds) show."""
        return find_absences(self._recordings(members, since))

    def _recordings(self, members: Iterable[Member], since: float) -> Mapping[int, Recording]:
        end = time.monotonic() + READ_SECONDS
        recordings = {}
        for member in members:
            if member.recorder and member.rank is not None and time.monotonic() < end:
                with suppress(OSError):
                    recording = self._recording(
                        member, max(since, start_timestamp(member.identity)), end
                    )
                    if recording is not None:
                        recordings[member.rank] = recording
        return recordings

    def describe(self, members: Iterable[Member], now: float) -> str:
        """Returns what all dumps of these processes show, and their age; empty without dumps.

        `now` is in Unix seconds.
        """
        recordings = self._recordings(members, 0.0)
        absences = find_absences(recordings)
        written = [at for at, recording in self._read.values() if recording is not None]
        if not written:
            return ""
        age = format_duration(now - min(written) / 1e9)
        shown = f"Flight Recorder: {plural(len(written), 'dump')}, written {age} ago or later"
        late = sorted((rank or 0, name) for rank, name in absences.absent.items())
        texts = [f"rank {rank} has not entered {name}" for rank, name in late]
        texts = texts or ["of these ranks, none is behind"]
        texts += [
            f"rank {rank} entered {times} of {total} collectives last, {seconds:.2g} s late"
            for rank, times, total, seconds in find_last(recordings)
        ]
        return f"{shown}: {', '.join(texts)}"

    def _recording(self, member: Member, since: float, end: float) -> Recording | None:
        """Raises OSError."""
        path = f"{member.recorder}{member.rank}"
        file = open_regular(path)
        if file is None:
            return None
        with os.fdopen(file, "rb") as opened:
            status = os.fstat(file)
            if status.st_mtime < since or status.st_uid != _account(member):
                return None
            at, recording = self._read.get(path, (0, None))
            if at == status.st_mtime_ns:
                return recording
            data = opened.read(MAX_BYTES + 1)
        recording = None
        with suppress(ValueError):
            recording = parse_dump(data, pause=_until(end)) if len(data) <= MAX_BYTES else None
        if time.monotonic() < end:
            self._read[path] = (status.st_mtime_ns, recording)
        return recording


def _until(end: float) -> Callable[[], None]:
    def pause() -> None:
        if time.monotonic() > end:
            raise ValueError("takes too long")

    return pause


def _account(member: Member) -> int:
    """Raises OSError if the process has ended."""
    return os.stat(f"/proc/{member.identity.pid}").st_uid  # noqa: PTH116 - in a loop


def _write_to_pipe(path: str, account: int) -> None:
    """Raises OSError, also if nobody reads."""
    handle = open_handle(path)
    try:
        status = os.fstat(handle)
        if not stat.S_ISFIFO(status.st_mode) or status.st_uid != account:
            return
        flags = os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC
        file = os.open(f"/proc/self/fd/{handle}", flags)
    finally:
        os.close(handle)
    try:
        os.write(file, b"1\n")
    finally:
        os.close(file)
