"""Parses a single line: time, numbers, and prefixes of log forwarders."""

from __future__ import annotations

import datetime as dt
import re
import time
from collections.abc import Sequence

MAX_SHOWN_CHARACTERS = 300
"""Maximum number of displayed characters of a line."""

CLOCK_TOLERANCE_SECONDS = 2.0
"""Seconds by which the writer's clock may be ahead of ours."""
MAX_DELAY_SECONDS = 120.0
"""Maximum delay in seconds from the write of a line to its read."""
MAX_AGE_SECONDS = 366 * 86_400.0

CURSOR_UP = b"\x0b"
"""Stands for a cursor-up sequence in stripped text."""

_DAY = 86_400.0
_TIME_BYTES = 100
"""Number of bytes at the start of a line that may contain its time."""
_JSON_TIME_BYTES = 1000
"""The same for a line that is a JSON object, whose keys have no order."""

_ESCAPES = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]?|\][^\x07\x1b\n]*(?:\x07|\x1b\\)?|[^\[\]\n]?)")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")

_MOMENT = re.compile(
    r"(?<!\d)(20\d\d)[-/]?(\d\d)[-/]?(\d\d)[ T_-](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?"
    r"(?:\s?(?:(Z)|([+-])(\d\d):?(\d\d)))?(?!\d)"
)
_CLOCK = re.compile(
    r"\W{0,2}(?:[A-Z]{4,8} )?(?:\d\d-\d\d )?(\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?(?![\d:])"
)

# Ray: (TaskRunner pid=12, ip=10.0.0.1); torchrun and AReaL: [rank0]: or [actor].
_PREFIX = re.compile(r"\s*(?:\([\w.:-]+ pid=\d+(?:, ip=[^)]*)?\)|\[[A-Za-z]\w*\]:?)\s+")
_REPEATED = re.compile(r"\[repeated \d+x across cluster\].*$")

_NUMBER = re.compile(
    r"(?:[\w.]+\()?"  # np.float64(…), tensor(…)
    r"([-+]?(?:(?:nan|inf(?:inity)?)(?![a-z])"
    r"|(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d*)?(?:e[-+]?\d+)?(?![.\d])))",
    re.IGNORECASE | re.ASCII,
)


def strip_ansi(text: bytes) -> bytes:
    """Returns `text` without terminal escape sequences.

    Cursor-up sequences become `CURSOR_UP`: tqdm writes one after each draw of a nested bar, which
    is all that distinguishes the bar of an evaluation from that of the training around it.
    """
    # Joining a split is half again as fast as a substitution.
    return b"".join(_ESCAPES.split(text.replace(b"\x1b[A", CURSOR_UP)))


def shorten_line(line: str) -> str:
    """Returns `line` for display: truncated, without control characters."""
    text = _CONTROL.sub(" ", line).strip()
    return text if len(text) <= MAX_SHOWN_CHARACTERS else text[: MAX_SHOWN_CHARACTERS - 1] + "…"


def strip_prefixes(line: str) -> str:
    """Returns `line` without the prefixes of log forwarders, so that all copies are equal."""
    while (prefix := _PREFIX.match(line)) is not None:
        line = line[prefix.end() :]
    return _REPEATED.sub("", line).strip()


def parse_number(text: str) -> float | None:
    """Parses the number at the start: `0.5`, `1,234`, `87%`, `nan`, `np.float64(0.5)`."""
    match = _NUMBER.match(text.strip().lstrip("'\""))
    return None if match is None else _float(match[1])


def number_of_key(key: str, line: str) -> float | None:
    """Returns the number at `key`, as in `key: 1`, `key=1`, `'key': 1`, `key 1`.

    None without one. A number after a space counts only where none follows a colon or equals sign.
    """
    for separator in (r"\s{0,12}[:=]\s{0,12}['\"]?", r"\s{1,12}"):
        place = re.compile(rf"(?<![\w/.-]){re.escape(key)}['\"]?{separator}")
        for found in place.finditer(line):
            match = _NUMBER.match(line, found.end())
            if match is not None:
                return _float(match[1])
    return None


def parse_timestamp(line: bytes, *, latest: float, fresh: bool) -> float | None:
    """Returns the time of `line` (Unix seconds), at most `latest`; None if not plausible.

    A time without a zone is local, and one without a date is the last before `latest`. The time of
    a `fresh` line must be close to `latest`, which excludes times in a wrong zone.
    """
    limit = _JSON_TIME_BYTES if line.startswith(b"{") else _TIME_BYTES
    text = line[:limit].decode("latin-1")
    written_at = _moment(text) if (match := _CLOCK.match(text)) is None else _clock(match, latest)
    if written_at is None or written_at > latest + CLOCK_TOLERANCE_SECONDS:
        return None
    oldest = MAX_DELAY_SECONDS if fresh else MAX_AGE_SECONDS
    return min(written_at, latest) if written_at >= latest - oldest else None


def _moment(text: str) -> float | None:
    match = _MOMENT.search(text)
    if match is None:
        return None
    *fields, fraction, utc, sign, hours, minutes = match.groups()
    zone = None
    if utc or sign:
        offset = dt.timedelta(hours=int(hours or 0), minutes=int(minutes or 0))
        zone = dt.timezone(-offset if sign == "-" else offset)
    return _timestamp([int(field) for field in fields], fraction, zone)


def _clock(match: re.Match[str], latest: float) -> float | None:
    """The last moment, not after `latest`, at which clocks showed this."""
    *fields, fraction = match.groups()
    today = time.localtime(latest)[:3]
    written_at = _timestamp([*today, *(int(field) for field in fields)], fraction, None)
    return (
        written_at - _DAY
        if written_at is not None and written_at > latest + CLOCK_TOLERANCE_SECONDS
        else written_at
    )


def _timestamp(
    fields: Sequence[int], fraction: str | None, zone: dt.timezone | None
) -> float | None:
    year, month, day, hour, minute, second = fields
    try:
        moment = dt.datetime(year, month, day, hour, minute, second, tzinfo=zone)
        return moment.timestamp() + float(f"0.{fraction or 0}")
    except (ValueError, OverflowError):
        return None


def _float(text: str) -> float:
    return float(text.replace(",", "").replace("_", ""))
