"""Tables: each query is a column, each set of labels a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from string import ascii_uppercase

from grafana_foundation_sdk.builders import common, prometheus, table
from grafana_foundation_sdk.models import common as looks
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from boards import style
from boards.panels import NAME, Drawing, Panel, threshold_values
from boards.queries import Query
from boards.style import Scale, Word

EMPTY_CELL = "-"
_NEVER_SHOWN = ("Time", "__name__", "job")


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table: a label's, or the value of a query with that legend."""

    name: str
    """The label, or the legend."""
    title: str = ""
    unit: str = ""
    decimals: int | None = None
    meanings: Sequence[Word] = ()
    colours: Sequence[tuple[str, str]] = ()
    """Colours of a label's values."""
    scale: Scale | None = None
    url: str = ""
    """Where a click leads; Grafana's variables of a cell may stand in it."""
    width: int | None = None

    @property
    def heading(self) -> str:
        return self.title or self.name

    def properties(self) -> list[models.DynamicConfigValue]:
        """The Grafana overrides of this column."""
        # What a whole table says when it is empty would else stand in each empty cell.
        values: dict[str, object] = {"noValue": EMPTY_CELL}
        if self.unit:
            values["unit"] = self.unit
        if self.decimals is not None:
            values["decimals"] = self.decimals
        if self.meanings:
            values["mappings"] = style.mappings(self.meanings)
        if self.colours:
            values["mappings"] = [style.coloured(text, colour) for text, colour in self.colours]
        if self.scale is not None:
            values["thresholds"] = threshold_values(self.scale)
        if self.scale is not None or self.meanings or self.colours:
            values["custom.cellOptions"] = {"type": "color-text"}
        if self.url:
            values["links"] = [{"title": "Open", "url": self.url}]
        if self.width is not None:
            values["custom.width"] = self.width
        return [models.DynamicConfigValue(id_val=key, value=value) for key, value in values.items()]


@dataclass(frozen=True, kw_only=True)
class Table(Panel):
    """What is, now; labels that no column names are left out."""

    unit: str = NAME
    columns: Sequence[Column]
    """In their order. The values of a query whose legend is none of their names are not shown: it
    is there for its labels."""
    left_out: Sequence[str] = ()
    """Further labels of the queries."""
    sorted_by: str = ""
    """The heading of a column; the greatest comes first."""

    def target(self, query: Query) -> prometheus.Dataquery:
        return prometheus.Dataquery().instant().format(PromQueryFormat.TABLE).legend_format("")

    def drawing(self) -> Drawing:
        panel = table.Panel().cell_height(looks.TableCellHeight.SM).filterable(filterable=False)
        if len(self.queries) > 1:
            panel = panel.with_transformation(
                models.DataTransformerConfig(id_val="merge", options={})
            )
        panel = panel.with_transformation(
            models.DataTransformerConfig(
                id_val="organize",
                options={
                    "excludeByName": dict.fromkeys(self._hidden(), True),
                    "indexByName": {
                        self._field(column): place for place, column in enumerate(self.columns)
                    },
                    "renameByName": self._headings(),
                },
            )
        )
        for column in self.columns:
            panel = panel.override_by_name(column.heading, column.properties())
        if self.sorted_by:
            order = common.TableSortByFieldState().display_name(self.sorted_by).desc(desc=True)
            panel = panel.sort_by([order])
        return panel

    def _headings(self) -> dict[str, str]:
        headings = {self._field(column): column.heading for column in self.columns}
        # Where but one of several queries has an answer, its column has no letter.
        values = [column for column in self.columns if self._field(column).startswith("Value")]
        return {"Value": values[0].heading} | headings if values else headings

    def _hidden(self) -> tuple[str, ...]:
        shown = [column.name for column in self.columns]
        values = [self._value(query.legend) for query in self.queries if query.legend not in shown]
        never = [label for label in _NEVER_SHOWN if label not in shown]
        return (*never, *self.left_out, *values)

    def _field(self, column: Column) -> str:
        """What Grafana calls the field before it is renamed."""
        legends = [query.legend for query in self.queries]
        return self._value(column.name) if column.name in legends else column.name

    def _value(self, legend: str) -> str:
        legends = [query.legend for query in self.queries]
        if len(legends) == 1:
            return "Value"
        return f"Value #{ascii_uppercase[legends.index(legend)]}"
