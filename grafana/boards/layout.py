"""Where panels go: row by row, from left to right, each shelf as high as what stands on it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from grafana_foundation_sdk.models.dashboard import GridPos

from boards.panels import Panel

COLUMNS = 24


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under a heading."""

    title: str
    panels: Sequence[Panel]


def place(rows: Sequence[Row]) -> Iterator[tuple[Row | Panel, GridPos]]:
    """Every heading and every panel, with its place.

    ValueError for a shelf with a gap, or whose panels differ in height.
    """
    y = 0
    for row in rows:
        yield row, GridPos(x=0, y=y, w=COLUMNS, h=1)
        y += 1
        for shelf in _shelves(row):
            x = 0
            for panel in shelf:
                yield panel, GridPos(x=x, y=y, w=panel.width, h=panel.height)
                x += panel.width
            y += shelf[0].height


def _shelves(row: Row) -> Iterator[list[Panel]]:
    shelf: list[Panel] = []
    for panel in row.panels:
        shelf.append(panel)
        width = sum(each.width for each in shelf)
        if width > COLUMNS or panel.height != shelf[0].height:
            titles = ", ".join(each.title for each in shelf)
            raise ValueError(f"{row.title}: these do not fit side by side: {titles}")
        if width == COLUMNS:
            yield shelf
            shelf = []
    if shelf:
        raise ValueError(f"{row.title}: there is room left beside {shelf[-1].title}")
