"""The frame of a page for a person: served whole, without scripts, with nothing from afar."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from html import escape
from importlib.resources import files
from string import Template

from trainwarden_exporter import __version__

_FOLDER = files("trainwarden_exporter.serving")
_TEMPLATE = Template((_FOLDER / "page.html").read_text(encoding="utf-8"))
_STYLE = (_FOLDER / "page.css").read_text(encoding="utf-8")

_STYLE_DIGEST = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
STYLE_SOURCE = f"'sha256-{_STYLE_DIGEST}'"
"""The style sheet of a page, as a Content-Security-Policy names it."""


def render(
    *, program: str, standing: str, tone: str, verdict: str, sections: str, footer: str
) -> str:
    """A page as HTML: `verdict` is all of it in one sentence, `tone` good, warn or bad.

    `standing` is said beside the version; `sections` is HTML, everything else is text.
    """
    return _TEMPLATE.substitute(
        title=escape(f"Trainwarden: {verdict}"),
        style=_STYLE,
        program=escape(program),
        version=escape(__version__),
        standing=escape(standing),
        tone=tone,
        verdict=escape(verdict),
        sections=sections,
        footer=escape(footer),
    )


def section(heading: str, content: str) -> str:
    """A part of a page; `content` is HTML."""
    return f"<section>\n<h2>{escape(heading)}</h2>\n{content}\n</section>"


def table(columns: Mapping[str, str], rows: str) -> str:
    """A table as HTML; `columns` gives the class of each by its name."""
    heads = "".join(f'<th scope="col" class="{kind}">{name}</th>' for name, kind in columns.items())
    return f"<table><thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}\n</tbody></table>"


def number(label: str, content: str) -> str:
    """A cell that holds a number; `content` is HTML."""
    return f'<td class="number" data-label="{label}"><span>{content}</span></td>'


def facts(named: Mapping[str, str]) -> str:
    """A few facts side by side, as HTML; they are text."""
    listed = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(fact)}</dd></div>" for name, fact in named.items()
    )
    return f"<dl>{listed}</dl>"


def bar(share: float, tone: str, *, mark: float | None = None) -> str:
    """How much of a whole is filled, as HTML, with a mark at a share of it."""
    filled = 100 * min(max(share, 0), 1)
    marked = ""
    if mark is not None:
        marked = f'<rect class="mark" x="{100 * min(max(mark, 0), 1):.1f}" width=".4" height="4"/>'
    return (
        '<svg class="bar" viewBox="0 0 100 4" preserveAspectRatio="none" role="img" '
        f'aria-label="{100 * share:.0f} %"><rect class="track" width="100" height="4"/>'
        f'<rect class="fill {tone}" width="{filled:.1f}" height="4"/>{marked}</svg>'
    )
