"""What this host itself remembers: its boot time and its kernel log, where they can be read.

The run may have been on another host: only what fits its time is used, and it is marked.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from trainwarden.autopsy.files import LogFile
from trainwarden.autopsy.model import Line, LogReading, Tally
from trainwarden_exporter.frameworks.base import LinePattern
from trainwarden_exporter.logs.line_parser import shorten_line
from trainwarden_exporter.logs.pattern_search import compile_patterns
from trainwarden_exporter.runtime.redaction import redact

NAME = "kernel log of this host"
_DEVICE = "/dev/kmsg"
_RECORD_BYTES = 8192
_MAX_RECORDS = 100_000


@dataclass(frozen=True, slots=True)
class KernelLog:
    """Lines of the kernel with their times (Unix seconds)."""

    lines: tuple[tuple[float, bytes], ...]


def read_boot_time() -> float | None:
    """Returns when this host booted; None if that cannot be read."""
    try:
        return psutil.boot_time()
    except (psutil.Error, OSError):
        return None


def read_kernel_log() -> KernelLog | None:
    """Returns the kernel log of this host; None without permission to read it."""
    booted_at = read_boot_time()
    if booted_at is None:
        return None
    try:
        descriptor = os.open(_DEVICE, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    lines: list[tuple[float, bytes]] = []
    try:
        for _ in range(_MAX_RECORDS):
            try:
                record = os.read(descriptor, _RECORD_BYTES)
            except BrokenPipeError:
                continue  # overwritten while it was read
            except OSError:
                break  # BlockingIOError: the end
            head, _, text = record.partition(b";")
            fields = head.split(b",")
            if len(fields) > 2 and fields[2].isdigit():  # noqa: PLR2004 - priority, number, microseconds
                lines.append((booted_at + int(fields[2]) / 1e6, text.splitlines()[0]))
    finally:
        os.close(descriptor)
    return KernelLog(tuple(lines)) if lines else None


def tally_kernel_log(
    kernel: KernelLog, patterns: Sequence[LinePattern], since: float, until: float
) -> LogReading | None:
    """Returns what matches from `since` to `until`; None without a match."""
    search = compile_patterns(tuple(patterns))
    tallies: dict[str, Tally] = {}
    chosen = [(at, text) for at, text in kernel.lines if since <= at <= until]
    for order, (at, text) in enumerate(chosen):
        for found in search.search(text + b"\n", 0, len(text) + 1):
            shown = redact(shorten_line(found.text.decode(errors="replace")))
            line = Line(shown, at, order, NAME)
            for match in found.matches:
                kind = match.pattern.name
                tally = tallies.setdefault(kind, Tally(kind, line, line, 0))
                tally.add(line, 1)
                if (code := match.groups.get("xid")) is not None:
                    tally.codes[code] = tally.codes.get(code, 0) + 1
    if not tallies:
        return None
    log = LogFile(Path(_DEVICE), NAME, "kernel", 0, until)
    return LogReading(log, "kernel", tallies, (), {}, chosen[0][0], chosen[-1][0], (), 0)
