"""Reads what remediators did to a run, from their journals."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from trainwarden_exporter.runtime.safe_open import open_regular
from trainwarden_remediator.exceptions import JournalError

_IN_FOLDER = ("journal.db", "state/journal.db")


def read_actions(
    folder: Path, stacks: Sequence[Path], runs: Collection[str], since: float, unread: list[str]
) -> tuple[tuple[float, str], ...]:
    """Returns each action on `runs` since then, with its time.

    Reads the journals of `stacks`, and that in a folder of a run; without `runs`, that one alone.
    """
    own = (folder / name for name in _IN_FOLDER)
    paths = [one for one in dict.fromkeys((*own, *(stacks if runs else ()))) if one.is_file()]
    return tuple(action for path in paths for action in _read(path, runs, since, unread))


def _read(
    path: Path, runs: Collection[str], since: float, unread: list[str]
) -> Iterator[tuple[float, str]]:
    # here: most of the time, there is no journal
    from trainwarden_remediator.journal.queries import JournalReader  # noqa: PLC0415
    from trainwarden_remediator.telemetry.status_page import action_json  # noqa: PLC0415

    try:
        with _opened(path) as connection:
            reader = JournalReader(
                lambda *query: connection.execute(*query).fetchall(), clock=time.time
            )
            found = reader.past_actions(since)
    except (OSError, JournalError) as error:
        unread.append(str(error))
        return
    for one in found:
        if one.intent_at >= since and (one.key.run in runs or not runs):
            shown, name = action_json(one), "/".join(filter(None, one.key))
            alert = f" for {one.alert}" if one.alert else ""
            text = f"the remediator: {shown['action']} of {name}{alert}: {shown['outcome']}"
            yield one.intent_at, text


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
