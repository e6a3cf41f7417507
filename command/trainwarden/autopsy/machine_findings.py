"""Evidence of the machine that is more than a kind of line: memory, boots, GPUs."""

from __future__ import annotations

from trainwarden.autopsy.case import Case
from trainwarden.autopsy.repeats import NEAR_STEPS
from trainwarden.autopsy.signs import Evidence
from trainwarden_exporter.gpu.xid import describe as describe_xid
from trainwarden_exporter.runtime.formatting import format_duration, format_time, plural

FULL_MEMORY = 0.9
LOW_MEMORY = 0.8
REBOOT_SECONDS = 1800.0
MANY_REBOOTS = 2


def memory_full(case: Case) -> Evidence | None:
    found = case.highest_memory
    if found is None or found[0] < FULL_MEMORY:
        return None
    share, log = found
    used, total = log.values.get("memory_used"), log.values.get("memory_total")
    amount = ""
    if used is not None and total is not None:
        amount = f": {used.high:g} of {total.high:g} GB"
    return Evidence(f"{log.name} shows memory {share * 100:.1f} % full{amount}")


def memory_free(case: Case) -> Evidence | None:
    found = case.highest_memory
    if found is None or found[0] >= LOW_MEMORY:
        return None
    return Evidence(
        f"{found[1].name} never shows more than {found[0] * 100:.0f} % of memory in use"
    )


def little_available(case: Case) -> Evidence | None:
    lows = [
        (values.low, log)
        for log in case.logs
        if (values := log.values.get("memory_available")) is not None
    ]
    low = min(lows, key=lambda one: one[0], default=None)
    if low is None or low[0] > 2:  # noqa: PLR2004 - GB
        return None
    return Evidence(f"{low[1].name} shows only {low[0]:g} GB available")


def memory_explains(case: Case) -> Evidence | None:
    if memory_full(case) is None and case.find("oom_kill", "brake") is None:
        return None
    return Evidence("Memory was short before: then the restart is a consequence")


def several_reboots(case: Case) -> Evidence | None:
    if len(case.boots) < MANY_REBOOTS:
        return None
    times = [format_time(at) for at in case.boots if at is not None]
    when = f": {', '.join(times[-5:])}" if times else ""
    return Evidence(f"The logs of the system show {plural(len(case.boots), 'boot')}{when}")


def reboot_at_end(case: Case) -> Evidence | None:
    at = case.last_progress_at or (case.last_sign[0] if case.last_sign else None)
    if at is None:
        return None
    for boot in case.boots:
        if boot is not None and 0 <= boot - at <= REBOOT_SECONDS:
            after = format_duration(boot - at)
            return Evidence(
                f"The host booted at {format_time(boot)}, {after} after the last progress"
            )
    return None


def reboot_of_this_host(case: Case) -> Evidence | None:
    boot, sign = case.material.booted_at, case.last_sign
    if boot is None or sign is None or not 0 <= boot - sign[0] <= REBOOT_SECONDS:
        return None
    after = format_duration(boot - sign[0])
    return Evidence(
        f"This host (if the run was on it) booted at {format_time(boot)}, {after} after the end"
    )


def repeated_gpu_fault(case: Case) -> Evidence | None:
    """The same step each time, whose batch or code the program repeats; a GPU fails at any step.

    Attempts that failed within a few steps show no such thing: a GPU may fail at once, too.
    """
    same, first = case.same_step, case.first_error
    if same is None or first is None or first.kind != "gpu_fault":
        return None
    spans = [
        one.last_step - one.first_step
        for one in case.attempts
        if one.first_step is not None and one.last_step is not None
        if abs(one.last_step - same.step) <= NEAR_STEPS
    ]
    if min(spans, default=0) <= NEAR_STEPS:
        return None
    return Evidence(
        f"{same.ended} of {same.of} attempts ended at step {same.step}: a GPU would fail at "
        "different steps, the program or its data fails at one"
    )


def before_first_step(case: Case) -> Evidence | None:
    found = case.late("gpu_busy")
    if found is None:
        return None
    own = [one for one in case.attempts if one.file == found.last.file]
    return None if own else Evidence("It came before the first step, when a GPU is first used")


def fatal_xid(case: Case) -> Evidence | None:
    for tally in case.tallies(("xid",)):
        for code in tally.codes:
            known = describe_xid(int(code))
            if known.severity in ("fatal", "warning"):
                return Evidence(f"XID {code}: {known.meaning}", tally.last.text)
    return None
