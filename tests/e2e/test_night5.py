"""Night 5, a dead run's leftovers hold the GPUs: the whole stack, with a simulated driver."""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse_text
from tests.waiting import connected

from measuring import LIMITS, Measure
from night import BACK_AFTER, GIB, Night, a_run_about_to_die
from ports import free_port
from running import SCRIPTS, Up, alive, fetch, up
from trainwarden_exporter.processes.procfs import Identity
from trainwarden_exporter.processes.start_times import start_timestamp
from trainwarden_remediator.config.targets import GpuCleanup

SEEN_SECONDS, HEALED_SECONDS = LIMITS[5].seen, LIMITS[5].healed
LONGEST_SECONDS = 300
RULE = "TrainingGpuHeldByLeftovers"

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="the stack watches processes through /proc"
)


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Night]:
    with a_run_about_to_die(tmp_path_factory.mktemp("night")) as night:
        yield night


@pytest.fixture(scope="module")
def stack(night: Night) -> Iterator[Up]:
    environment = {"CONFIG": str(night.config), "MODE": "act", **night.environment}
    with up(night.config.parent / "run", **environment) as running:
        running.wait_until_up()
        yield running


@pytest.fixture(scope="module")
def watching(night: Night, stack: Up) -> Iterator[str]:
    """Where a second remediator listens, which only observes, and which nothing else talks to."""
    address = f"127.0.0.1:{free_port()}"
    command = (SCRIPTS / "trainwarden-remediator", "run", "--web.listen-address", address)
    file = night.config / "watching.yml"
    environment = {**os.environ, **night.environment}
    with (night.config / "watching.log").open("w") as log:
        process = subprocess.Popen(
            [*command, "--config.file", file], env=environment, stdout=log, stderr=log
        )
    stack.wait_until(lambda: is_ready(f"http://{address}"), 180)
    yield f"http://{address}"
    process.terminate()
    process.wait(60)


def is_ready(url: str) -> bool:
    try:
        return fetch(f"{url}/-/ready")[0] == 200
    except OSError:
        return False


def firing(run: Up, rule: str) -> list[Mapping[str, Any]]:
    alerts = json.loads(fetch(f"{run.url('Prometheus')}/api/v1/alerts")[1])["data"]["alerts"]
    return [alert for alert in alerts if alert["labels"]["alertname"] == rule]


def send_to(watching: str, run: Up, night: Night) -> bool:
    """Tell a remediator of what Alertmanager has by now; False when that is nothing."""
    known = json.loads(fetch(f"{run.url('Alertmanager')}/api/v2/alerts")[1])
    alerts = [
        {**alert, "status": "firing"} for alert in known if alert["labels"]["alertname"] == RULE
    ]
    if not alerts:
        return False
    body = {"version": "4", "status": "firing", "receiver": "x", "groupKey": "x", "alerts": alerts}
    token = (night.config / "token").read_text().strip()
    request = urllib.request.Request(  # noqa: S310 - on loopback
        f"{watching}/webhook",
        data=json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    with connected(lambda: urllib.request.urlopen(request, timeout=60)) as response:  # noqa: S310 - as above
        return bool(response.status == 200)


def gpu_values(run: Up, metric: str, **labels: str) -> dict[str, float]:
    """The samples of `metric` that have these labels, by GPU."""
    return {
        sample.labels["gpu"]: sample.value
        for family in parse_text(fetch(f"{run.url('exporter')}/metrics")[1])
        for sample in family.samples
        if sample.name == f"trainwarden_{metric}" and labels.items() <= sample.labels.items()
    }


def named_pids(message: str) -> set[int]:
    """The processes that a preflight names as holders that should not be there."""
    return {int(pid) for pid in re.findall(r"pid (\d+), [\w-]+, [\w ]+ old", message)}


class Ends:
    """Sees when processes end."""

    def __init__(self, processes: Mapping[str, Identity]) -> None:
        self._pidfds = {os.pidfd_open(one.pid): name for name, one in processes.items()}
        self._all = set(self._pidfds)
        self.at: dict[str, float] = {}

    def look(self) -> None:
        ready, _, _ = select.select(list(self._pidfds), [], [], 0)
        for pidfd in ready:
            self.at[self._pidfds.pop(pidfd)] = time.time()
            os.close(pidfd)

    def close(self) -> None:
        for pidfd in self._pidfds:
            os.close(pidfd)


@dataclass(frozen=True)
class Story:
    """What happened; times in Unix seconds."""

    began: float
    seen: float
    ended: Mapping[str, float]
    preflights: Mapping[str, tuple[int, str]]
    journal: list[dict[str, Any]]
    held: Mapping[str, float]
    """Orphan holders by GPU, as exported in the meantime."""
    used: Mapping[str, float]
    """Memory in use by GPU, in the end."""

    def at(self, kind: str) -> float:
        """Time of the first event of that kind about the GPUs, in the journal."""
        return next(cast("float", event["at"]) for event in self.about_gpus(kind))

    def about_gpus(self, kind: str) -> list[dict[str, Any]]:
        return [e for e in self.journal if e["kind"] == kind and e["alert"] == RULE]


@pytest.fixture(scope="module")
def story(night: Night, stack: Up, watching: str) -> Story:
    preflights = {"before": night.preflight()}
    scraped = f"{stack.url('Prometheus')}/api/v1/query?query=trainwarden_gpu_orphan_holders"
    stack.wait_until(lambda: json.loads(fetch(scraped)[1])["data"]["result"], 180)
    assert gpu_values(stack, "gpu_up") == {"0": 1, "1": 1}
    assert set(gpu_values(stack, "gpu_orphan_holders").values()) == {0}
    # In that night they had run for hours; the remediator leaves young processes alone for a while.
    young = GpuCleanup.model_fields["min_age"].default
    started = max(map(start_timestamp, night.leftovers.values()))
    stack.wait_until(lambda: time.time() - started > young, 2 * young)
    night.launcher.kill()
    night.launcher.wait()
    began, seen, asked = time.time(), 0.0, False
    held: Mapping[str, float] = {}
    ends = Ends(night.leftovers)
    preflights["held"] = night.preflight()

    def outcome_reported() -> object:
        nonlocal seen, asked, held
        ends.look()
        if not seen and any(alert["state"] == "firing" for alert in firing(stack, RULE)):
            seen, held = time.time(), gpu_values(stack, "gpu_orphan_holders")
        asked = asked or (seen > 0 and send_to(watching, stack, night))
        return re.search(r"^\S+ \S+ +#\d+ +\S+ +outcome ", stack.text(), re.MULTILINE)

    try:
        stack.wait_until(outcome_reported, LONGEST_SECONDS)
    finally:
        ends.close()
    preflights["healed"] = night.preflight()
    used = gpu_values(stack, "gpu_memory_used_bytes")
    journal = stack.journal(night.config / "remediator.yml")
    return Story(began, seen, ends.at, preflights, journal, held, used)


def test_it_is_seen_and_healed_in_time(story: Story, measured: Measure) -> None:
    began = story.began
    ended, healed = max(story.ended.values()) - began, story.at("outcome") - began
    measured(5, "leftovers on the GPUs: seen", story.seen - began, SEEN_SECONDS)
    measured(5, "all of them ended", ended, HEALED_SECONDS)
    measured(5, "healed: their memory is back", healed, HEALED_SECONDS)
    assert [event["facts"]["outcome"] for event in story.about_gpus("outcome")] == ["healed"]


def test_the_run_may_start_only_without_leftovers(night: Night, story: Story) -> None:
    status, message = story.preflights["before"]
    assert (status, "already running" in message, named_pids(message)) == (1, True, set())
    status, message = story.preflights["held"]
    assert status == 1
    assert "Not ready to start a run: gpu holders." in message
    assert named_pids(message) == {one.pid for one in night.leftovers.values()}
    status, message = story.preflights["healed"]
    assert (status, named_pids(message)) == (0, set()), message
    assert "Ready to start a run" in message


def test_exactly_the_leftovers_end_and_the_deaf_one_by_force(night: Night, story: Story) -> None:
    (result,) = story.about_gpus("result")
    pids = {name: one.pid for name, one in night.leftovers.items()}
    assert story.held == {"0": 1, "1": 2, "": 0}
    assert {process["pid"] for process in result["facts"]["ended"]} == set(pids.values())
    assert result["facts"]["killed"] == [pids["rank-1"]]
    assert story.ended.keys() == pids.keys()
    assert not any(map(alive, night.leftovers.values()))
    assert {name: alive(one) for name, one in night.bystanders.items()} == dict.fromkeys(
        night.bystanders, True
    )


def test_their_memory_was_waited_for(story: Story) -> None:
    assert story.at("result") - max(story.ended.values()) > BACK_AFTER - 1
    assert story.used == {"0": 6 * GIB, "1": 0}


@pytest.mark.usefixtures("story")
def test_a_remediator_that_observes_only_says_what_it_would_do(night: Night) -> None:
    command = (SCRIPTS / "trainwarden-remediator", "journal", "--json", "--config.file")
    journaled = subprocess.check_output([*command, night.config / "watching.yml"], text=True)
    events = [json.loads(line) for line in journaled.splitlines()]
    decisions = [event["facts"]["reason"] for event in events if event["kind"] == "decision"]
    assert decisions[0] == "observe_mode"
    assert {event["kind"] for event in events} <= {"alert", "decision", "resolved"}


@pytest.mark.usefixtures("story")
def test_an_exclusive_mode_is_another_cause_and_no_process_is_ended(
    night: Night, stack: Up
) -> None:
    def switch(fault: str, mode: float) -> None:
        (night.box / "fault").write_text(fault)
        labels = {"gpu": "1", "mode": "exclusive_process"}
        stack.wait_until(
            lambda: gpu_values(stack, "gpu_compute_mode", **labels) == {"1": mode}, 180
        )

    switch("exclusive 1\n", 1)
    status, message = night.preflight()
    assert (status, named_pids(message)) == (1, set())
    assert "Not ready to start a run: compute mode." in message
    assert "terminating others does not help" in " ".join(message.split())  # the report is wrapped
    stack.wait_until(lambda: firing(stack, "TrainingGpuExclusiveMode"), 180)  # or pending, as yet
    (alert,) = firing(stack, "TrainingGpuExclusiveMode")
    assert "remediation" not in alert["labels"]
    assert alert["labels"]["gpu"] == "1"
    intents = [e for e in stack.journal(night.config / "remediator.yml") if e["kind"] == "intent"]
    assert len(intents) == 1
    assert all(map(alive, night.bystanders.values()))
    switch("shared 1\n", 0)
    assert night.preflight()[0] == 0
