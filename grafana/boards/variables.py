"""The variables of boards, chosen at the top."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from grafana_foundation_sdk.builders.dashboard import DatasourceVariable, QueryVariable
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import dashboard as models

from boards import why
from boards.panels import DATASOURCE
from boards.queries import promql

ANY = ".+"
EXPORTERS = 'up{job="trainwarden-exporter"}'
OF_A_RUN = (
    "worker_expected_processes",
    "training_finished",
    "checkpoint_seen_timestamp_seconds",
    "rollout_seen_timestamp_seconds",
    "log_seen_timestamp_seconds",
    "inference_info",
    "container_seen_timestamp_seconds",
)
"""A run has at least one of these metrics, whatever of it is watched."""


@dataclass(frozen=True, slots=True)
class Variable:
    """A choice among the values of a label; several may be chosen, and all are at first."""

    name: str
    label: str
    selector: str
    """Whose series carry it, as in a `Query`."""
    source: str
    """The label of these series."""
    about: str
    empty_when: str = ""
    """As of a `Query`."""
    single: bool = False
    """Whether one value is chosen at a time."""
    part: str = ""
    """Regular expression whose first group is the part of the label that counts. Such a variable
    is hidden; its values follow from others."""

    @property
    def query(self) -> str:
        """As Grafana gets it."""
        return f"label_values({promql(self.selector)}, {self.source})"

    def builder(self) -> QueryVariable:
        variable = (
            QueryVariable(self.name)
            .label(self.label)
            .description(self.about)
            .datasource(DATASOURCE)
            .query({"qryType": 1, "query": self.query, "refId": "StandardVariableQuery"})
            .definition(self.query)
            .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
            .sort(models.VariableSort.NATURAL_ASC)
            .multi(multi=not self.single)
            .include_all(include_all=not self.single)
        )
        if self.single:
            return variable
        variable = variable.current(
            models.VariableOption(text="All", value="$__all", selected=True)
        )
        if self.part:
            # All of these values is not everything: they are those of what is chosen elsewhere.
            return variable.regex(f"/{self.part}/").hide(models.VariableHide.HIDE_VARIABLE)
        return variable.all_value(ANY)


INSTANCE = Variable(
    "instance", "Instance", EXPORTERS, "instance", "The exporter of a box, as Prometheus calls it."
)
HOST = Variable(
    "host",
    "Box",
    'up{BOX,job="trainwarden-exporter"}',
    "instance",
    "The host of that exporter, shared with its remediator.",
    part=r"^(.+?)(?::[0-9]+)?$",
)
RUN = Variable(
    "run",
    "Run",
    f'{{__name__=~"trainwarden_({"|".join(OF_A_RUN)})",BOX}}',
    "run",
    "A run, as exporter.yml calls it.",
)
ONE_RUN = replace(RUN, single=True)
WORKER = Variable(
    "worker",
    "Worker",
    "trainwarden_worker_expected_processes{RUN}",
    "worker",
    "A worker, as exporter.yml calls it.",
    empty_when=why.NO_WORKERS,
)
SERVER = Variable(
    "server",
    "Server",
    "trainwarden_inference_info{RUN}",
    "server",
    "An inference server, as exporter.yml calls it.",
    empty_when=why.NO_SERVERS,
)
GPU = Variable(
    "gpu",
    "GPU",
    "trainwarden_gpu_up{BOX}",
    "gpu",
    "A GPU, by its number.",
    empty_when=why.NO_GPU,
)


def builders(variables: Sequence[Variable]) -> list[Builder[models.VariableModel]]:
    """The data source, which every board has, and `variables`."""
    datasource = (
        DatasourceVariable("datasource")
        .label("Data source")
        .description("The Prometheus that scrapes the boxes.")
        .type("prometheus")
        .current(models.VariableOption(text="default", value="default", selected=True))
    )
    return [datasource, *(variable.builder() for variable in variables)]
