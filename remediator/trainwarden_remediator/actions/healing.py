"""Judges by the exporter's eyes whether workers count as healed by a restart. Pure."""

from __future__ import annotations

from collections.abc import Collection

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_remediator.sight import Sight

START_TOLERANCE = 2.0
"""Seconds by which a start may seem to precede the intent to start: clocks are read twice."""


def illness_of_any(sight: Sight, keys: Collection[WorkerKey], began: float) -> str:
    """As `illness`, of the first of these workers that is not healed."""
    for key in keys:
        if ill := illness(sight, key, began):
            return f"{key.worker}: {ill}" if len(keys) > 1 else ill
    return ""


def illness(sight: Sight, key: WorkerKey, began: float) -> str:
    """What keeps a worker from counting as healed by a restart begun at `began`, or nothing."""
    worker = sight.workers.get(key)
    if worker is None:
        return "the exporter does not show it"
    if worker.processes != worker.expected:
        return f"{worker.processes:g} of {worker.expected:g} processes run"
    if worker.started_at is None or worker.started_at < began - START_TOLERANCE:
        return "it has not started anew"
    limit = worker.memory_limit_bytes
    if limit is not None and worker.resident_bytes > limit:
        return f"{worker.resident_bytes:.0f} bytes resident, above its limit"
    return ""
