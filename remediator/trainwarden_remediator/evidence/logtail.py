"""Reads the last lines of a log, whatever lies where a log should."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

from trainwarden_exporter.logs.files import open_file
from trainwarden_remediator.evidence.redaction import redacted
from trainwarden_remediator.story import printable

LINES = 50
LINE_LENGTH = 400
BYTES = 64 << 10
"""Read from the end of a log; lines that begin before are not told."""
_LONGEST_READ = 4096


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of a log. `size` in bytes, `modified` in Unix seconds."""

    name: str
    path: str
    size: int
    modified: float
    lines: tuple[str, ...]

    def as_facts(self) -> Mapping[str, Any]:
        return {**asdict(self), "lines": list(self.lines)}


def read_tail(name: str, path: str, lines: int = LINES) -> Tail | None:
    """The last lines of the regular file at `path`; None where there is none, such as a pipe.

    Blocks for as long as its disk does. Raises OSError where it may not be read.
    """
    descriptor = open_file(path)
    if descriptor is None:
        return None
    try:
        status = os.fstat(descriptor)
        begin = max(0, status.st_size - BYTES)
        data = os.pread(descriptor, BYTES, begin)
    finally:
        os.close(descriptor)
    return Tail(
        name, path, status.st_size, status.st_mtime, parse_tail(data, lines, whole=begin == 0)
    )


def parse_tail(data: bytes, lines: int = LINES, *, whole: bool = True) -> tuple[str, ...]:
    """The last lines in `data`, for a person: no secrets, nothing that moves a cursor.

    Of a line that was drawn again and again, as progress bars are, the last state is told. Where
    `data` is not the `whole` file, its first line has no beginning and is left out.
    """
    pieces = data.decode("utf-8", "replace").split("\n")
    if not whole and len(pieces) > 1:
        del pieces[0]
    told = (line for piece in reversed(pieces) if (line := _told(piece)))
    return tuple(islice(told, lines))[::-1]


def _told(piece: str) -> str:
    drawn = [state for state in piece.split("\r") if state.strip()]
    text = drawn[-1].expandtabs(4).rstrip() if drawn else ""
    return cut(redacted(printable(_without_colours(text[:_LONGEST_READ]))))


def _without_colours(text: str) -> str:
    """`text` without the sequences by which a terminal is told to colour it."""
    if "\x1b[" not in text:
        return text
    head, *rest = text.split("\x1b[")
    kept = (part.lstrip("0123456789;?") for part in rest)
    return head + "".join(part[1:] for part in kept)


def cut(text: str, length: int = LINE_LENGTH) -> str:
    """`text`, no longer than that."""
    return text if len(text) <= length else f"{text[: length - 2]} …"
