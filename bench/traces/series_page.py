"""What fired over the series of containers, and what came of it: a part of docs/traces.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from bounds import rate_at_most, share_at_most
from results import Result
from traces.series import LONGEST_HOLE, Container, Found, card
from traces.series_rules import Alarm
from verdicts.parts import GIB

BUSY = 5.0
"""Duty cycle, in %, above which a GPU is certainly used."""
HALF_HOUR, HOUR, HOURS = 1800.0, 3600.0, 4 * 3600.0
"""Before an alert on a GPU, and after one on memory, in seconds."""
RESTARTED = 0.5
"""What a container that is started again uses at most, of what it used before."""
READS: Mapping[tuple[str, str], tuple[str, bool]] = {
    ("TrainingGpuIdle", "warning"): ("duty", False),
    ("TrainingGpuMemoryNearlyFull", "info"): ("gpu", False),
    ("TrainingWorkerLeak", "warning"): ("memory", True),
    ("TrainingWorkerMemoryOverLimit", "warning"): ("memory", True),
    ("TrainingWorkerMemoryOverLimit", "critical"): ("memory", True),
    ("TrainingMemoryFloor", "critical"): ("memory", True),
    ("TrainingInferenceQueueFlooded", "info"): ("queue", False),
}
"""The series behind each alert, and whether it counts only from when there are limits."""


def came_of(container: Container, alarm: Alarm) -> str:
    """What the record shows of an alarm: what was before, or what came then."""
    kind, _ = READS.get(alarm.kind, ("", False))
    start = alarm.start
    if kind == "duty":
        most = max(container.between("duty", start - HALF_HOUR, start), default=0.0)
        return "idle all the half hour" if most <= BUSY else "used for moments of it"
    if kind != "memory":
        return ""
    then = container.between("memory", start, start + HOURS)
    if any(later < RESTARTED * one for one, later in pairwise(then)):
        return "started again within four hours"
    warning = alarm.kind[1] == "warning"
    if warning and max(then, default=0.0) > (container.limit or 1.0):
        return "passed the limit within four hours"
    if container.series["memory"][-1][0] < start + HOURS - LONGEST_HOLE:
        return "the record ends within four hours"
    return "stayed under the limit" if warning else "went on"


def of_kind(found: Sequence[Found], kind: tuple[str, str]) -> list[tuple[Container, Alarm]]:
    return [(one.container, alarm) for one in found for alarm in one.alarms if alarm.kind == kind]


def table(found: Sequence[Found]) -> Result:
    """By alert; alerts that never fired too."""
    alarms = [alarm for one in found for alarm in one.alarms]
    gpus, memory = (sum(one.container.hours(kind) for one in found) for kind in ("duty", "memory"))
    limited = (one.container.hours("memory", one.container.set_up) for one in found)
    days = max(sum(limited), 1.0) / 24
    orders, pages = ([one for one in alarms if getattr(one, name)] for name in ("ordered", "paged"))
    idle = sum(one.labels["alertname"] == "TrainingGpuIdle" for one in pages)
    ordered = sum(any(alarm.ordered for alarm in one.alarms) for one in found)
    others = len(pages) - idle
    size = card([one.container for one in found]) / GIB
    return Result(
        "GPU, memory and queue of containers",
        f"{len(found)} containers, {gpus:,.0f} h of GPUs, {memory:,.0f} h of memory: "
        f"{len(orders)} orders to the remediator on {ordered} of them (with 95 % confidence on at "
        f"most {100 * share_at_most(ordered, len(found)):.2g} %), which nobody carried out here, "
        f"so that they repeat. {len(pages)} messages to the on-call, {idle} of them of "
        f"TrainingGpuIdle; the others are {others / days:.2g} a day of a host with limits (at most "
        f"{rate_at_most(others, days):.2g}). The whole record, nothing sampled: promtool judges "
        "the shipped rules at their own intervals, all rules that read what the record holds; a "
        "value lasts until the next, about a minute later. The containers serve images, and of a "
        "server TrainingGpuIdle says nothing: each stands here for the only worker of a training. "
        f"Assumed, because the record does not hold it: one card for all, of {size:.0f} GiB, the "
        "smallest that is sold and holds what was used; a memory limit that a user sets after the "
        "first quarter of the record, halfway between the most that was used by then and all "
        "there is; the default floor of free memory, or the same half where that is less; and at "
        "most eight requests running. Alerts on memory count from then on.",
        (
            *("alert", "severity", "container-hours", "alarms", "containers", "a host-day (≤)"),
            *("to the on-call", "orders", "what came of them"),
        ),
        tuple(_rows(found, {alarm.kind for alarm in alarms})),
    )


def _rows(found: Sequence[Found], fired: set[tuple[str, str]]) -> Iterator[tuple[str, ...]]:
    for kind in (*READS, *sorted(fired - READS.keys())):
        series, limited = READS.get(kind, ("memory", False))
        hours = sum(
            one.container.hours(series, one.container.set_up if limited else 0.0) for one in found
        )
        own = of_kind(found, kind)
        came = Counter(came_of(container, alarm) for container, alarm in own)
        bound = rate_at_most(len(own), hours / 24)
        yield (
            f"[{kind[0]}](runbooks/{kind[0]}.md)",
            kind[1],
            f"{hours:,.0f}",
            str(len(own)),
            str(len({container.name for container, _ in own})),
            f"{len(own) / hours * 24:.2g} ({bound:.2g})" if hours else "",
            str(sum(alarm.paged for _, alarm in own)),
            str(sum(alarm.ordered for _, alarm in own)),
            ", ".join(f"{count} {what}" for what, count in came.most_common() if what),
        )


def orders(found: Sequence[Found]) -> Result:
    """Each order to the remediator, and the memory around it."""
    rows = []
    for one in found:
        container = one.container
        for alarm in one.alarms:
            if not alarm.ordered:
                continue
            around = (container.at("memory", alarm.start + at) for at in (-HOUR, 0.0, HOUR))
            rows.append(
                (
                    container.name,
                    f"{(alarm.start - container.span[0]) / HOUR:.1f} h",
                    alarm.labels["alertname"],
                    f"{100 * (container.limit or 1.0):.0f} %",
                    *("-" if share is None else f"{100 * share:.0f} %" for share in around),
                    f"{(alarm.end - alarm.start) / 60:.0f} min",
                    came_of(container, alarm),
                )
            )
    return Result(
        "Orders over these series",
        "Memory of the container as a share of all it may have. An order is right if the memory "
        "would not have come back without it; what is assumed of the limits decides the rest.",
        (
            *("container", "after", "alert", "limit", "an hour before", "then"),
            *("an hour later", "fired for", "what came"),
        ),
        tuple(rows),
    )
