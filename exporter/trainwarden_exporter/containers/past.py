"""What is remembered of a container: its starts, how it ended, and what it said last. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from trainwarden_exporter import starts
from trainwarden_exporter.containers.dockerformat import Event, Inspection

LAG = 1.0
"""Seconds by which the engine may tell of a start or an end too late."""


@dataclass(frozen=True, slots=True)
class Past:
    """All of one container, by its configured name. Times in unix seconds; None is not known."""

    starts: tuple[float, ...] = ()
    """The recent ones, see `starts`."""
    starts_total: int = 0
    exit_code: int | None = None
    """How the run ended that ended last."""
    exit_timestamp: float | None = None
    line: str = ""
    """The last line it printed."""
    oom_kills: int = 0
    id: str = ""
    """What had the name when it was looked at last: the engine's id, or a start of our own."""
    counted: int = 0
    """How many starts the engine had counted of it then."""
    event: float = 0.0
    """The newest event that is in here."""
    looked: float = 0.0
    """When it was looked at, within a minute of the last time; nothing has changed since."""

    def started(self, times: Iterable[float], now: float) -> Past:
        """With starts at `times`."""
        new = tuple(times)
        return replace(
            self,
            starts=starts.recent((*self.starts, *new), now),
            starts_total=self.starts_total + len(new),
        )

    def after(self, events: Iterable[Event], now: float) -> Past:
        """With those of `events` that are new."""
        past = self
        for event in sorted(events, key=lambda event: event.timestamp):
            if event.timestamp <= past.event:
                continue
            past = replace(past, event=event.timestamp)
            if event.action == "start":
                past = past.started([event.timestamp], now)
            elif event.action == "oom":
                past = replace(past, oom_kills=past.oom_kills + 1)
            elif event.action == "die":
                past = replace(past, exit_code=event.exit_code, exit_timestamp=event.timestamp)
        return past

    def caught_up(
        self, seen: Inspection, *, before: Past, told: Sequence[float], asked: float
    ) -> Past:
        """With what `seen` says that no event told of: for when nobody looked for a while.

        `before` is how it was when it was last looked at, `told` are the starts since then that the
        engine told of when it was `asked`.
        """
        past = self.started(missed(before, seen, told, asked), asked)
        known = past.exit_timestamp
        news = seen.finished is not None and (known is None or known + LAG < seen.finished)
        # of what has only just happened the next events tell, and better
        if not news or seen.finished is None or seen.finished > asked - LAG:
            return past
        kills = int(seen.oom_killed and past.oom_kills == before.oom_kills)
        return replace(
            past,
            exit_code=seen.exit_code,
            exit_timestamp=seen.finished,
            oom_kills=past.oom_kills + kills,
        )


def missed(past: Past, seen: Inspection, told: Sequence[float], asked: float) -> tuple[float, ...]:
    """The starts that nobody saw, where neither we nor the engine's memory reach back far enough.

    The arguments are those of `Past.caught_up`. The engine's count says how many there were; when,
    nobody knows: they are spread evenly over the time that nobody looked, lest some over a day be
    taken for a loop.
    """
    if seen.started is None:
        return ()
    same = past.id == seen.id and seen.starts >= past.counted
    count = seen.starts - past.counted if same else seen.starts
    if same and not count and seen.started > past.looked:
        count = 1  # by hand, which begins the engine's count anew
    if seen.started > max((*told, asked - LAG)):
        count -= 1  # it was too late for this answer: the next one tells of it
    lacking = count - len(told)
    if lacking <= 0:
        return ()
    since = past.looked if same else seen.created
    if told:
        step = (min(told) - since) / (lacking + 1)
        return tuple(min(told) - step * (number + 1) for number in range(lacking))
    step = (seen.started - since) / lacking
    return tuple(seen.started - step * number for number in range(lacking))
