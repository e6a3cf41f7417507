"""Remembers which processes stood below each root of a target, for what outlives its root.

An inference server that is killed leaves its engine behind, reparented to init: no selector finds
it, and it holds the port and the GPU. It is known by having been seen below its root.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from pathlib import Path
from threading import Lock
from typing import Protocol

from trainwarden_exporter.exceptions import CollectError
from trainwarden_exporter.processes.matching import Matcher, Tree, WorkerKey
from trainwarden_exporter.processes.procfs import (
    PROC,
    Identity,
    Process,
    descendants,
    read_processes,
    read_text,
)
from trainwarden_remediator.exceptions import JournalError

log = logging.getLogger(__name__)

Kin = Mapping[Identity, frozenset[Identity]]
"""The processes that stood below each root of a target, the root too."""


class Records(Protocol):
    """Where it is kept: what is remembered must outlive the remediator."""

    def remember(self, boot: str, kin: Mapping[WorkerKey, Kin]) -> None: ...

    def remembered(self, boot: str) -> Mapping[WorkerKey, Kin]: ...


class KinMemory:
    """Of each target, the processes below its roots as they were when the roots were last seen.

    What leaves a tree while its root lives has left it for good. May be used from any thread.
    """

    def __init__(self, records: Records, *, root: Path = PROC) -> None:
        self._records = records
        self._root = root
        self._guard = Lock()
        self._boot = (read_text(f"{root}/sys/kernel/random/boot_id") or "").strip()
        self._kin = dict(records.remembered(self._boot))
        self._kept: Mapping[WorkerKey, Kin] = self._kin
        self._failing = False
        self._looked = False

    def look(self, matcher: Matcher, keys: Collection[WorkerKey]) -> None:
        """See how the trees of these workers stand now; of others nothing is kept.

        What cannot be seen or written down now is left as it was known.
        """
        try:
            processes = read_processes(self._root)
            trees = matcher.sort(processes)
        except CollectError as error:
            log.debug("trees not seen", extra={"error": str(error)})
            return
        with self._guard:
            known = {
                key: updated(self._kin.get(key, {}), trees.get(key, Tree()), processes)
                for key in keys
            }
            self._kin = {key: kin for key, kin in known.items() if kin}
            self._looked = True
            self._keep()

    def _keep(self) -> None:
        keys = self._kin.keys() | self._kept.keys()
        new = {key: self._kin.get(key, {}) for key in keys}
        new = {key: kin for key, kin in new.items() if kin != self._kept.get(key, {})}
        try:
            if new:
                self._records.remember(self._boot, new)
        except JournalError as error:
            if not self._failing:
                log.warning("trees are not kept", extra={"error": str(error)})
            self._failing = True
        else:
            self._kept, self._failing = self._kin, False

    def roots(self, key: WorkerKey) -> Collection[Identity]:
        """The roots of `key` that lived when it was last looked; none before the first look."""
        with self._guard:
            known = self._kin.get(key, {}) if self._looked else {}
            return [root for root, members in known.items() if root in members]

    def outliving(
        self,
        key: WorkerKey,
        processes: Mapping[int, Process],
        trees: Mapping[WorkerKey, Tree],
    ) -> tuple[Process, ...]:
        """What lives on of the trees of `key` whose roots are gone, and is in no worker's tree."""
        with self._guard:
            known = self._kin.get(key, {})
        placed = {member.identity for tree in trees.values() for member in tree.members}
        left = {
            member
            for root, members in known.items()
            if not _lives(root, processes)
            for member in members
            if member not in placed and _lives(member, processes)
        }
        return tuple(processes[member.pid] for member in sorted(left))


def updated(known: Kin, tree: Tree, processes: Mapping[int, Process]) -> Kin:
    """What is known of a target once its `tree` has been seen among all `processes`."""
    members = {member.pid: member.identity for member in tree.members if member.alive}
    kin: dict[Identity, frozenset[Identity]] = {}
    for gone, kept in known.items():
        left = frozenset(one for one in kept if _lives(one, processes))
        if left and gone not in left:
            kin[gone] = left
    for root in tree.roots:
        if root.alive:
            below = descendants(processes, [root.pid]) | {root.pid}
            kin[root.identity] = frozenset(members[pid] for pid in below if pid in members)
    return kin


def _lives(identity: Identity, processes: Mapping[int, Process]) -> bool:
    process = processes.get(identity.pid)
    return process is not None and process.identity == identity and process.alive
