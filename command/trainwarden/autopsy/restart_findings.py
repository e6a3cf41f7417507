"""Evidence of the restarts by the remediator: what ended a run again and again is their reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from trainwarden.autopsy.case import Case
from trainwarden.autopsy.journals import Action
from trainwarden.autopsy.signs import Evidence, Find
from trainwarden_exporter.runtime.formatting import format_time

MANY_RESTARTS, RESTARTS_SECONDS = 3, 3600.0
HANG = ("TrainingStepStalled",)
LEAK = ("TrainingWorkerMemoryOverLimit", "TrainingBrakeFiring")
HOST_MEMORY = ("TrainingMemoryFloor",)
END = ("TrainingWorkerGone",)
SERVER = ("TrainingInferenceDown", "TrainingInferenceHung")
RECYCLING = ("TrainingWorkerTrialsDone", "TrainingWorkerOldAndGrowing")
"""Alerts of no failure."""
_EXPLAINED = frozenset((*HANG, *LEAK, *HOST_MEMORY, *END, *SERVER, *RECYCLING))


def restarted_for(*alerts: str) -> Find:
    """Most restarts by the remediator shortly before the end were for one of `alerts`."""

    def find(case: Case) -> Evidence | None:
        found = _main_restarts(case)
        return _described(found) if found and found[-1].alert in alerts else None

    return find


def restarts_without_reason(case: Case) -> Evidence | None:
    """The remediator has restarted it several times, for another alert or by the log alone."""
    if found := _main_restarts(case):
        return None if found[-1].alert in _EXPLAINED else _described(found)
    if any(one.is_restart for one in case.material.actions):
        return None
    last = [at for at in _logged(case) if at >= _end(case) - RESTARTS_SECONDS]
    if len(last) < MANY_RESTARTS:
        return None
    return Evidence(
        f"The remediator restarted it {len(last)} times in the last hour of the log, the last time "
        f"at {format_time(last[-1])}"
    )


def _logged(case: Case) -> list[float]:
    """Returns the restarts in the logs since an operator started the run.

    A log has the time at which the process before ended; of the last one the start is known.
    """
    found: list[float] = []
    for log in case.logs:
        asked, start = (log.tallies.get(one) for one in ("restart_requested", "started_again"))
        worker = next((one for one in case.material.announced if one.wrote(log)), None)
        since = 0.0 if worker is None else worker.announced_at
        times = [] if asked is None else [at for at in asked.times if at >= since]
        is_last = asked and start and start.last.order == asked.last.order + 1
        if times and worker is not None and is_last:
            times[-1] = max(times[-1], worker.started_at)
        found += times
    return sorted(found)


def failure_explains(case: Case) -> Evidence | None:
    if case.first_error is None and case.loop is None:
        return None
    return Evidence("The log shows why it ended: the restarts are the consequence")


def error_before_restarts(case: Case) -> Evidence | None:
    """The restarts were for ends, and the log names the error of the last one."""
    first, found = case.first_error, _main_restarts(case)
    is_end = first is None or first.kind in ("process_killed", "child_ended")
    return None if is_end or not found or found[-1].alert not in END else failure_explains(case)


def _main_restarts(case: Case) -> Sequence[Action]:
    """Returns the restarts shortly before the end for the alert of most, if there are several."""
    since = _end(case) - RESTARTS_SECONDS
    last = [one for one in case.material.actions if one.is_restart and one.at >= since]
    if len(last) < MANY_RESTARTS:
        return ()
    ((alert, _),) = Counter(one.alert for one in reversed(last)).most_common(1)
    return [one for one in last if one.alert == alert]


def _end(case: Case) -> float:
    """Returns the last progress: a run that hangs, or was given up, may live on for long."""
    if case.last_progress_at is not None:
        return case.last_progress_at
    return case.material.now if case.last_sign is None else case.last_sign[0]


def _described(found: Sequence[Action]) -> Evidence:
    last = found[-1]
    workers = " and ".join(sorted({one.worker for one in found}))
    seen = next((one.seen for one in reversed(found) if one.seen), "")
    return Evidence(
        f"The remediator restarted {workers} {len(found)} times for {last.alert}, the last time at "
        f"{format_time(last.at)} ({last.outcome}){'; before a restart it saw' if seen else ''}",
        seen,
    )
