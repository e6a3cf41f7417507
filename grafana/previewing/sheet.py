"""The picture of one board: what can be put where, in pixels from its top left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from matplotlib.axes import Axes
from matplotlib.dates import MINUTELY, AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from previewing.asking import Window
from previewing.shown import FAINT, TEXT

CANVAS, PANEL, BORDER, GRID = "#111217", "#181b1f", "#2c2f36", "#2a2d33"
DOTS_PER_INCH = 100
LETTER = 0.7
"""Width of a letter by its size in points, in pixels: about that of the font that is used."""


@dataclass(frozen=True, slots=True)
class Mark:
    """An event that is marked in graphs: unix seconds, and a colour."""

    at: float
    colour: str


@dataclass(frozen=True, slots=True)
class Place:
    """A rectangle of the picture."""

    left: float
    top: float
    width: float
    height: float

    @property
    def right(self) -> float:
        return self.left + self.width

    @property
    def bottom(self) -> float:
        return self.top + self.height

    def inner(self, left: float, top: float, right: float, bottom: float) -> Place:
        """What is left of it inside these margins."""
        width = max(1.0, self.width - left - right)
        height = max(1.0, self.height - top - bottom)
        return Place(self.left + left, self.top + top, width, height)


class Sheet:
    """A picture of `width` by `height` pixels, for `window`, with `marks` in each graph."""

    def __init__(self, width: int, height: int, window: Window, marks: Sequence[Mark]) -> None:
        inches = width / DOTS_PER_INCH, height / DOTS_PER_INCH
        self.figure = Figure(figsize=inches, dpi=DOTS_PER_INCH, facecolor=CANVAS)
        self.window = window
        self.marks = marks
        self._width, self._height = width, height

    def write(self, x: float, y: float, text: str, size: float, shade: str, **more: Any) -> None:
        """Put `text` there: its left end on the line `y`, unless `more` says otherwise."""
        place = x / self._width, 1 - y / self._height
        self.figure.text(*place, text, fontsize=size, color=shade, **more)

    def heading(self, title: str, place: Place) -> None:
        """A row's title."""
        self.write(place.left + 4, place.bottom - 10, f"⌄  {title}", 11, TEXT, weight="bold")

    def frame(self, place: Place, title: str, fill: str = PANEL) -> None:
        """A panel without anything in it."""
        self.figure.add_artist(
            Rectangle(
                (place.left / self._width, 1 - place.bottom / self._height),
                place.width / self._width,
                place.height / self._height,
                facecolor=fill,
                edgecolor=BORDER,
                linewidth=0.8,
                zorder=-1,
            )
        )
        shade = TEXT if fill == PANEL else CANVAS
        self.write(place.left + 10, place.top + 19, cut(title, place.width - 16, 9), 9, shade)

    def axes(self, place: Place, *, dated: bool = True) -> Axes:
        """Room for a graph; along its bottom the time of the window, if `dated`."""
        axes = self.figure.add_axes(
            (
                place.left / self._width,
                1 - place.bottom / self._height,
                place.width / self._width,
                place.height / self._height,
            )
        )
        axes.set_facecolor("none")
        for spine in axes.spines.values():
            spine.set_visible(False)
        axes.tick_params(colors=FAINT, labelsize=7, length=0)
        axes.set_axisbelow(True)
        if dated:
            locator = AutoDateLocator(minticks=3, maxticks=7)  # type: ignore[no-untyped-call]
            locator.intervald[MINUTELY] = [1, 2, 5, 10, 15, 30]  # by default it has no 2
            formatter = ConciseDateFormatter(locator, show_offset=False)  # type: ignore[no-untyped-call]
            axes.xaxis.set_major_locator(locator)
            axes.xaxis.set_major_formatter(formatter)
            axes.set_xlim(date(self.window.start), date(self.window.end))
            axes.grid(color=GRID, linewidth=0.6)
        return axes


def date(moment: float) -> float:
    """Unix seconds as matplotlib wants them, in local time."""
    offset = datetime.fromtimestamp(moment).astimezone().utcoffset() or timedelta()
    return (moment + offset.total_seconds()) / timedelta(days=1).total_seconds()


def cut(text: str, width: float, size: float) -> str:
    """As much of `text` as there is room for."""
    most = max(3, int(width / (LETTER * size)))
    return text if len(text) <= most else f"{text[: most - 1]}…"
