"""Numbers in words that a person reads at a glance."""

from __future__ import annotations

from datetime import UTC, datetime

_SPANS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
_SIZES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def size(count: float) -> str:
    """Bytes, as `1.5 GiB`."""
    power = 0
    # 1023.95 of a unit would be shown as 1024.0 of it.
    while abs(count) >= 1023.95 and power < len(_SIZES) - 1:  # noqa: PLR2004 - said above
        count /= 1024
        power += 1
    digits = 0 if power == 0 or abs(count) >= 99.95 else 1  # noqa: PLR2004 - three digits are enough
    return f"{count:.{digits}f} {_SIZES[power]}"


def span(seconds: float) -> str:
    """Seconds, in their two largest units: `3 h 12 min`; below ten seconds, to the millisecond."""
    if seconds < 10:  # noqa: PLR2004 - said above
        seconds = max(seconds, 0)
        return f"{seconds * 1000:.3g} ms" if 0 < seconds < 1 else f"{seconds:.3g} s"
    rest = round(seconds)
    parts: list[str] = []
    for unit, word in _SPANS:
        amount, rest = divmod(rest, unit)
        if amount or parts:
            parts.append(f"{amount} {word}")
    return " ".join(part for part in parts[:2] if not part.startswith("0 "))


def moment(timestamp: float) -> str:
    """Unix time, as `2025-11-21 02:15:03 UTC`."""
    return f"{datetime.fromtimestamp(timestamp, UTC):%Y-%m-%d %H:%M:%S} UTC"


def plural(count: int, noun: str) -> str:
    """`1 worker`, `2 workers`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def printable(text: str) -> str:
    """`text` as UTF-8 has it: a name on disk may be any bytes; those are then question marks."""
    return text.encode("utf-8", "replace").decode()
