"""A person stops actions, or allows them again: by the hold file, and for the record.

The file comes first, for it is what counts; what cannot be written into the journal is in force all
the same.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainwarden_exporter.wording import plural
from trainwarden_remediator.config import Setup
from trainwarden_remediator.exceptions import HoldError, JournalError
from trainwarden_remediator.holdfile import WHY_LENGTH, Hold, lift, put_on
from trainwarden_remediator.journalfile import connect, is_begun
from trainwarden_remediator.latch import reopen
from trainwarden_remediator.records import write_event
from trainwarden_remediator.story import printable


@dataclass(frozen=True, slots=True)
class Resumed:
    """What became of a person's word that actions are allowed again."""

    lifted: tuple[Hold, ...]
    reopened: bool
    """Whether the breaker had been open."""


def check_scope(setup: Setup, run: str, worker: str) -> None:
    """Raise HoldError unless the exporter's file has that run, and that worker of it."""
    if not run:
        if worker:
            raise HoldError("a worker is one of a run: name the run, too")
        return
    known = setup.selectors
    if not any(key.run == run for key in known):
        raise HoldError(f"{setup.config.exporter.config} has no such run")
    if worker and (run, worker) not in known:
        raise HoldError(f"run {run} has no such worker in {setup.config.exporter.config}")


def hold(setup: Setup, wanted: Hold, now: float) -> None:
    """Stop what `wanted` says, from the next decision on; blocks. `now` in Unix seconds.

    Raises HoldError where it is not in force, and JournalError where it is and only the record of
    it is missing.
    """
    check_scope(setup, wanted.run, wanted.worker)
    put_on(setup.config.hold_file, wanted, now)
    facts = {
        "run": wanted.run,
        "worker": wanted.worker,
        "until": wanted.until,
        "who": wanted.who,
        "why": wanted.why,
    }
    _note(setup.config.journal, lambda db: write_event(db, now, "hold", None, None, **_said(facts)))


def resume(
    setup: Setup, now: float, *, run: str = "", worker: str = "", who: str = "", why: str = ""
) -> Resumed:
    """Lift the holds on that run or worker; where none is named all of them, and the breaker too.

    Raises as `hold` does.
    """
    check_scope(setup, run, worker)
    lifted = lift(setup.config.hold_file, run, worker, now)
    facts = {"run": run, "worker": worker, "who": who, "why": why}

    def write(db: sqlite3.Connection) -> bool:
        # By one transaction: who it was that closed the breaker again is part of it.
        reopened = not run and reopen(db, now)
        if lifted or reopened:
            scopes = [one.scope for one in lifted]
            write_event(db, now, "resume", None, None, lifted=scopes, **_said(facts))
        return reopened

    return Resumed(lifted, bool(_note(setup.config.journal, write)))


def told(done: Resumed) -> str:
    """What a resume has changed, in words."""
    said = f"resumed: {plural(len(done.lifted), 'hold')} lifted"
    return f"{said}; the breaker allows actions again" if done.reopened else said


def reason(text: str) -> str:
    """What a person gave as the reason, as it is kept."""
    return " ".join(printable(text.replace("\n", " ")).split())[:WHY_LENGTH]


def _said(facts: dict[str, Any]) -> dict[str, Any]:
    return {name: fact for name, fact in facts.items() if fact}


def _note(journal: Path, write: Callable[[sqlite3.Connection], Any]) -> Any:
    """Write into the journal beside whoever uses it; without one there is nothing to be told to."""
    if not is_begun(journal):
        return None
    connection = connect(journal)
    try:
        connection.execute("BEGIN IMMEDIATE")
        noted = write(connection)
        connection.execute("COMMIT")
    except sqlite3.Error as error:
        raise JournalError(f"{journal}: {error}") from error
    finally:
        connection.close()
    return noted
