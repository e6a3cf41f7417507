"""Keeps the last lines of a file."""

from __future__ import annotations

import re

from trainwarden_exporter.logs.line_blocks import LineBlock
from trainwarden_exporter.logs.line_parser import shorten_line
from trainwarden_exporter.runtime.redaction import redact

KEPT_LINES = 200
SHOWN_LINES = 8
_TAIL_BYTES = 32_768
_BAR = re.compile(rb"\d%\|.*\| *\d+/\d+")
"""A progress bar: each of its states is a line here."""


class LogTail:
    """The last lines of the blocks that were added, without empty ones."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []

    def add(self, block: LineBlock) -> None:
        start = max(block.start, block.end - _TAIL_BYTES)
        found = bytes(block.text[start : block.end]).splitlines()
        self.lines = [*self.lines, *(line for line in found if line.strip())][-KEPT_LINES:]

    def shown(self) -> tuple[str, ...]:
        """Returns the last lines for display; of a bar that is drawn again, the last state."""
        kept: list[bytes] = []
        for line in self.lines:
            if kept and _BAR.search(line) and _BAR.search(kept[-1]):
                kept.pop()
            kept.append(line)
        last = (line.decode(errors="replace") for line in kept[-SHOWN_LINES:])
        return tuple(redact(shorten_line(line)) for line in last)
