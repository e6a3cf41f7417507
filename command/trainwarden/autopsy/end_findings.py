"""Evidence at the end of the last log where no known error is: silence, an exit status."""

from __future__ import annotations

import signal

from trainwarden.autopsy import patterns
from trainwarden.autopsy.case import Case
from trainwarden.autopsy.signs import Evidence, Find

ENDED_FROM_OUTSIDE = ("time_limit", "preempted", "cancelled", "interrupted", "terminated")


def ended_silently(case: Case) -> Evidence | None:
    if case.may_be_active or case.finished or case.latest is None or case.latest.at_total:
        return None
    if any(one.ended for one in case.material.announced):
        return None
    if case.first_error is not None or case.late(*ENDED_FROM_OUTSIDE, "stop_requested") is not None:
        return None
    step, total = case.last_step, case.latest.total
    line, code = case.last_line, _exit_code(case)
    if patterns.IS_DONE.match(line) and not total:  # with steps left, a save is done
        return None
    where = "" if step is None else f" at step {step}" + (f" of {total}" if total else "")
    end = f"with exit status {code}" if code else "without an end"
    return Evidence(f"{case.latest.file} ends{where} without a known error and {end}", line)


def logged_error(case: Case) -> Evidence | None:
    """The log ends so but for a line with the level of its logger for errors."""
    found = None if case.latest is None else case.latest.after.get("logged_error")
    if found is None or ended_silently(case) is None:
        return None
    return Evidence("It is the last error in the log, and no step came after it", found.last.text)


def exit_by(*signals: signal.Signals) -> Find:
    """The last exit status is that of one of these signals, as a shell or a container shows it."""

    def find(case: Case) -> Evidence | None:
        name = next((one.name for one in signals if _exit_code(case) == 128 + one), "")
        if not name or case.latest is None or case.material.announced:
            return None
        line = case.latest.after["exit_status"].last.text
        return Evidence(f"The exit status is that of {name}", line)

    return find


def _exit_code(case: Case) -> int:
    """Returns the last exit status after the last progress; 0 without any."""
    found = None if case.latest is None else case.latest.after.get("exit_status")
    return 0 if found is None else int(next(reversed(found.codes), 0))
