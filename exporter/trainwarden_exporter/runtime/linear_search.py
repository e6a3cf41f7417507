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


class LinearRegex(Protocol):
    """An expression compiled by RE2."""

    def search(self, text: bytes) -> object: ...
    def fullmatch(self, text: bytes) -> object: ...


def compile_linear(regex: str, max_memory: int = MAX_MEMORY) -> LinearRegex:
    """Returns `regex` compiled by RE2. Raises ValueError, with the reason, if RE2 cannot read it.

    `max_memory`: bytes, including the states cached while it searches.
    """
    options = re2.Options()
    options.log_errors = False
    options.max_mem = max_memory
    try:
        return cast("LinearRegex", re2.compile(regex.encode(), options))
    except re2.error as error:
        raise ValueError(f"not a regular expression of RE2: {error_reason(error)}") from error


def error_reason(error: Exception) -> str:
    """Returns the reason of an error of RE2."""
    reason = error.args[0] if error.args else ""
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)


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
def _linear(regex: str) -> LinearRegex | None:
    """Returns `regex` compiled by RE2, or None if RE2 lacks what it uses, such as lookaround."""
    try:
        return compile_linear(regex)
    except ValueError:
        return None
