"""Tables on a terminal: within its width, and coloured where its user has not switched that off."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Sequence

from trainwarden_remediator.journal import event_text
from trainwarden_remediator.journal.rows import Event

LEAST_COLUMN = 30
"""Characters: a narrower last column goes to lines of its own."""
_INDENT = 4
_RESET = "\x1b[0m"
_COLOURS = {"red": "\x1b[31m", "green": "\x1b[32m", "yellow": "\x1b[33m"}


def terminal_width() -> int:
    """Returns the columns of the terminal that the output goes to; 0 if it goes elsewhere."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 0


def has_colours() -> bool:
    """Whether the output goes to a terminal with colours (https://no-color.org)."""
    return (
        sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    )


def fit(line: str, last_column: int, width: int) -> str:
    """Returns the line of a table within `width`; its last column begins at `last_column`.

    A `width` of 0 is endless.
    """
    if not width or len(line) <= width:
        return line
    head, last = line[:last_column], line[last_column:]
    if width - last_column >= LEAST_COLUMN:
        first, rest = head, " " * last_column
    else:
        first = rest = " " * _INDENT
    wrapped = textwrap.wrap(last, width, initial_indent=first, subsequent_indent=rest)
    heads = [] if first == head else _wrapped_head(head, width)
    return "\n".join([*heads, *wrapped])


def format_event(event: Event, *, width: int, colours: bool) -> str:
    """Returns an event as a line of the journal's table, as `fit` does."""
    text = fit(event_text.format_line(event), event_text.LAST_COLUMN, width)
    colour = _colour(event) if colours else ""
    return f"{_COLOURS[colour]}{text}{_RESET}" if colour else text


def _wrapped_head(head: str, width: int) -> Sequence[str]:
    cells = " ".join(head.split())
    return [cells] if len(cells) <= width else textwrap.wrap(cells, width)


def _colour(event: Event) -> str:
    facts = event.facts
    match event.kind:
        case "outcome":
            return "green" if facts.get("outcome") == "healed" else "red"
        case "result":
            return "" if facts.get("result") == "done" else "red"
        case "decision":
            return "red" if facts.get("reason") in event_text.SERIOUS_REASONS else ""
        case "alert" | "hold" | "breaker_opened":
            return "yellow"
    return ""
