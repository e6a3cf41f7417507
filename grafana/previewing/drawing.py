"""Draws panels: an approximation of what Grafana shows, to look at without one."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence

from previewing.answered import Answered
from previewing.graphs import graph
from previewing.rows import headings, rows
from previewing.sheet import CANVAS, LETTER, Place, Sheet, cut, date
from previewing.shown import FAINT, TEXT, colour

LINK, EMPTY = "#6e9fff", "-"
LINE = 19
"""Pixels from one line of a table to the next."""


def panel(sheet: Sheet, answered: Answered, place: Place) -> None:
    """Draw a panel. KeyError for one of a type that the boards do not use."""
    draw = _KINDS[answered.panel["type"]]
    if any(answered.answers) or answered.panel["type"] == "text":
        draw(sheet, answered, place)
    else:
        sheet.frame(place, answered.title)
        _say(sheet, str(answered.defaults["noValue"]), place, base=_base(answered))


def _base(answered: Answered) -> str:
    if answered.panel["type"] != "stat":
        return FAINT
    return colour(answered.defaults["thresholds"]["steps"][0]["color"])


def _say(sheet: Sheet, text: str, place: Place, base: str) -> None:
    """What there is to say of nothing."""
    large = base != FAINT and len(text) < place.width / 12
    wrapped = textwrap.fill(text, max(12, int(place.width / 7.2)))
    x, y = place.left + place.width / 2, place.top + place.height / 2 + 10
    shade = base if large else FAINT
    sheet.write(x, y, wrapped, 13 if large else 9, shade, ha="center", va="center")


def _stat(sheet: Sheet, answered: Answered, place: Place) -> None:
    named = answered.named
    room = place.width / len(named)
    filled = answered.panel["options"]["colorMode"] == "background_solid"
    shades = [answered.field(letter).colour(each.points[-1][1]) for letter, _, each in named]
    if filled:
        sheet.frame(place, answered.title, shades[0])
    else:
        sheet.frame(place, answered.title)
    for index, (letter, name, series) in enumerate(named):
        text = answered.field(letter).text(series.points[-1][1])
        x, y = place.left + (index + 0.5) * room, place.top + 0.6 * place.height
        size = min(24.0, 1.2 * room / max(len(text), 1))
        shade = CANVAS if filled else shades[index]
        sheet.write(x, y, text, size, shade, weight="bold", ha="center", va="center")
        if len(named) > 1:
            sheet.write(x, place.bottom - 12, name, 8, FAINT, ha="center")


def _graph(sheet: Sheet, answered: Answered, place: Place) -> None:
    sheet.frame(place, answered.title)
    graph(sheet, answered, place)


def _timeline(sheet: Sheet, answered: Answered, place: Place) -> None:
    sheet.frame(place, answered.title)
    named, window = answered.named, sheet.window
    longest = max(len(name) for _, name, _ in named)
    room = min(0.3 * place.width, 24 + LETTER * 7.5 * max(longest, 8))
    inner = place.inner(room, 30, 14, 22)
    axes = sheet.axes(inner)
    for index, (letter, name, series) in enumerate(named):
        field = answered.field(letter)
        for start, end, value in _stretches(series.points, window.step):
            left, right = date(start), min(date(end), date(window.end))
            axes.barh(-index, right - left, 0.8, left, color=field.colour(value), alpha=0.85)
            text = field.text(value)
            if (end - start) / (window.end - window.start) * inner.width > LETTER * 9 * len(text):
                middle = (left + right) / 2
                axes.text(middle, -index, text, color=CANVAS, size=7, ha="center", va="center")
        y = inner.top + (index + 0.5) / len(named) * inner.height
        label = cut(name, room - 16, 7.5)
        sheet.write(inner.left - 8, y, label, 7.5, TEXT, ha="right", va="center")
    axes.set_ylim(-len(named) + 0.5, 0.5)
    axes.set_yticks([])


def _stretches(
    points: Sequence[tuple[float, float]], step: float
) -> Iterator[tuple[float, float, float]]:
    """(from, to, value) of each stretch of time without a change or a gap."""
    start, end, held = 0.0, 0.0, None
    for when, value in points:
        if held is not None and (value != held or when - end > step / 2):
            yield start, end, held
            held = None
        if held is None:
            start, held = when, value
        end = when + step
    if held is not None:
        yield start, end, held


def _bars(sheet: Sheet, answered: Answered, place: Place) -> None:
    sheet.frame(place, answered.title)
    named = answered.named
    axes = sheet.axes(place.inner(130, 32, 60, 12), dated=False)
    for index, (letter, name, series) in enumerate(named):
        field, value = answered.field(letter), series.points[-1][1]
        axes.barh(-index, value, 0.6, color=field.colour(value))
        axes.text(0, -index, f"{name}  ", color=TEXT, size=8, ha="right", va="center")
        axes.text(value, -index, f"  {field.text(value)}", color=TEXT, size=8, va="center")
    highest = max((series.points[-1][1] for *_, series in named), default=1.0)
    axes.set_xlim(0, answered.defaults.get("max", highest))
    axes.set_ylim(-max(len(named), 4) + 0.5, 0.5)
    axes.set_xticks([])
    axes.set_yticks([])


def _table(sheet: Sheet, answered: Answered, place: Place) -> None:
    sheet.frame(place, answered.title)
    found = rows(answered.panel, answered.answers)[: int((place.height - 50) / LINE)]
    wanted = headings(answered.panel)
    further = {name for row in found for name in row if name not in wanted}
    shown = [name for name in wanted if any(row.get(name, "") != "" for row in found)] + sorted(
        further
    )
    fields = {name: answered.column(name) for name in shown}
    columns = {
        name: [fields[name].text(row[name]) if row.get(name, "") != "" else EMPTY for row in found]
        for name in shown
    }
    lengths = {name: 3 + max(map(len, (name, *texts))) for name, texts in columns.items()}
    letter = min(9.0, (place.width - 20) / sum(lengths.values()))
    x = place.left + 10
    for name, texts in columns.items():
        width = letter * lengths[name]
        sheet.write(x, place.top + 42, cut(name, width, 8), 8, LINK)
        plain = "custom.cellOptions" not in fields[name].config
        for index, (row, text) in enumerate(zip(found, texts, strict=True)):
            shade = fields[name].colour(row.get(name, ""), TEXT if plain else None)
            sheet.write(x, place.top + 62 + LINE * index, cut(text, width, 8), 8, shade)
        x += width


def _text(sheet: Sheet, answered: Answered, place: Place) -> None:
    sheet.frame(place, answered.title)
    content = str(answered.panel["options"]["content"]).strip()
    lines = [
        line
        for paragraph in re.sub(r"\n {2,}", " ", content).splitlines()
        for line in textwrap.wrap(re.sub(r"\]\(.*?\)|[`\[]", "", paragraph), int(place.width / 6))
    ]
    for index, line in enumerate(lines[: int((place.height - 40) / LINE)]):
        y = place.top + 46 + LINE * index
        sheet.write(place.left + 12, y, line, 8, TEXT, parse_math=False)


_KINDS: Mapping[str, Callable[[Sheet, Answered, Place], None]] = {
    "stat": _stat,
    "timeseries": _graph,
    "state-timeline": _timeline,
    "bargauge": _bars,
    "table": _table,
    "text": _text,
}
