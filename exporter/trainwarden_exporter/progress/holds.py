"""Runs on hold: the remediator does not heal them, so their downtime counts as held."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable
from typing import Protocol

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.progress.specs import ProgressSpec
from trainwarden_exporter.runtime.background_poller import BackgroundPollers


class Holding(Protocol):
    """What a remediator answers."""

    @property
    def held(self) -> Collection[WorkerKey]:
        """The runs and workers on hold; an empty name means all."""


HoldPollers = BackgroundPollers[Hashable, Holding]
"""Polls the holds of the remediator."""


def held_runs(specs: Iterable[ProgressSpec], pollers: HoldPollers) -> frozenset[str]:
    """Returns the runs whose trainer is on hold; where the holds are not known, none is."""
    pollers.start()
    held = {
        key
        for _, poller in pollers
        if poller.failure is None and poller.last_result is not None
        for key in poller.last_result.value.held
    }
    return frozenset(
        spec.run
        for spec in specs
        if any(key.run in ("", spec.run) and key.worker in ("", *spec.trainers) for key in held)
    )
