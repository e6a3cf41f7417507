"""What a single line tells besides its words: its own time, its numbers, and whose copy it is."""

from __future__ import annotations

import datetime as dt
import re
import time
from collections.abc import Sequence

SHOWN = 300
"""Characters of a line that a person is shown."""

AHEAD = 2.0
"""Seconds by which the clock of who writes may be ahead of ours."""
LATE = 120.0
"""Seconds that a line may be under way from its writer to us, while its file is followed."""
OLDEST = 366 * 86_400.0

_DAY = 86_400.0
_MEANT = 100
"""Bytes at the beginning of a line in which its time stands."""

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
_REPEATED = re.compile(r"\s*\[repeated \d+x across cluster\].*$")

_NUMBER = re.compile(
    r"(?:[\w.]+\()?"  # np.float64(…), tensor(…)
    r"([-+]?(?:(?:nan|inf(?:inity)?)(?![a-z])"
    r"|(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d*)?(?:e[-+]?\d+)?(?![.\d])))",
    re.IGNORECASE | re.ASCII,
)


def uncoloured(text: bytes | bytearray) -> bytes:
    """`text` without the escape sequences of terminals."""
    # Joining what a split leaves is half again as fast as a substitution.
    return b"".join(_ESCAPES.split(text))


def shown(line: str) -> str:
    """`line` as a person is shown it: without control characters, and cut."""
    text = _CONTROL.sub(" ", line).strip()
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"


def bare(line: str) -> str:
    """`line` without what those who pass lines on put around them: equal for all its copies."""
    while (prefix := _PREFIX.match(line)) is not None:
        line = line[prefix.end() :]
    return _REPEATED.sub("", line).strip()


def parse_number(text: str) -> float | None:
    """The number with which `text` begins: `0.5`, `1,234`, `87%`, `nan`, `np.float64(0.5)`."""
    match = _NUMBER.match(text.strip().lstrip("'\""))
    return None if match is None else _float(match[1])


def number_at(key: str, line: str) -> float | None:
    """The number at `key` in `line`, as in `key: 1`, `key=1`, `'key': 1`; None where none is."""
    place = re.compile(rf"(?<![\w/.-]){re.escape(key)}['\"]?\s{{0,4}}[:=]\s{{0,4}}['\"]?")
    for found in place.finditer(line):
        match = _NUMBER.match(line, found.end())
        if match is not None:
            return _float(match[1])
    return None


def own_time(line: bytes, *, latest: float, fresh: bool) -> float | None:
    """When `line` says that it was written (unix seconds), at `latest`; None without good word.

    A time without a zone is local, and one without a date the last before `latest`. That of a
    `fresh` line has to be near `latest`: so one that is wrong by a zone is none.
    """
    text = line[:_MEANT].decode("latin-1")
    said = _moment(text) if (match := _CLOCK.match(text)) is None else _clock(match, latest)
    if said is None or said > latest + AHEAD:
        return None
    oldest = LATE if fresh else OLDEST
    return min(said, latest) if said >= latest - oldest else None


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
    said = _timestamp([*today, *(int(field) for field in fields)], fraction, None)
    return said - _DAY if said is not None and said > latest + AHEAD else said


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
