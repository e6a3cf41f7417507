"""Status page: tables, and pieces of HTML and text that several sections use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Literal

from trainwarden_exporter.runtime.formatting import format_duration, format_size
from trainwarden_exporter.webserver import html

UNKNOWN = "&ndash;"

ColumnKind = Literal["text", "name", "number", "memory"]


def table(columns: Mapping[str, ColumnKind], rows: Iterable[Sequence[str]]) -> str:
    """Returns a table as HTML, with one cell for each of `columns` in a row; empty without rows.

    Each cell carries the name of its column, which narrow screens show instead of the head.
    """
    lines = "\n".join(f"<tr>{_cells(columns, row)}</tr>" for row in rows)
    heads = {name: kind if kind in ("number", "memory") else "" for name, kind in columns.items()}
    return html.table(heads, lines) if lines else ""


def number_columns(*names: str) -> Mapping[str, ColumnKind]:
    return dict.fromkeys(names, "number")


def _cells(columns: Mapping[str, ColumnKind], row: Sequence[str]) -> str:
    return "".join(
        f'<td class="{kind}" data-label="{name}">{content}</td>'
        if kind == "memory"
        else f'<td class="{kind}" data-label="{name}"><span>{content}</span></td>'
        for (name, kind), content in zip(columns.items(), row, strict=True)
    )


def state(tone: str, word: str) -> str:
    """Returns a state as HTML, marked with its tone."""
    return f'<span class="state {tone}">{escape(word)}</span>'


def toned(tone: str, text: str) -> str:
    """Returns `text`, which is HTML, in the colour of its tone."""
    return text if tone == "good" else f'<span class="{tone}">{text}</span>'


def quiet(text: str, mark: str = "") -> str:
    """Returns secondary text as HTML, after `mark` and a space; empty for an empty text."""
    return f'{mark} <span class="quiet">{escape(text)}</span>' if text else ""


def amount(value: float | None, form: str = "{:,.0f}") -> str:
    return UNKNOWN if value is None else form.format(value)


def duration(seconds: float | None) -> str:
    """Returns whole seconds in words."""
    return UNKNOWN if seconds is None else format_duration(round(seconds))


def ago(seconds: float) -> str:
    return f"{duration(max(0.0, seconds))} ago"


def usage(shown: float | None, total: float | None, tone: str, *, used: float | None = None) -> str:
    """Returns the bytes `shown` of `total` with a bar of the `used` ones (default: `shown`)."""
    if shown is None or not total:
        return UNKNOWN if shown is None else format_size(shown)
    share = (shown if used is None else used) / total
    size = f"{format_size(shown)}{quiet(f'of {format_size(total)}')}"
    return f"{size}{html.bar(share, tone)}"
