"""Holds what fired against what should have: found, missed, false, and how late."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from verdicts.alertmanager import Alertmanager
from verdicts.baselines import WATCHERS
from verdicts.cases import Case, Due, Played
from verdicts.engine import Firing, Labels
from verdicts.faults import Expected, Fault
from verdicts.healthy import Night, nothing
from verdicts.page import SCRAPE

ON_CALL = "on-call"
REMEDIATOR = "trainwarden-remediator"


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of an expected alert; `delay` in seconds, None for a missed alert."""

    expected: Expected
    within: float
    delay: float | None

    @property
    def late(self) -> bool:
        return self.delay is not None and self.delay > self.within


@dataclass(frozen=True, slots=True)
class FalseAlarm:
    """An alert that should not have fired."""

    labels: Labels
    first: float
    length: int
    """Scrapes for which it fired."""
    notified: bool
    """Whether the on-call or the remediator was notified."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What came of one case."""

    case: Case
    struck: float
    findings: tuple[Finding, ...]
    wrong: tuple[FalseAlarm, ...]
    called: tuple[str, ...]
    """Alerts that notified the on-call."""
    playbooks: tuple[str, ...]
    """Playbooks that the remediator was asked for."""
    baselines: Mapping[str, float | None]
    """When each trivial watcher would have alerted or acted."""

    @property
    def good(self) -> bool:
        missed = any(one.delay is None or one.late for one in self.findings)
        return not missed and not self.wrong


def judge(played: Played, firings: Iterable[Firing], manager: Alertmanager) -> Judgement:
    """Judges `played` by `firings`, all alerts on its host."""
    fired = [one for one in (_judged(firing, played) for firing in firings) if one.moments]
    notifications = manager.notifications(fired)
    findings = tuple(_finding(due, played.struck, fired) for due in played.due)
    notified = {id(one.labels) for one in notifications if one.receiver in (ON_CALL, REMEDIATOR)}
    return Judgement(
        played.case,
        played.struck,
        findings,
        tuple(
            FalseAlarm(one.labels, one.moments[0], len(one.moments), id(one.labels) in notified)
            for one in fired
            if not _is_right(one, played, notified=id(one.labels) in notified)
        ),
        tuple(
            dict.fromkeys(
                one.labels["alertname"] for one in notifications if one.receiver == ON_CALL
            )
        ),
        tuple(
            dict.fromkeys(
                one.labels["remediation"] for one in notifications if one.receiver == REMEDIATOR
            )
        ),
        {name: first(played) for name, first in WATCHERS.items()},
    )


def _judged(firing: Firing, played: Played) -> Firing:
    """The part of it that Prometheus would have evaluated."""
    return Firing(
        firing.labels,
        tuple(
            moment
            for moment in firing.moments
            if moment < played.length and moment // SCRAPE * SCRAPE not in played.unjudged
        ),
    )


def fits(labels: Labels, expected: Expected) -> bool:
    """Whether an alert is the one expected; a label that is expected empty must be absent."""
    return (
        labels["alertname"] == expected.alert
        and labels.get("severity") == expected.severity
        and all(labels.get(name, "") == value for name, value in expected.labels.items())
    )


def _finding(due: Due, struck: float, fired: Sequence[Firing]) -> Finding:
    moments = [
        moment
        for one in fired
        if fits(one.labels, due.expected)
        for moment in one.moments
        if moment >= struck - SCRAPE
    ]
    delay = max(0.0, min(moments) - struck) if moments else None
    return Finding(due.expected, due.within, delay)


def _is_right(firing: Firing, played: Played, *, notified: bool) -> bool:
    """Whether it was expected or allowed, and not before anything had happened."""
    what, name = played.case.what, firing.labels["alertname"]
    if isinstance(what, Night):
        severe = f"{name}/{firing.labels.get('severity')}"
        allowed = name in what.true_alerts or severe in what.true_alerts
        allowed = allowed or (name in what.muted_alerts and not notified)
        ordered = "remediation" in firing.labels  # a healthy run needs no action
        began = what.young or what.happens is nothing or firing.moments[0] >= played.began
        return allowed and not ordered and began
    expected = any(fits(firing.labels, due.expected) for due in played.due)
    if expected and name not in what.beside:
        return firing.moments[0] >= min(played.struck - SCRAPE, _earliest(what, played))
    return (expected or name in what.beside) and firing.moments[0] >= played.began


def _earliest(fault: Fault, played: Played) -> float:
    """A warning on the way to what is expected may come before that is there."""
    ways = len({one.alert for one in fault.expected}) < len(fault.expected)
    return played.began if ways else played.struck


def by_alert(judgements: Iterable[Judgement]) -> Mapping[tuple[str, str, str], list[Finding]]:
    """The findings of each alert with a fault of its own: name, severity, what tells it apart."""
    found: dict[tuple[str, str, str], list[Finding]] = {}
    for judgement in judgements:
        for finding in judgement.findings:
            one = finding.expected
            apart = one.labels.get("cause", "")
            if "remediation" in one.labels:
                apart = "with its trainer" if one.labels["remediation"] else "nobody watched"
            found.setdefault((one.alert, one.severity, apart), []).append(finding)
    return found
