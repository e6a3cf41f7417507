"""Local observation of checkpoints, for when the exporter does not respond."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from trainwarden_exporter.checkpoints.scanner import CheckpointScanner, CheckpointSnapshot
from trainwarden_exporter.checkpoints.specs import CheckpointSpec
from trainwarden_exporter.run_specs import checkpoint_specs
from trainwarden_exporter.step_dirs.locations import InstanceFinder
from trainwarden_remediator.config.schema import Setup
from trainwarden_remediator.observation.local_fallback import CHECKPOINT_THREADS, CheckpointObserver
from trainwarden_remediator.observation.model import RunState

ScanResult = tuple[CheckpointSpec, CheckpointSnapshot]


class LocalCheckpointObserver:
    """Scans checkpoint folders with the exporter's configuration and scanners.

    Not thread-safe; a disk that hangs blocks the calling thread.
    """

    def __init__(self, specs: Sequence[CheckpointSpec]) -> None:
        finders = {spec.location: InstanceFinder(spec.location) for spec in specs}
        self._scanners = [
            (spec, CheckpointScanner(spec, finder=finders[spec.location])) for spec in specs
        ]

    def observe(self) -> Mapping[str, RunState]:
        """Returns the checkpoint state of each run with checkpoints, or why it is unknown.

        Blocks.
        """
        now = time.time()
        found: dict[str, list[ScanResult]] = {}
        unknown: dict[str, str] = {}
        for spec, scanner in self._scanners:
            kinds = found.setdefault(spec.run, [])
            try:
                kinds.append((spec, scanner()))
            except OSError as error:
                unknown[spec.run] = f"checkpoints of {spec.run}: {error.strerror}"
            # Includes MemoryError: the failsafe must continue without this folder.
            except Exception as error:  # noqa: BLE001
                unknown[spec.run] = f"checkpoints of {spec.run}: {type(error).__name__}"
        return {
            run: run_state_from_checkpoints(kinds, now, unknown=unknown.get(run, ""))
            for run, kinds in found.items()
        }


def local_checkpoint_observers(setup: Setup) -> tuple[CheckpointObserver, ...]:
    """Returns at most CHECKPOINT_THREADS observers for the checkpoints of all runs.

    If there are more runs, each observer gets runs with neighbouring paths, since these are likely
    to be on the same disk and to hang together.
    """
    runs = [specs for run in setup.exporter_config.runs if (specs := checkpoint_specs(run))]
    runs.sort(key=lambda specs: specs[0].location.path)
    observers = []
    for part in range(CHECKPOINT_THREADS):
        first, end = (len(runs) * at // CHECKPOINT_THREADS for at in (part, part + 1))
        if some := runs[first:end]:
            names = frozenset(specs[0].run for specs in some)
            observer = LocalCheckpointObserver([one for specs in some for one in specs])
            observers.append(CheckpointObserver(names, observer.observe))
    return tuple(observers)


def run_state_from_checkpoints(
    kinds: Sequence[ScanResult], now: float, *, unknown: str
) -> RunState:
    """Returns the state of a run from its checkpoints, observed at `now` (Unix seconds).

    `unknown` is the reason why other checkpoints of the run could not be scanned, or "".
    """
    newest = [(spec, one) for spec, seen in kinds if (one := seen.result.newest) is not None]
    saving = any(
        bool(seen.folders) and seen.is_saving(spec.layout.completeness, now) for spec, seen in kinds
    )
    if unknown:  # a partial scan can show a save in progress, but not the newest checkpoint
        return RunState(saving=saving, saves_unknown=unknown)
    steps = [one.step(spec.layout.step_offset) for spec, one in newest]
    counts = [seen.result.complete_count for _, seen in kinds if seen.folders]
    matches = [matched for kind in kinds if (matched := _recovery_matches(*kind)) is not None]
    return RunState(
        checkpoint=max((step for step in steps if step is not None), default=None),
        checkpoint_at=max((one.completed_at for _, one in newest), default=None),
        checkpoints=sum(counts) if counts else None,
        checkpoints_seen_at=now,
        saving=saving,
        recovery_matches=all(matches) if matches else None,
    )


def _recovery_matches(spec: CheckpointSpec, seen: CheckpointSnapshot) -> bool | None:
    """Whether the recovery record matches the newest checkpoint; None without a record."""
    if seen.recovery is None:
        return None
    newest = seen.result.newest
    return seen.recovery.matches(None if newest is None else newest.step(spec.layout.step_offset))
