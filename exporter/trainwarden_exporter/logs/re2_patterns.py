"""Searches with RE2, whose time is linear in the text, so that no expression can hang.

RE2 releases the GIL during a search, and searches for many expressions at once about as fast as for
one. No expression matches across the end of a line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Protocol, cast

import re2  # type: ignore[import-untyped]

from trainwarden_exporter.runtime.linear_search import error_reason

MAX_MEMORY = 16 << 20
"""Maximum number of bytes of one compiled expression, including its cache."""

# \A and \z refer to the whole text, not to a line; \C could match part of a character.
_WHOLE_TEXT_ESCAPE = re.compile(r"(?<!\\)(?:\\\\)*\\([AzC])")


class _Match(Protocol):
    def start(self) -> int: ...
    def groupdict(self) -> Mapping[bytes | str, bytes | None]: ...


class _Compiled(Protocol):
    def search(self, text: bytes, pos: int, endpos: int) -> _Match | None: ...


class _Set(Protocol):
    def Add(self, pattern: bytes) -> int: ...  # noqa: N802 - RE2's own name
    def Compile(self) -> None: ...  # noqa: N802 - the same
    def Match(self, text: bytes) -> list[int] | None: ...  # noqa: N802 - the same


def check_regex(regex: str) -> str:
    """Returns `regex`. Raises ValueError with the reason if it cannot be used to search lines."""
    try:
        _compile(regex, unicode=not regex.isascii())  # reports the error best
        compiled = _compile(_multiline(regex), unicode=not regex.isascii())
    except re2.error as error:
        raise ValueError(f"not a regular expression of RE2: {error_reason(error)}") from error
    if (other := _WHOLE_TEXT_ESCAPE.search(regex)) is not None:
        raise ValueError(rf"\{other[1]} has no meaning in a line: write ^ and $ for its ends")
    if compiled.search(b"", 0, 0) is not None:
        raise ValueError("matches an empty line, and so every line")
    return regex


def group_names(regex: str) -> frozenset[str]:
    names: Mapping[bytes, int] = re2.compile(regex.encode(), _options(unicode=True)).groupindex
    return frozenset(name.decode() for name in names)


class RegexSet:
    """Several expressions, searched for at once. Raises ValueError if they are too large.

    Text is bytes. Characters outside ASCII are matched as single bytes, unless one of the
    expressions contains such a character; then the text is read as UTF-8.
    """

    def __init__(self, regexes: Sequence[str]) -> None:
        unicode = not all(regex.isascii() for regex in regexes)
        whole = "|".join(_multiline(regex) for regex in regexes)
        try:
            self._any = _compile(whole, unicode=unicode, captures=False)
            self._set = cast("_Set", re2.Set.SearchSet(_options(unicode=unicode, captures=False)))
            for regex in regexes:
                self._set.Add(_multiline(regex).encode())
            self._set.Compile()
            self._each = [_compile(_multiline(regex), unicode=unicode) for regex in regexes]
        except re2.error as error:
            raise ValueError(f"too much to search for at once: {error_reason(error)}") from error

    def find(self, text: bytes, start: int, end: int) -> int | None:
        """Returns the start of the first match in the whole lines `text[start:end]`, or None."""
        match = self._any.search(text, start, end)
        return None if match is None else match.start()

    def matching(self, line: bytes) -> list[int]:
        """Returns the indices of the expressions that match in `line`, in order."""
        return sorted(self._set.Match(line) or ())

    def groups(self, index: int, line: bytes) -> dict[str, str]:
        """Returns the matches of the named groups of one expression in `line`.

        Groups that took no part are absent. Underscores behind a name are left out: they set apart
        groups of one meaning, as a name may occur only once in an expression.
        """
        match = self._each[index].search(line, 0, len(line))
        found = {} if match is None else match.groupdict()
        return {
            (name if isinstance(name, str) else name.decode()).rstrip("_"): value.decode(
                errors="replace"
            )
            for name, value in found.items()
            if value is not None
        }


def _multiline(regex: str) -> str:
    return f"(?m:{regex})"


def _compile(regex: str, *, unicode: bool, captures: bool = True) -> _Compiled:
    options = _options(unicode=unicode, captures=captures)
    return cast("_Compiled", re2.compile(regex.encode(), options))


def _options(*, unicode: bool, captures: bool = True) -> re2.Options:
    options = re2.Options()
    options.log_errors = False
    options.never_nl = True
    options.never_capture = not captures
    options.max_mem = MAX_MEMORY
    options.encoding = re2.Options.Encoding.UTF8 if unicode else re2.Options.Encoding.LATIN1
    return options
