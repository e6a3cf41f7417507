"""Regular expressions of Alertmanager: of silences, matchers and routes.

They come from outside, and a backtracking engine can search for some of them without end. RE2,
whose syntax Alertmanager itself uses, needs time linear in the text.
"""

from __future__ import annotations

from functools import lru_cache

from trainwarden_exporter.runtime.linear_search import LinearRegex, compile_linear

MAX_MEMORY = 1 << 20
"""Bytes of one compiled expression, including the states cached while it matches."""


def matches_whole(regex: str, text: str) -> bool:
    """Whether `regex` matches all of `text`. Raises ValueError if RE2 cannot read or match it."""
    return check_regex(regex).fullmatch(text.encode()) is not None


@lru_cache(maxsize=64)
def check_regex(regex: str) -> LinearRegex:
    """Returns `regex` compiled. Raises ValueError, with the reason, if RE2 cannot read it."""
    return compile_linear(regex, MAX_MEMORY)
