"""How often faults arrive on real servers, from a record of their starts and ends."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bounds import rate_at_most
from results import Result
from verdicts.arrivals import ALERTS, Kind

FILES = "faults/*.json"


@dataclass(frozen=True, slots=True)
class Faults:
    """Starts by class and description; `repairs` in days, of those whose end is recorded."""

    starts: Counter[Kind]
    repairs: dict[Kind, list[float]]
    nodes: int
    days: float

    @property
    def box_days(self) -> float:
        return self.nodes * self.days


def read(path: Path, nodes: int) -> Faults:
    """`nodes` are all that were watched, also those without a fault."""
    starts: Counter[Kind] = Counter()
    repairs: dict[Kind, list[float]] = {}
    begun: dict[tuple[str, Kind], list[float]] = {}
    seen: set[str] = set()
    last = 0.0
    for event in sorted(json.loads(path.read_text()), key=lambda one: one["event_time"]):
        fault = event.get("fault_type") or {}
        kind = (str(fault.get("Class", "?")), str(fault.get("Desc", "?")))
        key = (event["node_id"], kind)
        seen.add(event["node_id"])
        last = max(last, event["event_time"])
        if event["event_type"] == "fault_start":
            starts[kind] += 1
            begun.setdefault(key, []).append(event["event_time"])
        elif begun.get(key):
            repairs.setdefault(kind, []).append(event["event_time"] - begun[key].pop(0))
    return Faults(starts, repairs, max(nodes, len(seen)), last)


def table(faults: Faults) -> Result:
    rows = []
    for kind, count in faults.starts.most_common():
        hours = [24 * days for days in faults.repairs.get(kind, ())]
        alert, _ = ALERTS.get(kind, ("", ""))
        rows.append(
            (
                *kind,
                str(count),
                f"{count / faults.box_days:.2g}",
                f"{rate_at_most(count, faults.box_days):.2g}",
                f"{median(hours):.1f} h" if hours else "",
                f"[{alert}](runbooks/{alert}.md)" if alert else "",
            )
        )
    total = faults.starts.total()
    watched = sum(count for kind, count in faults.starts.items() if kind in ALERTS)
    return Result(
        "Arrivals of faults",
        f"{total} faults of {faults.nodes} GPU servers in {faults.days:.0f} days: one in "
        f"{faults.box_days / max(1, total):.0f} days of a host. They are what the record of the "
        "operators names, so neither hangs nor leaks of a training, which no operator recorded. "
        f"{watched} ({100 * watched / max(1, total):.0f} %) are of kinds that an alert is for; "
        "[verdicts.md](verdicts.md#as-often-as-on-real-servers) weights its faults by these.",
        (
            "class",
            "description",
            "faults",
            "a host-day",
            "at most (95 %)",
            "median repair",
            "alert",
        ),
        tuple(rows),
    )
