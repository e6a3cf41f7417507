"""How often faults arrive on real servers, from a record of their starts and ends."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bounds import rate_at_most
from results import Result

FILES = "faults/*.json"


@dataclass(frozen=True, slots=True)
class Faults:
    """Starts by level and class; `repairs` in days, of the faults whose end is recorded."""

    starts: Counter[tuple[str, str]]
    repairs: dict[tuple[str, str], list[float]]
    nodes: int
    days: float

    @property
    def box_days(self) -> float:
        return self.nodes * self.days


def read(path: Path, nodes: int) -> Faults:
    """`nodes` are all that were watched, also those without a fault."""
    starts: Counter[tuple[str, str]] = Counter()
    repairs: dict[tuple[str, str], list[float]] = {}
    begun: dict[tuple[str, str], list[float]] = {}
    seen: set[str] = set()
    last = 0.0
    for event in sorted(json.loads(path.read_text()), key=lambda one: one["event_time"]):
        fault = event.get("fault_type") or {}
        kind = (str(fault.get("Level", "?")), str(fault.get("Class", "?")))
        key = (event["node_id"], f"{kind}{fault.get('Desc')}")
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
        rows.append(
            (
                *kind,
                str(count),
                f"{count / faults.box_days:.2g}",
                f"{rate_at_most(count, faults.box_days):.2g}",
                f"{median(hours):.1f} h" if hours else "",
            )
        )
    total = faults.starts.total()
    return Result(
        "Arrivals of faults",
        f"{total} faults of {faults.nodes} GPU servers in {faults.days:.0f} days: one in "
        f"{faults.box_days / max(1, total):.0f} days of a host. They are what the record of the "
        "operators names, so neither hangs nor leaks of a training, which no operator recorded.",
        ("level", "class", "faults", "a host-day", "at most (95 %)", "median repair"),
        tuple(rows),
    )
