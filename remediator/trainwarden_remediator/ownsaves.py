"""What the remediator sees of checkpoints by itself where the exporter cannot be asked."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from trainwarden_exporter.checkpoints.eye import CheckpointEye, CheckpointsSeen
from trainwarden_exporter.checkpoints.specs import CheckpointSpec, checkpoint_specs
from trainwarden_exporter.collectors.checkpoints import SAVING
from trainwarden_exporter.entries.place import Finder
from trainwarden_remediator.config import Setup
from trainwarden_remediator.ownlook import APART, SavesLook
from trainwarden_remediator.sight import RunSight

Kind = tuple[CheckpointSpec, CheckpointsSeen]


class OwnSaves:
    """Reads the folders of checkpoints as the exporter does, by its file and readers.

    For one thread: a disk that hangs holds up whoever asks.
    """

    def __init__(
        self, specs: Sequence[CheckpointSpec], *, now: Callable[[], float] = time.time
    ) -> None:
        finders = {spec.place: Finder(spec.place) for spec in specs}
        self._eyes = [(spec, CheckpointEye(spec, finder=finders[spec.place])) for spec in specs]
        self._now = now

    def look(self) -> Mapping[str, RunSight]:
        """How the checkpoints of each run stand that has any, or why that is not known; blocks."""
        now = self._now()
        found: dict[str, list[Kind]] = {}
        unknown: dict[str, str] = {}
        for spec, eye in self._eyes:
            kinds = found.setdefault(spec.run, [])
            try:
                kinds.append((spec, eye()))
            except OSError as error:
                unknown[spec.run] = f"checkpoints of {spec.run}: {error.strerror}"
            # Also want of memory: whatever lies there, the brake must go on without it.
            except Exception as error:  # noqa: BLE001
                unknown[spec.run] = f"checkpoints of {spec.run}: {type(error).__name__}"
        return {
            run: run_sight(kinds, now, unknown=unknown.get(run, "")) for run, kinds in found.items()
        }


def own_saves(setup: Setup) -> tuple[SavesLook, ...]:
    """Who looks at the checkpoints of all runs that are watched, at most APART of them.

    Each at its own, where there are no more; else at such as lie beside each other, for these are
    likeliest to hang together.
    """
    runs = [specs for run in setup.watched.runs if (specs := checkpoint_specs(run))]
    runs.sort(key=lambda specs: specs[0].place.path)
    looks = []
    for part in range(APART):
        some = runs[len(runs) * part // APART : len(runs) * (part + 1) // APART]
        if some:
            names = frozenset(specs[0].run for specs in some)
            looks.append(SavesLook(names, OwnSaves([one for specs in some for one in specs]).look))
    return tuple(looks)


def run_sight(kinds: Sequence[Kind], now: float, *, unknown: str = "") -> RunSight:
    """A run by its checkpoints alone, as looked at when it was `now` (Unix seconds).

    `unknown` says why others of it could not be looked at.
    """
    newest = [(spec, one) for spec, seen in kinds if (one := seen.reading.newest) is not None]
    begun = [new[0] for _, seen in kinds if seen.folders and (new := seen.begun) is not None]
    saving = any(now - one.changed < SAVING for one in begun)
    if unknown:  # some of them tell of a save, and not of how far the run has come
        return RunSight(saving=saving, saves_unknown=unknown)
    steps = [one.step(spec.layout.step_offset) for spec, one in newest]
    counts = [seen.reading.complete_count for _, seen in kinds if seen.folders]
    matches = [matched for kind in kinds if (matched := _matched(*kind)) is not None]
    return RunSight(
        checkpoint=max((step for step in steps if step is not None), default=None),
        checkpoint_at=max((one.completed for _, one in newest), default=None),
        checkpoints=sum(counts) if counts else None,
        checkpoints_seen_at=now,
        saving=saving,
        recovery_matches=all(matches) if matches else None,
    )


def _matched(spec: CheckpointSpec, seen: CheckpointsSeen) -> bool | None:
    """Whether the record a run would resume from fits the newest one; None where there is none."""
    if seen.recovery is None:
        return None
    newest = seen.reading.newest
    return seen.recovery.matches(None if newest is None else newest.step(spec.layout.step_offset))
