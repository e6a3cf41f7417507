"""History of a container: starts, exits and last output line. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from trainwarden_exporter.containers.docker_api import Event, Inspection
from trainwarden_exporter.processes import restart_loop

LAG = 1.0
"""Seconds by which the engine may report a start or an exit late."""


@dataclass(frozen=True, slots=True)
class ContainerHistory:
    """History of one container by its configured name. Unix seconds; None means unknown."""

    starts: tuple[float, ...] = ()
    """Recent starts, sorted."""
    starts_total: int = 0
    exit_code: int | None = None
    """Exit code of the last ended run."""
    exit_timestamp: float | None = None
    line: str = ""
    """The last line it printed."""
    oom_kills: int = 0
    id: str = ""
    """Identity at the last poll: the engine's id, or the start of our own container."""
    counted: int = 0
    """Number of its starts that the engine had counted then."""
    event: float = 0.0
    """Time of the newest included event."""
    looked: float = 0.0
    """Time of the last poll, to the minute; nothing has changed since."""

    def add_starts(self, times: Iterable[float], now: float) -> ContainerHistory:
        new = tuple(times)
        return replace(
            self,
            starts=restart_loop.recent_starts((*self.starts, *new), now),
            starts_total=self.starts_total + len(new),
        )

    def add_events(self, events: Iterable[Event], now: float) -> ContainerHistory:
        """Returns the history with the new ones of `events`."""
        history = self
        for event in sorted(events, key=lambda event: event.timestamp):
            if event.timestamp <= history.event:
                continue
            history = replace(history, event=event.timestamp)
            if event.action == "start":
                history = history.add_starts([event.timestamp], now)
            elif event.action == "oom":
                history = replace(history, oom_kills=history.oom_kills + 1)
            elif event.action == "die":
                history = replace(
                    history, exit_code=event.exit_code, exit_timestamp=event.timestamp
                )
        return history

    def catch_up(
        self,
        seen: Inspection,
        *,
        before: ContainerHistory,
        reported: Sequence[float],
        asked_at: float,
    ) -> ContainerHistory:
        """Returns the history with the changes in `seen` that no event reported.

        `before` is the history at the previous poll, `reported` the starts since then that the
        engine reported at `asked_at`.
        """
        history = self.add_starts(missed_starts(before, seen, reported, asked_at), asked_at)
        known = history.exit_timestamp
        ended_since = seen.finished is not None and (known is None or known + LAG < seen.finished)
        # the next events report recent changes more precisely
        if not ended_since or seen.finished is None or seen.finished > asked_at - LAG:
            return history
        kills = int(seen.oom_killed and history.oom_kills == before.oom_kills)
        return replace(
            history,
            exit_code=seen.exit_code,
            exit_timestamp=seen.finished,
            oom_kills=history.oom_kills + kills,
        )


def missed_starts(
    history: ContainerHistory, seen: Inspection, reported: Sequence[float], asked_at: float
) -> tuple[float, ...]:
    """The starts that nobody saw, where neither we nor the engine's memory reach back far enough.

    The arguments are those of `catch_up`. The engine's count says how many there were; when,
    nobody knows: they are spread evenly over the time that nobody looked, lest some over a day be
    taken for a loop.
    """
    if seen.started is None:
        return ()
    same = history.id == seen.id and seen.starts >= history.counted
    count = seen.starts - history.counted if same else seen.starts
    if same and not count and seen.started > history.looked:
        count = 1  # started manually, which resets the engine's count
    if seen.started > max((*reported, asked_at - LAG)):
        count -= 1  # it was too late for this answer: the next one tells of it
    missing = count - len(reported)
    if missing <= 0:
        return ()
    since = history.looked if same else seen.created
    if reported:
        step = (min(reported) - since) / (missing + 1)
        return tuple(min(reported) - step * (number + 1) for number in range(missing))
    step = (seen.started - since) / missing
    return tuple(seen.started - step * number for number in range(missing))


MAX_LINE_LENGTH = 200
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-_])")
_NUMBER = re.compile(r"[0-9a-f]*\d[0-9a-f]*", re.IGNORECASE)


def last_line(lines: Iterable[str]) -> str:
    """Returns the last non-empty line, sanitised and cut to 200 characters; empty if none."""
    text = ""
    for line in lines:
        text = strip_control_characters(line) or text
    return text


def strip_control_characters(line: str) -> str:
    """Returns `line` without control characters; of an overwritten progress bar, the rest."""
    shown = [part for part in _ESCAPE.sub("", line).split("\r") if part.strip()]
    letters = (letter if letter.isprintable() else " " for letter in (shown[-1] if shown else ""))
    return " ".join("".join(letters).split())[:MAX_LINE_LENGTH]


def stabilise(text: str, before: str) -> str:
    """Returns `before` if `text` differs from it only in numbers; else `text`.

    Otherwise each iteration of a loop that prints a time, a pid or an address would create a new
    series.
    """
    return before if _NUMBER.sub("0", text) == _NUMBER.sub("0", before) else text
