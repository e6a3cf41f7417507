"""The life of a run: steps, batches, weights, saves, in the words of its framework.

Each kind of life is a generator: it yields the seconds until it goes on.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainwarden_exporter.frameworks.base import Phase
from trainwarden_exporter.processes.stacks.model import Movement
from trainwarden_exporter.progress.progress_files import FileProgress
from verdicts.box import Box, Happening
from verdicts.parts import GIB, Worker
from verdicts.shapes import SEARCHES

KEPT = 5
"""Checkpoints that a framework keeps."""
NAN = float("nan")
FIRST_EVALUATION = 5
"""The step after which a run evaluates for the first time, as many do to see that it works."""
GRAIN = 2.0
"""Seconds at which what waits looks again."""


class Run:
    """A run on its box. What goes wrong with it is set from outside, by these attributes."""

    def __init__(self, box: Box, total: int) -> None:
        self.box, self.total = box, total
        self.step = 0
        self.hangs = False
        """It makes no progress, whatever it is at."""
        self.starved = False
        """No batch comes, though all parts live."""
        self.keeps_up = True
        """Whether what its batches tell of themselves is as the run goes."""
        self.asked = True
        """Whether anybody asks the servers."""
        self.slow = 1.0
        """How many times longer a step takes."""
        self.update_takes: float | None = None
        self.evaluation_takes: float | None = None
        self.saves_nothing = False
        self.save_dies = False
        """The next save is begun and never completed."""
        self.eats_disk = True
        """Whether old checkpoints are kept."""
        self.recycles = True
        """Whether a worker at its limit of trials restarts itself."""
        self.bad: set[str] = set()
        """Names of the numbers that are none."""
        self.generating = False
        """Whether its servers are asked for something, by its trainer or by an evaluation."""
        self.evaluating = False
        self.busy = False
        self.finished = False
        self.batch = 0
        self._saved = box.now
        self._evaluated = box.now
        self._life: Happening | None = None
        box.movement = self._movement

    @property
    def trainer(self) -> Worker:
        return self.box.workers[0]

    def _movement(self) -> Movement:
        """What its stacks show; of a trainer that waits for servers that work, too little."""
        if self.hangs:
            return Movement.UNKNOWN if self.trainer.stopped else Movement.STUCK
        return Movement.MOVING if self.busy else Movement.UNKNOWN

    def begin(self, *, resumed: int | None = None, compile_seconds: float | None = None) -> None:
        """Its trainer starts, from `resumed` steps where it is a resume."""
        self.end()
        if not self.trainer.alive:
            self.trainer.begin(self.box.now, resident=self.box.rng.uniform(4, 20) * GIB)
        self._life = self._live(resumed, compile_seconds)
        self.box.spawn(self._life)

    def end(self) -> None:
        """Its trainer does nothing any more."""
        if self._life is not None:
            self.box.drop(self._life)
        self._life, self.generating, self.evaluating, self.busy = None, False, False, False
        if "behind_since_timestamp_seconds" in self.box.rollouts and self.keeps_up:
            # who makes batches makes the next one while the trainer is away
            self.box.rollouts |= {"behind_since_timestamp_seconds": None, "lag_steps": 0.0}

    def _live(self, resumed: int | None, compile_seconds: float | None) -> Iterator[float]:
        box, shape = self.box, self.box.shape
        seconds = shape.compile if compile_seconds is None else compile_seconds
        self.busy = False
        yield 3.0
        starting = box.known.begins(Phase.STARTING)
        if resumed is not None:
            self.step = resumed
            if starting is not None:
                box.tell(starting, step=str(resumed))
        yield seconds
        for server in box.servers:  # a trainer that was ended in a weight update had paused them
            if server.state == shape.pause:
                server.state = "ok"
        self._saved = self._evaluated = box.now
        while self.step < self.total:
            yield from self._make_step()
            due = box.now - self._evaluated > shape.evaluate_every
            # what a search does beside its trials is a trial, too
            if shape.framework not in SEARCHES and (due or self.step == FIRST_EVALUATION):
                yield from self._evaluate()
            if shape.saves and box.now - self._saved > shape.save_every and not self.saves_nothing:
                yield from self._save()
        self._finish()

    def _make_step(self) -> Iterator[float]:
        box, shape = self.box, self.box.shape
        pace = box.rng.lognormvariate(0, 0.15) * self.slow
        if shape.share_of_rollouts:
            yield from self._wait_for_batch(pace * shape.step * shape.share_of_rollouts)
        box.tell(box.known.begins(Phase.TRAINING) if shape.share_of_rollouts else None)
        self.busy = True
        yield from self._take(pace * shape.step * (1 - shape.share_of_rollouts))
        self.busy = False
        self.step += 1
        self._tell_step()
        if shape.update:
            yield from self._update_weights()

    def _tell_step(self) -> None:
        box = self.box
        line = box.known.step_line()
        if line is not None:
            # A bar of another total counts something else.
            total = {"total": str(self.total)} if "?P<total>" in line.regex else {}
            box.tell(line, step=str(self.step - line.step_offset), **total)
        else:
            box.tell(box.known.advancing_line())
            for subject in box.known.spec.files[:1]:
                if box.exporter_up:
                    box.tracker.record_file(subject, FileProgress(self.step, self.total, box.now))
        log = box.logs.get(box.known.log)
        if log is not None:
            log.note(box.now, {one: NAN if one in self.bad else 1.0 for one in log.finite})

    def _wait_for_batch(self, seconds: float) -> Iterator[float]:
        box = self.box
        waiting = box.known.begins(Phase.WAITING_FOR_ROLLOUTS)
        box.tell(waiting)
        if box.shape.rollout_folder and self.keeps_up:
            box.rollouts["behind_since_timestamp_seconds"] = box.now
            box.rollouts["lag_steps"] = 1.0
        yield from self._generate(seconds)
        if box.shape.rollout_folder and self.keeps_up:
            self.batch += 1
            box.rollouts["behind_since_timestamp_seconds"] = None
            box.rollouts["lag_steps"] = 0.0
        box.tell(box.known.ends(Phase.WAITING_FOR_ROLLOUTS) if waiting is not None else None)

    def _generate(self, seconds: float) -> Iterator[float]:
        """Its servers, which may have slept, generate for so long."""
        box = self.box
        for server in box.servers:
            if box.shape.sleeps and server.state == "sleeping":
                server.state = "ok"
        self.generating = True
        left = seconds
        while left > 0 or not self._can_generate():
            pause = min(GRAIN, left) if left > 0 else GRAIN
            yield pause
            if self._can_generate():
                left -= pause
        self.generating = False
        for server in box.servers:
            if box.shape.sleeps and server.state == "ok":
                server.state = "sleeping"

    def _can_generate(self) -> bool:
        box = self.box
        producers = [one for one in box.workers if one.role == "orchestrator"]
        served = all(server.serves for server in box.servers)
        written = all(one.alive for one in producers)
        return served and written and not self.starved and not self.hangs

    def _update_weights(self) -> Iterator[float]:
        box = self.box
        begins = box.known.begins(Phase.UPDATING_WEIGHTS)
        box.tell(begins)
        paused = [server for server in box.servers if server.state in ("ok", "sleeping")]
        before = [server.state for server in paused]
        for server in paused:
            server.state = box.shape.pause
        seconds = self.update_takes or box.shape.update
        yield from self._take(seconds)
        for server, state in zip(paused, before, strict=True):
            if server.state == box.shape.pause:
                server.state = state
                if not server.stuck:
                    server.version, server.version_time = self.step, box.now
        if box.servers:
            box.rollouts["policy_version"] = self.step
        log = box.logs.get(box.known.log)
        ends = box.known.ends(Phase.UPDATING_WEIGHTS)
        if ends is not None and "weight_update_seconds" in ends.regex and log is not None:
            log.values["weight_update_seconds"] = (seconds, box.now)
        if begins is not None or ends is not None:
            box.tell(ends)

    def _evaluate(self) -> Iterator[float]:
        box = self.box
        begins = box.known.begins(Phase.EVALUATING)
        seconds = self.evaluation_takes or box.shape.evaluation
        box.tell(begins)
        self.evaluating = True
        if box.servers:
            yield from self._generate(seconds)
        else:
            self.busy = True
            yield from self._take(seconds)
            self.busy = False
        self.evaluating = False
        if begins is not None:
            box.tell(box.known.ends(Phase.EVALUATING))
        self._evaluated = box.now

    def _save(self) -> Iterator[float]:
        box, saves = self.box, self.box.saves
        self._saved = box.now
        if saves is None:
            return
        box.tell(box.known.begins(Phase.SAVING), step=str(self.step))
        began = box.now
        saves.begun = (self.step, began, began)
        left = box.shape.save * box.rng.uniform(0.8, 1.2)
        grown = 0.0
        while left > 0:
            pause = min(10.0, left)
            yield from self._take(pause)
            left -= pause
            saves.begun = (self.step, began, box.now)
            box.disks[0].free -= (part := saves.size * pause / box.shape.save)
            grown += part
            if self.save_dies:
                self.save_dies = False
                box.tell(box.known.ends(Phase.SAVING))
                return
        saves.begun = None
        saves.complete.append((self.step, box.now))
        saves.save_seconds = box.now - began
        if len(saves.complete) > KEPT and self.eats_disk:
            box.disks[0].free += grown
        box.tell(box.known.ends(Phase.SAVING))

    def _take(self, seconds: float) -> Iterator[float]:
        """So long it takes; for ever while it hangs."""
        yield seconds
        while self.hangs:
            yield GRAIN

    def _finish(self) -> None:
        box = self.box
        self.finished = True
        box.tell(box.known.begins(Phase.FINISHED))
        self.trainer.end(0)
        for server in box.servers:
            server.running = server.waiting = 0.0
