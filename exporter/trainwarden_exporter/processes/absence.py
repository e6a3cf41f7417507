"""Why processes of a worker are absent, where nothing shows that they failed.

Unknown is not bad: a worker without a sign of failure is reported to the operator and never started
automatically.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple, Self

from trainwarden_exporter.processes.exit_status import is_interrupt
from trainwarden_exporter.processes.matching import ProcessTree, WorkerKey
from trainwarden_exporter.processes.procfs import PROC, read_text
from trainwarden_exporter.processes.start_history import worker_id
from trainwarden_exporter.processes.worker_history import RootHistory
from trainwarden_exporter.runtime.state_file import StateFile

PROGRESS_LAG_SECONDS = 15.0
"""Seconds after the end of a process during which its last lines may still be read."""


class AbsenceReason(StrEnum):
    """Why the absence of a process is no sign of a failure. The value is a label."""

    NEVER_SEEN = "never_seen"
    """No process has ever matched the worker's selector, which may be wrong; or its pid file cannot
    be read."""
    EXIT_UNKNOWN = "exit_unknown"
    """A worker that may finish has ended, with an unknown exit status."""
    INTERRUPTED = "interrupted"
    """Ended by SIGINT, as by Ctrl-C in a terminal, or by a stop of its systemd unit."""
    PROGRESSING = "progressing"
    """The run makes progress without a trainer: the selector may be wrong."""


SELECTOR_REASONS = (AbsenceReason.NEVER_SEEN, AbsenceReason.PROGRESSING)
"""Reasons for which the selector may be wrong."""


class RunSigns(NamedTuple):
    """What the logs and files of a run show. Times are Unix seconds; None means unknown."""

    finished: bool = False
    progress_at: float | None = None
    """Last step, or other sign of progress."""
    failed_at: float | None = None
    """Last line that reports a fatal error."""


class Presence(NamedTuple):
    """When a worker was last observed."""

    boot: str
    """The boot of the host; empty if unknown."""
    running: bool
    """Whether it ran."""
    interrupted: bool = False
    """Whether its last process was stopped deliberately."""
    failed: bool = False
    """Whether its last process is known to have failed."""


PresenceByWorker = dict[str, Presence]
"""By worker; omits workers that were never seen."""


class PresenceLog:
    """Whether each worker has ever run, stored in the file `path`."""

    def __init__(self, path: Path | None, root: Path = PROC) -> None:
        self._file = StateFile[PresenceByWorker](path, PresenceByWorker, empty={})
        self._boot = (read_text(f"{root}/sys/kernel/random/boot_id") or "").strip()
        self._rebooted: set[WorkerKey] = set()

    def take_over_from(self, predecessor: Self) -> None:
        self._file.save(predecessor._file.value)
        self._rebooted = predecessor._rebooted

    def record(self, trees: Mapping[WorkerKey, ProcessTree]) -> None:
        """Records which workers run; drops all other workers."""
        presence: PresenceByWorker = {}
        for key, tree in trees.items():
            known = self._file.value.get(worker_id(key))
            if known is not None and known.running and known.boot != self._boot:
                self._rebooted.add(key)
            if tree.roots:
                self._rebooted.discard(key)
                if any(root.alive for root in tree.roots) or known is None:
                    known = Presence(self._boot, any(root.alive for root in tree.roots))
                else:
                    known = known._replace(boot=self._boot, running=False)
            elif known is not None:
                known = known._replace(boot=self._boot, running=False)
            if known is not None:
                presence[worker_id(key)] = known
        self._file.save(presence)

    def record_ends(self, reasons: Mapping[WorkerKey, AbsenceReason | None]) -> None:
        """Records how workers ended, until they run again: stopped deliberately, or failed."""
        known = self._file.value
        ended = {
            worker_id(key): known[worker_id(key)]._replace(
                interrupted=reason is AbsenceReason.INTERRUPTED, failed=reason is None
            )
            for key, reason in reasons.items()
            if worker_id(key) in known and not known[worker_id(key)].running
        }
        self._file.save({**known, **ended})

    def was_interrupted(self, key: WorkerKey) -> bool:
        """Whether the worker was stopped deliberately, and has not run since."""
        known = self._file.value.get(worker_id(key))
        return known is not None and known.interrupted

    def has_failed(self, key: WorkerKey) -> bool:
        """Whether the worker is known to have failed, and has not run since."""
        known = self._file.value.get(worker_id(key))
        return known is not None and known.failed

    def was_seen(self, key: WorkerKey) -> bool:
        """Whether the worker has ever run."""
        return worker_id(key) in self._file.value

    def ended_by_reboot(self, key: WorkerKey) -> bool:
        """Whether the worker ran until a reboot of the host, and has not run since."""
        return key in self._rebooted


def find_absence_reason(
    history: RootHistory,
    signs: RunSigns,
    *,
    seen: bool,
    finishes: bool,
    ended_by_reboot: bool,
    is_only_trainer: bool,
    unit_stopped: bool = False,
    was_interrupted: bool = False,
    has_failed: bool = False,
) -> AbsenceReason | None:
    """Returns why the absence of processes is no failure; None if they failed.

    `is_only_trainer`: whether the worker makes the steps of its run, and no trainer runs.
    `unit_stopped`: whether an operator has stopped its systemd unit.
    `was_interrupted` and `has_failed`: whether an earlier exporter has stored that it was stopped
    deliberately, or failed.
    """
    if not seen:
        return AbsenceReason.NEVER_SEEN
    statuses, ended_at = history.unreplaced_statuses, history.last_exit_timestamp
    since = ended_at if ended_at is not None else 0.0
    if (
        is_only_trainer
        and ended_at is not None
        and not signs.finished
        and signs.progress_at is not None
        and signs.progress_at > ended_at + PROGRESS_LAG_SECONDS
    ):
        return AbsenceReason.PROGRESSING
    if statuses and (unit_stopped or all(map(is_interrupt, statuses))):
        return AbsenceReason.INTERRUPTED
    if was_interrupted and not statuses:
        return AbsenceReason.INTERRUPTED
    if has_failed and not statuses:
        return None
    if not finishes or ended_by_reboot or any(status not in (None, 0) for status in statuses):
        return None
    # A fatal line is the second sign, if the run made no progress after it.
    failed_at, progress_at = signs.failed_at, signs.progress_at
    if failed_at is not None and failed_at <= since + PROGRESS_LAG_SECONDS:
        return AbsenceReason.EXIT_UNKNOWN if (progress_at or 0.0) > failed_at else None
    return AbsenceReason.EXIT_UNKNOWN
