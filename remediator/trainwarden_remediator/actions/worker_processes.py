"""Finds the processes that a restart of a worker ends."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from trainwarden_exporter.processes.ancestry import descendants
from trainwarden_exporter.processes.matching import Matcher, ProcessTree, Selector, WorkerKey
from trainwarden_exporter.processes.procfs import Identity, Process, read_processes
from trainwarden_remediator.actions.base import reading_processes
from trainwarden_remediator.actions.descendants import DescendantTracker
from trainwarden_remediator.actions.termination import protection_reason
from trainwarden_remediator.exceptions import ActionError


@dataclass(frozen=True, slots=True)
class WorkerProcesses:
    """The current processes of a worker. `survivors`: descendants of roots that are gone.

    `shells`: shells that run the worker, or stay open after its end, and are no part of it.
    """

    trees: Mapping[WorkerKey, ProcessTree]
    """The tree of each worker of the target."""
    tree: ProcessTree
    """All of them as one."""
    survivors: tuple[Process, ...]
    shells: tuple[Process, ...]

    @property
    def roots(self) -> list[Identity]:
        return [root.identity for root in self.tree.roots if root.alive]

    @property
    def alive(self) -> list[Process]:
        return [one for one in (*self.tree.members, *self.survivors) if one.alive]


class WorkerProcessFinder:
    """Finds the processes of the workers `keys` of one target, by the selectors of all workers.

    A process that belongs to another worker does not belong to this one.
    """

    def __init__(
        self,
        keys: Collection[WorkerKey],
        selectors: Mapping[WorkerKey, Selector],
        tracker: DescendantTracker,
    ) -> None:
        self._keys = keys
        self._matcher = Matcher(selectors)
        self._tracker = tracker

    def find(self) -> WorkerProcesses:
        """Returns the current processes. Raises ActionError."""
        with reading_processes():
            processes = read_processes()
            trees = self._matcher.assign(processes)
        keys = self._keys
        if not all(key in trees for key in keys):
            raise ActionError("the worker is no longer in the exporter's file")
        # Unknown is not gone: a second copy would do harm (harm 29).
        if unread := sorted(self._matcher.unread & set(keys)):
            names = ", ".join(key.worker for key in unread)
            raise ActionError(f"the pid file of {names} cannot be read")
        members = [member for key in keys for member in trees[key].members]
        pids = {member.pid for member in members}
        # A launcher terminates the ranks below it, even if a rank is a worker too.
        roots = [root for key in keys for root in trees[key].roots if root.parent_pid not in pids]
        survivors = [
            one for key in keys for one in self._tracker.survivors_of(key, processes, trees)
        ]
        tree = ProcessTree(tuple(roots), tuple(members))
        shells = tuple(shell for key in keys for shell in trees[key].shells if shell.alive)
        return WorkerProcesses({key: trees[key] for key in keys}, tree, tuple(survivors), shells)

    def new_descendants(self, pids: Collection[int]) -> Iterable[Identity]:
        """Yields current descendants of `pids` that are not protected or another worker's."""
        with reading_processes():
            processes = read_processes()
            trees = self._matcher.assign(processes)
        others = {
            member.identity
            for key, tree in trees.items()
            if key not in self._keys
            for member in tree.members
        }
        for pid in descendants(processes, [pid for pid in pids if pid in processes]):
            process = processes[pid]
            if process.identity not in others and not protection_reason([process], processes):
                yield process.identity
