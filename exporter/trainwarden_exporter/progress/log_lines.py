"""Derives progress events from log lines. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from trainwarden_exporter.frameworks.base import LinePattern, Phase
from trainwarden_exporter.logs.events import LineEvent
from trainwarden_exporter.logs.line_parser import parse_number
from trainwarden_exporter.progress.events import (
    Advanced,
    EpochReported,
    PhaseBegan,
    PhaseEnded,
    ProgressEvent,
    RunFinished,
    StepReported,
    TotalAnnounced,
    TrainerStarted,
)

MAX_NAME = 100
"""Maximum length of the name of a value."""

MAX_STEP = 2**53
"""Larger numbers are not exact as a Prometheus sample, and count as no step."""

EPOCH_ROUNDING = 0.01
"""Part of an epoch by which its number is rounded up."""

_VARIES = re.compile(
    r"[\d.,:+-]*\d|\b(?:nan|[+-]?inf|Mon|Tue|Wed|Thu|Fri|Sat|Sun"
    r"|Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\b"
)
"""What lines of one kind have in the place of each other: numbers, and the names of a date."""
_BEGUN_NUMBER = re.compile(r"(?i:[+-]?\b(?:nan|inf)\b.*|[+-]?(?:\b(?:na?|in?))?$)")
"""Where the text after a step, which ends before a digit or is cut off, has a sign or a NaN."""
_SPAN = re.compile(
    r"\s*(\d+(?:\.\d+)?)\s*(d|h|min|m|ms|s|us|µs)(?![a-z])", re.ASCII | re.IGNORECASE
)
_CLOCK = re.compile(r"(?:(\d+):)?(\d{1,2}):(\d{1,2}(?:\.\d+)?)", re.ASCII)
_UNITS = {"d": 86400.0, "h": 3600.0, "min": 60.0, "m": 60.0, "s": 1.0}
_UNITS |= {"ms": 1e-3, "us": 1e-6, "µs": 1e-6}


def events_from_line(
    event: LineEvent, pattern: LinePattern, *, dated: bool
) -> Iterator[ProgressEvent]:
    """Returns the progress events of `event`, a line that matched `pattern`.

    A line that begins the phase `starting` reports a start of the trainer, and with the group
    `step` the step from which it continues. An error line may contain a step but does not count as
    one; it can still be a sign of progress, such as the end of a failed trial.
    """
    if pattern.role and event.role not in ("", pattern.role):
        return
    if not pattern.error:
        yield from _line_events(event, pattern, dated=dated)
    elif pattern.advances:
        yield Advanced(event.timestamp, dated, None)


def _line_events(event: LineEvent, pattern: LinePattern, *, dated: bool) -> Iterator[ProgressEvent]:
    timestamp = event.timestamp
    step, total = (parse_count(event.groups.get(group)) for group in ("step", "total"))
    seconds = parse_seconds(event.groups.get("seconds"))
    epoch = parse_number(event.groups.get("epoch", ""))
    if step is not None:
        step = max(0, step + pattern.step_offset)
    if epoch is not None:
        # 0.996 of the first epoch is logged as 1.0
        whole = (
            int(max(0.0, epoch - EPOCH_ROUNDING)) if "." in event.groups["epoch"] else int(epoch)
        )
        yield EpochReported(whole, timestamp, count=parse_count(event.groups.get("epochs")))
    if pattern.phase is Phase.STARTING:
        yield TrainerStarted(timestamp, step=step, dated=dated)
        return
    if step is not None:
        yield StepReported(
            source=f"log/{event.log}/{event.pattern}",
            step=step,
            timestamp=timestamp,
            dated=dated,
            # "Saved the checkpoint of step 100" may be logged after step 105.
            is_live=pattern.phase in (None, Phase.TRAINING) and pattern.ends is None,
            total=total,
            seconds=seconds,
            total_of=pattern.total_of,
            form=_form(event.groups),
            epoch=None if epoch is None else int(epoch),
            missed=event.missed,
        )
    elif total is not None:
        yield TotalAnnounced(total, timestamp)
    if pattern.advances:
        yield Advanced(timestamp, dated, seconds if step is None else None)
    if pattern.ends is not None:
        yield PhaseEnded(pattern.ends, timestamp)
    if pattern.phase is Phase.FINISHED:
        yield RunFinished(timestamp)
    elif pattern.phase is not None and (step is None or pattern.phase is not Phase.TRAINING):
        yield PhaseBegan(pattern.phase, timestamp)


def _form(groups: Mapping[str, str]) -> str:
    """Returns what lines of one kind have in common: the text around the step, without numbers."""
    if "key" not in groups:
        return ""
    total = "/" if "total" in groups else ""
    after = _BEGUN_NUMBER.sub("", groups.get("after", ""))
    around = f"{groups.get('writer', '')}{groups['key']}{total} {after}"
    return " ".join(_VARIES.sub("0", around).split())[:MAX_NAME]


def is_value_name(name: str) -> bool:
    """Whether `name`, which a program has written, can be the label of a value."""
    return name.isprintable() and 0 < len(name) <= MAX_NAME


def parse_count(value: object) -> int | None:
    """Parses a number of steps: whole, not negative, also as `1,500` or `1500.0`; else None."""
    if isinstance(value, str):
        value = value.strip().replace(",", "").replace("_", "")
    elif isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return int(number) if 0 <= number <= MAX_STEP and number.is_integer() else None


def parse_seconds(text: str | None) -> float | None:
    """Parses seconds from `55.1`, `55.1s`, `1m 12s`, `800ms` or `1:02:03`; else None."""
    text = (text or "").strip().rstrip(",;)]|")
    clock = _CLOCK.fullmatch(text)
    if clock is not None:
        hours, minutes, seconds = clock.groups(default="0")
        return int(hours) * 3600 + int(minutes) * 60 + float(seconds)
    try:
        plain = float(text)
    except ValueError:
        return _sum_of_spans(text)
    return plain if 0 <= plain < float("inf") else None


def _sum_of_spans(text: str) -> float | None:
    total, end = 0.0, 0
    for match in _SPAN.finditer(text):
        if match.start() != end:
            return None
        total += float(match[1]) * _UNITS[match[2].lower()]
        end = match.end()
    return total if end and end == len(text) else None
