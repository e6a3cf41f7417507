"""Frame of the HTML pages: served whole, without scripts and external resources."""

from __future__ import annotations

import base64
import hashlib
import socket
from collections.abc import Iterable, Mapping
from html import escape
from importlib.resources import files
from string import Template
from urllib.parse import quote

from trainwarden_exporter import __version__
from trainwarden_exporter.runtime.formatting import format_time
from trainwarden_exporter.runtime.responsibility import LABEL, YOU

_FOLDER = files("trainwarden_exporter.webserver")
_TEMPLATE = Template((_FOLDER / "page.html").read_text(encoding="utf-8"))
_STYLE = (_FOLDER / "page.css").read_text(encoding="utf-8")

_MARKS = {"good": "\N{CHECK MARK}", "warn": "!", "bad": "!!"}

_ICONS = {
    "good": ("23804d", '<circle cx="8" cy="8" r="7" fill="#{0}"/>'),
    "warn": ("9d5d00", '<path d="M8 1 15 15H1z" fill="#{0}"/>'),
    "bad": ("c02c38", '<rect x="1" y="1" width="14" height="14" fill="#{0}"/>'),
    "quiet": ("66707f", '<circle cx="8" cy="8" r="4" fill="#{0}"/>'),
}
"""The colour and the shape of a page's icon by tone: the shape tells them apart, too."""

REFRESH_SECONDS = 15

_STYLE_DIGEST = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
STYLE_SOURCE = f"'sha256-{_STYLE_DIGEST}'"
"""The style sheet of a page, as a source of a Content-Security-Policy."""


def render(
    *,
    program: str,
    status: str,
    tone: str,
    headline: str,
    sections: str,
    acts: tuple[str, str] | None = None,
    now: float,
    links: Mapping[str, str] | None = None,
    refresh: bool = False,
) -> str:
    """Returns a page as HTML. `headline` is its summary, `tone` is good, warn, bad or quiet.

    `acts` is who acts, and what is done as a sentence; None on a page that is not about the state
    of a host. `status` follows the version; `sections` is HTML, the other arguments are text. `now`
    is a Unix time. The title starts with a mark of the tone and the name of the host: tabs of
    several hosts look alike otherwise. `links` maps labels to addresses; a page with `refresh` is
    loaded again every REFRESH_SECONDS.
    """
    host = socket.gethostname()
    return _TEMPLATE.substitute(
        refresh=f'<meta http-equiv="refresh" content="{REFRESH_SECONDS}">\n' if refresh else "",
        icon=_icon(tone),
        links="\n".join(
            f'<a href="{escape(address)}">{escape(label)}</a>'
            for label, address in (links or {}).items()
        ),
        refreshing=f"Refreshed every {REFRESH_SECONDS} s; "
        '<a href="?refresh=0">stop that to read</a>.'
        if refresh
        else "This page does not refresh itself.",
        title=escape(f"{_MARKS.get(tone, '')} {host}: {headline}".strip()),
        host=escape(host),
        seen=escape(format_time(now)),
        style=_STYLE,
        program=escape(program),
        version=escape(__version__),
        status=escape(status),
        tone=tone,
        headline=escape(headline),
        acts="" if acts is None else _acts(tone, *acts),
        sections=sections,
    )


def _acts(tone: str, who: str, how: str) -> str:
    """Returns who acts, always in the same place and form: below the headline.

    Only what needs you has the colour of an alarm.
    """
    tone = tone if who == YOU or tone == "good" else ""
    more = f' <span class="quiet">{escape(how)}</span>' if how else ""
    return f'<p class="acts {tone}"><span>{LABEL}</span> <b>{escape(who)}</b>{more}</p>\n'


def _icon(tone: str) -> str:
    colour, shape = _ICONS[tone]
    picture = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16">{shape}</svg>'
    return f"data:image/svg+xml,{quote(picture.format(colour))}"


def section(heading: str, content: str) -> str:
    """Returns a section of a page; `content` is HTML, and `heading` may be empty."""
    title = f"<h2>{escape(heading)}</h2>\n" if heading else ""
    return f"<section>\n{title}{content}\n</section>"


def first_steps(steps: Iterable[tuple[str, str]]) -> str:
    """Returns the section of what an operator does first, as HTML; empty without a step.

    `steps` are the name of an alert as HTML, and its step as text with code in backticks.
    """
    listed = "".join(f"<li><b>{name}</b>: {_with_code(step)}</li>" for name, step in steps)
    return section("What to do first", f'<ul class="lines">{listed}</ul>') if listed else ""


def _with_code(text: str) -> str:
    parts = enumerate(text.split("`"))
    return "".join(f"<code>{escape(one)}</code>" if n % 2 else escape(one) for n, one in parts)


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
