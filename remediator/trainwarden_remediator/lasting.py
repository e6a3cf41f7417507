"""Counts for how long something has been so, over looks that may be late."""

from __future__ import annotations


class Lasting:
    """Adds up the time in which each look found the same.

    A look that comes late counts for `longest` seconds at most: who did not look, because the
    program or the box stood still, has seen nothing.
    """

    def __init__(self, *, longest: float) -> None:
        self._longest = longest
        self._since: float | None = None
        self.seconds = 0.0

    def note(self, so: bool, now: float) -> float:
        """What a look at `now` (seconds of any clock that only goes on) found; for how long so."""
        if not so:
            self._since, self.seconds = None, 0.0
            return 0.0
        if self._since is not None:
            self.seconds += min(max(now - self._since, 0.0), self._longest)
        self._since = now
        return self.seconds
