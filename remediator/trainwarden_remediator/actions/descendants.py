"""Tracks the descendants of each root process of a target, to find survivors of their root.

A killed inference server leaves its engine process behind, reparented to init: it holds the port
and the GPU, and no selector finds it. Only its earlier place below the root identifies it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from threading import Lock
from typing import Protocol

from trainwarden_exporter.exceptions import CollectError
from trainwarden_exporter.processes.ancestry import descendants
from trainwarden_exporter.processes.matching import Matcher, ProcessTree, WorkerKey
from trainwarden_exporter.processes.procfs import PROC, Identity, Process, read_processes, read_text
from trainwarden_remediator.exceptions import JournalError

log = logging.getLogger(__name__)

DescendantsByRoot = Mapping[Identity, frozenset[Identity]]
"""The processes observed below each root of a target, including the root."""


class DescendantStore(Protocol):
    """Persists descendants across restarts of the remediator; `boot`: the kernel's boot ID."""

    def save_descendants(
        self, boot: str, descendants_by_root: Mapping[WorkerKey, DescendantsByRoot]
    ) -> None: ...

    def load_descendants(self, boot: str) -> Mapping[WorkerKey, DescendantsByRoot]: ...


class DescendantTracker:
    """Holds, for each target, the processes below its roots when each root was last observed.

    A process that leaves a tree while the root lives is dropped. Thread-safe.
    """

    def __init__(self, store: DescendantStore) -> None:
        self._store = store
        self._guard = Lock()
        self._boot = (read_text(f"{PROC}/sys/kernel/random/boot_id") or "").strip()
        self._descendants = dict(store.load_descendants(self._boot))
        self._saved: Mapping[WorkerKey, DescendantsByRoot] = self._descendants
        self._save_failed = False
        self._has_observed = False

    def observe(self, matcher: Matcher, keys: Collection[WorkerKey]) -> None:
        """Observes the process trees of these workers; forgets all other workers.

        Keeps the last known trees if the processes cannot be read.
        """
        try:
            processes = read_processes()
            trees = matcher.assign(processes)
        except CollectError as error:
            log.debug("process trees could not be read", extra={"error": str(error)})
            return
        with self._guard:
            previous = {
                key: merge_observed(
                    self._descendants.get(key, {}), trees.get(key, ProcessTree()), processes
                )
                for key in keys
            }
            self._descendants = {
                key: descendants_by_root
                for key, descendants_by_root in previous.items()
                if descendants_by_root
            }
            self._has_observed = True
            self._save()

    def _save(self) -> None:
        keys = self._descendants.keys() | self._saved.keys()
        new = {key: self._descendants.get(key, {}) for key in keys}
        new = {
            key: descendants_by_root
            for key, descendants_by_root in new.items()
            if descendants_by_root != self._saved.get(key, {})
        }
        try:
            if new:
                self._store.save_descendants(self._boot, new)
        except JournalError as error:
            if not self._save_failed:
                log.warning("process trees could not be saved", extra={"error": str(error)})
            self._save_failed = True
        else:
            self._saved, self._save_failed = self._descendants, False

    def roots(self, key: WorkerKey) -> Collection[Identity]:
        """Returns the roots of `key` that lived at the last observation, if there was one."""
        with self._guard:
            previous = self._descendants.get(key, {}) if self._has_observed else {}
            return [root for root, members in previous.items() if root in members]

    def survivors_of(
        self,
        key: WorkerKey,
        processes: Mapping[int, Process],
        trees: Mapping[WorkerKey, ProcessTree],
    ) -> tuple[Process, ...]:
        """Returns the live processes of `key` whose roots are gone and that are in no tree."""
        with self._guard:
            previous = self._descendants.get(key, {})
        placed = {member.identity for tree in trees.values() for member in tree.members}
        left = {
            member
            for root, members in previous.items()
            if not _is_alive(root, processes)
            for member in members
            if member not in placed and _is_alive(member, processes)
        }
        return tuple(processes[member.pid] for member in sorted(left))


def merge_observed(
    previous: DescendantsByRoot, tree: ProcessTree, processes: Mapping[int, Process]
) -> DescendantsByRoot:
    """Returns the known descendants of a target, updated with its observed `tree`."""
    members = {member.pid: member.identity for member in tree.members if member.alive}
    descendants_by_root: dict[Identity, frozenset[Identity]] = {}
    for gone, kept in previous.items():
        left = frozenset(one for one in kept if _is_alive(one, processes))
        if left and gone not in left:
            descendants_by_root[gone] = left
    for root in tree.roots:
        if root.alive:
            below = descendants(processes, [root.pid]) | {root.pid}
            descendants_by_root[root.identity] = frozenset(
                members[pid] for pid in below if pid in members
            )
    return descendants_by_root


def _is_alive(identity: Identity, processes: Mapping[int, Process]) -> bool:
    process = processes.get(identity.pid)
    return process is not None and process.identity == identity and process.alive
