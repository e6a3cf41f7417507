"""What actions by a manager (of units, containers, programs, pods, jobs) have in common."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

from trainwarden_exporter.exceptions import CollectError
from trainwarden_exporter.processes.procfs import descendants, read_processes
from trainwarden_remediator.actions.base import Action, Announce, Saving, Standing, never
from trainwarden_remediator.actions.healing import illness_of_any
from trainwarden_remediator.ending import protected
from trainwarden_remediator.exceptions import ActionError, JournalError, LeftAloneError
from trainwarden_remediator.sight import Sight
from trainwarden_remediator.subjects import Subject, processes_among
from trainwarden_remediator.targets import Target

SPARE_SECONDS = 1.0
"""How often it is asked whether what is spared may be ended by now."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What a manager keeps, as it stands now.

    `identity` tells this run of it from every other, and stays when the run has ended. `stopped`:
    it was told to stop, and did. `hands_off` is why it must not be acted upon now, or nothing; of
    one that was told to stop it says so as well. `pid` is its first process, where that is one of
    this box.
    """

    identity: str
    running: bool
    stopped: bool = False
    hands_off: str = ""
    pid: int | None = None


class ManagedAction(Action):
    """Has a manager restart what it keeps: never more than that one, nor a run of it not meant.

    The manager ends it and starts it by its own rules; a person's stop, and what the manager
    itself is about to do, take precedence.
    """

    kind = "restart"

    in_one: ClassVar[bool]
    """Whether the manager carries a restart through by itself, once told: what is found stopped
    after a crash was then stopped by another."""

    def __init__(self, target: Target, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self._target = target
        self._sleep = sleep

    @property
    def grace(self) -> float:
        return self._target.means.grace

    @abstractmethod
    def look(self) -> Kept:
        """How it stands. Raises ActionError when that cannot be told, or there is no such thing."""

    @abstractmethod
    def restart(self, kept: Kept, mark: str, announce: Announce) -> None:
        """End it if it runs, and start it; return when it was started. Raises ActionError."""

    @abstractmethod
    def start(self, kept: Kept, mark: str, announce: Announce) -> None:
        """Start what does not run. Raises ActionError."""

    def processes(self) -> Collection[Subject]:
        kept = self.look()
        if kept.hands_off:
            raise LeftAloneError(kept.hands_off)
        return [kept.identity]

    def perform(
        self,
        mark: str,
        announce: Announce,
        meant: Collection[Subject] | None = None,
        saving: Saving = never,
    ) -> Mapping[str, Any]:
        self._spare(saving, announce)
        kept = self.look()
        if meant is not None and kept.identity not in meant:
            # It was started anew since it was looked at: what runs now has done nothing wrong.
            return {"killed": [], "started_by": "another", "processes": [kept.identity]}
        if kept.hands_off:
            raise LeftAloneError(f"refused: {kept.hands_off}")
        if kept.pid is not None and (reason := self._protected(kept.pid)):
            raise ActionError(f"refused: {reason}")
        self.restart(kept, mark, announce)
        return {"killed": [], "started_by": "trainwarden", "processes": [self.look().identity]}

    def finish(self, mark: str, announce: Announce) -> Mapping[str, Any]:
        kept = self.look()
        if kept.running:
            return {"started_by": "another", "processes": [kept.identity]}
        if kept.hands_off and (self.in_one or not kept.stopped):
            raise LeftAloneError(f"not started: {kept.hands_off}")
        self.start(kept, mark, announce)
        return {"started_by": "trainwarden", "processes": [self.look().identity]}

    def standing(self, mark: str, before: Collection[Subject]) -> Standing:
        kept = self.look()
        if processes_among(before):
            return Standing.REPLACED  # by a configuration that has another means for it
        if kept.identity not in before:
            return Standing.STARTED
        return Standing.UNTOUCHED if kept.running else Standing.ENDED

    def illness(self, sight: Sight, began: float) -> str:
        return illness_of_any(sight, self._target.keys, began)

    def _protected(self, pid: int) -> str:
        """Why the tree below that process must not be ended, or nothing."""
        try:
            processes = read_processes()
        except CollectError as error:
            raise ActionError(f"cannot see the processes: {error}") from error
        tree = descendants(processes, [pid]) | {pid}
        return protected([processes[one] for one in tree if one in processes], processes)

    def _spare(self, saving: Saving, announce: Announce) -> None:
        """Wait while a checkpoint is being written, for some time: the manager would not."""
        patience = self._target.save_patience
        told = False
        while patience > 0 and saving():
            if not told:
                told = True
                with suppress(JournalError):
                    announce("spare")
            self._sleep(SPARE_SECONDS)
            patience -= SPARE_SECONDS
