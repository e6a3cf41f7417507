"""Evidence of a run that is more than a kind of line: loops, silences, waits."""

from __future__ import annotations

from trainwarden.autopsy.case import ALIVE_SECONDS, Case
from trainwarden.autopsy.end_findings import ENDED_FROM_OUTSIDE
from trainwarden.autopsy.machine_findings import repeated_gpu_fault
from trainwarden.autopsy.pause import STILL_SECONDS, find_pause
from trainwarden.autopsy.signs import Evidence
from trainwarden_exporter.frameworks.base import Phase
from trainwarden_exporter.runtime.formatting import format_duration, format_time, plural


def start_loop(case: Case) -> Evidence | None:
    loop = case.loop
    if loop is None:
        return None
    pace = "" if loop.period is None else f", one each {format_duration(round(loop.period))}"
    span = ""
    if loop.first_at is not None and loop.last_at is not None:
        span = f", from {format_time(loop.first_at)} to {format_time(loop.last_at)}"
    return Evidence(
        f"{loop.file} shows {loop.count} starts in a row without progress{pace}{span}; "
        f"{plural(loop.errors, 'line')} of it report a failure"
    )


def progress_after_loop(case: Case) -> Evidence | None:
    loop, at = case.loop, case.last_progress_at
    if loop is None or loop.last_at is None or at is None or at < loop.last_at + ALIVE_SECONDS:
        return None
    return Evidence(f"The run made progress after the last of these starts, at {format_time(at)}")


def named_start_error(case: Case) -> Evidence | None:
    """The starts failed of something that is a cause of its own."""
    if case.loop is None:
        return None
    generic = {"start_failed", "exception", "process_killed", "child_ended"}
    generic |= {"connection_refused", "engine_died"}
    for log in case.logs:
        if log.name != case.loop.file:
            continue
        for kind in case.error_kinds - generic:
            tally = log.tallies.get(kind)
            if tally is not None and 2 * tally.count >= case.loop.count:
                name = kind.replace("_", " ")
                return Evidence(f"Each start failed of the same error: {name}", tally.last.text)
    return None


def same_exit(case: Case) -> Evidence | None:
    codes: dict[str, int] = {}
    for tally in case.tallies(("exit_status",)):
        for code, count in tally.codes.items():
            codes[code] = codes.get(code, 0) + count
    code, count = max(codes.items(), key=lambda item: item[1], default=("0", 0))
    if code == "0" or count < 3:  # noqa: PLR2004 - a loop has at least three
        return None
    return Evidence(f"The exit status was the same each time: {code}, {count} times")


def same_step(case: Case) -> Evidence | None:
    same = case.same_step
    if same is None:
        return None
    spread = f" ± {same.spread}" if same.spread else ""
    return Evidence(f"{same.ended} of {same.of} attempts ended at step {same.step}{spread}")


def loop_explains(case: Case) -> Evidence | None:
    if case.loop is None:
        return None
    return Evidence(
        f"{case.loop.file} shows a restart loop, which ends every attempt, whatever its step"
    )


def error_explains(case: Case) -> Evidence | None:
    first = case.first_error
    if first is None or first.kind in ("exception", "raised") or repeated_gpu_fault(case):
        return None
    return Evidence(f"The logs name an error after it: {first.kind.replace('_', ' ')}")


def weights_at_end(case: Case) -> Evidence | None:
    ended = [one for one in case.attempts if one.phase is Phase.UPDATING_WEIGHTS]
    return Evidence("The last phase was a weight update") if ended else None


def no_step_after_errors(case: Case) -> Evidence | None:
    """The trainer lived on after its last progress, with refused connections."""
    refused, at = case.late("connection_refused"), case.last_progress_at
    if refused is None or at is None or refused.last.at is None:
        return None
    waited = refused.last.at - at
    if waited < ALIVE_SECONDS:
        return None
    return Evidence(f"No progress for {format_duration(waited)} while connections were refused")


def server_log_ended(case: Case) -> Evidence | None:
    for log in case.part_ends:
        if log.role == "inference" and log.last_at is not None:
            text = f"{log.name} ends at {format_time(log.last_at)}, before the trainer's"
            return Evidence(text, log.last_lines[-1] if log.last_lines else "")
    return None


def writer_log_ended(case: Case) -> Evidence | None:
    for log in case.part_ends:
        if log.role in ("orchestrator", "rollout") and log.last_at is not None:
            return Evidence(f"{log.name} ends at {format_time(log.last_at)}, before the trainer's")
    return None


def silent_watchdog(case: Case) -> Evidence | None:
    found = case.silent_watchdogs
    if not found:
        return None
    log, seconds = max(found, key=lambda one: one[1])
    at = "" if log.last_at is None else f" at {format_time(log.last_at)}"
    return Evidence(
        f"{log.name} ends{at}, {format_duration(seconds)} before the last line of the run",
        log.last_lines[-1] if log.last_lines else "",
    )


def waiting(case: Case) -> Evidence | None:
    attempt = case.waiting
    if attempt is None:
        return None
    step = "" if attempt.last_step is None else f" after step {attempt.last_step}"
    since = "" if attempt.phase_at is None else f", since {format_time(attempt.phase_at)}"
    found = case.late("waiting", "found_waiting_for_rollouts")
    line = "" if found is None else found.last.text
    return Evidence(f"{attempt.file} ends waiting for a training batch{step}{since}", line)


def no_newer_batch(case: Case) -> Evidence | None:
    if case.waiting is None:
        return None
    batches = [one for one in case.material.rollouts if one.spec.carries == "batches"]
    if not batches:
        return Evidence("The folder holds no batch at all")
    steps = [
        one.snapshot.result.newest.step(one.spec.layout.step_offset if one.spec.layout else 0)
        for one in batches
        if one.snapshot.result.newest is not None
    ]
    newest = max((step for step in steps if step is not None), default=None)
    last = case.last_step
    if newest is None:
        return Evidence("The folder of the batches holds no complete one")
    if last is not None and newest > last + 1:
        return None
    return Evidence(f"The newest complete batch is that of step {newest}")


def newer_batch(case: Case) -> Evidence | None:
    for one in case.material.rollouts:
        newest = one.snapshot.result.newest
        if one.spec.carries != "batches" or newest is None or case.last_step is None:
            continue
        step = newest.step(one.spec.layout.step_offset if one.spec.layout else 0)
        if step is not None and step > case.last_step + 1:
            return Evidence(f"A complete batch of step {step} exists")
    return None


def writer_errors(case: Case) -> Evidence | None:
    kinds = tuple(error.name for error in case.errors if error.name != "exception")
    for role in ("orchestrator", "rollout", "environment"):
        if (found := case.late_in(role, *kinds)) is not None:
            return Evidence(f"The {role} reports {found.name.replace('_', ' ')}", found.last.text)
    return None


def writer_logs_missing(case: Case) -> Evidence | None:
    if any(log.role in ("orchestrator", "inference", "rollout") for log in case.logs):
        return None
    return Evidence("No log of the orchestrator or of an inference server is in the folder")


def stood_still(case: Case) -> Evidence | None:
    """The run had made no progress for long when it was ended from outside."""
    found = case.late("interrupted", "cancelled", "terminated", "time_limit")
    at = case.last_progress_at
    if found is None or at is None or found.first.at is None:
        return None
    still = found.first.at - at
    if still < STILL_SECONDS:
        return None
    return Evidence(f"The run had made no progress for {format_duration(still)} when it was ended")


def refused_before(case: Case) -> Evidence | None:
    found = case.late("connection_refused")
    if found is None or found.count < 3:  # noqa: PLR2004 - a single one is retried
        return None
    return Evidence(f"Connections to a server were refused {found.count} times before")


def silence(case: Case) -> Evidence | None:
    """The log goes on without progress and without an error."""
    latest, at = case.latest, case.last_progress_at
    if case.finished or latest is None:
        return None
    if case.first_error is not None or case.late(*ENDED_FROM_OUTSIDE) is not None:
        return None
    if any(one.alive for one in case.material.announced):
        pause = find_pause(case)
        return Evidence(str(pause)) if pause and pause.seconds >= STILL_SECONDS else None
    if at is None or latest.progress_at is None:
        return None
    ends = [case.end_of(log) for log in case.logs if log.name == latest.file]
    end = case.material.now if case.may_be_active else ends[0]
    if end is None or end - at < STILL_SECONDS:
        return None
    return Evidence(f"No progress in the last {format_duration(end - at)} of {latest.file}")


def not_finite(case: Case) -> Evidence | None:
    found = case.not_finite
    if found is None:
        return None
    name, values, log = found
    until, count = values.finite_until, plural(values.not_finite, "line")
    since = "" if until is None else f", and was finite until step {until}"
    return Evidence(f"{name} is not finite in the last {count} of {log.name}{since}")
