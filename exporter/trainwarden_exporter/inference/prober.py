"""Watches one server: asks in rounds, has each judged, and asks for a token where that is due."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from trainwarden_exporter.inference.asking import Ask, Asker
from trainwarden_exporter.inference.engines.base import Engine, Stage
from trainwarden_exporter.inference.judging import gets_work_done, judge
from trainwarden_exporter.inference.questions import Answer, Contact, Question
from trainwarden_exporter.inference.reading import Completion, Life, Reading
from trainwarden_exporter.inference.target import DeepSighting, Sighting, Target
from trainwarden_exporter.inference.verdict import (
    UP,
    Deep,
    Limits,
    Observation,
    ProcessFact,
    Reason,
    State,
)

log = logging.getLogger(__name__)

SELDOM = 30.0
"""Seconds from one question for models and weights to the next."""

ABSENT = 300.0
"""Seconds after which an endpoint that was not there is asked for again."""

_NOWHERE = Answer(Contact.REFUSED, detail="its worker does not run, or opens no port")


class Prober:
    """One server's rounds. All its methods belong to one event loop.

    `process` and `told_update` are asked in each round and must answer at once: what is known of
    the server's process, and since when (unix seconds) the run's log tells of a weight update.
    """

    def __init__(
        self,
        target: Target,
        engine: Engine,
        asker: Asker,
        *,
        limits: Limits | None = None,
        process: Callable[[Target], ProcessFact | None] = lambda _: None,
        told_update: Callable[[str], float | None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.target = target
        self.sighting: Sighting | None = None
        self._engine = engine
        self._asker = asker
        limits = target.limits if limits is None else limits
        wished = target.config.deep_probe.enabled
        self._limits = replace(limits, deep=engine.deep if wished is None else wished)
        self._process = process
        self._told_update = told_update
        self._clock = clock
        self._now = now
        self._state = State()
        self._kept: dict[str, tuple[Answer, float]] = {}
        self._lasting = Reading()
        self._seldom_due = 0.0
        self._deep: asyncio.Task[None] | None = None
        self._deep_result: Deep | None = None
        self._deep_sighting: DeepSighting | None = None
        self._probes = 0
        self._failures = Counter[str]()

    async def run(self, delay: float = 0.0) -> None:
        """Ask in rounds until cancelled, for the first time after `delay` seconds."""
        try:
            await asyncio.sleep(delay)
            while True:
                began = self._clock()
                await self._guarded_round()
                await asyncio.sleep(max(0.0, began + self.target.config.interval - self._clock()))
        finally:
            await self.stop()

    async def stop(self) -> None:
        """Cancel a completion that is under way."""
        if (deep := self._deep) is not None:
            deep.cancel()
            await asyncio.wait([deep])

    async def round(self) -> None:
        """Ask once, judge, and order a completion where one is due."""
        began, timestamp = self._clock(), self._now()
        answers: dict[str, Answer] = {}
        reading = Reading()
        if self.target.url is None:
            answers["life"] = _NOWHERE
        else:
            async with self._asker.visit() as ask:
                answers["life"] = await self._put(ask, self._engine.liveness)
                if self._engine.life(answers["life"]) is Life.SERVING:
                    reading = await self._read(ask, answers, began)
        life = self._engine.life(answers["life"])
        if life is not Life.SERVING:
            # What it said before is of a server that may be gone.
            self._kept.clear()
            self._lasting = Reading()
            self._deep_sighting = None
            self._seldom_due = 0.0
        self._judge(life, answers["life"], reading, timestamp)

    async def _guarded_round(self) -> None:
        try:
            await self.round()
        except Exception:
            # A prober that died would show for ever what it saw last.
            log.exception("probe failed", extra=self._facts())

    async def _read(self, ask: Ask, answers: dict[str, Answer], now: float) -> Reading:
        """Go on asking a server that serves, as far as there is reason to."""
        await self._ask_all(ask, Stage.PASSIVE, answers, now)
        reading = self._engine.read(answers)
        explained = reading.updating or reading.asleep
        if not explained and not gets_work_done(reading, self._state):
            await self._ask_all(ask, Stage.DOUBT, answers, now)
            reading = self._engine.read(answers)
        # Some of what hardly changes is asked of the engine's loop, which must not be pestered.
        if now >= self._seldom_due and not (explained or self._failed):
            self._seldom_due = now + SELDOM
            await self._ask_all(ask, Stage.SELDOM, answers, now)
            reading = self._engine.read(answers)
        return reading

    @property
    def _failed(self) -> bool:
        fresh = self._deep_result is not None and self._deep_result.completion is Completion.FAILED
        return fresh or self._state.deep_failures > 0

    async def _ask_all(
        self, ask: Ask, stage: Stage, answers: dict[str, Answer], now: float
    ) -> None:
        """Ask what the engine wants to know at `stage`, until it wants nothing more."""
        asked = True
        while asked:
            asked = False
            for question in self._engine.questions(stage, answers, failed=self._failed):
                if question.name not in answers:
                    answers[question.name] = await self._ask_or_keep(ask, question, now)
                    asked = True

    async def _ask_or_keep(self, ask: Ask, question: Question, now: float) -> Answer:
        """Ask, or take what was said before.

        What is not there is asked for seldom, and what is not answered no oftener than a token:
        questions may pile up in a server that hangs.
        """
        kept = self._kept.get(question.name)
        if kept is not None and now < kept[1]:
            return kept[0]
        answer = await self._put(ask, question)
        self._kept.pop(question.name, None)
        if answer.unknown_here:
            self._kept[question.name] = (answer, now + ABSENT)
        elif not answer.answered:
            self._kept[question.name] = (answer, now + self._limits.deep_interval)
        return answer

    async def _put(self, ask: Ask, question: Question) -> Answer:
        return await ask(self._engine.address(question), question)

    def _judge(self, life: Life, answer: Answer, reading: Reading, timestamp: float) -> None:
        before, now = self.sighting, self._clock()
        told = self._told_update(self.target.run)
        deep, self._deep_result = self._deep_result, None
        verdict = judge(
            Observation(
                life,
                reading,
                process=self._process(self.target),
                deep=deep,
                deep_goes_on=self._deep is not None,
                told_update=None if told is None else self._now() - told,
            ),
            self._state,
            now,
            self._limits,
        )
        worked = verdict.state.worked not in (None, self._state.worked)
        worked_before = before.worked_timestamp if before else None
        self._state = verdict.state
        self._probes += 1
        if life is not Life.SERVING:
            self._failures[life] += 1
        changed = before is None or before.reason is not verdict.reason
        reading, version_timestamp = self._with_lasting(reading, timestamp)
        self.sighting = Sighting(
            state=verdict.state,
            up=verdict.up,
            timestamp=timestamp,
            reason_timestamp=timestamp if changed or before is None else before.reason_timestamp,
            status=answer.status if answer.answered else None,
            seconds=answer.seconds,
            detail=answer.detail,
            reading=reading,
            worked_timestamp=timestamp if worked else worked_before,
            version_timestamp=version_timestamp,
            deep=self._deep_sighting,
            probes=self._probes,
            failures=dict(self._failures),
        )
        if changed:
            self._tell(before, self.sighting)
        if verdict.deep is not None:
            self._order(verdict.deep)

    def _with_lasting(self, reading: Reading, timestamp: float) -> tuple[Reading, float | None]:
        """`reading` with what was asked in an earlier round, and since when it has its weights."""
        before = self.sighting
        since = before.version_timestamp if before else None
        version = reading.weight_version or self._lasting.weight_version
        known = before.reading.weight_version if before else None
        if version is None:
            since = None
        elif version != known or since is None:
            since = timestamp
        models = reading.models if reading.models is not None else self._lasting.models
        self._lasting = Reading(models=models, weight_version=version)
        return replace(reading, models=models, weight_version=version), since

    def _order(self, rank: str) -> None:
        models = self._lasting.models or ()
        model = self.target.config.model or next(iter(models), None) or self.target.model
        question = self._engine.completion(model, rank)
        if question is None:
            self._deep_result = Deep(Completion.IMPOSSIBLE, rank)
            return
        name = f"completion {self.target.server}"
        self._deep = asyncio.create_task(self._complete(question, rank), name=name)

    async def _complete(self, question: Question, rank: str) -> None:
        """Ask for one token. Cancelled, it closes its connection, and the server may give it up."""
        timestamp = self._now()
        completion, answer = Completion.FAILED, Answer(Contact.BROKEN)
        try:
            async with self._asker.visit() as ask:
                answer = await self._put(ask, question)
            completion = self._engine.completed(answer)
        except Exception:
            log.exception("completion failed", extra=self._facts())
        finally:
            self._deep_result = Deep(completion, rank)
            if completion is not Completion.IMPOSSIBLE:
                self._deep_sighting = DeepSighting(completion, answer.seconds, timestamp)
            self._deep = None

    def _tell(self, before: Sighting | None, after: Sighting) -> None:
        if before is None and after.reason in (None, Reason.OK):
            return
        level = logging.INFO if after.reason in UP or after.reason is None else logging.WARNING
        facts = {
            "reason": after.reason,
            "before": before.reason if before else None,
            "status": after.status,
            "detail": after.detail,
        }
        log.log(level, "inference server", extra={**self._facts(), **facts})

    def _facts(self) -> dict[str, object]:
        return {
            "run": self.target.run,
            "server": self.target.server,
            "engine": self.target.engine,
            "url": self.target.url,
        }
