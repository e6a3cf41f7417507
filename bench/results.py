"""What a bench found: a table to be printed and kept, and how a cost grows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class Growth:
    """How a cost grows with a size: points of (size, cost), sizes ascending."""

    name: str
    size: str
    cost: str
    points: tuple[tuple[float, float], ...]

    @property
    def slope(self) -> float:
        """Cost of one more, by the straight line of least squares through the points."""
        middle = [sum(values) / len(self.points) for values in zip(*self.points, strict=True)]
        spread = sum((size - middle[0]) ** 2 for size, _ in self.points)
        lean = sum((size - middle[0]) * (cost - middle[1]) for size, cost in self.points)
        return float(lean / spread)

    @property
    def power(self) -> float | None:
        """1 for a cost that grows as its size does, less for a cost that grows more slowly.

        By the two largest sizes, where what is there anyway weighs least; None where one of them
        costs too little to measure.
        """
        (size, cost), (larger, more) = self.points[-2:]
        return (
            math.log(more / cost) / math.log(larger / size) if min(cost, more, size) > 0 else None
        )

    def __str__(self) -> str:
        power = self.power
        tail = "" if power is None else f"; at the end it grows as size to the power {power:.2f}"
        return f"{self.name}: {self.slope:.3g} {self.cost} for one more of {self.size}{tail}"


@dataclass(frozen=True, slots=True)
class Result:
    """One table, what must be known to read it, and how costs grew in it."""

    title: str
    about: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    growth: tuple[Growth, ...] = ()

    def text(self) -> str:
        """For a terminal."""
        table = (self.columns, *self.rows)
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in table
        ]
        return "\n".join([self.title, *(f"  {line}" for line in (*lines, *map(str, self.growth)))])

    def page(self) -> str:
        """For a page, in Markdown."""
        rows = (self.columns, ("---",) * len(self.columns), *self.rows)
        table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
        grown = "".join(f"\n- {one}." for one in self.growth)
        head = f"## {self.title}\n\n{self.about}\n"
        return head + (f"\n{table}\n" if self.rows else "") + (f"{grown}\n" if grown else "")


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms"


def mebibytes(size: float) -> str:
    return f"{size / 2**20:.1f} MiB"


def times(theirs: float, ours: float) -> str:
    """How many times as much as ours theirs is."""
    return f"{theirs / ours:.1f}x" if ours > 0 else ""


def picture(growths: Sequence[Growth]) -> Figure:
    """A small graph for each, two in a row, with the straight line of its slope."""
    # here, because it would count as memory of what is measured in processes of a bench's own
    from matplotlib.figure import Figure  # noqa: PLC0415

    across = 2
    down = math.ceil(len(growths) / across)
    figure = Figure(figsize=(4.2 * across, 3.1 * down), layout="constrained")
    places = figure.subplots(down, across, squeeze=False).flat
    for axes, growth in itertools.zip_longest(places, growths):
        if growth is None:
            axes.set_axis_off()
            continue
        sizes, costs = zip(*growth.points, strict=True)
        start = sum(costs) / len(costs) - growth.slope * sum(sizes) / len(sizes)
        line = [start + growth.slope * size for size in sizes]
        axes.plot(sizes, line, "-", color="0.65", linewidth=1.2, zorder=1)
        axes.plot(sizes, costs, "o", color="tab:blue", markersize=6, zorder=2)
        power = "" if growth.power is None else f", power {growth.power:.2f}"
        caption = f"{growth.name}: {growth.slope:.3g} for one more{power}"
        axes.set_title(caption, fontsize=9, color="0.35")
        axes.set_xlabel(growth.size)
        axes.set_ylabel(growth.cost)
        axes.set_ylim(bottom=0, top=1.1 * max(*costs, *line))
        axes.set_xlim(left=0)
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.yaxis.set_major_formatter("{x:,.10g}")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="0.9")
        axes.set_axisbelow(True)
    return figure
