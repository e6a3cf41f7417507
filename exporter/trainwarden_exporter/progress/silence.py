"""When the silence of a run is suspicious."""

from __future__ import annotations

from trainwarden_exporter.progress.beats import SOURCE as BEAT
from trainwarden_exporter.progress.specs import ProgressSpec
from trainwarden_exporter.progress.stall_limits import is_unseen, step_limit, unseen_limit
from trainwarden_exporter.progress.state import RunProgress
from trainwarden_exporter.progress.tracker import ProgressTracker

SUSPICION = 0.4
"""Share of the limit of a step from which a silence is suspicious, two usual steps; in any phase,
since the log does not show when a save has ended."""


def is_stall_known(state: RunProgress, spec: ProgressSpec) -> bool:
    """Whether silence may be a stall.

    A run whose steps appear in no line and no file may show no sign for hours, for example between
    two checkpoints: silence is no stall until the usual time is known.
    """
    return spec.has_step_source or BEAT in state.reports or state.timing.usual_silence is not None


def read_suspicious_silence(
    tracker: ProgressTracker, spec: ProgressSpec, now: float
) -> float | None:
    """Returns the last sign of progress of a run, if its silence is suspicious at `now`."""
    failed_at = tracker.signs(spec.run).failed_at
    return suspicious_silence(tracker.state(spec.run), spec, failed_at=failed_at, now=now)


def suspicious_silence(
    state: RunProgress, spec: ProgressSpec, *, failed_at: float | None, now: float
) -> float | None:
    """Returns the last sign of progress (Unix seconds) if the silence is suspicious, or None.

    From SUSPICION of the limit of a step on, and at once after a line that ends a run, `failed_at`.
    After steps that were made before anybody looked, at the latest after the least limit: a run
    that hangs since then makes no step that shows its pace.
    """
    limit, last = step_limit(state, spec.limits), state.last_sign_at
    if limit is None or last is None:
        return None
    wait, shown = SUSPICION * limit, unseen_limit(state, spec.limits)
    if shown is not None or (state.steps and is_unseen(state)):
        wait = spec.limits.floor if shown is None else SUSPICION * shown
    elif not is_stall_known(state, spec):
        return None
    failed = failed_at is not None and failed_at > last
    return last if failed or now - last > wait else None
