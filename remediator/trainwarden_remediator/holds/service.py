"""The commands hold, resume and approve: the hold file plus a journal event, or that alone.

The hold file is written first and is authoritative; a command that cannot be journaled is in force
nevertheless.
"""

from __future__ import annotations

import getpass
import os
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.runtime.formatting import plural
from trainwarden_exporter.runtime.similar_names import did_you_mean
from trainwarden_remediator.config.schema import Setup
from trainwarden_remediator.exceptions import ApprovalError, HoldError
from trainwarden_remediator.holds.hold_file import MAX_REASON_LENGTH, Hold, add_hold, lift_holds
from trainwarden_remediator.journal import approvals
from trainwarden_remediator.journal.database import journal_exists, offline_transaction
from trainwarden_remediator.journal.event_text import printable
from trainwarden_remediator.journal.rows import write_event
from trainwarden_remediator.journal.transitions import given_up, reopen, reset_breaker


@dataclass(frozen=True, slots=True)
class ResumeResult:
    lifted: tuple[Hold, ...]
    breaker_was_reset: bool
    """Whether the breaker was open."""
    reopened: Mapping[int, WorkerKey] = field(default_factory=dict)
    """The incidents that had been given up and are decided again."""
    left: Mapping[int, WorkerKey] = field(default_factory=dict)
    """The incidents that stay given up: they are of several runs, and none was named."""


def check_scope(setup: Setup, run: str, worker: str) -> None:
    """Raises HoldError unless the exporter's configuration has that run and worker."""
    if not run:
        if worker:
            raise HoldError("a worker needs its run: name the run, too")
        return
    known = setup.selectors
    if not any(key.run == run for key in known):
        runs = sorted({key.run for key in known})
        names = f"{', '.join(runs) or 'none'}{did_you_mean(run, runs)}"
        raise HoldError(f"{setup.config.exporter.config} has no such run; it has {names}")
    if worker and (run, worker) not in known:
        workers = sorted(key.worker for key in known if key.run == run)
        names = f"{', '.join(workers)}{did_you_mean(worker, workers)}"
        file = setup.config.exporter.config
        raise HoldError(f"run {run} has no such worker in {file}; it has {names}")


def hold(setup: Setup, wanted: Hold, now: float) -> None:
    """Sets the hold `wanted`, in force from the next decision on; blocks. `now` in Unix seconds.

    Raises HoldError if the hold is not in force, JournalError if it is in force and not recorded.
    """
    check_scope(setup, wanted.run, wanted.worker)
    add_hold(setup.config.hold_file, wanted, now)
    facts = {name: fact for name, fact in asdict(wanted).items() if name != "since"}
    if journal_exists(setup.config.journal):  # it is created by the remediator's first start
        with offline_transaction(setup.config.journal) as db:
            write_event(db, now, "hold", None, None, **_without_empty(facts))


def resume(
    setup: Setup, now: float, *, run: str = "", worker: str = "", who: str = "", why: str = ""
) -> ResumeResult:
    """Lifts the holds on that run or worker; without a run, all holds, and resets the breaker.

    Incidents of that scope that were given up are decided again, but not those of several runs: one
    may be mended, and another not. Those of the host are, because it has no name to give. What an
    operator has stopped is not. Raises as `hold` does.
    """
    check_scope(setup, run, worker)
    lifted = lift_holds(setup.config.hold_file, run, worker, now)
    facts: dict[str, Any] = {"run": run, "worker": worker, "who": who, "why": why}

    breaker_was_reset = False
    reopened: Mapping[int, WorkerKey] = {}
    left: Mapping[int, WorkerKey] = {}
    if journal_exists(setup.config.journal):
        # One transaction: the event also records who reset the breaker.
        with offline_transaction(setup.config.journal) as db:
            breaker_was_reset = not run and reset_breaker(db, now)
            found = given_up(db, run, worker, now - setup.config.alert_stale_after)
            found = {number: key for number, key in found.items() if not setup.is_stopped(*key)}
            several = len({key.run for key in found.values() if key.run}) > 1
            left = {number: key for number, key in found.items() if several and key.run}
            reopened = {number: key for number, key in found.items() if number not in left}
            reopen(db, now, reopened)
            if lifted or breaker_was_reset or reopened:
                facts = _without_empty({**facts, "reopened": list(reopened), "left": list(left)})
                scopes = [one.scope for one in lifted]
                write_event(db, now, "resume", None, None, lifted=scopes, **facts)
    return ResumeResult(lifted, breaker_was_reset, reopened, left)


def approve(
    setup: Setup, incident: int | str, now: float, *, who: str, proposed_at: float | None = None
) -> str:
    """Approves the proposed action of an incident once, and returns what is approved; blocks.

    Instead of its number, the name of a run or `run/worker` on which one action is proposed.
    `proposed_at` is when the proposal was decided that the operator has seen, if known. Raises
    ApprovalError and JournalError.
    """
    if not journal_exists(setup.config.journal):
        raise ApprovalError(f"{setup.config.journal}: no journal; has the remediator run?")
    with offline_transaction(setup.config.journal) as db:
        if isinstance(incident, str):
            incident = approvals.proposed_incident(db, incident)
        return approvals.approve(db, now, incident, who, proposed_at)


def describe_resume(done: ResumeResult) -> str:
    """Returns a text about the result of a resume."""
    text = f"resumed: {plural(len(done.lifted), 'hold')} lifted"
    if done.reopened:
        again, stops = _targets(done.reopened), _commands("hold", done.reopened)
        text += f"; given up before, and tried again now: {again} ({stops} stops that)"
    if done.breaker_was_reset:
        text += "; circuit breaker reset"
    if done.left:
        left, tries = _targets(done.left), _commands("resume", done.left)
        text += f"; still given up: {left}; once it is mended, {tries} tries it again"
    return text


def _targets(incidents: Mapping[int, WorkerKey]) -> str:
    return ", ".join(
        f"#{number} {'/'.join(filter(None, key)) or 'the host'}"
        for number, key in incidents.items()
    )


def _commands(name: str, incidents: Mapping[int, WorkerKey]) -> str:
    """Returns the command `name` for the run of each incident, or for the host."""
    runs = sorted({key.run for key in incidents.values()})
    scopes = (f" --run {shlex.quote(run)}" if run else "" for run in runs)
    return " or ".join(f"`trainwarden {name}{scope}`" for scope in scopes)


def normalize_reason(text: str) -> str:
    """Returns a reason on one line, printable and truncated, as it is stored."""
    return " ".join(printable(text.replace("\n", " ")).split())[:MAX_REASON_LENGTH]


def _without_empty(facts: dict[str, Any]) -> dict[str, Any]:
    return {name: fact for name, fact in facts.items() if fact}


def operator_name() -> str:
    """Returns the name of the user who runs this program."""
    try:
        return os.environ.get("SUDO_USER") or getpass.getuser()
    except (KeyError, OSError):
        return f"user {os.getuid()}"
