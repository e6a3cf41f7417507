"""Searches text of other accounts in bounded time.

Python's engine needs time quadratic in the text for an expression as simple as `a.*b`, and holds
the interpreter meanwhile. Any account can start a process with a command line of megabytes.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Protocol, cast

import re2  # type: ignore[import-untyped]

SHORT_CHARACTERS = 4096
"""Text of this length is searched by Python's engine."""

MAX_MEMORY = 4 << 20
"""Bytes of one compiled expression, including the states cached while it searches."""


class _Compiled(Protocol):
    def search(self, text: bytes) -> object: ...
    def fullmatch(self, text: bytes) -> object: ...


def is_found(pattern: re.Pattern[str], text: str) -> bool:
    """Whether `pattern` is found anywhere in `text`."""
    if len(text) > SHORT_CHARACTERS and (linear := _linear(pattern.pattern)) is not None:
        return linear.search(text.encode("utf-8", "replace")) is not None
    return pattern.search(text) is not None


def is_whole(pattern: re.Pattern[str], text: str) -> bool:
    """Whether `pattern` matches all of `text`."""
    if len(text) > SHORT_CHARACTERS and (linear := _linear(pattern.pattern)) is not None:
        return linear.fullmatch(text.encode("utf-8", "replace")) is not None
    return pattern.fullmatch(text) is not None


@lru_cache(maxsize=1024)
def _linear(regex: str) -> _Compiled | None:
    """Returns `regex` compiled by RE2, or None if RE2 lacks what it uses, such as lookaround."""
    options = re2.Options()
    options.log_errors = False
    options.max_mem = MAX_MEMORY
    try:
        return cast("_Compiled", re2.compile(regex.encode(), options))
    except re2.error:
        return None
