"""Regular expressions that cannot hang: RE2's, whose time is linear in the text.

RE2 lets other threads run while it searches, and searches for many expressions at once about as
fast as for one. No expression here matches across the end of a line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Protocol, cast

import re2  # type: ignore[import-untyped]

MOST_MEMORY = 16 << 20
"""Bytes that one compiled expression may take, with what it learns as it searches."""

# Of the whole text, not of a line; `\C` could match a piece of a character.
_NOT_OF_A_LINE = re.compile(r"(?<!\\)(?:\\\\)*\\([AzC])")


class _Match(Protocol):
    def start(self) -> int: ...
    def groupdict(self) -> Mapping[bytes | str, bytes | None]: ...


class _Compiled(Protocol):
    def search(self, text: bytes | bytearray, pos: int, endpos: int) -> _Match | None: ...


class _Set(Protocol):
    def Add(self, pattern: bytes) -> int: ...  # noqa: N802 - RE2's own name
    def Compile(self) -> None: ...  # noqa: N802 - the same
    def Match(self, text: bytes) -> list[int] | None: ...  # noqa: N802 - the same


def check(regex: str) -> str:
    """`regex` itself. Raises ValueError, with the reason, where lines cannot be searched by it."""
    try:
        _compile(regex, unicode=not regex.isascii())  # says best what is wrong
        compiled = _compile(_of_line(regex), unicode=not regex.isascii())
    except re2.error as error:
        raise ValueError(f"not a regular expression of RE2: {_reason(error)}") from error
    if (other := _NOT_OF_A_LINE.search(regex)) is not None:
        raise ValueError(rf"\{other[1]} has no meaning in a line: write ^ and $ for its ends")
    if compiled.search(b"", 0, 0) is not None:
        raise ValueError("matches an empty line, and so every line")
    return regex


def group_names(regex: str) -> frozenset[str]:
    """The names of its groups."""
    names: Mapping[bytes, int] = re2.compile(regex.encode(), _options(unicode=True)).groupindex
    return frozenset(name.decode() for name in names)


class RegexSet:
    """Several expressions, searched for at once. Raises ValueError where they are too large.

    Text is bytes. What is not ASCII in it is matched as single bytes, unless one of the expressions
    itself is not ASCII; then all of the text is taken for UTF-8.
    """

    def __init__(self, regexes: Sequence[str]) -> None:
        unicode = not all(regex.isascii() for regex in regexes)
        whole = "|".join(_of_line(regex) for regex in regexes)
        try:
            self._any = _compile(whole, unicode=unicode, captures=False)
            self._set = cast("_Set", re2.Set.SearchSet(_options(unicode=unicode, captures=False)))
            for regex in regexes:
                self._set.Add(_of_line(regex).encode())
            self._set.Compile()
            self._each = [_compile(_of_line(regex), unicode=unicode) for regex in regexes]
        except re2.error as error:
            raise ValueError(f"too much to search for at once: {_reason(error)}") from error

    def find(self, text: bytes | bytearray, start: int, end: int) -> int | None:
        """Where in `text[start:end]`, which is whole lines, the first match begins."""
        match = self._any.search(text, start, end)
        return None if match is None else match.start()

    def matching(self, line: bytes) -> list[int]:
        """Which of the expressions match in `line`, by their place, in order."""
        return sorted(self._set.Match(line) or ())

    def groups(self, index: int, line: bytes) -> dict[str, str]:
        """What the named groups of that expression matched in `line`; absent without a part."""
        match = self._each[index].search(line, 0, len(line))
        found = {} if match is None else match.groupdict()
        return {
            (name if isinstance(name, str) else name.decode()): value.decode(errors="replace")
            for name, value in found.items()
            if value is not None
        }


def _of_line(regex: str) -> str:
    return f"(?m:{regex})"


def _compile(regex: str, *, unicode: bool, captures: bool = True) -> _Compiled:
    options = _options(unicode=unicode, captures=captures)
    return cast("_Compiled", re2.compile(regex.encode(), options))


def _options(*, unicode: bool, captures: bool = True) -> re2.Options:
    options = re2.Options()
    options.log_errors = False
    options.never_nl = True
    options.never_capture = not captures
    options.max_mem = MOST_MEMORY
    options.encoding = re2.Options.Encoding.UTF8 if unicode else re2.Options.Encoding.LATIN1
    return options


def _reason(error: Exception) -> str:
    reason = error.args[0] if error.args else ""
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
