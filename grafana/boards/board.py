"""A board: what is on it, and the JSON that Grafana loads."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as models

from boards import layout, variables
from boards.layout import Row
from boards.panels import DATASOURCE, Panel
from boards.queries import promql
from boards.variables import Variable

TAG = "trainwarden"
SCHEMA = 39
RUNBOOKS = "https://github.com/trainwarden/trainwarden/blob/main/docs/runbooks"


@dataclass(frozen=True, slots=True)
class Mark:
    """A kind of event that is marked in every graph."""

    name: str
    text: str
    """PromQL, as of a `Query`."""
    title: str
    """Grafana's template of what a mark says."""
    colour: str
    empty_when: str
    moments: bool = False
    """Whether the values are the times of the events (unix milliseconds), instead of a mark for as
    long as there is a value."""
    shown: bool = True
    """Whether the marks are shown by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """A dashboard."""

    uid: str
    title: str
    """After the name of the project."""
    about: str
    variables: Sequence[Variable]
    rows: Sequence[Row]
    marks: Sequence[Mark] = ()
    since: str = "now-6h"
    refresh: str = "30s"

    @property
    def file(self) -> str:
        return f"{self.uid}.json"

    @property
    def panels(self) -> Iterator[Panel]:
        for row in self.rows:
            yield from row.panels

    def model(self, others: Sequence[Board]) -> dict[str, Any]:
        """What Grafana loads, with links to `others`."""
        dashboard = (
            builders.Dashboard(f"Trainwarden / {self.title}")
            .uid(self.uid)
            .description(self.about)
            .tags([TAG])
            .readonly()
            .time(self.since, "now")
            .refresh(self.refresh)
            .timezone("browser")
            .tooltip(models.DashboardCursorSync.CROSSHAIR)
            .variables(variables.builders(self.variables))
            .annotations([_annotation(mark) for mark in self.marks])
            .links([_link(board) for board in others if board.uid != self.uid])
        )
        for item, position in layout.place(self.rows):
            if isinstance(item, Row):
                row = builders.Row(item.title).grid_pos(position).id(number(f"row {item.title}"))
                dashboard = dashboard.with_row(row)
            else:
                panel = item.builder(number(item.title), position)
                dashboard = dashboard.with_panel(cast("Builder[models.Panel]", panel))
        model: dict[str, Any] = json.loads(JSONEncoder().encode(dashboard.build()))
        # Grafana 10 and newer bring it up to date from here by themselves.
        model["schemaVersion"] = SCHEMA
        # The builders put these into a hidden menu.
        for item in (*model["links"], *model["annotations"]["list"]):
            item.pop("placement", None)
        return model


def number(title: str) -> int:
    """The number of a panel, by its title: links to it last when others come and go."""
    return zlib.crc32(title.encode()) % 1_000_000 + 1


def encoded(model: Mapping[str, Any]) -> str:
    """The text of a board's file."""
    return json.dumps(model, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _annotation(mark: Mark) -> builders.AnnotationQuery:
    return (
        builders.AnnotationQuery()
        .name(mark.name)
        .datasource(DATASOURCE)
        .enable(mark.shown)
        .hide(hide=False)
        .icon_color(mark.colour)
        .expr(promql(mark.text))
        .step("15s")
        .title_format(mark.title)
        .text_format("")
        .use_value_for_time(mark.moments)
    )


def _link(board: Board) -> builders.DashboardLink:
    return (
        builders.DashboardLink(board.title)
        .type(models.DashboardLinkType.LINK)
        .url(f"/d/{board.uid}")
        .icon("dashboard")
        .tooltip(board.about)
        .include_vars(include_vars=True)
        .keep_time(keep_time=True)
        .target_blank(target_blank=False)
        .as_dropdown(as_dropdown=False)
        .tags([])
    )
