"""docs/verdicts.md: what the bench found, in tables."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import median

import yaml

from bounds import share_at_most
from verdicts import arrivals
from verdicts.baselines import WATCHERS
from verdicts.engine import RULES, rules_hash
from verdicts.faults import Fault
from verdicts.healthy import Night
from verdicts.judging import Finding, Judgement, by_alert
from verdicts.page import SCRAPE

HEAD = """\
# Verdicts

Written by `make bench-verdicts`: whole runs are played against a model of the host, and the shipped
rules are judged over their series by Prometheus's own rule engine, at the shipped intervals. What
the exporter makes of a run's lines and of a server's answers is made by the exporter's own code.
Many boxes share one Prometheus, as on a fleet; who hears of an alert is decided by the shipped
routes and inhibitions. Without healing: a fault lasts.

What the model spares the rules: of a framework that does not report evaluations, the first
evaluation is short. For a long first evaluation the rules warn, rightly; promtool's tests check
that it leads to no restart.

The limits of delay are for rules that are evaluated every 15 s or more often; an alert of a rule
that is evaluated once a minute, on which no restart depends, may be 45 s later.

The zeros below were not found at the first look. The rules, the model and the lists of what may
stand beside a fault were changed by what earlier runs found, with this seed and with others. In the
folder bench, `python -m verdicts --fresh --healthy 3000 --faulty 0` draws a new seed and prints the
bounds of what it found.

## What these numbers do not show

- The model and the rules have the same authors: a shape of run that nobody thought of is in
  neither. What real machines wrote is on a page of its own, [traces.md](traces.md), what real
  programs did under faults on [chaos.md](chaos.md), and no number of those is in one of this page
  but, in a table of its own, how often faults came.
- Every fault occurs equally often in all other tables. On real hosts some are a hundred times as
  frequent as others: the share of faults that are found is not a share of the faults of a month.
- A bound counts runs of the kinds in the table as if they had been drawn from the runs that users
  have. They were not: it says what chance leaves open, and nothing about other kinds of runs.
- The remediator heals no fault here, and no GPU, driver, disk or network takes part.
"""
FRESH = 3008
"""Healthy runs of fresh seeds that were judged, none of them wrong, and with which rules."""
FRESH_RULES = "feb3d72d3ae95aaa"
NIGHTS_LIMITS = {
    1: "restart loop",
    2: "inference server down",
    3: "leak and dead watchdog",
    4: "no batch comes",
    5: "GPU held by leftovers",
}


def page(judgements: Sequence[Judgement], seed: int) -> str:
    """The page; the same for the same judgements."""
    healthy = [one for one in judgements if not one.case.faulty]
    faulty = [one for one in judgements if one.case.faulty]
    findings = [finding for one in faulty for finding in one.findings]
    found = [one for one in findings if one.delay is not None]
    late = [one for one in found if one.late]
    alarms = [(one, wrong) for one in judgements for wrong in one.wrong]
    lines = [
        HEAD,
        "| | | at most, with 95 % confidence |",
        "|---|---|---|",
        f"| seed | {seed} |",
        f"| rules, routes and inhibitions | `{rules_hash()}` |",
        f"| scrape and evaluation interval | {SCRAPE:g} s |",
        f"| healthy runs | {len(healthy)} |",
        _bounded("with a false alarm", sum(bool(one.wrong) for one in healthy), len(healthy)),
        _bounded("with an order to the remediator", ordered(healthy), len(healthy)),
        _bounded("with a false critical alert", critical(healthy), len(healthy)),
        f"| faulty runs | {len(faulty)} |",
        f"| alerts expected | {len(findings)} |",
        f"| found | {len(found)} |",
        _bounded("missed", len(findings) - len(found), len(findings)),
        _bounded("later than allowed", len(late), len(findings)),
        _bounded(
            "faulty runs with a false alarm", sum(bool(one.wrong) for one in faulty), len(faulty)
        ),
        *_fresh(),
        "",
        "## Beside trivial watchers",
        "",
        "The same runs, watched in ways that need no rules. A fault is noticed if the watcher",
        "alerts or acts after it, within the time for which the run is watched; not every such act",
        "is right.",
        "",
        "| watcher | healthy runs with an alert or an act | faults noticed | median seconds |",
        "|---|--:|--:|--:|",
        *_watchers(healthy, faulty),
        "",
        "## Each alert and its own fault",
        "",
        "Seconds from the fault to the first evaluation at which the alert fires. Of a limit that",
        "depends on the run the largest is given.",
        "",
        "| alert | severity | | runs | found | missed | late | median | p95 | most | limit |",
        "|---|---|---|--:|--:|--:|--:|--:|--:|--:|--:|",
        *_alerts(judgements),
        "",
        *_without(judgements),
        *arrivals.section(faulty),
        "## The five nights",
        "",
        "| night | variant | runs | reported | slowest | limit | pages | playbooks |",
        "|---|---|--:|---|--:|--:|---|---|",
        *_nights(faulty),
        "",
        "## Healthy runs",
        "",
        "| what happens | runs | false alarms | reported, because it is true |",
        "|---|--:|--:|---|",
        *_healthy(healthy),
        "",
        "## What may stand beside a fault",
        "",
        "Anything else counts as a false alarm.",
        "",
        "| fault | may fire besides | because |",
        "|---|---|---|",
        *_beside(faulty),
        "",
    ]
    if alarms:
        lines += ["## False alarms", "", "| run | alert | notified |", "|---|---|---|"]
        lines += [
            f"| {one.case.name}, {one.case.framework} | {wrong.labels['alertname']} "
            f"({wrong.labels['severity']}) | {'yes' if wrong.notified else 'no'} |"
            for one, wrong in alarms
        ]
        lines.append("")
    return "\n".join(lines)


def ordered(healthy: Sequence[Judgement]) -> int:
    """Healthy runs in which the remediator was asked to act."""
    return sum(bool(one.playbooks) for one in healthy)


def critical(healthy: Sequence[Judgement]) -> int:
    """Healthy runs with a false critical alert."""
    return sum(any(w.labels["severity"] == "critical" for w in one.wrong) for one in healthy)


def _bounded(what: str, count: int, of: int) -> str:
    return f"| {what} | {count} | {100 * share_at_most(count, of):.2g} % |"


def _fresh() -> list[str]:
    """What was found on seeds of one run each, while the rules are the same."""
    if rules_hash() != FRESH_RULES:
        return []
    bound = f"{100 * share_at_most(0, FRESH):.2g} %"
    return [
        "",
        f"Of {FRESH:,} healthy runs of fresh seeds, each played once with these rules, 0 had a",
        "false alarm, an order to the remediator or a false critical alert: with 95 % confidence",
        f"at most {bound} of runs.",
    ]


def _watchers(healthy: Sequence[Judgement], faulty: Sequence[Judgement]) -> Iterator[str]:
    for name in WATCHERS:
        alerts = sum(one.baselines[name] is not None for one in healthy)
        delays = [
            moment - one.struck
            for one in faulty
            if (moment := one.baselines[name]) is not None and moment >= one.struck - SCRAPE
        ]
        yield _watcher(name, alerts, len(healthy), delays, len(faulty))
    ours = [one.findings[0].delay for one in faulty if one.findings]
    alerts = sum(bool(one.wrong) for one in healthy)
    found = [delay for delay in ours if delay is not None]
    yield _watcher("the shipped rules", alerts, len(healthy), found, len(faulty))


def _watcher(name: str, alerts: int, healthy: int, delays: Sequence[float], faulty: int) -> str:
    middle = f"{max(0.0, median(delays)):.0f}" if delays else "-"
    return f"| {name} | {alerts} of {healthy} | {len(delays)} of {faulty} | {middle} |"


def _seconds(values: Sequence[float]) -> str:
    ordered = sorted(values)
    if not ordered:
        return "- | - | -"
    p95 = ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
    return f"{median(ordered):.0f} | {p95:.0f} | {ordered[-1]:.0f}"


def _row(found: Sequence[Finding]) -> str:
    delays = [one.delay for one in found if one.delay is not None]
    late = sum(one.late for one in found)
    limit = max(one.within for one in found)
    missed = len(found) - len(delays)
    return f"{len(found)} | {len(delays)} | {missed} | {late} | {_seconds(delays)} | {limit:.0f}"


def _alerts(judgements: Sequence[Judgement]) -> Iterator[str]:
    for (alert, severity, apart), found in sorted(by_alert(judgements).items()):
        yield f"| {_link(alert)} | {severity} | {apart} | {_row(found)} |"


def _link(alert: str) -> str:
    return f"[{alert}](runbooks/{alert}.md)"


def shipped() -> set[tuple[str, str]]:
    """Every alert of rules/, by name and severity."""
    return {
        (rule["alert"], rule["labels"]["severity"])
        for file in sorted((RULES / "alerts").glob("*.yml"))
        for group in yaml.safe_load(file.read_text())["groups"]
        for rule in group["rules"]
    }


def without_fault(judgements: Sequence[Judgement]) -> list[tuple[str, str]]:
    """Alerts that no fault of the bench is for."""
    judged = {(alert, severity) for alert, severity, _ in by_alert(judgements)}
    return sorted(shipped() - judged - {("TrainingWatchdog", "none")})


def _without(judgements: Sequence[Judgement]) -> Iterator[str]:
    missing = without_fault(judgements)
    if missing:
        yield "Without a fault of their own here, held by promtool's tests alone:"
        yield ", ".join(f"{alert} ({severity})" for alert, severity in missing) + "."
        yield ""


def _nights(faulty: Sequence[Judgement]) -> Iterator[str]:
    faults: dict[str, list[Judgement]] = {}
    for one in faulty:
        if isinstance(one.case.what, Fault) and one.case.what.night:
            faults.setdefault(one.case.name, []).append(one)
    for name, runs in sorted(faults.items(), key=lambda item: (_night(item[1][0]), item[0])):
        first = [one.findings[0] for one in runs]
        delays = [one.delay for one in first if one.delay is not None]
        calls = Counter(alert for one in runs for alert in one.called)
        books = Counter(book for one in runs for book in one.playbooks)
        night = NIGHTS_LIMITS[_night(runs[0])]
        yield (
            f"| {night} | {name} | {len(runs)} | {first[0].expected.alert} "
            f"| {max(delays, default=0):.0f} | {max(one.within for one in first):.0f} "
            f"| {_counted(calls)} | {_counted(books)} |"
        )


def _night(one: Judgement) -> int:
    return one.case.what.night if isinstance(one.case.what, Fault) else 0


def _counted(counter: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counter.most_common()) or "-"


def _healthy(healthy: Sequence[Judgement]) -> Iterator[str]:
    nights: dict[str, list[Judgement]] = {}
    for one in healthy:
        nights.setdefault(re.sub(r" \(\d\)$", "", one.case.name), []).append(one)
    for name, runs in nights.items():
        what = runs[0].case.what
        allowed = {**what.true_alerts, **what.muted_alerts} if isinstance(what, Night) else {}
        true_alerts = ", ".join(f"{alert}: {why}" for alert, why in allowed.items())
        yield f"| {name} | {len(runs)} | {sum(len(one.wrong) for one in runs)} | {true_alerts} |"


def _beside(faulty: Sequence[Judgement]) -> Iterator[str]:
    seen: dict[str, Fault] = {}
    for one in faulty:
        if isinstance(one.case.what, Fault):
            seen.setdefault(one.case.name, one.case.what)
    for name, fault in seen.items():
        for alert, why in fault.beside.items():
            yield f"| {name} | {alert} | {why} |"
