"""Which of the shipped rules a record can contradict, and what fired of them, alarm by alarm."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from verdicts.alertmanager import Alertmanager
from verdicts.engine import Firing, Group, Labels
from verdicts.judging import ON_CALL, REMEDIATOR
from verdicts.page import SCRAPE, Value

RECORDED = frozenset(
    f"trainwarden_{name}"
    for name in (
        *("gpu_utilization_ratio", "gpu_memory_free_bytes", "worker_gpu_memory_bytes"),
        *("worker_memory_bytes", "worker_memory_excess_bytes"),
        *("memory_effective_available_bytes", "memory_shortfall_bytes"),
        *("inference_waiting_requests", "inference_running_requests"),
    )
)
"""The metrics that the exporter makes of what the record holds."""
_METRIC = re.compile(r"\btrainwarden_\w+|\b\w+:trainwarden_[\w:]+|\binstance:\w+|\bup\b")
_ALTERNATIVE = re.compile(r"\bor\b")


def that_may_fire(groups: Sequence[Group], series: Iterable[str]) -> tuple[Group, ...]:
    """The alerts that a sample of the record can make fire, and no others.

    Alerts that read what was recorded and find there what stands first in them, or after an `or`.
    The rest would judge what is assumed of a host. None of these rests on a recording rule; a test
    holds them to that.
    """
    there = {name.partition("{")[0] for name in series}
    chosen = (
        (
            group,
            [
                rule
                for rule in group.body["rules"]
                if "alert" in rule and RECORDED & _metrics(rule) and there & _leading(rule)
            ],
        )
        for group in groups
    )
    return tuple(
        replace(group, body={**group.body, "rules": rules}) for group, rules in chosen if rules
    )


def passes(
    groups: Sequence[Group], series: Mapping[str, Sequence[Value]]
) -> Iterator[tuple[Sequence[Group], Mapping[str, Sequence[Value]]]]:
    """The alerts of each interval, and the series that these read.

    Of the hosts on which one of these alerts has something to start from: what an alert of every
    five seconds starts from is mostly there in trouble only.
    """
    for interval in sorted({group.interval for group in groups}):
        own = [group for group in groups if group.interval == interval]
        rules = [rule for group in own for rule in group.body["rules"]]
        read = {name for rule in rules for name in _metrics(rule)}
        leading = {name for rule in rules for name in _leading(rule)}
        hosts = {_host(name) for name in series if name.partition("{")[0] in leading}
        yield (
            own,
            {
                name: samples
                for name, samples in series.items()
                if name.partition("{")[0] in read and _host(name) in hosts
            },
        )


def _host(name: str) -> str:
    """Of a series as the page writes it."""
    return name.partition('instance="')[2].partition(":")[0]


def _metrics(rule: Mapping[str, Any]) -> set[str]:
    return set(_METRIC.findall(rule["expr"]))


def _leading(rule: Mapping[str, Any]) -> set[str]:
    parts = (_METRIC.search(part) for part in _ALTERNATIVE.split(rule["expr"]))
    return {found[0] for found in parts if found is not None}


@dataclass(frozen=True, slots=True)
class Alarm:
    """One alert, from when it began to fire to its end, in seconds since the first scrape."""

    labels: Labels
    start: float
    end: float
    paged: bool
    """Whether the on-call is notified,"""
    ordered: bool
    """and the remediator."""

    @property
    def kind(self) -> tuple[str, str]:
        return self.labels["alertname"], self.labels["severity"]


def alarms(fired: Iterable[Firing], ends: Mapping[str, float]) -> Mapping[str, tuple[Alarm, ...]]:
    """By host; what fires after the end of the record of a host is not counted."""
    by_host: dict[str, list[Firing]] = {}
    for one in fired:
        host = one.labels.get("instance", "").partition(":")[0]
        moments = [at for at in one.moments if at <= ends.get(host, -1.0)]
        cuts = [at for at, (a, b) in enumerate(pairwise(moments), 1) if b - a > SCRAPE]
        for begin, end in pairwise([0, *cuts, len(moments)]):
            if end > begin:
                labels = dict(one.labels)  # the identity of labels tells alarms apart
                by_host.setdefault(host, []).append(Firing(labels, tuple(moments[begin:end])))
    return {host: tuple(_received(own)) for host, own in by_host.items()}


def _received(firings: Sequence[Firing]) -> Iterator[Alarm]:
    received = {(id(one.labels), one.receiver) for one in Alertmanager().notifications(firings)}
    for one in sorted(firings, key=lambda firing: firing.moments[0]):
        yield Alarm(
            one.labels,
            one.moments[0],
            one.moments[-1] + SCRAPE,
            (id(one.labels), ON_CALL) in received,
            (id(one.labels), REMEDIATOR) in received,
        )
