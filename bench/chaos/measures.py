"""What faults cost a program, by its own record of its steps and starts. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from chaos.faults import COSTLY, KINDS

Event = Mapping[str, Any]
LONGEST_STEP = 5.0
"""Times the median that a step, with its save or evaluation, counts as training; the rest of its
duration is waiting."""


@dataclass(frozen=True)
class Worker:
    """What a worker recorded."""

    starts: Sequence[Event]
    signs: Sequence[Event]
    """That it works: the steps of a trainer, what a server answered."""


@dataclass(frozen=True)
class Healing:
    """A fault after which a supervisor should have started the program, or its server, again."""

    kind: str
    seconds: float | None
    """From the fault, or from the end of what lasts (a full disk, a taken port), to the next step
    that was not made before; None if there was none until the next fault or the end."""
    load: float | None
    """How long what was started again needed, from its start to its first step or answer."""
    again: int
    """Steps that had to be made again."""
    until_next: float
    """Seconds until the next such fault, or the end."""

    @property
    def healed(self) -> bool:
        return self.seconds is not None


@dataclass(frozen=True)
class Wrong:
    """A start of a program or a server that was not ill, or had finished."""

    time: float
    reason: str


@dataclass(frozen=True)
class Measures:
    """Of one program."""

    wall: float
    """Seconds from its first step to the end, or until it had finished."""
    training: float
    """Seconds of these in which it made steps that it had not made before."""
    steps: int
    again: int
    starts: int
    fruitless: int
    """Starts without a step, or of its server without an answer, while it was ill."""
    healings: tuple[Healing, ...]
    wrong: tuple[Wrong, ...]
    losses: tuple[tuple[str, float], ...]
    """Each fault that costs steps, and the seconds until the next such fault, or the end, in which
    the program made no steps that it had not made before."""

    @property
    def ettr(self) -> float:
        return self.training / self.wall if self.wall > 0 else math.nan


def measure(
    events: Sequence[Event], faults: Sequence[Event], end: float, of_server: Sequence[Event] = ()
) -> Measures:
    """What a program's events show of the faults that befell it, until `end` (unix seconds).

    `faults` are the records of striking; skipped ones do not count. `of_server` are the events of
    its inference server.
    """
    events = [event for event in events if event["time"] <= end]
    steps = _of_kind("step", events)
    trainer = Worker(_of_kind("start", events), steps)
    answers = _of_kind("tokens", events)
    server = Worker([e for e in _of_kind("start", of_server) if e["time"] <= end], answers)
    ill = [f for f in faults if "skipped" not in f and KINDS[f["kind"]].ill and f["from"] <= end]
    ill.sort(key=lambda fault: fault["from"])
    finished = next((event["time"] for event in events if event["kind"] == "finished"), None)
    if not steps:
        return Measures(0, 0, 0, 0, len(trainer.starts), 0, (), (), ())
    news, again = _news(steps)
    healings = tuple(
        _healing(fault, ill[number + 1 : number + 2], trainer, server, end)
        for number, fault in enumerate(ill)
        if fault["kind"] != "operator"
    )
    own = [fault for fault in ill if not KINDS[fault["kind"]].of_server]
    wrong, fruitless = _judge(trainer, own, finished, "no fault since it trained")
    own = [f for f in ill if KINDS[f["kind"]].of_server or f["kind"] == "operator"]
    wrong_of_server, unanswered = _judge(
        server, own, finished, "its server: no fault since it served"
    )
    trained = _trained(steps, news)
    return Measures(
        wall=(finished or end) - steps[0]["time"],
        training=sum(seconds for _, seconds in trained),
        steps=sum(news),
        again=again,
        starts=len(trainer.starts),
        fruitless=fruitless + unanswered,
        healings=healings,
        wrong=(*wrong, *wrong_of_server),
        losses=tuple(_losses(faults, trained, end)),
    )


def _news(steps: Sequence[Event]) -> tuple[list[bool], int]:
    """Whether each step is the first of its number or above; and how many are not."""
    highest, news = -math.inf, []
    for event in steps:
        news.append(event["step"] > highest)
        highest = max(highest, event["step"])
    return news, len(news) - sum(news)


def _trained(steps: Sequence[Event], news: Sequence[bool]) -> list[tuple[float, float]]:
    """When each step ended that was not made before, and the seconds of training that it was."""
    between = [
        later["time"] - sooner["time"]
        for sooner, later in pairwise(steps)
        if later["pid"] == sooner["pid"]
    ]
    if not between:
        return []
    usual = median(between)
    trained = []
    for sooner, later, new in zip(steps, steps[1:], news[1:], strict=False):
        if new:
            took = later["time"] - sooner["time"]
            # the first step of a process: its own duration is not known
            seconds = usual if later["pid"] != sooner["pid"] else min(took, LONGEST_STEP * usual)
            trained.append((float(later["time"]), seconds))
    return trained


def _losses(
    faults: Sequence[Event], trained: Sequence[tuple[float, float]], end: float
) -> Iterator[tuple[str, float]]:
    costly = [f for f in faults if "skipped" not in f and f["kind"] in COSTLY and f["from"] <= end]
    costly.sort(key=lambda fault: fault["from"])
    begins = [float(fault["from"]) for fault in costly]
    for fault, (begin, until) in zip(costly, pairwise([*begins, end]), strict=True):
        seconds = sum(one for moment, one in trained if begin < moment <= until)
        yield fault["kind"], max(0.0, until - begin - seconds)


def _healing(
    fault: Event, following: Sequence[Event], trainer: Worker, server: Worker, end: float
) -> Healing:
    limit = following[0]["from"] if following else end
    if KINDS[fault["kind"]].of_server:
        healed, (before, after) = server, _around_answer(fault, trainer.signs, server)
    else:
        healed, (before, after) = trainer, _around_restart(fault, trainer.signs)
    after = [event for event in after if event["time"] <= limit]
    top = max((event["step"] for event in before), default=-math.inf)
    again = sum(event["step"] <= top for event in after)
    new = next((event for event in after if event["step"] > top), None)
    started = [s for s in healed.starts if new is not None and s["time"] <= new["time"]]
    return Healing(
        kind=fault["kind"],
        seconds=None if new is None else max(0.0, new["time"] - fault["until"]),
        load=_load(started[-1], healed) if started else None,
        again=again,
        until_next=limit - fault["from"],
    )


def _around_restart(fault: Event, steps: Sequence[Event]) -> tuple[list[Event], list[Event]]:
    """The steps of the process that was struck, and those of later ones."""
    struck = next((e["pid"] for e in reversed(steps) if e["time"] <= fault["from"]), None)
    # what leaks, or fills its disk, makes steps yet
    before = [e for e in steps if e["pid"] == struck]
    return before, [e for e in steps if fault["from"] < e["time"] and e["pid"] != struck]


def _around_answer(
    fault: Event, steps: Sequence[Event], server: Worker
) -> tuple[list[Event], list[Event]]:
    """The steps before and after the first answer of a server that was started after the fault."""
    started = (s["time"] for s in server.starts if s["began"] > fault["from"])
    first = next(started, math.inf)
    answer = next((e["time"] for e in server.signs if e["time"] > first), math.inf)
    return [e for e in steps if e["time"] < answer], [e for e in steps if e["time"] >= answer]


def _load(start: Event, worker: Worker) -> float | None:
    """Seconds from the start of a process to its first sign; None if it made none."""
    later = (s["time"] for s in worker.starts if s["time"] > start["time"])
    next_start = min(later, default=math.inf)
    first = next((e["time"] for e in worker.signs if start["time"] < e["time"] < next_start), None)
    return None if first is None else float(first - start["began"])


def _of_kind(kind: str, events: Sequence[Event]) -> list[Event]:
    return [event for event in events if event["kind"] == kind]


def _judge(
    worker: Worker, ill: Sequence[Event], finished: float | None, unexplained: str
) -> tuple[tuple[Wrong, ...], int]:
    """Starts that no fault explains, and how many starts were without a sign.

    A fault explains every start from its begin until a program that was started after its end makes
    a step: on a disk that is full yet, one may make some.
    """
    wrong, fruitless = [], 0
    for before, start in pairwise(worker.starts):
        began = start["began"]
        # a program that never came up after a fault is still ill by it
        if finished is not None and began > finished:
            wrong.append(Wrong(began, "it had finished"))
            continue
        if not any(before["time"] < e["time"] < start["time"] for e in worker.signs):
            fruitless += 1
            continue
        if not any(before["began"] < fault["until"] and fault["from"] <= began for fault in ill):
            wrong.append(Wrong(began, unexplained))
    return tuple(wrong), fruitless
