"""Decides whether a restart that was decided is still needed, right before its first signal. Pure.

Evidence, a requested checkpoint or a save may take minutes, in which a run goes on (harm 4).
"""

from __future__ import annotations

from trainwarden_remediator.config.playbooks import Condition
from trainwarden_remediator.journal.event_text import brief_reason
from trainwarden_remediator.model import Need
from trainwarden_remediator.observation.model import ExporterState, RunState
from trainwarden_remediator.policy.conditions import (
    describe_observed,
    find_root_cause,
    missing_observation,
    missing_progress,
    still_holds,
)
from trainwarden_remediator.policy.halts import moves

NO_LONGER_NEEDED = "no longer needed"


def no_longer_needed(need: Need, run: str, exporter: ExporterState, now: float) -> str:
    """Returns why a restart of a worker of `run` is not needed any more, or not known to be, or "".

    Unknown is not bad (harm 9).
    """
    shown = exporter.runs.get(run)
    if need.no_step_since is not None:
        return _progress_since(need.no_step_since, shown)
    if missing := missing_observation(need.condition, need.key, exporter, now):
        return missing
    if not still_holds(need.condition, need.key, exporter, now):
        observed = describe_observed(need.condition, need.key, exporter)
        why = f"the exporter no longer shows the condition{observed and f' ({observed})'}"
        return f"{NO_LONGER_NEEDED}: {why}"
    if need.condition is not Condition.NO_PROGRESS:
        return ""
    if why := find_root_cause(run, exporter, now):
        return f"{NO_LONGER_NEEDED}: {why}"
    if shown is None or not moves(shown, now):
        return ""
    return brief_reason("undecided") if shown.undecided else f"{NO_LONGER_NEEDED}: its stacks move"


def _progress_since(since: float, run: RunState | None) -> str:
    """Returns that a run has made a step since then, what is missing to know it, or ""."""
    if run is None or missing_progress(run):
        return missing_progress(run)
    if run.finished:
        return f"{NO_LONGER_NEEDED}: the run has finished"
    made = (run.last_step_at or 0.0) > since
    return f"{NO_LONGER_NEEDED}: the run makes steps again" if made else ""
