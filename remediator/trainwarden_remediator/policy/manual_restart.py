"""What an operator types to end a command of `trainwarden run` and to start it again. Pure."""

from __future__ import annotations

from collections.abc import Collection

from trainwarden_exporter.processes.announcements import AnnouncedRuns
from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.processes.typed_commands import as_typed, stop_command

_WITHOUT_NAN = (
    "Move the checkpoints from after the last finite value to another folder, as most scripts go on"
    " from the newest one, and mend the cause"
)


def announced_key(key: WorkerKey, trainers: Collection[WorkerKey]) -> WorkerKey:
    """Returns the worker, and of an alert about a whole run its trainer, if it has one."""
    own = [one for one in trainers if one.run == key.run]
    return own[0] if not key.worker and len(own) == 1 else key


def manual_restart(
    key: WorkerKey,
    announced: AnnouncedRuns,
    *,
    lacks_folder: bool,
    not_finite: bool = False,
    nothing_saved: bool = False,
) -> str:
    """Returns what ends a command, and what starts it again; "" if it is not announced.

    `lacks_folder`: it is to be started with a folder of checkpoints, which it has not named.
    `not_finite`: its newest checkpoints have the values that are NaN or infinite, unless
    `nothing_saved`.
    """
    if (found := announced.workers.get(key)) is None:
        return ""
    if found.announcement.state == "finished" and not not_finite:
        return "Its run has finished: nobody needs to start it again."
    start = found.announcement.start_command
    typed = f": {as_typed(start)}" if start else ""
    with_folder = " with `--checkpoints FOLDER` added" * lacks_folder
    stop = f"`{stop_command(key, announced.workers)}` ends it. "
    begins = "" if found.announcement.has_ended else stop
    mend = _WITHOUT_NAN if not_finite and not nothing_saved else "Mend the cause"
    return f"{begins}{mend}, then start it again{with_folder}{typed}."
