"""What a number is shown as: its text by unit and meaning, its colour by value."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

TEXT = "#ccccdc"
FAINT = "#8e8e9c"
COLOURS: Mapping[str, str] = {
    "green": "#73bf69",
    "yellow": "#fade2a",
    "orange": "#ff9830",
    "red": "#f2495c",
    "semi-dark-red": "#e02f44",
    "dark-red": "#c4162a",
    "blue": "#5794f2",
    "light-blue": "#8ab8ff",
    "semi-dark-blue": "#3274d9",
    "purple": "#b877d9",
    "semi-dark-purple": "#a352cc",
}
"""Grafana's names of the colours that the boards use, in its dark theme."""
PALETTE = (
    *("#73bf69", "#f2cc0c", "#8ab8ff", "#ff780a", "#f2495c", "#5794f2", "#b877d9", "#705da0"),
    *("#37872d", "#fade2a", "#447ebc", "#c15c17", "#890f02", "#0a437c", "#6d1f62", "#584477"),
)

_SPANS = ((604800, "week"), (86400, "day"), (3600, "hour"), (60, "min"), (1, "s"))
_SCALES: Mapping[str, tuple[int, Sequence[str]]] = {
    "short": (1000, ("", " K", " Mil", " Bil", " Tri")),
    "bytes": (1024, (" B", " KiB", " MiB", " GiB", " TiB")),
    "Bps": (1000, (" B/s", " kB/s", " MB/s", " GB/s")),
    "hertz": (1000, (" Hz", " kHz", " MHz", " GHz")),
}
_PLAIN: Mapping[str, tuple[float, int, str]] = {
    "none": (1, 2, ""),
    "percentunit": (100, 1, "%"),
    "watt": (1, 1, " W"),
    "celsius": (1, 1, " °C"),
    "cps": (1, 2, " c/s"),
    "reqps": (1, 2, " req/s"),
}
"""(factor, decimals, name)"""


def colour(name: str) -> str:
    """The colour of that name, or itself where it is a number. KeyError for an unknown name."""
    return name if name.startswith("#") else COLOURS[name]


@dataclass(frozen=True, slots=True)
class Field:
    """How the values of one series or column are shown."""

    config: Mapping[str, Any]

    def text(self, value: float | str) -> str:
        meaning = self._meaning(value)
        if meaning is not None and "text" in meaning:
            return str(meaning["text"])
        if isinstance(value, str):
            return value
        return number(value, self.config.get("unit", "none"), self.config.get("decimals"))

    def colour(self, value: float | str, otherwise: str | None = None) -> str:
        """The colour of a value: of its meaning, else `otherwise`, else by the thresholds."""
        meaning = self._meaning(value)
        if meaning is not None and "color" in meaning:
            return colour(meaning["color"])
        if otherwise is not None or isinstance(value, str):
            return otherwise or TEXT
        steps: Sequence[Mapping[str, Any]] = self.config.get("thresholds", {}).get("steps", [])
        reached = [step for step in steps if step["value"] is None or value >= step["value"]]
        return colour(reached[-1]["color"]) if reached else TEXT

    def _meaning(self, value: float | str) -> Mapping[str, Any] | None:
        key = value if isinstance(value, str) else f"{value:g}"
        for mapping in self.config.get("mappings", []):
            if key in mapping["options"]:
                meaning: Mapping[str, Any] = mapping["options"][key]
                return meaning
        return None


def number(value: float, unit: str, decimals: int | None = None) -> str:
    """A value with its unit, much as Grafana writes it. Raises ValueError for an unknown unit."""
    if not math.isfinite(value):
        return str(value)
    if unit in _SCALES:
        base, names = _SCALES[unit]
        return _scaled(value, base, names, decimals)
    if unit in _PLAIN:
        factor, most, name = _PLAIN[unit]
        return f"{_digits(factor * value, decimals, most)}{name}"
    match unit:
        case "s":
            return _span(value, decimals)
        case "dateTimeFromNow":
            passed = time.time() - value / 1000
            return f"in {_span(-passed, 0)}" if passed < 0 else f"{_span(passed, 0)} ago"
        case "dateTimeAsLocal":
            return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(value / 1000))
    raise ValueError(f"no unit is called {unit}")


def _digits(value: float, decimals: int | None, most: int) -> str:
    if decimals is None and 0 < abs(value) < 10 ** -(most - 1):
        return f"{value:.2g}"
    if decimals is not None:
        return f"{value:.{decimals}f}"
    return f"{value:.{most}f}".rstrip("0").rstrip(".") if most else f"{value:.0f}"


def _scaled(value: float, base: int, units: Sequence[str], decimals: int | None) -> str:
    power = 0
    while abs(value) >= base and power < len(units) - 1:
        value /= base
        power += 1
    return f"{_digits(value, decimals, 2)}{units[power]}"


def _span(seconds: float, decimals: int | None) -> str:
    if 0 < abs(seconds) < 1:
        return f"{_digits(1000 * seconds, decimals, 1)} ms"
    for length, name in _SPANS:
        if abs(seconds) >= length:
            return f"{_digits(seconds / length, decimals, 1)} {name}"
    return "0 s"
