"""Draws graphs: numbers over time, with their limits, thresholds and marks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator, MultipleLocator

from previewing.answered import Answered
from previewing.sheet import LETTER, Place, Sheet, date
from previewing.shown import COLOURS, PALETTE, TEXT, colour, number

MOST_FILLED = 5
"""Of more lines than this, the areas under them would hide each other."""
LEGEND_SIZE, LEGEND_HEIGHT, LEGEND_LINES = 7.5, 13, 3
TICKS = 4


def graph(sheet: Sheet, answered: Answered, place: Place) -> None:
    """A graph in its frame."""
    named = answered.named
    legend = _legend_lines([name for _, name, _ in named], place.width)
    axes = sheet.axes(place.inner(62, 30, 14, 28 + LEGEND_HEIGHT * len(legend)))
    custom = answered.defaults["custom"]
    stacked = custom.get("stacking", {}).get("mode") == "normal"
    stepped = custom.get("lineInterpolation") == "stepAfter"
    shades, under = [], dict[float, float]()
    for index, (letter, _, series) in enumerate(named):
        limit = "custom.lineStyle" in answered.field(letter).config
        shades.append(COLOURS["semi-dark-red"] if limit else PALETTE[index % len(PALETTE)])
        points = list(_with_gaps(series.points, sheet.window.step))
        below = [under.get(when, 0.0) if stacked and not limit else 0.0 for when, _ in points]
        values = [value + base for (_, value), base in zip(points, below, strict=True)]
        if stacked and not limit:
            under |= {when: value for (when, _), value in zip(points, values, strict=True)}
        dates = [date(when) for when, _ in points]
        axes.plot(
            dates,
            values,
            color=shades[-1],
            linewidth=1.1,
            linestyle=(0, (5, 3)) if limit else "solid",
            drawstyle="steps-post" if stepped else "default",
            marker="." if len(points) == 1 else "",
        )
        if not limit and (stacked or len(named) <= MOST_FILLED):
            step: Literal["post"] | None = "post" if stepped else None
            alpha = 0.35 if stacked else 0.1
            axes.fill_between(dates, values, below, color=shades[-1], alpha=alpha, step=step)
    _scale(axes, answered)
    for mark in sheet.marks:
        if sheet.window.start <= mark.at <= sheet.window.end:
            shade = colour(mark.colour)
            axes.axvline(date(mark.at), color=shade, linewidth=0.6, alpha=0.4, linestyle="--")
    _legend(sheet, legend, shades, place)


def _with_gaps(points: Sequence[tuple[float, float]], step: float) -> Iterator[tuple[float, float]]:
    """`points`, with an undrawn point in each gap longer than `step`."""
    last = math.inf
    for when, value in points:
        if when - last > 1.5 * step:
            yield last + step, math.nan
        yield when, value
        last = when


def _scale(axes: Axes, answered: Answered) -> None:
    """The thresholds that are drawn, and an axis that has room for all there is."""
    defaults = answered.defaults
    custom = defaults["custom"]
    low, high = axes.get_ylim()
    values = [value for _, _, series in answered.named for _, value in series.points]
    low = min(custom["axisSoftMin"], low if min(values) < 0 else math.inf)
    if not any(values):  # there is nothing to enlarge
        low, high = 0, 1
    high = defaults.get("max", max(high, custom.get("axisSoftMax", high)))
    if custom.get("thresholdsStyle", {}).get("mode") == "dashed":
        below, *steps = defaults["thresholds"]["steps"]
        for step in steps:
            # Where more is better, the colour that warns is the one under the line.
            shade = colour(below["color"] if step["color"] == "green" else step["color"])
            axes.axhline(step["value"], color=shade, linewidth=1, linestyle=(0, (2, 2)))
            high, below = max(high, 1.1 * step["value"]), step
    axes.set_ylim(low, high if high > low else low + 1)
    unit = defaults["unit"]
    if unit == "bytes":
        power = round(math.log2(max(high - low, 1) / TICKS))
        axes.yaxis.set_major_locator(MultipleLocator(2.0**power))
    else:
        axes.yaxis.set_major_locator(MaxNLocator(TICKS, integer=defaults.get("decimals") == 0))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value, unit)))


def _legend_lines(names: Sequence[str], width: float) -> list[list[str]]:
    """As many of `names` as there is room for, line by line."""
    lines: list[list[str]] = [[]]
    used = 0.0
    for name in names:
        need = _room(name)
        if lines[-1] and used + need > width - 20:
            if len(lines) == LEGEND_LINES:
                break
            lines.append([])
            used = 0.0
        lines[-1].append(name)
        used += need
    return lines


def _room(name: str) -> float:
    return 32 + LETTER * LEGEND_SIZE * len(name)


def _legend(
    sheet: Sheet, lines: Sequence[Sequence[str]], shades: Sequence[str], place: Place
) -> None:
    colours = iter(shades)
    y = place.bottom - LEGEND_HEIGHT * len(lines) + 5
    for line in lines:
        x = place.left + 12
        for name in line:
            sheet.write(x, y, "—", 9, next(colours), weight="bold")
            sheet.write(x + 16, y, name, LEGEND_SIZE, TEXT)
            x += _room(name)
        y += LEGEND_HEIGHT
