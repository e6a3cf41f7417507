"""The states of progress bars: each is drawn many times."""

from __future__ import annotations

import re
from collections.abc import Hashable

from trainwarden_exporter.logs.pattern_search import MatchedLine

_BAR = re.compile(rb"\d%\||[\x80-\xff]{8}")
_COUNT = re.compile(rb"\b\d+/\d+\b")


class BarStates:
    """The states of the bars with a loss in one log."""

    def __init__(self) -> None:
        self._last: tuple[Hashable, ...] = ()

    def is_drawn_again(self, line: MatchedLine) -> bool:
        """Whether a line is the last state of a bar once more, but for times and speeds.

        Of one count two losses are drawn where it is drawn before its loss is known.
        """
        losses = [
            text
            for match in line.matches
            for name, text in match.groups.items()
            if name.endswith("loss")
        ]
        if not losses or _BAR.search(line.text) is None:
            return False
        before, self._last = self._last, (*_COUNT.findall(line.text), *losses)
        return self._last == before
