"""Moments as a person reads them: in local time, and counted from when it began. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta, tzinfo

from trainwarden_exporter.wording import span

_HALF_DAY = timedelta(hours=12)


@dataclass(frozen=True, slots=True)
class Times:
    """Local time is that of `zone`; the machine's own where that is None."""

    zone: tzinfo | None = None

    def clock(self, at: float) -> str:
        """`02:15:03`."""
        return f"{self._local(at):%H:%M:%S}"

    def full(self, at: float) -> str:
        """`Sun 22 Nov 2026, 02:15:03 CET`."""
        return f"{self._local(at):%a %d %b %Y, %H:%M:%S %Z}"

    def short(self, at: float) -> str:
        """`22 Nov 02:15`."""
        return f"{self._local(at):%d %b %H:%M}"

    def night(self, at: float) -> date:
        """The evening of the night that `at` is in: nights go from noon to noon."""
        return (self._local(at) - _HALF_DAY).date()

    def _local(self, at: float) -> datetime:
        return datetime.fromtimestamp(at, self.zone).astimezone(self.zone)


def after(at: float, start: float) -> str:
    """How long after `start`, as `+1 min 3 s`."""
    passed = at - start
    if passed < 0:
        return f"\N{MINUS SIGN}{span(round(-passed))}" if passed <= -1 else "0 s"
    return f"+{span(round(passed))}"


def took(seconds: float) -> str:
    """A time that something took, to the second; below ten to the tenth."""
    seconds = max(seconds, 0.0)
    return span(round(seconds)) if seconds >= 10 else f"{seconds:.1f} s"  # noqa: PLR2004 - said above
