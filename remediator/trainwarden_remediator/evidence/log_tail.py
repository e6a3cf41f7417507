"""Reads the last lines of a log, safely for any file at its path."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from itertools import islice
from typing import Any

from trainwarden_exporter.logs.file_access import open_file
from trainwarden_exporter.runtime.redaction import redact
from trainwarden_remediator.journal.event_text import printable

LINES = 50
LINE_LENGTH = 400
BYTES = 64 << 10
"""The number of bytes to read from the end of a log."""
_LONGEST_READ = 4096
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[^\x1b]?")


def read_tail(name: str, path: str, lines: int = LINES) -> Mapping[str, Any] | None:
    """Returns the last lines of the file at `path`; None if there is no regular file.

    `size` in bytes, `modified` in Unix seconds. Blocks for as long as the disk does. Raises OSError
    if the file cannot be read.
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
    return {
        "name": name,
        "path": path,
        "size": status.st_size,
        "modified": status.st_mtime,
        "lines": parse_tail(data, lines, is_complete=begin == 0),
    }


def parse_tail(data: bytes, lines: int, *, is_complete: bool = True) -> list[str]:
    """Returns the last lines in `data`, without secrets and terminal control sequences.

    Keeps only the last state of a line that was redrawn, such as a progress bar. Drops the first,
    partial line unless `data` `is_complete`.
    """
    pieces = data.decode("utf-8", "replace").split("\n")
    if not is_complete and len(pieces) > 1:
        del pieces[0]
    printable_lines = (line for piece in reversed(pieces) if (line := _printable_line(piece)))
    return list(islice(printable_lines, lines))[::-1]


def _printable_line(piece: str) -> str:
    states = [state for state in piece.split("\r") if state.strip()]
    text = states[-1].expandtabs(4).rstrip() if states else ""
    return truncate(redact(printable(_COLOUR.sub("", text[:_LONGEST_READ]))))


def truncate(text: str, length: int = LINE_LENGTH) -> str:
    """Truncates `text` to `length` characters."""
    return text if len(text) <= length else f"{text[: length - 2]} …"
