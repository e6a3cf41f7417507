"""The states of progress bars, each of which is drawn many times. Pure."""

from __future__ import annotations

import re
from collections.abc import Hashable

from trainwarden_exporter.logs.pattern_search import MatchedLine

_BAR = re.compile(rb"\d%\||[\x80-\xff]{8}")
_COUNT = re.compile(rb"\b\d+/\d+\b")


def state_with_loss(line: MatchedLine) -> Hashable:
    """Returns what is equal in two draws of one state of a bar; None if it is no bar with a loss.

    Times and speeds differ. Of one count two losses are drawn where it is drawn before its loss is
    known.
    """
    losses = tuple(
        text
        for match in line.matches
        for name, text in match.groups.items()
        if name.endswith("loss")
    )
    if not losses or _BAR.search(line.text) is None:
        return None
    return (*_COUNT.findall(line.text), *losses)
