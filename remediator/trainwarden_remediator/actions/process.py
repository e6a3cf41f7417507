"""Restarts a worker that is a plain process: its tree is ended, then its command line started."""

from __future__ import annotations

import logging
import subprocess
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from trainwarden_exporter.config import Config as ExporterConfig
from trainwarden_exporter.exceptions import CollectError
from trainwarden_exporter.gpu.view import GpuView, look_at_gpus
from trainwarden_exporter.lane import within
from trainwarden_exporter.processes.matching import Matcher, Tree
from trainwarden_exporter.processes.procfs import (
    Identity,
    Process,
    descendants,
    read_processes,
)
from trainwarden_remediator.actions.base import Action, Announce, Saving, Standing, never
from trainwarden_remediator.actions.finishing import Finishing
from trainwarden_remediator.actions.gpumemory import (
    LOOK_PATIENCE,
    await_memory,
    describe_late,
    uses_gpu,
)
from trainwarden_remediator.actions.healing import illness_of_any
from trainwarden_remediator.actions.ports import await_free, ports_of
from trainwarden_remediator.actions.starting import MARK, find_marked, start
from trainwarden_remediator.config import Setup
from trainwarden_remediator.ending import end, lives, protected
from trainwarden_remediator.exceptions import ActionError, JournalError
from trainwarden_remediator.kin import KinMemory
from trainwarden_remediator.means.process import ProcessTarget
from trainwarden_remediator.sight import Sight
from trainwarden_remediator.subjects import Subject, processes_among
from trainwarden_remediator.targets import Target

__all__ = ["MARK", "ProcessAction"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Standing:
    """What there is of a worker now.

    `outliving`: what stood below roots of it that are gone.
    """

    tree: Tree
    outliving: tuple[Process, ...]

    @property
    def roots(self) -> list[Identity]:
        return [root.identity for root in self.tree.roots if root.alive]

    @property
    def alive(self) -> list[Process]:
        return [one for one in (*self.tree.members, *self.outliving) if one.alive]


class ProcessAction(Action):
    """Ends the processes its worker's selector finds, and starts the configured command line.

    What outlives its root ends too, and before anything is started, the ports that were listened
    on must be free, and the GPU memory that was held be back.
    """

    kind = "restart"

    def __init__(
        self,
        target: Target,
        process: ProcessTarget,
        setup: Setup,
        kin: KinMemory,
        *,
        look: Callable[[ExporterConfig], GpuView] = look_at_gpus,
    ) -> None:
        self._target = target
        self._process = process
        self._watched = setup.watched
        # All selectors, not the target's alone: what belongs to another worker is not this one's.
        self._matcher = Matcher(setup.selectors)
        self._kin = kin
        self._look = look
        self._children: list[subprocess.Popen[bytes]] = []
        self._finishing = Finishing()

    def processes(self) -> Collection[Subject]:
        return [process.identity for process in self._now().alive]

    @property
    def grace(self) -> float:
        return self._process.grace

    def perform(
        self,
        mark: str,
        announce: Announce,
        meant: Collection[Subject] | None = None,
        saving: Saving = never,
    ) -> Mapping[str, Any]:
        now = self._now()
        if meant is not None and not set(now.roots) <= set(meant):
            # It was started anew since it was looked at: what runs now has done nothing wrong.
            pids = [root.pid for root in now.roots]
            return {"killed": [], "started_by": "another", "processes": pids}
        outliving = [one for one in now.outliving if meant is None or one.identity in meant]
        members = [*now.tree.members, *outliving]
        if reason := protected(members, read_processes()):
            raise ActionError(f"refused: {reason}")
        facts: Mapping[str, Any] = {"killed": []}
        if alive := [process.pid for process in members if process.alive]:
            announce("stop", processes=alive)
            self._finishing.telling_to_end(alive)
            facts = self._end(now.roots, members, _Spare(saving, announce))
        return {**facts, **self.finish(mark, announce)}

    def finish(self, mark: str, announce: Announce) -> Mapping[str, Any]:
        if others := [root.pid for root in self._now().roots]:
            # Whatever else restarts this worker was quicker; a second copy would only do harm.
            return {"started_by": "another", "processes": others}
        if lost := [child.pid for child in self._children if child.poll() is None]:
            # Starting yet another would never end: each would be as invisible as the last.
            raise ActionError(f"{lost} was started before, runs, and is not found by `match`")
        try:
            announce("start", command=list(self._process.start))
        except JournalError as error:
            # That it was ended is written down, and what is started carries its mark: better than
            # a worker that stays ended until the disk has room again.
            log.error("journal failed", extra={"error": str(error)})
        child = start(self._process, mark)
        self._children.append(child)
        return {"started_by": "trainwarden", "processes": [child.pid]}

    def standing(self, mark: str, before: Collection[Subject]) -> Standing:
        alive = [member for member in self._now().tree.members if member.alive]
        # Among all processes: what was started may not look like the worker yet.
        if find_marked(mark):
            return Standing.STARTED
        # Asked one by one: a child that has outlived its root is found by no selector.
        if any(map(lives, processes_among(before))):
            return Standing.UNTOUCHED
        other = len(processes_among(before)) < len(before)
        # `other`: by a configuration that has another means for it now.
        return Standing.REPLACED if alive or other else Standing.ENDED

    def illness(self, sight: Sight, began: float) -> str:
        return illness_of_any(sight, self._target.keys, began)

    def adopt(self, predecessor: Action) -> None:
        if isinstance(predecessor, ProcessAction):
            self._children = predecessor._children  # noqa: SLF001 - one of its own kind
            self._finishing = predecessor._finishing  # noqa: SLF001

    def finished(self) -> bool | None:
        return self._finishing.finished

    def tidy(self) -> bool:
        # In place: a restart may be adding to the list meanwhile.
        for child in tuple(self._children):
            if child.poll() is not None:
                self._children.remove(child)
                self._finishing.reaped(child)
            elif not self._finishing.is_known(child):
                # As it was seen elsewhere: to look here could hang.
                roots = self._kin.roots(self._target.key)
                self._finishing.seen(child, {root.pid for root in roots})
        return bool(self._children)

    def _now(self) -> _Standing:
        try:
            processes = read_processes()
            trees = self._matcher.sort(processes)
        except CollectError as error:
            raise ActionError(f"cannot see the processes: {error}") from error
        keys = self._target.keys
        if not all(key in trees for key in keys):
            raise ActionError("the exporter's file does not name it any more")
        members = [member for key in keys for member in trees[key].members]
        pids = {member.pid for member in members}
        # A rank below its launcher is the launcher's to end, also where it is a worker itself.
        roots = [root for key in keys for root in trees[key].roots if root.parent_pid not in pids]
        outliving = [one for key in keys for one in self._kin.outliving(key, processes, trees)]
        return _Standing(Tree(tuple(roots), tuple(members)), tuple(outliving))

    def _end(
        self, roots: Collection[Identity], members: Collection[Process], spare: _Spare
    ) -> Mapping[str, Any]:
        """End it, and wait until what it held is free again. Returns facts for the journal."""
        identities = [process.identity for process in members]
        ports = ports_of(identities)
        before = self._look_at_gpus(identities)
        killed = end(
            roots,
            identities,
            grace=self.grace,
            late=self._forked_below,
            spare=spare,
            spare_for=self._target.save_patience,
        )
        facts: dict[str, Any] = {"killed": list(killed)}
        taken = await_free(ports, self._process.port_free_within)
        if taken and not self._now().roots:
            told = ", ".join(map(str, sorted(taken)))
            raise ActionError(f"it has ended, and port {told} is not free: something else took it")
        if before is not None:
            pids = {identity.pid for identity in identities}
            look = partial(within, LOOK_PATIENCE, partial(self._look, self._watched))
            # What cannot be seen is not waited for, and what is late may not be needed.
            with suppress(CollectError, TimeoutError):
                late = await_memory(look, before, pids, self._process.memory_back_within)
                if late:
                    facts["late"] = describe_late(late)
        return facts

    def _look_at_gpus(self, identities: Collection[Identity]) -> GpuView | None:
        """The GPUs, if these processes hold any and the driver can be asked."""
        pids = [identity.pid for identity in identities]
        if not uses_gpu(pids, self._watched.gpu.device_root):
            return None
        try:
            return within(LOOK_PATIENCE, partial(self._look, self._watched))
        except (CollectError, TimeoutError):
            return None

    def _forked_below(self, pids: Collection[int]) -> Iterable[Identity]:
        """What stands below those processes by now and is no other worker's, nor protected."""
        processes = read_processes()
        trees = self._matcher.sort(processes)
        others = {
            member.identity
            for key, tree in trees.items()
            if key not in self._target.keys
            for member in tree.members
        }
        for pid in descendants(processes, [pid for pid in pids if pid in processes]):
            process = processes[pid]
            if process.identity not in others and not protected([process], processes):
                yield process.identity


class _Spare:
    """Asks whether what is to be ended must not be killed yet, and says so once."""

    def __init__(self, saving: Saving, announce: Announce) -> None:
        self._saving = saving
        self._announce = announce
        self._told = False

    def __call__(self) -> bool:
        if not self._saving():
            return False
        if not self._told:
            self._told = True
            with suppress(JournalError):
                self._announce("spare")
        return True
