"""Reads what remediators did to a run, from their journals."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from trainwarden_exporter.runtime.safe_open import open_regular
from trainwarden_remediator.exceptions import JournalError

_IN_FOLDER = ("journal.db", "state/journal.db")


@dataclass(frozen=True, slots=True)
class Action:
    """What a remediator did, or was about to do."""

    at: float
    """When it began (Unix seconds)."""
    kind: str
    """As in the journal: `restart`, `gpu_cleanup` …"""
    worker: str
    """`run/worker`, or what else it was about."""
    alert: str
    """Why it was done; "" if not known."""
    started_by: str
    """Who had started the worker instead; "" for the remediator."""
    attempt: str
    """Such as `attempt 1 of 3`; "" if not known."""
    outcome: str
    seen: str = ""
    """How the process ended before it, or what it was proved to wait for; "" if not known."""

    @property
    def end(self) -> str:
        """What has become of it."""
        return f"{self.started_by} had started it" if self.started_by else self.outcome

    @property
    def is_restart(self) -> bool:
        """Whether the remediator itself started a worker again."""
        return self.kind == "restart" and not self.started_by


def read_actions(
    folder: Path, stacks: Sequence[Path], runs: Collection[str], since: float, unread: list[str]
) -> tuple[Action, ...]:
    """Returns each action on `runs` since then.

    Reads the journals of `stacks`, and that in a folder of a run; without `runs`, that one alone.
    """
    own = (folder / name for name in _IN_FOLDER)
    paths = [one for one in dict.fromkeys((*own, *(stacks if runs else ()))) if one.is_file()]
    return tuple(action for path in paths for action in _read(path, runs, since, unread))


def _read(path: Path, runs: Collection[str], since: float, unread: list[str]) -> Iterator[Action]:
    # here: most of the time, there is no journal
    from trainwarden_remediator.journal.event_text import describe_attempt  # noqa: PLC0415
    from trainwarden_remediator.journal.evidence_text import fault_facts  # noqa: PLC0415
    from trainwarden_remediator.report.fault import evidence_before  # noqa: PLC0415
    from trainwarden_remediator.report.loader import read_incidents  # noqa: PLC0415
    from trainwarden_remediator.report.outcomes import outcome_word  # noqa: PLC0415
    from trainwarden_remediator.report.summary import started_by  # noqa: PLC0415

    try:
        with _opened(path) as connection:
            incidents = read_incidents(connection, since)
    except (OSError, JournalError) as error:
        unread.append(str(error))
        return
    for incident in incidents:
        for one in incident.actions:
            if one.at < since or (runs and one.run not in runs):
                continue
            alerts = (event.alert for event in incident.events_of(one))
            record = evidence_before(incident, one)
            yield Action(
                one.at,
                one.kind,
                one.name,
                next(alerts, incident.alert),
                started_by(incident, one),
                describe_attempt(one.attempt, one.attempts).removeprefix(", "),
                outcome_word(one),
                "" if record is None else fault_facts(record.content).cause,
            )


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    """Opens a journal of this account. Raises OSError and JournalError."""
    from trainwarden_remediator.journal.database import (  # noqa: PLC0415 - as above
        check_version,
        sqlite_errors,
    )

    if (descriptor := open_regular(path)) is None:
        raise JournalError(f"{path}: not a regular file")
    with os.fdopen(descriptor) as file:
        if os.fstat(file.fileno()).st_uid != os.geteuid():
            raise JournalError(f"{path}: belongs to another account")
    # SQLite would make files beside a journal that no program has open.
    is_open = path.with_name(f"{path.name}-wal").exists()
    uri = f"{path.absolute().as_uri()}?mode=ro{'' if is_open else '&immutable=1'}"
    with sqlite_errors(path), closing(sqlite3.connect(uri, uri=True)) as connection:
        connection.row_factory = sqlite3.Row
        check_version(connection, path)
        yield connection
