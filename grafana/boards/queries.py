"""What a panel asks Prometheus: PromQL, with a few words for what the variables select."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

SCOPES: Mapping[str, str] = {
    "BOX": 'instance=~"$instance"',
    "RUN": 'instance=~"$instance",run=~"$run"',
    # A heartbeat need not be of a run.
    "BEAT": 'instance=~"$instance",run=~"$run|"',
    "WORKER": 'instance=~"$instance",run=~"$run",worker=~"$worker"',
    "SERVER": 'instance=~"$instance",run=~"$run",server=~"$server"',
    "GPU": 'instance=~"$instance",gpu=~"$gpu"',
    # The exporter and the remediator of one box differ in their port.
    "HEALER": 'instance=~"($host)(:[0-9]+)?"',
    "HEALED": 'instance=~"($host)(:[0-9]+)?",run=~"$run|"',
    # Alerts come from both programs; some have no run, and one of a box that is gone has no box.
    "ALERT": 'instance=~"(($host)(:[0-9]+)?)?",run=~"$run|"',
    "ALERT_OF_BOX": 'instance=~"(($host)(:[0-9]+)?)?"',
}
"""What may stand between the braces of a selector, before matchers of its own."""

_SCOPE = re.compile(rf"(?<=[{{,])({'|'.join(sorted(SCOPES, key=len, reverse=True))})(?=[,}}])")


@dataclass(frozen=True, slots=True)
class Query:
    """One query of a panel."""

    text: str
    """PromQL; the words of `SCOPES` stand for their matchers."""
    legend: str = ""
    """Grafana's template of a series' name; in a table, the column of its value."""
    empty_when: str = ""
    """Why it may rightly have no series; empty when it must have some wherever anything is
    watched. Panels show it where they are empty, and the tests against a running stack ask for
    data of all that have none."""
    limit: bool = False
    """Drawn as the line that another query must not cross."""

    @property
    def promql(self) -> str:
        return promql(self.text)


def promql(text: str) -> str:
    """`text` as Grafana gets it."""
    return _SCOPE.sub(lambda match: SCOPES[match[1]], textwrap.dedent(text).strip())


def coded(selector: str, label: str, names: Sequence[str], first: int = 0) -> str:
    """Joins series that are 1 for one value of `label` and 0 for all others into one series.

    Its value is the place of that value in `names`, counted from `first`. `selector` has no
    matcher on `label`.
    """
    arms = "\n  or ".join(
        f'{place} * ({selector[:-1]},{label}="{name}"}} == 1)'
        for place, name in enumerate(names, first)
    )
    return f"max without ({label}) (\n  {arms}\n)"


def gained(counter: str) -> str:
    """By how much each series of `counter` grew in the time that the board shows.

    `increase` does not see what a series held when it was born, and those of events are born with
    their first one. A series that had a sample in the hour before is not newborn.
    """
    newborn = (
        f"last_over_time({counter}[$__range]) unless count_over_time({counter}[1h] offset $__range)"
    )
    return f"round({newborn} or increase({counter}[$__range]))"
