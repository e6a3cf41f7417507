"""Regular expressions of Alertmanager: of silences, matchers and routes.

They come from outside, and a backtracking engine can search for some of them without end. RE2,
whose syntax Alertmanager itself uses, needs time linear in the text.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Protocol, cast

import re2  # type: ignore[import-untyped]

MAX_MEMORY = 1 << 20
"""Bytes of one compiled expression, including the states cached while it matches."""


class _Compiled(Protocol):
    def fullmatch(self, text: bytes) -> object: ...


def matches_whole(regex: str, text: str) -> bool:
    """Whether `regex` matches all of `text`. Raises ValueError if RE2 cannot read or match it."""
    return _compile(regex).fullmatch(text.encode()) is not None


def check_regex(regex: str) -> None:
    """Raises ValueError, with the reason, if RE2 cannot read `regex`."""
    _compile(regex)


@lru_cache(maxsize=64)
def _compile(regex: str) -> _Compiled:
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = MAX_MEMORY
    try:
        return cast("_Compiled", re2.compile(regex.encode(), options))
    except re2.error as error:
        reason = error.args[0] if error.args else b""
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise ValueError(f"not a regular expression of RE2: {text}") from error
