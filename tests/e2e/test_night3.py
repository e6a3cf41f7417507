"""Night 3, workers that leak and a watchdog that is dead: the whole stack, and what is left of it.

The alert about an old and growing worker needs half an hour of history; here the test sends it as
Prometheus would (rules/tests/ check when it fires), and all that follows is real.
"""

from __future__ import annotations

import json
import re
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.waiting import connected

import leaky_worker
from box import Box, Part, Run, events
from measuring import LIMITS, Measure
from parts import Parts, parts
from running import alive, fetch

SEEN_SECONDS, HEALED_SECONDS = LIMITS[3].seen, LIMITS[3].healed
LONGEST_SECONDS, SILENCE_SECONDS = 400, 20
MIB = 1 << 20
NOT_SILENT = "trainwarden_remediator_alerts_stale 0.0"
LIMIT = 100 * MIB
LARGEST, LARGE, STEADY = 170 * MIB, 140 * MIB, 80 * MIB
"""What two leak to, above their limit, and what a third holds within it."""

WORKERS: Mapping[str, tuple[str, ...]] = {
    "search": ("largest", "large"),
    "brakes": ("braking",),
    "aged": ("flat", "growing"),
    "steady": ("steady",),
}
"""By run. Each acts upon one worker at a time."""

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="the stack watches processes through /proc"
)


def a_run(folder: Path, name: str) -> Run:
    place = re.escape(str(folder))
    options: dict[str, Any] = {"memory_limit": LIMIT}
    if name == "aged":
        options["age_limit"] = "5s"
    workers = [
        Part(
            worker,
            "worker",
            (sys.executable, "-S", leaky_worker.__file__, "--of", folder, "--name", worker),
            rf"leaky_worker\.py --of {place} --name {worker}$",
            options,
        )
        for worker in WORKERS[name]
    ]
    patterns = [
        {"name": "emergency_brake", "regex": "EMERGENCY BRAKE"},
        {"name": "trial", "regex": "trial finished", "resets": "emergency_brake"},
    ]
    logs = [
        {"name": worker, "files": [f"{worker}.log"], "worker": worker, "patterns": patterns}
        for worker in WORKERS[name]
    ]
    return Run(name, workers, {"path": str(folder), "logs": logs})


class Memory:
    """What the host reports of its memory: the files of a cgroup that may hold a gigabyte."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        (folder / "memory.max").write_text(f"{1024 * MIB}\n")
        (folder / "memory.stat").write_text("inactive_file 0\n")
        self.use(400 * MIB)

    def use(self, size: int) -> None:
        (self.folder / "memory.current").write_text(f"{size}\n")


class Night:
    def __init__(self, folder: Path) -> None:
        self.folder = folder / "runs"
        self.folder.mkdir()
        self.memory = Memory(folder / "cgroup")
        self.box = Box(folder, [a_run(self.folder, name) for name in WORKERS])

    def write(self) -> None:
        """With all defaults that heal; only the silence is shortened, to be waited for here."""
        self.box.write()
        host = {"cgroup": str(self.memory.folder), "memory_available_floor": 100 * MIB}
        failsafe = {"watchdog_timeout": SILENCE_SECONDS, "shortage_duration": 3}
        for name, more in (("exporter", {"host": host}), ("remediator", {"failsafe": failsafe})):
            file = self.box.config / f"{name}.yml"
            file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), **more}))

    def order(self, worker: str, order: str) -> None:
        (self.folder / f"{worker}.orders").write_text(f"{order}\n")

    def runs(self, run: str, worker: str) -> bool:
        """Whether what was started by the operator still runs."""
        return alive(self.box.started[run, worker])


@contextmanager
def a_night(folder: Path) -> Iterator[Night]:
    night = Night(folder)
    night.write()
    try:
        for run, workers in WORKERS.items():
            for worker in workers:
                night.box.start(run, worker)
        yield night
    finally:
        night.box.close()


def send_alert(stack: Parts, rule: str, **labels: str) -> None:
    """Tell Alertmanager of an alert as Prometheus does."""
    instance = stack.run.url("exporter").removeprefix("http://")
    every = {"alertname": rule, "instance": instance, "job": "trainwarden-exporter", **labels}
    request = urllib.request.Request(  # noqa: S310 - on loopback
        f"{stack.run.url('alertmanager')}/api/v2/alerts",
        data=json.dumps([{"labels": every}]).encode(),
        headers={"Content-Type": "application/json"},
    )
    with connected(lambda: urllib.request.urlopen(request, timeout=60)) as answer:  # noqa: S310 - as above
        assert answer.status == 200


@dataclass(frozen=True)
class Story:
    """What happened. Times in Unix seconds."""

    journal: list[dict[str, Any]]
    began: float
    died: float
    """When everything but the remediator did."""
    flat_runs: bool
    page: str
    """The remediator's metrics at the end."""

    def journaled(self, run: str, *kinds: str) -> list[dict[str, Any]]:
        return [dict(event) for event in events(self.journal, run, *kinds)]

    def at(self, run: str, kind: str, worker: str) -> float:
        return next(float(e["at"]) for e in self.journaled(run, kind) if e["worker"] == worker)

    def acted_on(self, run: str) -> list[str]:
        return [event["worker"] for event in self.journaled(run, "intent")]


def healed(stack: Parts) -> set[tuple[str, str]]:
    return {
        (event["run"], event["worker"])
        for event in stack.journal()
        if event["kind"] == "outcome" and event["facts"]["outcome"] == "healed"
    }


def page_of(stack: Parts) -> str:
    return fetch(f"{stack.run.url('remediator')}/metrics")[1]


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    folder = tmp_path_factory.mktemp("night3")
    with a_night(folder) as night, parts(folder / "stack", night.box.config) as stack:
        stack.start("exporter", "alertmanager", "prometheus", "remediator")
        shown = 'count(trainwarden_worker_processes{run=~"search|brakes|aged|steady"} == 1)'
        stack.wait_until(
            lambda: any(one["value"][1] == "6" for one in stack.query(shown)), LONGEST_SECONDS
        )
        night.order("steady", f"hold {STEADY}")
        began = time.time()
        night.order("largest", f"hold {LARGEST}")
        night.order("large", f"hold {LARGE}")
        night.order("braking", "brake")
        old = {"run": "aged", "worker": "growing", "severity": "warning"}
        send_alert(stack, "TrainingWorkerOldAndGrowing", remediation="recycle_aged_worker", **old)
        wanted = {("search", "largest"), ("search", "large")}
        wanted |= {("brakes", "braking"), ("aged", "growing")}
        stack.wait_until(lambda: wanted <= healed(stack), LONGEST_SECONDS)

        # what is short here may have been passed while all was starting
        stack.wait_until(lambda: NOT_SILENT in page_of(stack), LONGEST_SECONDS)
        died = time.time()
        for part in ("prometheus", "alertmanager", "exporter"):
            stack.kill(part)
        night.memory.use(1000 * MIB)
        stack.wait_until(lambda: ("steady", "steady") in healed(stack), LONGEST_SECONDS)
        yield Story(stack.journal(), began, died, night.runs("aged", "flat"), page_of(stack))


def test_it_is_seen_and_healed_in_time(story: Story, measured: Measure) -> None:
    seen = min(story.at("search", "alert", worker) for worker in WORKERS["search"])
    measured(3, "workers over their limit: seen", seen - story.began, SEEN_SECONDS)
    for worker in WORKERS["search"]:
        took = story.at("search", "outcome", worker) - story.began
        measured(3, f"the {worker} healed", took, HEALED_SECONDS)
    took = story.at("brakes", "outcome", "braking") - story.began
    measured(3, "a brake that fires again and again: healed", took, HEALED_SECONDS)
    took = story.at("steady", "outcome", "steady") - story.died
    measured(3, "the pipeline dead, memory short: healed", took, HEALED_SECONDS)


def test_the_largest_is_restarted_first_and_never_both_together(story: Story) -> None:
    assert story.acted_on("search") == ["largest", "large"]
    first = story.at("search", "outcome", "largest")
    assert first <= story.at("search", "intent", "large")


def test_a_brake_that_fires_ten_times_in_a_row_costs_that_worker_its_life(story: Story) -> None:
    (intent,) = story.journaled("brakes", "intent")
    assert (intent["worker"], intent["alert"]) == ("braking", "TrainingBrakeFiring")


def test_what_is_old_and_grows_is_recycled_and_what_is_old_and_flat_is_left(story: Story) -> None:
    assert story.acted_on("aged") == ["growing"]
    assert story.flat_runs


def test_with_everything_else_dead_the_local_brake_restarts_the_largest(story: Story) -> None:
    assert story.acted_on("steady") == ["steady"]
    (intent,) = story.journaled("steady", "intent")
    assert intent["alert"] == "TrainingLocalBrake"
    (silent,) = (e for e in story.journal if e["kind"] == "alerts_stale" and e["at"] > story.died)
    assert silent["at"] <= intent["at"]
    assert "trainwarden_remediator_alerts_stale 1.0" in story.page
    assert "trainwarden_remediator_failsafe_active 1.0" in story.page


def test_each_was_restarted_once(story: Story) -> None:
    restarted = [worker for run in WORKERS for worker in story.acted_on(run)]
    assert sorted(restarted) == ["braking", "growing", "large", "largest", "steady"]
