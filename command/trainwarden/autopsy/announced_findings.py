"""Evidence of what `trainwarden run` recorded of a run: its start, its end, a stop."""

from __future__ import annotations

from trainwarden.autopsy.announced import AnnouncedWorker
from trainwarden.autopsy.case import Case
from trainwarden.autopsy.model import LogReading
from trainwarden.autopsy.signs import Evidence, describe
from trainwarden_exporter.runtime.formatting import format_duration

SILENT_SECONDS, LONG_SILENT_SECONDS = 120.0, 600.0
"""Silence before a stop that is shown, and that makes a hang likely."""


def not_started(case: Case) -> Evidence | None:
    return Evidence(case.not_started) if case.not_started else None


def announced_failure(case: Case) -> Evidence | None:
    return _announced_end(case, "failed")


def announced_stop(case: Case) -> Evidence | None:
    found = case.late("stop_requested")
    if found is not None and not case.material.announced:  # as of a folder of another host
        return Evidence(f"`trainwarden stop` or Ctrl-C: {describe(found)}", found.last.text)
    return _announced_end(case, "stopped")


def _announced_end(case: Case, state: str) -> Evidence | None:
    is_explained = state == "failed" and case.first_error is not None
    found = [
        one
        for one in case.material.announced
        if one.state == state and not (is_explained and one.failed)
    ]
    if not found:
        return None
    first = min(found, key=lambda one: one.ended_at or 0.0)
    how = f", {first.how}" if first.how else ""
    return Evidence(f"trainwarden run recorded of {first.run}/{first.worker}: {state}{how}")


def silent_before_stop(case: Case) -> Evidence | None:
    """What an operator stopped had printed nothing for some time."""
    return _silent_for(case, SILENT_SECONDS)


def long_silent_before_stop(case: Case) -> Evidence | None:
    return _silent_for(case, LONG_SILENT_SECONDS)


def _silent_for(case: Case, least: float) -> Evidence | None:
    stopped = [one.silent for one in case.material.announced if one.state == "stopped"]
    # A worker that waits for the others is silent without a fault: all of them must be.
    if not stopped or min(stopped) < least:
        return None
    silent = format_duration(round(min(stopped)))
    return Evidence(f"It had printed nothing for {silent} when it was stopped: it may have hung")


def lived_on(case: Case) -> Evidence | None:
    """Each process that logged the exception outlived it, as where a thread failed."""
    found = case.late("raised", "exception")
    lived = {log.name for log in case.logs for one in case.material.announced if _lived(one, log)}
    if found is None or not lived.issuperset(found.files):
        return None
    return Evidence("The process that logged it lived on")


def _lived(worker: AnnouncedWorker, log: LogReading) -> bool:
    """Whether what wrote `log` lives, or was ended by a stop that came after its exceptions."""
    if not worker.wrote(log) or worker.failed:
        return False
    if not worker.ended:
        return worker.alive
    orders = {kind: tally.last.order for kind, tally in log.tallies.items()}
    raised = max(orders.get("raised", 0), orders.get("exception", 0))
    return worker.state == "stopped" and raised < orders.get("stop_requested", 0)
