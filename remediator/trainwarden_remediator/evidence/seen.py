"""What the exporter showed of a run when something was decided about it, as plain facts. Pure."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_remediator.sight import Sight

Facts = dict[str, Any]

MOST_SERVERS = 20


def seen_of(sight: Sight, run: str, key: WorkerKey) -> Facts:
    """The series that decisions about `key` and its `run` rest on, as far as they are shown."""
    about = {run, key.run} - {""}
    facts: Facts = {
        "memory": {
            "available_bytes": sight.memory_available_bytes,
            "floor_bytes": sight.memory_floor_bytes,
        },
        "workers": {
            f"{one.run}/{one.worker}": _known(asdict(worker))
            for one, worker in sight.workers.items()
            if not about or one.run in about
        },
        "runs": {
            name: _known(asdict(run))
            for name, run in sight.runs.items()
            if not about or name in about
        },
        "servers": {
            f"{name}/{server.name}": _known(asdict(server))
            for name, servers in sight.servers.items()
            if not about or name in about
            for server in servers[:MOST_SERVERS]
        },
        "disks": {
            disk.path: _known({**asdict(disk), "runs": sorted(disk.runs)}) for disk in sight.disks
        },
        "brakes": {
            f"{one.run}/{one.worker}": asdict(brake)
            for one, brake in sight.brakes.items()
            if not about or one.run in about
        },
    }
    if sight.gpu_orphans is not None:
        facts["gpu"] = {"orphan_holders": sight.gpu_orphans}
    return {name: found for name, found in facts.items() if found}


def _known(facts: Facts) -> Facts:
    return {name: value for name, value in facts.items() if value is not None and value != ""}
