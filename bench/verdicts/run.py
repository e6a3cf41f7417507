"""The life of a run: steps, batches, weights, saves, in the words of its framework.

Each kind of life is a generator: it yields the seconds until it goes on.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from trainwarden_exporter.frameworks.base import LinePattern, Phase
from trainwarden_exporter.processes.stacks.model import Movement
from trainwarden_exporter.progress.progress_files import FileProgress
from trainwarden_exporter.progress.run_time import RunState
from trainwarden_exporter.progress.stall_limits import stall_limit
from verdicts.box import Box, Happening
from verdicts.parts import GIB, Worker
from verdicts.shapes import RUN, SEARCHES

KEPT = 5
"""Checkpoints that a framework keeps."""
NAN = float("nan")
FIRST_EVALUATION = 5
"""The step after which a run evaluates for the first time, as many do to see that it works."""
ANNOUNCED = (RunState.WAITING_FOR_ROLLOUTS, RunState.EVALUATING)
"""What a run says that it waits for, however long that takes."""
GRAIN = 2.0
"""Seconds at which what waits looks again."""


class Run:
    """A run on its box. What goes wrong with it is set from outside, by these attributes."""

    def __init__(self, box: Box, total: int, *, whole_log: bool = False) -> None:
        self.box, self.total = box, total
        self.whole_log = whole_log
        """Whether its log is as it truly would be where it ends a weight update by a wait, as slime
        does, where it ends before the total of its bar, and where a line tells that a step was
        made. The verdicts' runs were judged without.
        """
        self.shown_total = total if whole_log else None
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
        self.tried = False
        """Whether a search has ended its first trial, which nothing announces."""
        self.batch = 0
        self._saved = box.now
        self._evaluated = box.now
        self._life: Happening | None = None
        self._doing = RunState.TRAINING
        self._stepped = self._announced = False
        self._shown = box.shape.logged
        """Whether anything has shown that it makes steps: without a log, its first checkpoint."""
        self._highest = 0
        box.movement = self._movement
        box.observe = self._observe

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
        self._doing, self._stepped, self._announced = RunState.STARTING, False, False
        self._shown = self.box.shape.logged
        self.box.spawn(self._life)

    def end(self) -> None:
        """Its trainer does nothing any more."""
        if self._life is not None:
            self.box.drop(self._life)
        self._life, self.generating, self.evaluating, self.busy = None, False, False, False
        if "behind_since_timestamp_seconds" in self.box.rollouts and self.keeps_up:
            # who makes batches makes the next one while the trainer is away
            self.box.rollouts |= {"behind_since_timestamp_seconds": None, "lag_steps": 0.0}

    def _observe(self) -> None:
        box = self.box
        if self.finished or (box.workers and all(one.finished for one in box.workers)):
            state = RunState.FINISHED
        elif not box.shape.trains:
            state = RunState.UNKNOWN
        elif box.shape.search:
            alive = any(worker.alive for worker in box.workers)
            state = RunState.STALLED if self.hangs else self._doing
            state = state if alive else RunState.DOWN
        else:
            state = RunState.DOWN if self._life is None else self._doing
        telling = self._shown or box.known.step_line() is None
        seen = bool(box.workers or box.logs) and box.known.spec.has_step_source and telling
        visible = seen and (self.tried or not box.shape.search)
        box.truth.note(box.world, state, visible=visible)

    def _enter(self, line: LinePattern | None, state: RunState | None) -> None:
        """Says by `line` what it is at, where its framework does; without, it is at a step."""
        self.box.tell(line)
        if line is not None and self.box.known.log in self.box.logs:
            self._announced = True
            if state is not None:
                self._doing = state
                return
        self._work()

    def _work(self) -> None:
        """Is at the next step; a start ends with the first word of the log."""
        if self._stepped:
            redoing = self.step < self._highest
            self._doing = RunState.REDOING if redoing else RunState.TRAINING
        else:
            self._doing = RunState.FIRST_STEP if self._announced else RunState.STARTING

    def _live(self, resumed: int | None, compile_seconds: float | None) -> Iterator[float]:
        box, shape = self.box, self.box.shape
        seconds = shape.compile if compile_seconds is None else compile_seconds
        self.busy = False
        yield 3.0
        starting = box.known.begins(Phase.STARTING)
        if resumed is not None:
            self.box.truth.lost += max(0, self.step - resumed)
            self.step = resumed
            if starting is not None:
                box.tell(starting, step=str(resumed - starting.step_offset))
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
        self._work()
        if shape.share_of_rollouts:
            yield from self._wait_for_batch(pace * shape.step * shape.share_of_rollouts)
            line = box.known.begins(Phase.TRAINING)
            if line is box.known.step_line() or (self.whole_log and line and line.advances):
                line = None
            self._enter(line, None)
        self.busy = True
        began, seconds = box.now, pace * shape.step * (1 - shape.share_of_rollouts)
        box.ranks.note(self.step + 1, began, seconds)
        yield from self._take(seconds + box.ranks.wait)
        self.busy = False
        self.step += 1
        self.box.truth.made += 1
        self.box.truth.redone += self.step <= self._highest
        self._highest, self._stepped = max(self._highest, self.step), True
        self._tell_step()
        if shape.update:
            yield from self._update_weights()

    def _tell_step(self) -> None:
        box = self.box
        line = box.known.step_line()
        if line is not None:
            # A bar of another total counts something else.
            total = (
                {"total": str(self.shown_total or self.total)} if "?P<total>" in line.regex else {}
            )
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
        self._enter(waiting, RunState.WAITING_FOR_ROLLOUTS)
        if box.shape.rollout_folder and self.keeps_up:
            box.rollouts["behind_since_timestamp_seconds"] = box.now
            box.rollouts["lag_steps"] = 1.0
        yield from self._generate(seconds)
        if box.shape.rollout_folder and self.keeps_up:
            self.batch += 1
            box.rollouts["behind_since_timestamp_seconds"] = None
            box.rollouts["lag_steps"] = 0.0
        self._enter(
            box.known.ends(Phase.WAITING_FOR_ROLLOUTS) if waiting is not None else None, None
        )

    def _generate(self, seconds: float) -> Iterator[float]:
        """Its servers, which may have slept, generate for so long."""
        box = self.box
        for server in box.servers:
            if box.shape.sleeps and server.state == "sleeping":
                server.state = "ok"
        self.generating = True
        left, doing, since = seconds, self._doing, box.world
        limit = stall_limit(box.tracker.state(RUN), box.known.spec.limits)
        longest = math.inf if limit is None else limit  # less is a slow step
        while left > 0 or not self._can_generate():
            pause = min(GRAIN, left) if left > 0 else GRAIN
            yield pause
            if self._can_generate():
                left -= pause
                since, self._doing = box.world, doing
            elif doing not in ANNOUNCED and box.world - since > longest:
                box.truth.restate(since, RunState.STALLED)
                self._doing = RunState.STALLED
        self._doing = doing
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
        self._enter(begins, RunState.UPDATING_WEIGHTS)
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
        waits = box.known.waits_after_update() if self.whole_log else None
        self._enter(waits, RunState.WAITING_FOR_ROLLOUTS)

    def _evaluate(self) -> Iterator[float]:
        box = self.box
        begins = box.known.begins(Phase.EVALUATING)
        seconds = self.evaluation_takes or box.shape.evaluation
        waits = begins is None and self._doing is RunState.WAITING_FOR_ROLLOUTS
        if not waits:  # by its last word
            self._enter(begins, RunState.EVALUATING)
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
        if not waits:
            self._work()
        self._evaluated = box.now

    def _save(self) -> Iterator[float]:
        box, saves = self.box, self.box.saves
        self._saved = box.now
        if saves is None:
            return
        box.tell(box.known.begins(Phase.SAVING), step=str(self.step))
        self._doing, self._shown = RunState.SAVING, True  # its folder shows it, too
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
                self._work()
                return
        saves.begun = None
        saves.complete.append((self.step, box.now))
        saves.save_seconds = box.now - began
        if len(saves.complete) > KEPT and self.eats_disk:
            box.disks[0].free += grown
        box.tell(box.known.ends(Phase.SAVING))
        self._work()

    def _take(self, seconds: float) -> Iterator[float]:
        """So long it takes; for ever while it hangs."""
        yield seconds
        doing = self._doing
        while self.hangs:
            self._doing = RunState.STALLED
            yield GRAIN
        self._doing = doing

    def _finish(self) -> None:
        box = self.box
        self.finished = True
        box.tell(box.known.begins(Phase.FINISHED))
        self.trainer.end(0)
        for server in box.servers:
            server.running = server.waiting = 0.0
