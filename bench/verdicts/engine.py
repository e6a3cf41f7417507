"""Has the real rule engine judge: series go into promtool, what fired when comes out.

promtool asserts and does not print. So it is asked for what cannot be, and says what it got
instead: of every alert that fired, the evaluations at which it did, fifty at a time as the bits of
a number.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import yaml

from verdicts.needed import needed
from verdicts.page import SCRAPE, Value, packed

RULES = Path(__file__).resolve().parents[2] / "rules"
OFTEN_ENOUGH = 15
"""Seconds between two evaluations that the limits of the faults allow for."""
BITS = 50
"""Evaluations in one number: a float holds 53 bits."""
Labels = Mapping[str, str]

_UNITS = {"s": 1, "m": 60, "h": 3600}
_ASKED = 'sum_over_time((ALERTS{{alertstate="firing",alertname!="TrainingWatchdog"}} * 2 ^ ((time() - {start}) / {step}))[{window}s:{step}s])'  # noqa: E501 - one query
_GOT = re.compile(r"\(\(time\(\) - (-?\d+)\) / (\d+)\)\).*?\n\s+exp: .*\n\s+got: (.*)")
_SAMPLE = re.compile(r"\{([^}]*)\} ([0-9.E+-]+)(?:, |$)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class EngineError(Exception):
    """promtool failed; carries its output."""


@dataclass(frozen=True, slots=True)
class Firing:
    """One alert, and the moments (seconds since the first scrape) at which it was firing."""

    labels: Labels
    moments: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """One group of rules, without what only people read."""

    interval: int
    body: Mapping[str, Any]
    records: bool


def shipped_groups() -> tuple[Group, ...]:
    """The groups of rules/, less their annotations: these cost time and decide nothing."""
    return tuple(
        Group(
            seconds(group["interval"]),
            {
                "name": group["name"],
                "rules": [
                    {key: value for key, value in rule.items() if key != "annotations"}
                    for rule in group["rules"]
                ],
            },
            records=folder == "recording",
        )
        for folder in ("alerts", "recording")
        for file in sorted((RULES / folder).glob("*.yml"))
        for group in yaml.safe_load(file.read_text())["groups"]
    )


def seconds(duration: str) -> int:
    """90 of `90s`, 3600 of `1h`."""
    return int(duration[:-1]) * _UNITS[duration[-1]]


def waits_longer(alert: str, severity: str) -> float:
    """The seconds by which it may fire later, being judged more seldom than most that can wait."""
    return max(0.0, _intervals()[alert, severity] - OFTEN_ENOUGH)


@cache
def _intervals() -> Mapping[tuple[str, str], int]:
    return {
        (rule["alert"], rule["labels"]["severity"]): group.interval
        for group in shipped_groups()
        if not group.records
        for rule in group.body["rules"]
    }


def rules_hash() -> str:
    """Changes with the behaviour of rules and routes, not with texts."""
    bodies = [(group.interval, group.body) for group in shipped_groups()]
    alertmanager = yaml.safe_load((RULES / "alertmanager.yml").read_text())
    judged = [bodies, alertmanager["route"], alertmanager["inhibit_rules"]]
    return sha256(json.dumps(judged, sort_keys=True).encode()).hexdigest()[:16]


def evaluate(
    promtool: Path,
    series: Mapping[str, Sequence[Value]],
    length: float,
    folder: Path,
    *,
    gap: bool = False,
    groups: Sequence[Group] | None = None,
) -> tuple[Firing, ...]:
    """What fires over `series` in `length` seconds, each group at its own interval.

    Of all that is shipped, or of some `groups`.

    Promtool has but one interval: the alerts of each are evaluated in a pass of their own. What is
    recorded more seldom is held in it until it is due again; what is recorded more often is
    recorded as seldom as they are judged, right before. An alert fires until it is judged again.

    Of the most frequent pass, recording groups come after alerting groups: in Prometheus they
    run side by side, and an alert may see what was recorded an interval before. This is the worse
    of the two orders. With a `gap`, in which there is no Prometheus, it is the other, and it
    drops samples recorded meanwhile: promtool evaluates all the time.
    """
    groups = shipped_groups() if groups is None else groups
    found: list[Firing] = []
    for interval in sorted({group.interval for group in groups if not group.records}):
        alerting = [group for group in groups if group.interval == interval and not group.records]
        recording = [group for group in groups if group.records]
        late = interval == SCRAPE and not gap
        order = _needed(alerting + recording if late else recording + alerting, series)
        if all(group.records for group in order):
            continue
        rules = folder / f"rules-{interval}.yml"
        bodies = [
            _held(group, gap=gap) if group.interval > interval else group.body for group in order
        ]
        rules.write_text(json.dumps({"groups": bodies}))
        suite = folder / f"series-{interval}.yml"
        suite.write_text(_suite(rules, series, length, interval, order))
        found += (_until_judged_again(one, interval) for one in _judged(promtool, suite))
    return tuple(found)


def _until_judged_again(firing: Firing, interval: int) -> Firing:
    moments = {at + past for at in firing.moments for past in range(0, interval, int(SCRAPE))}
    return Firing(firing.labels, tuple(sorted(moments)))


def _needed(groups: Sequence[Group], series: Iterable[str]) -> list[Group]:
    bodies = needed([group.body for group in groups], series)
    return [
        replace(group, body=body)
        for group, body in zip(groups, bodies, strict=True)
        if body["rules"]
    ]


def _held(group: Group, *, gap: bool) -> Mapping[str, Any]:
    """The rules of a group that records, so that they say nothing new but at its own interval."""
    rules = []
    here = f" and on () group(count_over_time(up[{SCRAPE - 1:g}s]))" if gap else ""
    for rule in group.body["rules"]:
        due, every = f"{rule['record']}:due", group.interval
        rules.append(
            {
                "record": due,
                "expr": f"({rule['expr']}) and on () (vector(time()) % {every} == 0){here}",
            }
        )
        rules.append({**rule, "expr": f"last_over_time({due}[{every - 1}s])"})
    return {**group.body, "rules": rules}


def _suite(
    rules: Path,
    series: Mapping[str, Sequence[Value]],
    length: float,
    interval: int,
    order: Iterable[Group],
) -> str:
    asked = []
    end, window = int(length) // interval * interval, BITS * interval
    for start in range(0, end, window):
        query = _ASKED.format(start=start, step=interval, window=window)
        asked.append(
            {
                "expr": query,
                "eval_time": f"{start + window}s",
                "exp_samples": [{"labels": "none{}", "value": 0}],
            }
        )
    inputs = [{"series": name, "values": packed(samples)} for name, samples in series.items()]
    return json.dumps(
        {
            "rule_files": [str(rules)],
            "evaluation_interval": f"{interval}s",
            "group_eval_order": [group.body["name"] for group in order],
            "tests": [
                {
                    "interval": f"{SCRAPE:g}s",
                    "input_series": inputs,
                    "promql_expr_test": asked,
                }
            ],
        }
    )


def _judged(promtool: Path, suite: Path) -> Iterator[Firing]:
    # half of its time would go into garbage collection, although memory is plentiful
    result = subprocess.run(
        [promtool, "test", "rules", suite],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "GOGC": "1000"},
    )
    output = result.stdout + result.stderr
    answers = _GOT.findall(output.replace('\\"', '"'))
    if not answers:
        raise EngineError(output[-4000:])
    moments: dict[tuple[tuple[str, str], ...], set[float]] = {}
    for start, step, got in answers:
        for labels, number in _SAMPLE.findall(got):
            key = tuple(
                (name, value)
                for name, value in _LABEL.findall(labels)
                if name not in ("__name__", "alertstate")
            )
            bits = int(float(number))
            moments.setdefault(key, set()).update(
                float(int(start) + bit * int(step)) for bit in range(BITS + 1) if bits >> bit & 1
            )
    for key, fired in moments.items():
        yield Firing(dict(key), tuple(sorted(fired)))
