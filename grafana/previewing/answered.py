"""A panel together with what its queries were answered."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from previewing.asking import Series
from previewing.shown import Field

_LABEL = re.compile(r"\{\{\s*(\w+)\s*\}\}")


@dataclass(frozen=True, slots=True)
class Answered:
    """A panel of a dashboard, and an answer for each of its queries."""

    panel: Mapping[str, Any]
    answers: Sequence[Sequence[Series]]

    @property
    def title(self) -> str:
        return str(self.panel["title"])

    @property
    def defaults(self) -> Mapping[str, Any]:
        """How its fields are shown, if nothing overrides it."""
        defaults: Mapping[str, Any] = self.panel["fieldConfig"]["defaults"]
        return defaults

    @property
    def named(self) -> list[tuple[str, str, Series]]:
        """Each series with the letter of its query, and its name."""
        return [
            (target["refId"], _name(target.get("legendFormat", ""), series), series)
            for target, answer in zip(self.panel["targets"], self.answers, strict=True)
            for series in answer
        ]

    def field(self, letter: str) -> Field:
        """How the series of a query are shown."""
        return self._field("byFrameRefID", letter)

    def column(self, heading: str) -> Field:
        """How a column of a table is shown."""
        return self._field("byName", heading)

    def _field(self, kind: str, name: str) -> Field:
        config = dict(self.defaults)
        for override in self.panel["fieldConfig"].get("overrides", []):
            if override["matcher"] == {"id": kind, "options": name}:
                config |= {each["id"]: each["value"] for each in override["properties"]}
        return Field(config)


def _name(legend: str, series: Series) -> str:
    return " ".join(_LABEL.sub(lambda match: series.labels.get(match[1], ""), legend).split())
