"""Renders Markdown as HTML: the subset that the reports and runbooks of this project use. Pure.

All text is escaped: the only tags are those written here. Links lead to web addresses and to what
`resolve` allows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from html import escape, unescape

Resolve = Callable[[str], str | None]
"""Returns the address that a link of the document leads to, or None for no link."""

_INLINE = re.compile(
    r"(?P<ticks>`+)(?P<code>.+?)(?<!`)(?P=ticks)(?!`)"
    r"|\\(?P<escaped>[^a-zA-Z0-9\s])"
    r"|<(?P<url>https?://[^\s<>\"'`\\]+)>"
    r"|\[(?P<label>(?:[^\]\\]|\\.)+)\]\((?P<target>[^)\s]+)\)"
    r"|(?P<strong>\*\*)"
)
_BULLET = re.compile(r"(?P<indent> *)(?:(?P<dash>-)|(?P<number>\d{1,9})\.) +(?P<text>.*)")
_HEADING = re.compile(r"(#{1,6}) +(.*)")
_FENCE = re.compile(r"(`{3,})\w*")
_SUMMARY = re.compile(r"<summary>(.*)</summary>")
_RULE = re.compile(r"\|(?:\s*:?-+:?\s*\|)+")
_CODE_INDENT = "    "


def web_address(target: str) -> str | None:
    """Allows links to web addresses alone."""
    return target if re.fullmatch(r"https?://[^\s<>\"'`\\]+", target) else None


def to_html(markdown: str, resolve: Resolve = web_address) -> str:
    """Returns the document as HTML, for the `sections` of a page."""
    blocks = "\n".join(_blocks(markdown.splitlines(), resolve))
    return f"<article>\n{blocks}\n</article>"


def inline(text: str, resolve: Resolve = web_address) -> str:
    """Returns the text of one paragraph as HTML."""
    parts: list[str] = []
    end, strong = 0, False
    for found in _INLINE.finditer(text):
        parts.append(_plain(text[end : found.start()]))
        end = found.end()
        if found["code"] is not None:
            parts.append(f"<code>{escape(found['code'].strip())}</code>")
        elif found["escaped"] is not None:
            parts.append(escape(found["escaped"]))
        elif found["url"] is not None:
            parts.append(_link(resolve(found["url"]), escape(found["url"])))
        elif found["label"] is not None:
            label = inline(found["label"], lambda _: None)
            parts.append(_link(resolve(found["target"]), label))
        else:
            strong = not strong
            parts.append("<strong>" if strong else "</strong>")
    parts.append(_plain(text[end:]))
    return "".join(parts) + "</strong>" * strong


def plain_text(text: str) -> str:
    """Returns the text of one paragraph without markup."""
    return unescape(re.sub(r"<[^>]*>", "", inline(text, lambda _: None)))


def _plain(text: str) -> str:
    return escape(unescape(text))  # a report has escaped its text already


def _link(address: str | None, label: str) -> str:
    return label if address is None else f'<a href="{escape(address)}">{label}</a>'


def _blocks(lines: Sequence[str], resolve: Resolve) -> Iterator[str]:
    at = 0
    while at < len(lines):
        line = lines[at]
        if not line.strip():
            at += 1
        elif fence := _FENCE.fullmatch(line.strip()):
            end = next(
                (n for n in range(at + 1, len(lines)) if lines[n].strip() == fence[1]), len(lines)
            )
            yield _code(lines[at + 1 : end])
            at = end + 1
        elif heading := _HEADING.fullmatch(line):
            level = min(len(heading[1]) + 1, 6)  # the page has the first level
            yield f"<h{level}>{inline(heading[2], resolve)}</h{level}>"
            at += 1
        elif line.strip() in ("<details>", "</details>"):
            yield line.strip()
            at += 1
        elif summary := _SUMMARY.fullmatch(line.strip()):
            yield f"<summary>{_plain(summary[1])}</summary>"
            at += 1
        elif line.startswith("|"):
            end = _while(lines, at, lambda one: one.startswith("|"))
            yield _table(lines[at:end], resolve)
            at = end
        elif _BULLET.match(line) and not line.startswith(_CODE_INDENT):
            end = _list_end(lines, at)
            yield _list(lines[at:end], resolve)
            at = end
        elif line.startswith(_CODE_INDENT):
            end = _while(lines, at, lambda one: one.startswith(_CODE_INDENT))
            yield _code([one[len(_CODE_INDENT) :] for one in lines[at:end]])
            at = end
        else:
            end = _while(lines, at, _continues)
            yield f"<p>{inline(' '.join(map(str.strip, lines[at:end])), resolve)}</p>"
            at = end


def _while(lines: Sequence[str], at: int, holds: Callable[[str], bool]) -> int:
    """Returns the end of the lines from `at` on that belong together; at least one does."""
    end = at + 1
    while end < len(lines) and holds(lines[end]):
        end += 1
    return end


def _continues(line: str) -> bool:
    """Whether a line continues the paragraph before it."""
    begins = line.startswith(("|", "<")) or _HEADING.fullmatch(line) or _BULLET.match(line)
    return bool(line.strip()) and not begins and not _FENCE.fullmatch(line.strip())


def _list_end(lines: Sequence[str], at: int) -> int:
    """Returns the end of a list: its items, and the lines that continue them."""
    numbered = _is_numbered(lines[at])
    end = at + 1
    while end < len(lines):
        line = lines[end]
        found = _BULLET.match(line)
        if found is None and (not line.startswith(" ") or not lines[end - 1].strip()):
            if line.strip() or not (end + 1 < len(lines) and _BULLET.match(lines[end + 1])):
                break
        elif found and not found["indent"] and _is_numbered(line) != numbered:
            break
        end += 1
    return end


def _is_numbered(line: str) -> bool:
    found = _BULLET.match(line)
    return found is not None and found["number"] is not None


def _list(lines: Sequence[str], resolve: Resolve) -> str:
    """Returns a list as HTML, with the lists below its items."""
    first = _BULLET.match(lines[0])
    assert first is not None  # noqa: S101 - the caller has matched it
    depth = len(first["indent"])
    items: list[list[str]] = []
    for line in lines:
        found = _BULLET.match(line)
        if found and len(found["indent"]) <= depth:
            items.append([found["text"]])
        else:
            items[-1].append(line)
    tag = "ul" if first["dash"] else "ol"
    listed = "".join(f"<li>{_item(item, resolve)}</li>" for item in items)
    return f"<{tag}>{listed}</{tag}>"


def _item(lines: Sequence[str], resolve: Resolve) -> str:
    below = next((n for n, line in enumerate(lines) if n and _BULLET.match(line)), len(lines))
    text = inline(" ".join(line.strip() for line in lines[:below] if line.strip()), resolve)
    return text if below == len(lines) else f"{text}{_list(lines[below:], resolve)}"


def _code(lines: Sequence[str]) -> str:
    return f"<pre><code>{escape(chr(10).join(lines))}</code></pre>"


def _table(lines: Sequence[str], resolve: Resolve) -> str:
    """Returns a table as HTML; on a narrow screen each cell is labelled with its column."""
    rows = [_cells(line) for line in lines if not _RULE.fullmatch(line.strip())]
    if not rows:  # rules alone are no table
        return f"<p>{inline(' '.join(map(str.strip, lines)), resolve)}</p>"
    heads = [inline(cell, resolve) for cell in rows[0]]
    body = "".join(
        "<tr>"
        + "".join(
            f'<td data-label="{label}"><span>{inline(cell, resolve)}</span></td>'
            for label, cell in zip(_labels(rows[0], row), row, strict=True)
        )
        + "</tr>"
        for row in rows[1:]
    )
    head = "".join(f'<th scope="col">{name}</th>' for name in heads)
    shown = f"<thead><tr>{head}</tr></thead>" if any(heads) else ""
    return f"<table>{shown}<tbody>{body}</tbody></table>"


def _labels(heads: Sequence[str], row: Sequence[str]) -> list[str]:
    plain = [escape(re.sub(r"[\\*`]", "", unescape(head))) for head in heads]
    return [*plain, *[""] * len(row)][: len(row)]


def _cells(line: str) -> list[str]:
    inner = line.strip().removeprefix("|").removesuffix("|")
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", inner)]
