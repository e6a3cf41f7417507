"""What the engine observes and acts with, held in memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from tests.remediator.fake_clock import FakeClock
from tests.remediator.samples import GIB

from trainwarden_exporter.processes.matching import Matcher, WorkerKey
from trainwarden_exporter.processes.procfs import Identity
from trainwarden_remediator.actions.base import (
    Action,
    ActionState,
    Confirm,
    IsSaving,
    RecordStep,
    confirm_always,
    health_problem,
    never_saving,
    record_kill,
)
from trainwarden_remediator.actions.descendants import DescendantsByRoot, DescendantTracker
from trainwarden_remediator.alertmanager.api import AlertState, Silence
from trainwarden_remediator.exceptions import ObservationError
from trainwarden_remediator.holds.hold_file import Hold
from trainwarden_remediator.journal.journal import Journal
from trainwarden_remediator.model import TargetInstance
from trainwarden_remediator.notify.outbox import Outbox
from trainwarden_remediator.observation.model import (
    DiskState,
    ExporterState,
    RunState,
    ServerState,
    WorkerState,
)
from trainwarden_remediator.observation.snapshot import AlertmanagerState


@dataclass
class FakeObserver:
    """A world that is as the test says; an UnknownError in it is raised."""

    workers: dict[WorkerKey, WorkerState] = field(default_factory=dict)
    known: dict[str, AlertState] = field(default_factory=dict)
    available: float = 20 * GIB
    floor: float = 2 * GIB
    blind: ObservationError | None = None
    deaf: ObservationError | None = None
    looks: int = 0
    servers: dict[str, tuple[ServerState, ...]] = field(default_factory=dict)
    runs: dict[str, RunState] = field(default_factory=dict)
    disks: tuple[DiskState, ...] = ()
    silences: tuple[Silence, ...] = ()

    async def observe(self) -> ExporterState:
        self.looks += 1
        if self.blind:
            raise self.blind
        return ExporterState(
            dict(self.workers),
            self.available,
            self.floor,
            servers=dict(self.servers),
            runs=dict(self.runs),
            disks=self.disks,
        )

    async def alerts(self) -> AlertmanagerState:
        if self.deaf:
            raise self.deaf
        return AlertmanagerState(dict(self.known), self.silences)


class NoRecords:
    """Keeps nothing."""

    def save_descendants(
        self, boot: str, descendants_by_root: Mapping[WorkerKey, DescendantsByRoot]
    ) -> None:
        pass

    def load_descendants(self, boot: str) -> Mapping[WorkerKey, DescendantsByRoot]:
        return {}


class BlindKin(DescendantTracker):
    """Never observes the processes of the host."""

    def __init__(self) -> None:
        super().__init__(NoRecords())

    def observe(self, matcher: Matcher, keys: Collection[WorkerKey]) -> None:
        pass


def numbered(action_token: str) -> int:
    """The number of the action that the mark is of."""
    _, _, number, _ = action_token.split("/")
    return int(number)


_START_TICKS = count(os.getpid() << 32)
"""Of no other test: remediators of one host lock what they end."""


@dataclass(eq=False)
class FakeAction(Action):
    """Restarts a worker of `observer`; `heal` is what becomes of it, `error` is raised."""

    key: WorkerKey
    observer: FakeObserver
    clock: FakeClock
    heal: Mapping[str, Any] = field(default_factory=lambda: {"memory_bytes": GIB, "processes": 1})
    error: Exception | None = None
    stands: ActionState = ActionState.UNTOUCHED
    differs: str = ""
    patience: float = 1.0
    kills: Collection[int] = ()
    restarts: list[int] = field(default_factory=list)
    finishes: list[int] = field(default_factory=list)
    identity: Identity = field(default_factory=lambda: Identity(4242, next(_START_TICKS)))
    wait: Callable[[], None] = lambda: None
    before: Callable[[], None] = lambda: None
    after: Callable[[], None] = lambda: None

    kind = "restart"

    @property
    def grace(self) -> float:
        return self.patience

    def find_instances(self) -> Collection[TargetInstance]:
        return [self.identity]

    def proof_problem(self, exporter: ExporterState) -> str:
        return self.differs

    def perform(
        self,
        action_token: str,
        record_step: RecordStep,
        intended: Collection[TargetInstance] | None = None,
        saving: IsSaving = never_saving,
        confirm: Confirm = confirm_always,
    ) -> Mapping[str, Any]:
        del intended
        self.wait()
        confirm()
        self.restarts.append(numbered(action_token))
        record_step("stop", processes=[4242])
        if self.kills:
            record_kill(record_step, self.kills, self.grace)
        self.before()
        if self.error:
            raise self.error
        return {"killed": [], **self._start(action_token, record_step)}

    def finish(self, action_token: str, record_step: RecordStep) -> Mapping[str, Any]:
        self.finishes.append(numbered(action_token))
        return self._start(action_token, record_step)

    def inspect(self, action_token: str, before: Collection[TargetInstance]) -> ActionState:
        return self.stands

    def health_problem(self, exporter: ExporterState, began: float) -> str:
        return health_problem(exporter, self.key, began)

    def _start(self, _: str, record_step: RecordStep) -> Mapping[str, Any]:
        record_step("start", command=["/bin/true"])
        worker = self.observer.workers[self.key]
        self.observer.workers[self.key] = replace(worker, started_at=self.clock.now(), **self.heal)
        self.after()
        return {"started_by": "trainwarden", "processes": [4343]}


def outbox_of(journal: Journal, *holds: Hold) -> Outbox:
    """The notices in the file of `journal`, by its clock; `holds` are in force."""
    return Outbox(journal.file, clock=journal._clock, holds=lambda: holds)
