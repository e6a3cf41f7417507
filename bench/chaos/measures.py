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
class Healing:
    """A fault after which a supervisor should have started the program again."""

    kind: str
    seconds: float | None
    """From the fault, or from the end of what lasts (a full disk, a taken port), to the next step
    that was not made before; None if there was none until the next fault or the end."""
    load: float | None
    """How long the program that made it needed, from its start to its first step."""
    again: int
    """Steps that had to be made again."""
    until_next: float
    """Seconds until the next such fault, or the end."""

    @property
    def healed(self) -> bool:
        return self.seconds is not None


@dataclass(frozen=True)
class Wrong:
    """A start of a program that was not ill, or had finished."""

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
    """Starts without a step, while it was ill."""
    healings: tuple[Healing, ...]
    wrong: tuple[Wrong, ...]
    losses: tuple[tuple[str, float], ...]
    """Each fault that costs steps, and the seconds until the next such fault, or the end, in which
    the program made no steps that it had not made before."""

    @property
    def ettr(self) -> float:
        return self.training / self.wall if self.wall > 0 else math.nan


def measure(events: Sequence[Event], faults: Sequence[Event], end: float) -> Measures:
    """What a program's events show of the faults that befell it, until `end` (unix seconds).

    `faults` are the records of striking; skipped ones do not count.
    """
    events = [event for event in events if event["time"] <= end]
    steps = [event for event in events if event["kind"] == "step"]
    starts = [event for event in events if event["kind"] == "start"]
    ill = [f for f in faults if "skipped" not in f and KINDS[f["kind"]].ill and f["from"] <= end]
    ill.sort(key=lambda fault: fault["from"])
    finished = next((event["time"] for event in events if event["kind"] == "finished"), None)
    if not steps:
        return Measures(0, 0, 0, 0, len(starts), 0, (), (), ())
    news, again = _news(steps)
    healings = tuple(
        _healing(fault, ill[number + 1 : number + 2], steps, starts, end)
        for number, fault in enumerate(ill)
        if fault["kind"] != "operator"
    )
    wrong, fruitless = _judge(starts, steps, ill, finished)
    trained = _trained(steps, news)
    return Measures(
        wall=(finished or end) - steps[0]["time"],
        training=sum(seconds for _, seconds in trained),
        steps=sum(news),
        again=again,
        starts=len(starts),
        fruitless=fruitless,
        healings=healings,
        wrong=wrong,
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
    fault: Event,
    following: Sequence[Event],
    steps: Sequence[Event],
    starts: Sequence[Event],
    end: float,
) -> Healing:
    struck = next((e["pid"] for e in reversed(steps) if e["time"] <= fault["from"]), None)
    limit = following[0]["from"] if following else end
    # what leaks, or fills its disk, makes steps yet
    top = max((e["step"] for e in steps if e["pid"] == struck), default=-math.inf)
    after = [e for e in steps if fault["from"] < e["time"] <= limit and e["pid"] != struck]
    again = sum(event["step"] <= top for event in after)
    new = next((event for event in after if event["step"] > top), None)
    started = [s for s in starts if new is not None and s["time"] <= new["time"]]
    return Healing(
        kind=fault["kind"],
        seconds=None if new is None else max(0.0, new["time"] - fault["until"]),
        load=_load(started[-1], steps, starts) if started else None,
        again=again,
        until_next=limit - fault["from"],
    )


def _load(start: Event, steps: Sequence[Event], starts: Sequence[Event]) -> float | None:
    """Seconds from the start of a process to the first step after it; None if it made none."""
    next_start = min((s["time"] for s in starts if s["time"] > start["time"]), default=math.inf)
    first = next((e["time"] for e in steps if start["time"] < e["time"] < next_start), None)
    return None if first is None else float(first - start["began"])


def _judge(
    starts: Sequence[Event], steps: Sequence[Event], ill: Sequence[Event], finished: float | None
) -> tuple[tuple[Wrong, ...], int]:
    """Starts that no fault explains, and how many starts were without a step.

    A fault explains every start from its begin until a program that was started after its end makes
    a step: on a disk that is full yet, one may make some.
    """
    wrong, fruitless = [], 0
    for before, start in pairwise(starts):
        began = start["began"]
        # a program that never came up after a fault is still ill by it
        if finished is not None and began > finished:
            wrong.append(Wrong(began, "it had finished"))
            continue
        stepped = [e["time"] for e in steps if before["time"] < e["time"] < start["time"]]
        if not stepped:
            fruitless += 1
            continue
        if not any(before["began"] < fault["until"] and fault["from"] <= began for fault in ill):
            wrong.append(Wrong(began, "no fault since it trained"))
    return tuple(wrong), fruitless
