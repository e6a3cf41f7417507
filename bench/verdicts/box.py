"""One box: what happens on it, what its exporter makes of that, and what Prometheus gets of it.

Two clocks: simulated real time is monotonic; the host's clock may be set. Prometheus runs on the
host, so a clock that is set forward leaves it a hole, and a clock that is set back makes it wait.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from trainwarden_exporter.collectors.inference import server_signs
from trainwarden_exporter.collectors.progress import ProgressCollector
from trainwarden_exporter.collectors.stacks import MOVED_SECONDS
from trainwarden_exporter.frameworks.base import LinePattern, Phase
from trainwarden_exporter.logs.events import LineEvent
from trainwarden_exporter.processes.absence import SELECTOR_REASONS
from trainwarden_exporter.processes.matching import WorkerKey, WorkerLiveness
from trainwarden_exporter.processes.stacks.model import Movement
from trainwarden_exporter.processes.stacks.sampler import ROUND_SECONDS
from trainwarden_exporter.progress.run_time_evidence import ServerSigns
from trainwarden_exporter.progress.silence import read_suspicious_silence
from trainwarden_exporter.progress.tracker import ProgressTracker
from verdicts.gpus import Gpus
from verdicts.page import BASE, EXPORTER, REMEDIATOR, SCRAPE, Page
from verdicts.parts import Container, Disk, Heartbeat, Host, Log, Worker, put_run
from verdicts.ranks import Ranks
from verdicts.remediator import Remediator
from verdicts.saves import Saves
from verdicts.server import Server
from verdicts.shapes import RUN, Shape, Telling
from verdicts.truth import Truth

COLLECTORS: tuple[str, ...] = (
    "host",
    "workers",
    "gpu",
    "xid",
    "disk",
    "containers",
    "checkpoints",
    "rollouts",
)
COLLECTORS += ("logs", "progress", "heartbeats", "inference")
SAMPLED = 20.0
"""Seconds until a round of samples is over."""
Happening = Iterator[float]
"""A simulated activity: yields the seconds until its next step."""


class Box:
    """A box and its exporter. Parts are public: what happens changes them."""

    def __init__(self, name: str, rng: random.Random, shape: Shape, known: Telling) -> None:
        self.name, self.rng, self.shape, self.known = name, rng, shape, known
        self.world, self.offset = 0.0, BASE
        self.booted = -4e6
        """When the host was booted (time of the world)."""
        self.page = Page(EXPORTER, f"{name}:10977")
        self.remediator_page = Page(REMEDIATOR, f"{name}:10978")
        self.host, self.remediator = Host(), Remediator()
        self.workers: list[Worker] = []
        self.servers: list[Server] = []
        self.disks: list[Disk] = [Disk(probed=shape.probed)]
        self.containers: list[Container] = []
        self.heartbeats: list[Heartbeat] = []
        self.logs: dict[str, Log] = {}
        self.gpus = Gpus([])
        self.saves: Saves | None = None
        self.ranks = Ranks(name, shape.ranks)
        self.rollouts: dict[str, float | None] = {}
        """What the rollouts collector says, by metric less its prefix."""
        self.rollouts_seen: float | None = None
        """When they were last looked at, where that is no longer done."""
        self.exporter_up, self.box_up, self.reachable, self.scraped = True, True, True, True
        self.exporter_started = BASE - 4e6
        self.failing: set[str] = set()
        self.config_good = True
        self.workers_hash = self.remediator.workers_hash
        self.path_exists = True
        """Whether the folder of the run is where its configuration says."""
        self.lost, self.sparse = 0, 1
        """Scrapes to come that will be lost, and of how many scrapes one is made."""
        self._unread: list[LineEvent] = []
        """Lines since the state was last saved, which the next exporter reads."""
        self.clock_sets: list[tuple[float, float]] = []
        """When the clock is set, and by how much."""
        self.unjudged: set[float] = set()
        """Moments at which no Prometheus ran."""
        self.ends: float | None = None
        """When it has been looked at for long enough."""
        self._agenda: list[tuple[float, int, Happening]] = []
        self._events = 0
        self.state_folder: Path | None = None
        self.movement: Callable[[], Movement] = lambda: Movement.UNKNOWN
        """What the stacks of its trainer show now."""
        self.truth = Truth()
        self.observe: Callable[[], None] = lambda: None
        """Writes down what the run truly does now."""
        self._suspicious = (0.0, 0.0)
        """The silence that is suspicious, and since when."""
        self._moved = (0.0, 0.0)
        """The silence in which it was seen moving, and when last."""
        self.watch_progress()

    @property
    def now(self) -> float:
        """The host's clock."""
        return self.world + self.offset

    def set_clock(self, by: float) -> None:
        """Sets the host's clock: the kernel tells the start of a process in seconds since boot."""
        self.offset += by
        for worker in self.workers:
            worker.started += by

    def watch_progress(self) -> None:
        """The exporter begins to follow the run, from what it kept."""
        spec = self.known.spec
        folder = self.state_folder
        self.tracker = ProgressTracker(
            [spec],
            state_folder=folder,
            now=lambda: self.now,
            elapsed=lambda: self.world - self.booted,
        )
        self.progress = ProgressCollector(
            [replace(spec, path=None)],  # the modelled run has no folder on this host
            self.tracker,
            checkpoints=lambda: [] if self.saves is None else self.saves.newest(),
            resume_points=lambda: [] if self.saves is None else [(RUN, self.saves.proved)],
            saves_in_progress=lambda: [] if self.saves is None else self.saves.saving(self.now),
            liveness=self._lives,
            movement=self._seen_movement,
            servers=self._seen_servers,
            state_folder=folder,
            clock=lambda: self.world,
        )

    def _seen_movement(self, _run: str, silence: float | None) -> Movement:
        """What the exporter knows from its samples: of a run that is stuck after two rounds."""
        suspicious = read_suspicious_silence(self.tracker, self.known.spec, self.now)
        if silence is None or suspicious != silence:
            return Movement.UNKNOWN
        if self._suspicious[0] != silence:
            self._suspicious = (silence, self.now)
        since = self.now - self._suspicious[1]
        if not self.workers:
            return Movement.UNKNOWN
        trainer = self.workers[0]
        if not (trainer.watched and trainer.alive) or since < SAMPLED:
            return Movement.UNKNOWN
        found = self.movement()
        if found is Movement.MOVING:
            self._moved = (silence, self.now)
        if found is Movement.STUCK and since > ROUND_SECONDS + SAMPLED:
            return found
        moved = self._moved[0] == silence and self.now - self._moved[1] < MOVED_SECONDS
        return Movement.MOVING if moved else Movement.UNKNOWN

    def _seen_servers(self, _run: str, silence: float | None) -> ServerSigns:
        known = [server.health(self.world, self.now) for server in self.servers]
        return server_signs([one for one in known if one is not None], silence, self.now)

    def _lives(self) -> Iterator[WorkerLiveness]:
        for worker in self.workers:
            if not worker.watched:
                continue
            started = worker.started if worker.alive else None
            yield WorkerLiveness(
                WorkerKey(RUN, worker.name),
                started,
                worker.finished,
                unconfirmed=worker.absence in SELECTOR_REASONS,
            )

    def spawn(self, happening: Happening, after: float = 0.0) -> None:
        """Let something go on, from `after` seconds from now."""
        self._events += 1
        heapq.heappush(self._agenda, (self.world + after, self._events, happening))

    def drop(self, happening: Happening) -> None:
        """Stops the activity."""
        self._agenda = [one for one in self._agenda if one[2] is not happening]
        heapq.heapify(self._agenda)

    def advance(self, world: float) -> None:
        """Let happen what is due by then."""
        while self._agenda and self._agenda[0][0] <= world:
            self.world, order, happening = heapq.heappop(self._agenda)
            pause = next(happening, None)
            if pause is not None:
                heapq.heappush(self._agenda, (self.world + pause, order, happening))
            self.observe()
        self.world = world

    def tell(self, line: LinePattern | None, **groups: str) -> None:
        """The trainer writes a line that the exporter knows."""
        log = self.logs.get(self.known.log)
        if log is None:
            return
        log.written = self.now
        if line is not None:
            event = LineEvent(RUN, log.name, log.role, line.name, groups, self.now)
            if self.exporter_up:
                self.tracker.record_line(event)
            self._unread.append(event)

    def exporter_begins(self) -> None:
        """After a restart: its own counters begin again."""
        self.exporter_up, self.exporter_started = True, self.now
        for worker in self.workers:
            worker.forget()
        for server in self.servers:
            server.forget()
        for gpu in self.gpus.devices:
            gpu.forget()
        for beat in self.heartbeats:
            beat.awaited = self.now
        self.watch_progress()
        for event in self._unread:
            self.tracker.record_line(event)

    def scrape(self) -> None:
        """Prometheus asks now."""
        for server in self.servers:
            server.probe(self.world, self.now)
        if not self.scraped:
            self.page.skip()
            self.remediator_page.skip()
            return
        lost = self.lost > 0
        self.lost = max(0, self.lost - 1)
        there = self.box_up and self.reachable and not lost
        turn = self.page.length % self.sparse == 0
        if not turn:
            self.page.skip()
        elif there and self.exporter_up:
            self._put()
            self.page.answer()
        else:
            self.page.fail()
        if not self.shape.remediator:
            self.remediator_page.skip()
        elif there and self.remediator.up:
            self.remediator.put(self.remediator_page, self.now)
            self.remediator_page.answer()
        else:
            self.remediator_page.fail()

    def _put(self) -> None:
        page = self.page
        page.put("process_start_time_seconds", self.exporter_started)
        page.put("trainwarden_config_last_reload_successful", self.config_good)
        page.put("trainwarden_config_workers_hash", self.workers_hash)
        for collector in COLLECTORS:
            page.put("trainwarden_collector_success", collector not in self.failing, collector)
        if "host" not in self.failing:
            self.host.put(page, sum(worker.resident for worker in self.workers if worker.alive))
        if "gpu" not in self.failing:
            self.gpus.put(page)
        if "workers" not in self.failing:
            for worker in self.workers:
                worker.put(page, self.now)
            put_run(page, [worker for worker in self.workers if worker.watched])
        self._put_watched()
        self._put_progress()
        self._put_rollouts()

    def _put_watched(self) -> None:
        """What is looked at in the background."""
        page, now = self.page, self.now
        for disk in self.disks:
            disk.put(page)
        for container in self.containers:
            container.put(page, now)
        for beat in self.heartbeats:
            beat.put(page, now)
        for log in self.logs.values():
            log.put(page, now)
        for server in self.servers:
            server.put(page)
        if self.saves is not None:
            self.saves.put(page, self.disks[0], now)

    def look(self) -> None:
        """The exporter observes the run without a scrape."""
        for server in self.servers:
            server.probe(self.world, self.now)
        self.truth.look(self.world)
        self._unread.clear()
        for _ in self.progress.collect():
            pass

    def _put_progress(self) -> None:
        self.truth.look(self.world)
        self._unread.clear()
        for family in self.progress.collect():
            for sample in family.samples:
                self.page.put(sample.name, sample.value, *sample.labels.values())
        self.ranks.put(self.page, self.now)
        self.page.put("trainwarden_training_path_exists", self.path_exists, RUN)

    def _put_rollouts(self) -> None:
        name = self.known.rollout or "batches"
        phase = self.tracker.phase(RUN)
        waiting = phase[1] if phase is not None and phase[0] is Phase.WAITING_FOR_ROLLOUTS else None
        if self.shape.share_of_rollouts:
            self.page.put("trainwarden_rollout_waiting_since_timestamp_seconds", waiting, RUN, name)
        if self.shape.rollout_folder:
            seen = self.rollouts_seen or self.now
            self.page.put("trainwarden_rollout_seen_timestamp_seconds", seen, RUN, name)
        for metric, value in self.rollouts.items():
            side = ("trainer",) if metric == "policy_version" else ()
            self.page.put(f"trainwarden_rollout_{metric}", value, RUN, name, *side)


def play(box: Box, *, length: float) -> None:
    """Scrape the host for `length` seconds of Prometheus's time."""
    moment, last = 0.0, float("-inf")
    while moment < (length if box.ends is None else box.ends):
        while box.clock_sets and box.clock_sets[0][0] <= moment:
            box.set_clock(box.clock_sets.pop(0)[1])
        world = moment + BASE - box.offset
        if world <= last:  # set forward: a hole, in which the world stands still
            box.page.skip()
            box.remediator_page.skip()
            box.unjudged.add(moment)
        else:
            box.advance(world)
            box.scrape()
            last = world
            if not box.scraped:
                box.unjudged.add(moment)
        moment += SCRAPE
