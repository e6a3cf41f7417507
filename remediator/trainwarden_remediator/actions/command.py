"""Restarts a worker by a command of the operator's own."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from contextlib import suppress

from trainwarden_exporter.exceptions import CollectError
from trainwarden_exporter.processes.matching import Matcher
from trainwarden_exporter.processes.procfs import Identity, Process, start_timestamp
from trainwarden_remediator.actions import commandrun
from trainwarden_remediator.actions.base import Action, Announce, Standing
from trainwarden_remediator.actions.managed import Kept, ManagedAction
from trainwarden_remediator.config import Setup
from trainwarden_remediator.exceptions import (
    ActionError,
    AmbiguousError,
    JournalError,
    NotNowError,
)
from trainwarden_remediator.means.command import CommandTarget
from trainwarden_remediator.subjects import Subject
from trainwarden_remediator.targets import Target

NOTHING = "no process"
"""What the worker is told by while nothing of it runs."""


class CommandAction(ManagedAction):
    """Runs the configured command once for each action, whatever comes of it.

    What the worker is, is told by its processes, as the exporter's selectors find them.
    """

    kind = "command"
    in_one = True

    def __init__(
        self,
        target: Target,
        command: CommandTarget,
        setup: Setup,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(target)
        self._command = command
        self._matcher = Matcher(setup.selectors)
        self._clock = clock
        self._not_before: float | None = None

    def look(self) -> Kept:
        roots = self._processes(roots=True)
        told = ", ".join(f"{root.pid} (start {root.identity.start_ticks})" for root in roots)
        return Kept(
            identity=told or NOTHING,
            running=bool(roots),
            hands_off=self._hands_off(),
            pid=roots[0].pid if roots else None,
        )

    def restart(self, kept: Kept, mark: str, announce: Announce) -> None:
        announce("restart", manager="command", what=" ".join(self._command.restart))
        ended = commandrun.run(self._command, mark, self._members)
        with suppress(JournalError):  # what it has done is done
            announce("said", status=ended.status, output=ended.output)
        if ended.status is None:
            raise AmbiguousError(
                f"it took longer than {self._command.within:g} s, and was ended: whether it has "
                "done its work is looked at"
            )
        if ended.status in self._command.not_now:
            self._not_before = self._clock() + self._command.again
            raise NotNowError(f"the command says that it may not now (status {ended.status})")
        if ended.status != 0:
            raise ActionError(_failure(ended.status))

    def start(self, kept: Kept, mark: str, announce: Announce) -> None:
        raise ActionError("it was cut short, and no command is run again for the same action")

    def standing(self, mark: str, before: Collection[Subject]) -> Standing:
        for process in self._commands(mark):
            if time.time() - start_timestamp(process.identity) < self._command.within:
                raise ActionError(f"the command still runs ({process.pid})")
            commandrun.end_session(process.identity, self._command.grace, self._members())
        kept = self.look()
        if not kept.running:
            return Standing.ENDED
        return Standing.UNTOUCHED if kept.identity in before else Standing.STARTED

    def adopt(self, predecessor: Action) -> None:
        if isinstance(predecessor, CommandAction):
            self._not_before = predecessor._not_before  # noqa: SLF001 - one of its own kind

    def _hands_off(self) -> str:
        if self._not_before is not None and self._clock() < self._not_before:
            return "the command has said that it may not now"
        # Of any action on this worker: after a crash one may still be at it.
        if running := self._commands(f"{self._target.run}/{self._target.worker}/"):
            return f"the command of an earlier action still runs ({running[0].pid})"
        return ""

    def _commands(self, mark: str) -> list[Process]:
        """Commands that bear this mark; the workers that they have started bear it as well."""
        workers = set(self._members())
        return [
            one for one in commandrun.running(self._command, mark) if one.identity not in workers
        ]

    def _members(self) -> list[Identity]:
        return [process.identity for process in self._processes(roots=False)]

    def _processes(self, *, roots: bool) -> list[Process]:
        """The living processes of its workers, or only the first of each."""
        try:
            trees = self._matcher.find()
        except CollectError as error:
            raise ActionError(f"cannot see the processes: {error}") from error
        if missing := [key for key in self._target.keys if key not in trees]:
            raise ActionError(f"the exporter's file does not name {missing[0].worker} any more")
        chosen = [trees[key].roots if roots else trees[key].members for key in self._target.keys]
        return [process for processes in chosen for process in processes if process.alive]


def _failure(status: int) -> str:
    if status < 0:
        return f"the command was ended by signal {-status}"
    return f"the command failed with status {status}"
