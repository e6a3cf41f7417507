"""What boards are made of, in our terms; each kind knows how Grafana wants it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Protocol, Self

from grafana_foundation_sdk.builders import (
    bargauge,
    common,
    prometheus,
    stat,
    statetimeline,
    text,
    timeseries,
)
from grafana_foundation_sdk.builders.dashboard import FieldColor
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.variants import Dataquery
from grafana_foundation_sdk.models import common as looks
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models import text as looks_of_text

from boards import style
from boards.queries import Query
from boards.style import Scale, Word

DATASOURCE = looks.DataSourceRef(type_val="prometheus", uid="${datasource}")
SECONDS, BYTES, SHARE, COUNT, NAME = "s", "bytes", "percentunit", "short", "none"


class Drawing(Protocol):
    """What the builders of all kinds of panels have in common."""

    def build(self) -> models.Panel: ...
    def id(self, id_val: int) -> Self: ...
    def title(self, title: str) -> Self: ...
    def description(self, description: str) -> Self: ...
    def datasource(self, datasource: looks.DataSourceRef) -> Self: ...
    def with_target(self, target: Builder[Dataquery]) -> Self: ...
    def grid_pos(self, grid_pos: models.GridPos) -> Self: ...
    def unit(self, unit: str) -> Self: ...
    def decimals(self, decimals: float) -> Self: ...
    def time_from(self, time_from: str) -> Self: ...
    def max_data_points(self, max_data_points: float) -> Self: ...
    def min(self, min_val: float) -> Self: ...
    def max(self, max_val: float) -> Self: ...
    def mappings(self, mappings: list[models.ValueMapping]) -> Self: ...
    def thresholds(self, thresholds: Builder[models.ThresholdsConfig]) -> Self: ...
    def no_value(self, no_value: str) -> Self: ...


@dataclass(frozen=True, kw_only=True)
class Panel(ABC):
    """A panel, without its place."""

    title: str
    about: str
    """What it shows, and what good looks like."""
    queries: Sequence[Query]
    unit: str
    """As Grafana calls it; `NAME` where all that is shown are words."""
    width: int = 8
    """In columns of 24."""
    height: int = 8
    scale: Scale = style.PLAIN
    meanings: Sequence[Word] = ()
    decimals: int | None = None
    low: float | None = None
    high: float | None = None
    empty: str = ""
    """What it says when it is empty, if not why its first query may be."""
    is_of_the_week: bool = False
    """Whether it shows the last seven days, minute by minute, whatever the board shows."""

    @abstractmethod
    def drawing(self) -> Drawing:
        """Grafana's panel, with what is only of this kind."""

    def target(self, query: Query) -> prometheus.Dataquery:
        """Grafana's query."""
        return prometheus.Dataquery().range().legend_format(query.legend)

    @property
    def emptiness(self) -> str:
        """What it says when it is empty."""
        return self.empty or next(
            (f"Nothing here: {query.empty_when}." for query in self.queries if query.empty_when),
            "Nothing here: no exporter that watches this was scraped.",
        )

    def builder(self, number: int, place: models.GridPos) -> Drawing:
        """Grafana's panel, whole."""
        drawing = (
            self.drawing()
            .id(number)
            .title(self.title)
            .description(self.about)
            .datasource(DATASOURCE)
            .grid_pos(place)
            .unit(self.unit)
            .no_value(self.emptiness)
            .mappings(style.mappings(self.meanings))
            .thresholds(self.scale.builder())
        )
        if self.decimals is not None:
            drawing = drawing.decimals(self.decimals)
        if self.is_of_the_week:
            drawing = drawing.time_from("7d").max_data_points(7 * 24 * 60)
        if self.low is not None:
            drawing = drawing.min(self.low)
        if self.high is not None:
            drawing = drawing.max(self.high)
        for name, query in zip(ascii_uppercase, self.queries, strict=False):
            target = self.target(query).ref_id(name).datasource(DATASOURCE).expr(query.promql)
            drawing = drawing.with_target(target)
        return drawing


def last_value() -> common.ReduceDataOptions:
    """The newest number of each series; Grafana's own choice may be an empty one."""
    return common.ReduceDataOptions().calcs(["lastNotNull"]).values(values=False).fields("")


@dataclass(frozen=True, kw_only=True)
class Stat(Panel):
    """One number or word at a glance."""

    height: int = 4
    filled: bool = False
    """Whether the whole panel has the colour."""
    named: bool = False
    """Whether each number has its legend beside it, though there may be but one."""
    curve: bool = False

    def target(self, query: Query) -> prometheus.Dataquery:
        target = prometheus.Dataquery().legend_format(query.legend)
        return target.range() if self.curve else target.instant()

    def drawing(self) -> Drawing:
        mode = looks.BigValueColorMode
        words = looks.BigValueTextMode
        curve = looks.BigValueGraphMode
        return (
            stat.Panel()
            .reduce_options(last_value())
            .color_mode(mode.BACKGROUND_SOLID if self.filled else mode.VALUE)
            .text_mode(words.VALUE_AND_NAME if self.named else words.AUTO)
            .graph_mode(curve.AREA if self.curve else curve.NONE)
            .justify_mode(looks.BigValueJustifyMode.CENTER)
            .color_scheme(FieldColor().mode(models.FieldColorModeId.THRESHOLDS))
        )


def number(
    title: str,
    about: str,
    text: str,
    empty_when: str = "",
    scale: Scale = style.PLAIN,
    *,
    width: int = 4,
    unit: str = NAME,
    empty: str = "not reported",
) -> Stat:
    """One number, of one query."""
    return Stat(
        title=title,
        about=about,
        queries=[Query(text, "", empty_when)],
        unit=unit,
        decimals=0,
        width=width,
        scale=scale,
        empty=empty,
    )


@dataclass(frozen=True, kw_only=True)
class Graph(Panel):
    """Numbers over time."""

    stacked: bool = False
    stepped: bool = False
    """For what holds until it changes, such as a step."""
    shaded: bool = False
    """Whether the values of `scale` are drawn."""

    def drawing(self) -> Drawing:
        panel = (
            timeseries.Panel()
            .legend(
                common.VizLegendOptions()
                .display_mode(looks.LegendDisplayMode.LIST)
                .placement(looks.LegendPlacement.BOTTOM)
                .show_legend(show_legend=True)
                .calcs([])
            )
            .tooltip(
                common.VizTooltipOptions()
                .mode(looks.TooltipDisplayMode.MULTI)
                .sort(looks.SortOrder.DESCENDING)
            )
            .color_scheme(FieldColor().mode(models.FieldColorModeId.PALETTE_CLASSIC))
            .line_width(1)
            .fill_opacity(40 if self.stacked else 8)
            .show_points(looks.VisibilityMode.NEVER)
            .axis_soft_min(0)
        )
        if self.decimals == 0:
            panel = panel.axis_soft_max(1)
        if self.stepped:
            panel = panel.line_interpolation(looks.LineInterpolation.STEP_AFTER)
        if self.stacked:
            panel = panel.stacking(
                common.StackingConfig().mode(looks.StackingMode.NORMAL).group("A")
            )
        if self.shaded:
            panel = panel.thresholds_style(
                common.GraphThresholdsStyleConfig().mode(looks.GraphThresholdsStyleMode.DASHED)
            )
        for name, query in zip(ascii_uppercase, self.queries, strict=False):
            if query.limit:
                panel = panel.override_by_query(name, _as_limit())
        return panel


def _as_limit() -> list[models.DynamicConfigValue]:
    values: dict[str, object] = {
        "color": {"mode": "fixed", "fixedColor": style.LIMIT},
        "custom.lineStyle": {"fill": "dash", "dash": [8, 6]},
        "custom.fillOpacity": 0,
        "custom.stacking": {"mode": "none", "group": "limits"},
    }
    return [models.DynamicConfigValue(id_val=name, value=value) for name, value in values.items()]


@dataclass(frozen=True, kw_only=True)
class Timeline(Panel):
    """One bar for each series; colour and text show its state."""

    unit: str = NAME
    height: int = 5

    def drawing(self) -> Drawing:
        return (
            statetimeline.Panel()
            .legend(
                common.VizLegendOptions()
                .display_mode(looks.LegendDisplayMode.LIST)
                .placement(looks.LegendPlacement.BOTTOM)
                .show_legend(show_legend=True)
                .calcs([])
            )
            .tooltip(common.VizTooltipOptions().mode(looks.TooltipDisplayMode.SINGLE))
            # With thresholds, Grafana shows merged values by threshold and not by their meaning:
            # https://github.com/grafana/grafana/issues/40661
            .color_scheme(FieldColor().mode(models.FieldColorModeId.FIXED).fixed_color(style.CALM))
            .merge_values(merge_values=True)
            .show_value(looks.VisibilityMode.AUTO)
            .row_height(0.85)
            .fill_opacity(75)
            .line_width(0)
        )


@dataclass(frozen=True, kw_only=True)
class Bars(Panel):
    """Numbers side by side."""

    def target(self, query: Query) -> prometheus.Dataquery:
        return prometheus.Dataquery().instant().legend_format(query.legend)

    def drawing(self) -> Drawing:
        return (
            bargauge.Panel()
            .reduce_options(last_value())
            .orientation(looks.VizOrientation.HORIZONTAL)
            .display_mode(looks.BarGaugeDisplayMode.BASIC)
            .value_mode(looks.BarGaugeValueMode.COLOR)
            .color_scheme(FieldColor().mode(models.FieldColorModeId.THRESHOLDS))
        )


@dataclass(frozen=True, kw_only=True)
class Text(Panel):
    """Words that depend on no query; Grafana's variables of the board may stand in them."""

    queries: Sequence[Query] = ()
    unit: str = NAME
    content: str
    """Markdown."""

    def drawing(self) -> Drawing:
        return text.Panel().mode(looks_of_text.TextMode.MARKDOWN).content(self.content)


def threshold_values(scale: Scale) -> dict[str, object]:
    """`scale` as a property of one column."""
    built = scale.builder().build()
    steps = [{"value": step.value, "color": step.color} for step in built.steps]
    return {"mode": "absolute", "steps": steps}
