"""Frame of the HTML pages: served whole, without scripts and external resources."""

from __future__ import annotations

import base64
import hashlib
import socket
from collections.abc import Mapping
from html import escape
from importlib.resources import files
from string import Template

from trainwarden_exporter import __version__
from trainwarden_exporter.runtime.formatting import format_time

_FOLDER = files("trainwarden_exporter.webserver")
_TEMPLATE = Template((_FOLDER / "page.html").read_text(encoding="utf-8"))
_STYLE = (_FOLDER / "page.css").read_text(encoding="utf-8")

_MARKS = {"good": "\N{CHECK MARK}", "warn": "!", "bad": "!!"}

_STYLE_DIGEST = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
STYLE_SOURCE = f"'sha256-{_STYLE_DIGEST}'"
"""The style sheet of a page, as a source of a Content-Security-Policy."""


def render(
    *, program: str, status: str, tone: str, headline: str, sections: str, now: float
) -> str:
    """Returns a page as HTML. `headline` is its summary, `tone` is good, warn or bad.

    `status` follows the version; `sections` is HTML, the other arguments are text. `now` is a Unix
    time. The title starts with a mark of the tone and the name of the host: tabs of several hosts
    look alike otherwise.
    """
    host = socket.gethostname()
    return _TEMPLATE.substitute(
        title=escape(f"{_MARKS.get(tone, '')} {host}: {headline}".strip()),
        host=escape(host),
        seen=escape(format_time(now)),
        style=_STYLE,
        program=escape(program),
        version=escape(__version__),
        status=escape(status),
        tone=tone,
        headline=escape(headline),
        sections=sections,
    )


def section(heading: str, content: str) -> str:
    """Returns a section of a page; `content` is HTML."""
    return f"<section>\n<h2>{escape(heading)}</h2>\n{content}\n</section>"


def table(columns: Mapping[str, str], rows: str) -> str:
    """Returns a table as HTML; `columns` maps the name of each column to its class."""
    heads = "".join(f'<th scope="col" class="{kind}">{name}</th>' for name, kind in columns.items())
    return f"<table><thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}\n</tbody></table>"


def number(label: str, content: str) -> str:
    """Returns a table cell with a number; `content` is HTML."""
    return f'<td class="number" data-label="{label}"><span>{content}</span></td>'


def facts(named: Mapping[str, str]) -> str:
    """Returns a few facts side by side, as HTML; names and facts are text."""
    listed = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(fact)}</dd></div>" for name, fact in named.items()
    )
    return f"<dl>{listed}</dl>"


def bar(share: float, tone: str, *, mark: float | None = None) -> str:
    """Returns a bar filled to `share` (0 to 1), as HTML, with a mark at `mark`."""
    filled = 100 * min(max(share, 0), 1)
    marker = ""
    if mark is not None:
        marker = f'<rect class="mark" x="{100 * min(max(mark, 0), 1):.1f}" width=".4" height="4"/>'
    return (
        '<svg class="bar" viewBox="0 0 100 4" preserveAspectRatio="none" role="img" '
        f'aria-label="{100 * share:.0f} %"><rect class="track" width="100" height="4"/>'
        f'<rect class="fill {tone}" width="{filled:.1f}" height="4"/>{marker}</svg>'
    )
