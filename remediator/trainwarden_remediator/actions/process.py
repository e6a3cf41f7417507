"""Restarts a worker that is a plain process: its tree is ended, then its command line started."""

from __future__ import annotations

import logging
import os
import pwd
import subprocess
from collections.abc import Collection, Iterable, Mapping
from contextlib import ExitStack
from typing import IO, Any

from trainwarden_exporter.exceptions import CollectError
from trainwarden_exporter.processes.matching import Matcher, Selector, Tree, WorkerKey
from trainwarden_exporter.processes.procfs import (
    Identity,
    descendants,
    read_environment,
    read_processes,
)
from trainwarden_remediator.actions.base import Action, Announce, Standing
from trainwarden_remediator.config import ProcessTarget, Target
from trainwarden_remediator.ending import end, lives, protected
from trainwarden_remediator.exceptions import ActionError, JournalError
from trainwarden_remediator.world import Sight

log = logging.getLogger(__name__)

MARK = "TRAINWARDEN_ACTION"
"""The environment variable that says which action started a process: after a crash of the
remediator it tells a start that took place from one that did not."""

PASSED_ON = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR")
"""Variables of the remediator's own environment that what it starts may see, beside LC_*."""

START_TOLERANCE = 2.0
"""Seconds by which a start may seem to precede the intent to start: clocks are read twice."""


class ProcessAction(Action):
    """Ends the processes its worker's selector finds, and starts the configured command line."""

    kind = "restart"

    def __init__(self, target: Target, selectors: Mapping[WorkerKey, Selector]) -> None:
        self._target = target
        # All selectors, not the target's alone: what belongs to another worker is not this one's.
        self._matcher = Matcher(selectors)
        self._children: list[subprocess.Popen[bytes]] = []

    def processes(self) -> Collection[Identity]:
        return [process.identity for process in self._tree().members if process.alive]

    @property
    def grace(self) -> float:
        return self._target.process.grace

    def perform(
        self, action: int, announce: Announce, meant: Collection[Identity] | None = None
    ) -> Mapping[str, Any]:
        tree = self._tree()
        roots = [root.identity for root in tree.roots if root.alive]
        if meant is not None and not set(roots) <= set(meant):
            # It was started anew since it was looked at: what runs now has done nothing wrong.
            pids = [root.pid for root in roots]
            return {"killed": [], "started_by": "another", "processes": pids}
        if reason := protected(tree.members, read_processes()):
            raise ActionError(f"refused: {reason}")
        killed: tuple[int, ...] = ()
        if alive := [process.pid for process in tree.members if process.alive]:
            announce("stop", processes=alive)
            members = [process.identity for process in tree.members]
            killed = end(roots, members, grace=self.grace, late=self._forked_below)
        return {"killed": list(killed), **self.finish(action, announce)}

    def finish(self, action: int, announce: Announce) -> Mapping[str, Any]:
        if others := [root.pid for root in self._tree().roots if root.alive]:
            # Whatever else restarts this worker was quicker; a second copy would only do harm.
            return {"started_by": "another", "processes": others}
        if lost := [child.pid for child in self._children if child.poll() is None]:
            # Starting yet another would never end: each would be as invisible as the last.
            raise ActionError(f"{lost} was started before, runs, and is not found by `match`")
        try:
            announce("start", command=list(self._target.process.start))
        except JournalError as error:
            # That it was ended is written down, and what is started carries its mark: better than
            # a worker that stays ended until the disk has room again.
            log.error("journal failed", extra={"error": str(error)})
        child = start(self._target.process, _mark_of(self._target.key, action))
        self._children.append(child)
        return {"started_by": "trainwarden", "processes": [child.pid]}

    def standing(self, action: int, before: Collection[Identity]) -> Standing:
        alive = {process.identity for process in self._tree().members if process.alive}
        # Among all processes: what was started may not look like the worker yet.
        if _find_marked(_mark_of(self._target.key, action)):
            return Standing.STARTED
        # Asked one by one: a child that has outlived its root is found by no selector.
        if any(map(lives, before)):
            return Standing.UNTOUCHED
        return Standing.REPLACED if alive else Standing.ENDED

    def illness(self, sight: Sight, began: float) -> str:
        return illness(sight, self._target.key, began)

    def adopt(self, predecessor: Action) -> None:
        if isinstance(predecessor, ProcessAction):
            self._children = predecessor._children  # noqa: SLF001 - one of its own kind

    def tidy(self) -> bool:
        # In place: a restart may be adding to the list meanwhile.
        for child in tuple(self._children):
            if child.poll() is not None:
                self._children.remove(child)
        return bool(self._children)

    def _tree(self) -> Tree:
        try:
            trees = self._matcher.find()
        except CollectError as error:
            raise ActionError(f"cannot see the processes: {error}") from error
        if self._target.key not in trees:
            raise ActionError("the exporter's file does not name it any more")
        return trees[self._target.key]

    def _forked_below(self, pids: Collection[int]) -> Iterable[Identity]:
        """What stands below those processes by now and is no other worker's, nor protected."""
        processes = read_processes()
        trees = self._matcher.sort(processes)
        others = {
            member.identity
            for key, tree in trees.items()
            if key != self._target.key
            for member in tree.members
        }
        for pid in descendants(processes, [pid for pid in pids if pid in processes]):
            process = processes[pid]
            if process.identity not in others and not protected([process], processes):
                yield process.identity


def illness(sight: Sight, key: WorkerKey, began: float) -> str:
    """What keeps a worker from counting as healed by a restart begun at `began`, or nothing."""
    worker = sight.workers.get(key)
    if worker is None:
        return "the exporter does not show it"
    if worker.processes != worker.expected:
        return f"{worker.processes:g} of {worker.expected:g} processes run"
    if worker.started_at is None or worker.started_at < began - START_TOLERANCE:
        return "it has not started anew"
    limit = worker.memory_limit_bytes
    if limit is not None and worker.resident_bytes > limit:
        return f"{worker.resident_bytes:.0f} bytes resident, above its limit"
    return ""


def start(process: ProcessTarget, mark: str) -> subprocess.Popen[bytes]:
    """Start the configured command line in a session of its own, its output appended to its log.

    Raises ActionError naming what stands in the way.
    """
    try:
        with ExitStack() as stack:
            output: IO[bytes] | int = subprocess.DEVNULL
            if process.log is not None:
                process.log.parent.mkdir(parents=True, exist_ok=True)
                output = stack.enter_context(process.log.open("ab"))
            account = None if process.user is None else pwd.getpwnam(process.user)
            return subprocess.Popen(  # noqa: S603 - the operator's own argument list, no shell
                process.start,
                cwd=process.cwd,
                env=_environment(process, account, mark),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                user=None if account is None else account.pw_uid,
                group=None if account is None else account.pw_gid,
                extra_groups=(
                    None if account is None else os.getgrouplist(account.pw_name, account.pw_gid)
                ),
            )
    except KeyError as error:
        raise ActionError(f"cannot start {process.start[0]}: no user {process.user}") from error
    except (OSError, subprocess.SubprocessError) as error:
        raise ActionError(f"cannot start {process.start[0]}: {error}") from error


def _environment(
    process: ProcessTarget, account: pwd.struct_passwd | None, mark: str
) -> dict[str, str]:
    environment = {
        name: value
        for name, value in os.environ.items()
        if name in PASSED_ON or name.startswith("LC_")
    }
    if account is not None:
        environment |= {"HOME": account.pw_dir, "USER": account.pw_name}
        environment |= {"LOGNAME": account.pw_name, "SHELL": account.pw_shell}
    return {**environment, **process.environment, MARK: mark}


def _mark_of(key: WorkerKey, action: int) -> str:
    return f"{key.run}/{key.worker}/{action}"


def _find_marked(mark: str) -> bool:
    """Whether a process runs that was started with `mark`."""
    try:
        return any(
            (read_environment(process.pid) or {}).get(MARK) == mark
            for process in read_processes().values()
            if process.alive and not process.kernel_thread
        )
    except CollectError as error:
        raise ActionError(f"cannot see the processes: {error}") from error
