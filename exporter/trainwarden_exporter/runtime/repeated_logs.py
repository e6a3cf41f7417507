"""Limits how often a logger repeats a message."""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Callable

INTERVAL_SECONDS = 60.0
MAX_MESSAGES = 100
"""Number of different messages that are remembered."""


_Key = tuple[str, object]


class RepetitionFilter(logging.Filter):
    """Passes each message once a minute, with the number of omitted ones as the field `omitted`.

    Messages are equal when the first lines of their texts are, before arguments and fields are
    filled in, and the types of their exceptions.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._passed_at: dict[_Key, float] = {}
        self._omitted: Counter[_Key] = Counter()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to log `record`."""
        key = str(record.msg).partition("\n")[0], record.exc_info and record.exc_info[0]
        now = self._clock()
        if now - self._passed_at.get(key, -math.inf) < INTERVAL_SECONDS:
            self._omitted[key] += 1
            return False
        if len(self._passed_at) >= MAX_MESSAGES:
            self._passed_at.clear()
            self._omitted.clear()
        self._passed_at[key] = now
        if omitted := self._omitted.pop(key, 0):
            record.omitted = omitted
        return True


def limit_repetition(logger: logging.Logger) -> None:
    """Makes `logger` pass each message once a minute; may be called again."""
    if not any(isinstance(one, RepetitionFilter) for one in logger.filters):
        logger.addFilter(RepetitionFilter())
