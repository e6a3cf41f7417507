"""What the benches must show, and whether they did: judged by the cells that the page shows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from beats import OURS as OUR_BEAT
from bounds import share_at_most
from replaced import OURS, SUM
from results import Result
from scrapes import AT_ONCE, EVERY, TYPICAL
from wrapped import OURS as WRAPPER

PROCESSES, WORKERS = map(str, TYPICAL)
BOXES = "1000"
LINEAR = 1.1
"""The power of a size up to which a cost counts as linear in it: one is not measured to the dot."""
FLAT = 1.1
ELSEWHERE = "; 134 to 210 where idle pages are reclaimed"
CHEAPER_ELSEWHERE = ", 1.2 to 1.7 where idle pages are reclaimed"
"""Of another machine: docs/performance.md, Pages touched."""
NOT_ITS_USE = ", with patterns that it is not meant for"


@dataclass(frozen=True, slots=True)
class Target:
    """A performance target: its name, the measured value and the limit."""

    what: str
    bound: str
    found: str
    met: bool


def amount(cell: str) -> float:
    """12.3 of `12.3 ms`, `12.3%` or `12.3x`. Raises ValueError where there is no number."""
    number = re.match(r"-?[\d.]+", cell)
    if number is None:
        raise ValueError(f"no number: {cell!r}")
    return float(number[0])


def cells(result: Result, column: str, **where: str) -> list[str]:
    """The values of that column in the rows with the given first cells."""
    rows = [dict(zip(result.columns, row, strict=True)) for row in result.rows]
    return [
        row[column]
        for row in rows
        if all(row[name].startswith(wanted) for name, wanted in where.items())
    ]


def at_most(what: str, found: float, bound: float, unit: str) -> Target:
    return Target(what, f"at most {bound:g}{unit}", f"{found:g}{unit}", found <= bound)


def at_least(what: str, found: float, bound: float, unit: str) -> Target:
    return Target(what, f"at least {bound:g}{unit}", f"{found:g}{unit}", found >= bound)


def none(what: str, found: float, of: float) -> Target:
    """None of so many, and how often it may be all the same, with 95 % confidence."""
    bound = 100 * share_at_most(int(found), int(of))
    return Target(what, "none", f"{found:g} of {of:g} (≤ {bound:.2g} %)", found == 0)


def of_scrapes(result: Result) -> Iterator[Target]:
    """At the size that was named: 2,000 processes, 64 workers."""
    here = {"processes": PROCESSES, "workers": WORKERS}
    rows = cells(result, "program", **here)
    ours = rows.index(OURS)

    def of(column: str, row: int = ours) -> float:
        return amount(cells(result, column, **here)[row])

    size = f"{int(PROCESSES):,} processes, {WORKERS} workers"
    yield at_most(f"{size}: CPU of a scrape, one after the other", of("CPU"), 25, " ms")
    what = f"{size}: the same at the shipped interval{ELSEWHERE}"
    yield at_most(what, of("at interval"), 25, " ms")
    for row, name in enumerate(rows):
        if name.startswith("process-exporter"):
            scope = "" if name.endswith(EVERY) else f", configured with the same {WORKERS} workers"
            elsewhere = CHEAPER_ELSEWHERE if scope else ""
            what = f"CPU of {name}{scope}, beside ours{elsewhere}"
            yield at_least(what, of("beside ours", row), 15, " times")
    yield at_most(f"{size}: 99th percentile of a scrape", of("p99"), 50, " ms")
    both = round(2 * of("median"), 1)
    what = "Ten scrapes at once: until all are answered, no more than two, one after the other"
    yield at_most(what, of("median", rows.index(AT_ONCE)), both, " ms")


def of_replaced(result: Result) -> Iterator[Target]:
    """Memory with everything on."""
    (ours,), (peers,) = (
        map(amount, cells(result, "resident", program=name)) for name in (OURS, SUM)
    )
    yield at_most("Memory with everything switched on", ours, 60, " MiB")
    yield at_most("The same, beside the sum of the peers", ours, peers, " MiB")


def of_logs(result: Result) -> Iterator[Target]:
    """The cost of a gigabyte, and memory."""
    for files in sorted(set(cells(result, "files")), key=int):
        ours = [
            (name, cpu, memory)
            for count, name, cpu, memory in zip(
                *(cells(result, column) for column in ("files", "program", "CPU per GB", "memory")),
                strict=True,
            )
            if count == files
        ]
        own = [row for row in ours if row[0] == OURS]
        theirs = [amount(cpu) for name, cpu, _ in ours if name != OURS]
        what = f"Logs, {files} file{'s' * (files != '1')}"
        if theirs:
            most = max(amount(cpu) for _, cpu, _ in own)
            beside = f"{what}: CPU for a GB, beside mtail{NOT_ITS_USE}"
            yield at_most(beside, most, min(theirs), " s")
        memory = [amount(cell) for _, _, cell in own]
        bound = round(FLAT * memory[0], 1)
        yield at_most(f"{what}: memory for the most bytes, flat", memory[-1], bound, " MiB")


def of_faults(result: Result) -> Iterator[Target]:
    """Scrapes that were lost, and how long the later ones took."""
    lost, made = (
        sum(map(amount, cells(result, column, scrapes="five faults")))
        for column in ("lost", "count")
    )
    yield none("Five faults at once: scrapes lost", lost, made)
    (slowest,) = cells(result, "slowest", scrapes="five faults, all later")
    what = "Five faults at once: the slowest scrape after the first"
    yield at_most(what, amount(slowest), 100, " ms")


def of_rules(result: Result) -> Iterator[Target]:
    """The share of the interval that goes into the rules of many boxes."""
    (share,) = cells(result, "of the interval", boxes=BOXES)
    what = f"{result.title}: all of them for {int(BOXES):,} boxes, of their interval"
    yield at_most(what, amount(share), 25, "%")


def of_storm(result: Result) -> Iterator[Target]:
    """How soon deliveries are answered."""
    (late,) = cells(result, "99 % within", what="1000 deliveries")
    yield at_most("1,000 webhooks at once: 99 % are answered", amount(late), 1000, " ms")


def of_beats(result: Result) -> Iterator[Target]:
    """What a step of the training pays."""
    (median,), (beside,) = (
        map(amount, cells(result, column, call=OUR_BEAT)) for column in ("median", "beside a write")
    )
    yield at_most("A call of trainwarden.beat", median, 20, " µs")
    yield at_most("The same, beside a line written to a file", beside, 1, " times")


def of_wrapped(result: Result) -> Iterator[Target]:
    """What a command costs more under `trainwarden run`."""
    (largest,), (both,), (rest,) = (
        map(amount, cells(result, column, program=WRAPPER))
        for column in ("largest process", "all, shared pages once", "CPU at rest")
    )
    yield at_most("`trainwarden run`: memory of its largest process", largest, 15, " MiB")
    counted = "pages shared with other Pythons counted in part"
    yield at_most(f"`trainwarden run`: memory of its two processes, {counted}", both, 15, " MiB")
    yield at_most("`trainwarden run`: CPU in a minute without output", rest, 0, " ms")


def of_nights(result: Result) -> Iterator[Target]:
    """Whether all came in time; nothing where they were not measured."""
    if result.rows:
        late = [row for row in result.rows if row[-1]]
        what = "The five nights: moments that have a limit, and came too late"
        yield none(what, len(late), len(result.rows))


JUDGES = {
    "scrapes": of_scrapes,
    "replaced": of_replaced,
    "logs": of_logs,
    "faults": of_faults,
    "rules": of_rules,
    "rules_newest": of_rules,
    "storm": of_storm,
    "beats": of_beats,
    "wrapped": of_wrapped,
    "nights": of_nights,
}
"""By the name of the bench."""


def judged(results: Mapping[str, Result]) -> list[Target]:
    """All targets of the benches that found something, and that all costs grow at most linearly."""
    found = [
        target
        for name, judge in JUDGES.items()
        if name in results
        for target in judge(results[name])
    ]
    for result in results.values():
        for one in result.growth:
            if (power := one.power) is not None:
                what = f"Growth of {one.name}: {one.cost}, by {one.size}, to the power"
                found.append(at_most(what, round(power, 2), LINEAR, ""))
    return found
