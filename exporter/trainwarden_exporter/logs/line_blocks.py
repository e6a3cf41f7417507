"""Splits blocks of a log into whole lines. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from trainwarden_exporter.logs.line_parser import strip_ansi


@dataclass(frozen=True, slots=True)
class LineBlock:
    """Whole lines for the search, and the number of consumed bytes."""

    text: bytes
    """Lines end in a line feed, whatever ends them in the file; escape sequences are removed."""
    start: int
    end: int
    """Range of the lines in `text`."""
    used_bytes: int
    skipping: bool
    """Whether the block ends within a line whose rest is skipped."""
    truncated_lines: int
    """Number of truncated lines."""


def parse_block(
    data: bytes,
    start: int,
    stop: int,
    *,
    last: bool,
    limit: int,
    skipping: bool = False,
    edge: int = -1,
) -> LineBlock:
    """Returns the whole lines in `data[start:stop]`.

    A line ends in a line feed, in a carriage return (progress bars), or in a NUL, which fills holes
    of a file: NULs at the end of the file (`last`) are left until data follows. A line also ends
    after `limit` bytes, and its rest is skipped; `skipping` says that the block begins within such
    a rest. Lines that begin at or after `edge` are left for the next block, if any begin before it.
    """
    if last and data[stop - 1] == 0:
        stop = max(start, len(data[:stop].rstrip(b"\0")))
    text = _normalize_line_ends(data, start, stop)
    end = _end_of_last_line(text, start, stop, edge)
    if end == 0:
        return _without_line_end(text, start, stop, limit=limit, skipping=skipping)
    begin = text.find(b"\n", start, end) + 1 if skipping else start
    used_bytes, truncated_lines = end - start, 0
    if _has_too_long_line(text, begin, end, limit):
        text, truncated_lines = _truncate_lines(text[begin:end], limit)
        begin, end = 0, len(text)
    if text.find(b"\x1b", begin, end) >= 0:
        text = strip_ansi(text[begin:end])
        begin, end = 0, len(text)
    return LineBlock(text, begin, end, used_bytes, skipping=False, truncated_lines=truncated_lines)


def _normalize_line_ends(data: bytes, start: int, stop: int) -> bytes:
    for other in (b"\r", b"\0"):
        if data.find(other, start, stop) >= 0:
            data = data[:stop].replace(other, b"\n")
    return data


def _end_of_last_line(text: bytes, start: int, stop: int, edge: int) -> int:
    """Returns the end of the last line that counts; 0 if there is none."""
    if start < edge < stop:
        before = text.rfind(b"\n", start, edge) + 1
        return before or text.find(b"\n", edge, stop) + 1
    return text.rfind(b"\n", start, stop) + 1


def _without_line_end(
    text: bytes, start: int, stop: int, *, limit: int, skipping: bool
) -> LineBlock:
    """Handles text without a line end."""
    if skipping:
        return LineBlock(text, start, start, stop - start, skipping=True, truncated_lines=0)
    if stop - start <= limit:
        return LineBlock(text, start, start, 0, skipping=False, truncated_lines=0)
    line = strip_ansi(text[start : start + limit]) + b"\n"
    return LineBlock(line, 0, len(line), stop - start, skipping=True, truncated_lines=1)


def _has_too_long_line(text: bytes, start: int, end: int, limit: int) -> bool:
    """Whether a line in `text[start:end]` is longer than `limit`."""
    while end - start > limit + 1:
        # Jump to the last line end within the limit: few jumps cover thousands of lines.
        start = text.rfind(b"\n", start, start + limit + 1) + 1
        if start == 0:
            return True
    return False


def _truncate_lines(text: bytes, limit: int) -> tuple[bytes, int]:
    lines = text.splitlines()
    truncated_lines = sum(len(line) > limit for line in lines)
    return b"".join(line[:limit] + b"\n" for line in lines), truncated_lines
