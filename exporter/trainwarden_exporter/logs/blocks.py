"""Cuts what was read of a log into whole lines. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from trainwarden_exporter.logs.lines import uncoloured

Text = bytes | bytearray


@dataclass(frozen=True, slots=True)
class Block:
    """Whole lines, ready to be searched, and how many bytes were used up to make them."""

    text: Text
    """Its lines end in a line feed, whatever ended them in the file; colours are gone."""
    start: int
    end: int
    """Where in `text` they stand."""
    used: int
    skipping: bool
    """Whether they end within a line of which the rest is passed over."""
    cut: int
    """Lines that were too long."""


def parse_block(
    data: Text,
    start: int,
    stop: int,
    *,
    last: bool,
    limit: int,
    skipping: bool = False,
    edge: int = -1,
) -> Block:
    """The whole lines in `data[start:stop]`.

    A line ends in a line feed, a carriage return, which is how a progress bar draws itself anew, or
    a NUL, which is what a file is made of where nothing was written yet: so those at the end of the
    file (`last`) are left until something follows. A line ends too after `limit` bytes, and what is
    left of it is passed over; `skipping` is whether that goes on here. Lines that begin at `edge`
    or after are left for the next time, if there are any before it.
    """
    if last and data[stop - 1] == 0:
        stop = max(start, len(data[:stop].rstrip(b"\0")))
    text = _ended_by_line_feeds(data, start, stop)
    end = _last_end(text, start, stop, edge)
    if end == 0:
        return _endless(text, start, stop, limit=limit, skipping=skipping)
    begin = text.find(b"\n", start, end) + 1 if skipping else start
    used, cut = end - start, 0
    if _too_long(text, begin, end, limit):
        text, cut = _shortened(text[begin:end], limit)
        begin, end = 0, len(text)
    if text.find(b"\x1b", begin, end) >= 0:
        text = uncoloured(text[begin:end])
        begin, end = 0, len(text)
    return Block(text, begin, end, used, skipping=False, cut=cut)


def _ended_by_line_feeds(data: Text, start: int, stop: int) -> Text:
    for other in (b"\r", b"\0"):
        if data.find(other, start, stop) >= 0:
            data = data[:stop].replace(other, b"\n")
    return data


def _last_end(text: Text, start: int, stop: int, edge: int) -> int:
    """After the last line end that counts; 0 where there is none."""
    if start < edge < stop:
        before = text.rfind(b"\n", start, edge) + 1
        return before or text.find(b"\n", edge, stop) + 1
    return text.rfind(b"\n", start, stop) + 1


def _endless(text: Text, start: int, stop: int, *, limit: int, skipping: bool) -> Block:
    """What to make of text without any line end."""
    if skipping:
        return Block(text, start, start, stop - start, skipping=True, cut=0)
    if stop - start <= limit:
        return Block(text, start, start, 0, skipping=False, cut=0)
    line = uncoloured(text[start : start + limit]) + b"\n"
    return Block(line, 0, len(line), stop - start, skipping=True, cut=1)


def _too_long(text: Text, start: int, end: int, limit: int) -> bool:
    """Whether any of the lines in `text[start:end]` is longer than `limit`."""
    while end - start > limit + 1:
        # The last line end within reach: so a few steps pass over thousands of lines.
        start = text.rfind(b"\n", start, start + limit + 1) + 1
        if start == 0:
            return True
    return False


def _shortened(text: Text, limit: int) -> tuple[bytes, int]:
    lines = text.splitlines()
    cut = sum(len(line) > limit for line in lines)
    return b"".join(line[:limit] + b"\n" for line in lines), cut
