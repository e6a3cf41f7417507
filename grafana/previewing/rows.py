"""The rows of a table panel: its answers merged, its columns chosen and named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from previewing.asking import Series

Row = dict[str, float | str]


def headings(panel: Mapping[str, Any]) -> list[str]:
    """The headings of the table's columns, in their order."""
    places: Mapping[str, int] = _organizing(panel)["indexByName"]
    names: Mapping[str, str] = _organizing(panel)["renameByName"]
    return [names[field] for field in sorted(places, key=lambda field: places[field])]


def rows(panel: Mapping[str, Any], answers: Sequence[Sequence[Series]]) -> list[Row]:
    """What the table shows, by heading; sorted where it says by which column."""
    several = len(panel["targets"]) > 1
    merged: dict[frozenset[tuple[str, str]], Row] = {}
    for target, answer in zip(panel["targets"], answers, strict=True):
        field = f"Value #{target['refId']}" if several else "Value"
        for series in answer:
            row = merged.setdefault(frozenset(series.labels.items()), dict(series.labels))
            row[field] = series.points[-1][1]
    found = [_organized(row, _organizing(panel)) for row in joined(merged)]
    for each in panel["options"].get("sortBy", []):
        name = each["displayName"]
        found.sort(key=lambda row: _rank(row.get(name)), reverse=bool(each.get("desc")))
    return found


def joined(merged: Mapping[frozenset[tuple[str, str]], Row]) -> list[Row]:
    """Rows whose labels are among those of another one go into that one, as Grafana merges them."""
    found: list[Row] = []
    for labels in sorted(merged, key=len, reverse=True):
        homes = [row for row in found if labels <= row.items()]
        for home in homes:
            home.update(merged[labels])
        if not homes:
            found.append(dict(merged[labels]))
    return found


def _organizing(panel: Mapping[str, Any]) -> Mapping[str, Any]:
    found = [each["options"] for each in panel["transformations"] if each["id"] == "organize"]
    options: Mapping[str, Any] = found[0]
    return options


def _organized(row: Row, options: Mapping[str, Any]) -> Row:
    names, hidden = options["renameByName"], options["excludeByName"]
    return {
        names.get(name, name): " ".join(value.split()) if isinstance(value, str) else value
        for name, value in row.items()
        if name not in hidden
    }  # without the spaces that a browser does not show, either


def _rank(value: float | str | None) -> tuple[float, str]:
    if isinstance(value, str):
        return 0.0, value
    return (float("-inf") if value is None else value), ""
