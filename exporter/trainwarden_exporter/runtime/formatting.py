"""Formats numbers and times for people."""

from __future__ import annotations

from datetime import UTC, datetime

_DURATION_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
_SIZE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def format_size(count: float) -> str:
    """Bytes, as `1.5 GiB`."""
    power = 0
    # 1023.95 would be rounded to 1024.0
    while abs(count) >= 1023.95 and power < len(_SIZE_UNITS) - 1:  # noqa: PLR2004 - see above
        count /= 1024
        power += 1
    digits = 0 if power == 0 or abs(count) >= 99.95 else 1  # noqa: PLR2004 - three digits are enough
    return f"{count:.{digits}f} {_SIZE_UNITS[power]}"


def format_room(count: float, noun: str) -> str:
    """How many of something fit: `not even one file`, `3.5 files`, `120 files`, `over 1,000 files`.

    How many more than a thousand is no news.
    """
    if count < 1:
        return f"not even one {noun}"
    if count > 1000:  # noqa: PLR2004 - see above
        return f"over 1,000 {noun}s"
    number = f"{count:.1f}" if count < 10 else f"{count:,.0f}"  # noqa: PLR2004 - whole ones from there
    return f"{number} {noun}s"


def format_duration(seconds: float) -> str:
    """Formats seconds in their two largest units: `3 h 12 min`; below ten, to the millisecond."""
    if seconds < 10:  # noqa: PLR2004 - see above
        seconds = max(seconds, 0)
        return f"{seconds * 1000:.3g} ms" if 0 < seconds < 1 else f"{seconds:.3g} s"
    rest = round(seconds)
    parts: list[str] = []
    for unit, word in _DURATION_UNITS:
        amount, rest = divmod(rest, unit)
        if amount or parts:
            parts.append(f"{amount} {word}")
    return " ".join(part for part in parts[:2] if not part.startswith("0 "))


def format_time(timestamp: float) -> str:
    """Unix time, as `2025-11-21 02:15:03 UTC`."""
    return f"{datetime.fromtimestamp(timestamp, UTC):%Y-%m-%d %H:%M:%S} UTC"


def format_clock(timestamp: float, now: float) -> str:
    """Unix time, as `02:15 UTC` within a day of `now`, else as `format_time`."""
    if abs(timestamp - now) < _DURATION_UNITS[0][0]:
        return f"{datetime.fromtimestamp(timestamp, UTC):%H:%M} UTC"
    return format_time(timestamp)


def plural(count: int, noun: str) -> str:
    """`1 worker`, `2 workers`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def printable(text: str) -> str:
    """Returns `text` as valid UTF-8: other bytes of a file name become question marks."""
    return text.encode("utf-8", "replace").decode()


def on_one_line(text: str) -> str:
    """Returns `text` without characters that could move a terminal's cursor or forge a line."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def shorten(text: str, length: int) -> str:
    """Returns at most `length` characters of `text`: cut at a word, and marked by `…`."""
    if len(text) <= length:
        return text
    kept = text[:length]
    words = kept.rpartition(" ")[0].rstrip(" .,;:")
    return f"{words or kept[:-1]}…"


EARLY_SHARE = 0.9
"""A run that ends with exit status 0 before this share of its steps has ended early: it may have
stopped as it was meant to, or a shell may hide that it failed."""


def describe_finish(step: float | None, total: float | None) -> str:
    """Returns `has finished`, or `has ended early` of a run with steps left."""
    known = step is not None and total is not None
    return "has ended early" if known and not made_all_steps(step, total) else "has finished"


def made_all_steps(step: float | None, total: float | None) -> bool:
    """Returns whether a run is known to have made its steps, or nearly all of them."""
    return step is not None and total is not None and step >= EARLY_SHARE * total
