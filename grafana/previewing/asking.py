"""Asks Prometheus what Grafana would ask it for a board on which everything is chosen."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

SCRAPE_INTERVAL = 5.0
"""Of the provisioned data source, in seconds."""
MOST_POINTS = 400
"""Of a series, about as many as a panel is wide."""

_LABEL_VALUES = re.compile(r"label_values\((.*), *(\w+)\)", re.DOTALL)
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|([^\W\d]\w*))")
"""A variable; a digit after the $ is a group of PromQL's `label_replace`."""


class RefusedError(Exception):
    """Prometheus has not answered a query, or not as it should."""


@dataclass(frozen=True, slots=True)
class Series:
    """One series of an answer: (unix seconds, value), the oldest first."""

    labels: Mapping[str, str]
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Window:
    """The time that a board shows; unix seconds."""

    start: float
    end: float
    points: int = MOST_POINTS

    def of(self, panel: Mapping[str, Any]) -> Window:
        """What `panel` shows: a number of days of its own, or the same."""
        points = panel.get("maxDataPoints", self.points)
        days = panel.get("timeFrom")
        start = self.start if days is None else self.end - 86400 * int(days.removesuffix("d"))
        return Window(start, self.end, points)

    @property
    def step(self) -> float:
        """Between two points of a graph."""
        return max(SCRAPE_INTERVAL, (self.end - self.start) / self.points)

    @property
    def words(self) -> dict[str, str]:
        """What Grafana's own variables stand for."""
        seconds = round(max(self.end - self.start, 1))
        return {
            "__range": f"{seconds}s",
            "__interval": f"{round(self.step)}s",
            "__interval_ms": f"{1000 * round(self.step)}",
            "__rate_interval": f"{round(max(self.step + SCRAPE_INTERVAL, 4 * SCRAPE_INTERVAL))}s",
        }


class Prometheus:
    """The HTTP interface of a Prometheus."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")

    def at(self, query: str, moment: float) -> list[Series]:
        """The answer to an instant query. Raises RefusedError."""
        return _series(self._ask("query", query=query, time=f"{moment:.3f}"))

    def over(self, query: str, window: Window) -> list[Series]:
        """The answer to a range query. Raises RefusedError."""
        parameters = {"start": f"{window.start:.3f}", "end": f"{window.end:.3f}"}
        return _series(
            self._ask("query_range", query=query, step=f"{window.step:.3f}", **parameters)
        )

    def label_values(self, selector: str, label: str, window: Window) -> list[str]:
        """The values of `label` in the series of `selector`. Raises RefusedError."""
        parameters = {"start": f"{window.start:.3f}", "end": f"{window.end:.3f}"}
        values = self._ask(f"label/{label}/values", **{"match[]": selector}, **parameters)
        return [str(value) for value in values]

    def _ask(self, path: str, **parameters: str) -> Any:
        body = urllib.parse.urlencode(parameters)
        url = f"{self._url}/api/v1/{path}"
        # Queries may be too long for a URL; label values can be asked for in no other way.
        request = (
            urllib.request.Request(f"{url}?{body}")  # noqa: S310 - the caller's own Prometheus
            if path.startswith("label/")
            else urllib.request.Request(url, body.encode())  # noqa: S310 - as above
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as reply:  # noqa: S310 - as above
                return json.load(reply)["data"]
        except urllib.error.HTTPError as error:
            with error:
                raise RefusedError(f"{error.read().decode()}: {parameters}") from error
        except (OSError, ValueError, KeyError) as error:
            raise RefusedError(f"{error}: {parameters}") from error


def _series(data: Any) -> list[Series]:
    if data["resultType"] == "scalar":
        data = {"result": [{"metric": {}, "value": data["result"]}]}
    return [
        Series(
            one["metric"],
            [(float(when), float(value)) for when, value in one.get("values", [one.get("value")])],
        )
        for one in data["result"]
    ]


def filled(text: str, values: Mapping[str, str]) -> str:
    """`text` with each variable replaced. Raises KeyError for an undeclared variable."""
    return _VARIABLE.sub(lambda match: values[match[1] or match[2]], text)


def parts(query: str) -> tuple[str, str]:
    """(selector, label) of `label_values(…)`. ValueError when it is none."""
    match = _LABEL_VALUES.fullmatch(query)
    if match is None:
        raise ValueError(f"not label_values(…): {query}")
    return match[1], match[2]


@dataclass(frozen=True, slots=True)
class Chosen:
    """The variables of a board with everything chosen."""

    options: Mapping[str, Sequence[str]]
    """What there is to choose."""
    values: Mapping[str, str]
    """What stands in queries for it."""


def choose_all(
    model: Mapping[str, Any], prometheus: Prometheus, window: Window, first: Sequence[str] = ()
) -> Chosen:
    """Choose "All" of each variable of a dashboard; of those named in `first`, its first option.

    Raises RefusedError.
    """
    options: dict[str, Sequence[str]] = {}
    values = dict(window.words)
    for variable in model["templating"]["list"]:
        name = variable["name"]
        if variable["type"] != "query":
            continue
        selector, label = parts(filled(variable["query"]["query"], values))
        found = prometheus.label_values(selector, label, window)
        if regex := variable.get("regex"):
            matches = [re.search(regex.strip("/"), value) for value in found]
            found = sorted({match[1] for match in matches if match is not None})
        options[name] = found
        escaped = [re.escape(value).replace("\\", "\\\\") for value in found]
        if name in first and found:
            values[name] = escaped[0]
        elif variable.get("allValue"):
            values[name] = variable["allValue"]
        else:
            values[name] = escaped[0] if len(escaped) == 1 else f"({'|'.join(escaped)})"
    return Chosen(options, values)


def answer(
    target: Mapping[str, Any], prometheus: Prometheus, window: Window, values: Mapping[str, str]
) -> list[Series]:
    """What a panel's query is answered. Raises RefusedError."""
    query = filled(target["expr"], values)
    if target.get("instant"):
        return prometheus.at(query, window.end)
    return prometheus.over(query, window)
