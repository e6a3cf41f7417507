"""`trainwarden up` as an operator runs it: real processes, the real Prometheus and Alertmanager.

The demo runs from a wheel of this project, in an environment and a folder without a clone.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

import pytest
import yaml
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_text

import children
import claims
import ports
from running import (
    PROJECT,
    SCRIPTS,
    UP_SECONDS,
    Detached,
    Up,
    alive,
    fetch,
    install_wheel,
    journaled,
    up,
)
from stack import Binaries
from trainwarden_exporter.processes.procfs import (
    Identity,
    read_command_line,
    read_process,
    read_processes,
    read_resident_bytes,
)

LIMIT_BYTES = 150 << 20
STORY_SECONDS = 120
KILLED_SECONDS = 20
OPENMETRICS = "application/openmetrics-text; version=1.0.0"

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="the stack watches processes through /proc"
)


def worker(run: Up, name: str) -> Identity:
    """The one process of a worker of the demo."""
    found = [
        process.identity
        for process in read_processes().values()
        if process.alive
        and f"--name {name} " in (line := " ".join(read_command_line(process.pid) or ()))
        and line.endswith(f"--folder {run.folder}/demo")
    ]
    assert len(found) == 1, found
    return found[0]


def value(url: str, metric: str) -> float:
    """The one sample of `metric`."""
    samples = [
        sample.value
        for family in parse_text(fetch(f"{url}/metrics")[1])
        for sample in family.samples
        if sample.name == metric
    ]
    assert len(samples) == 1, (metric, samples)
    return samples[0]


def sample_names(families: Iterable[Metric]) -> set[str]:
    """The names of all samples, but for the creation times that only one format has a place for."""
    names = {sample.name for family in families for sample in family.samples}
    return {name for name in names if not name.endswith("_created")}


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Detached]:
    place = tmp_path_factory.mktemp("up")
    running = Detached(install_wheel(place), place)
    running.started = time.time()
    try:
        printed = running.run("up", "--detach", "--any-free")
        assert "Starting exporter" in printed.splitlines()[0]
        assert "end it: trainwarden down" in printed
        yield running
    finally:
        running.run("down")


@pytest.fixture(scope="module")
def bystander(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Identity]:
    """A worker much like the demo's that belongs to another run."""
    arguments = "--name rollout-1 --inference http://127.0.0.1:1 --folder"
    folder = tmp_path_factory.mktemp("bystander") / "demo"
    script = PROJECT / "examples" / "demo" / "rollout.py"
    with subprocess.Popen(
        [sys.executable, script, *arguments.split(), folder], stdout=subprocess.DEVNULL
    ) as process:
        found = read_process(process.pid)
        assert found is not None
        yield found.identity
        process.kill()


def test_the_leaking_worker_is_restarted_once_and_nothing_else_is_touched(
    demo: Up, bystander: Identity, capsys: pytest.CaptureFixture[str]
) -> None:
    others = {name: worker(demo, name) for name in ("rollout-0", "trainer", "inference")}
    leaking = worker(demo, "rollout-1")
    crossed = 0.0

    def outcome_reported() -> bool:
        nonlocal crossed
        if not crossed and (read_resident_bytes(leaking.pid) or 0) > LIMIT_BYTES:
            crossed = time.time()
        return "  outcome  " in demo.text()

    demo.wait_until(outcome_reported, STORY_SECONDS)
    command = (SCRIPTS / "trainwarden-remediator", "journal", "--json", "--config.file")
    file = demo.folder / "remediator.yml"
    printed = subprocess.run([*command, file], capture_output=True, text=True, check=True).stdout
    story = [json.loads(line) for line in printed.splitlines()]
    assert story == demo.journal()[: len(story)]
    at = {event["kind"]: event["at"] for event in reversed(story)}
    with capsys.disabled():
        print(  # noqa: T201 - for the developer: the promise is a number of seconds
            f"\nleak: over the limit {crossed - demo.started:.0f} s after the start, "
            f"seen {at['alert'] - crossed:.0f} s and healed {at['outcome'] - crossed:.0f} s later"
        )
    assert 0 < crossed < at["alert"] < at["outcome"]

    assert [event["facts"]["outcome"] for event in story if event["kind"] == "outcome"] == [
        "healed"
    ]
    assert [event["worker"] for event in story if event["kind"] == "start"] == ["rollout-1"]
    assert not alive(leaking)
    assert worker(demo, "rollout-1") != leaking
    assert {name: worker(demo, name) for name in others} == others
    assert alive(bystander)


def test_its_gpus_are_simulated_in_use_and_held_by_nobody_else(demo: Up) -> None:
    families = list(parse_text(fetch(f"{demo.url('exporter')}/metrics")[1]))
    samples = [sample for family in families for sample in family.samples]
    names = [each.labels["name"] for each in samples if each.name == "trainwarden_gpu_info"]
    assert names == ["Simulated GPU 0", "Simulated GPU 1"]
    places = {
        (each.labels["worker"], each.labels["gpu"])
        for each in samples
        if each.name == "trainwarden_worker_gpu_memory_bytes"
    }
    assert places == {("inference", "0"), ("rollout-0", "0"), ("rollout-1", "0"), ("trainer", "1")}
    orphans = [e.value for e in samples if e.name == "trainwarden_gpu_orphan_holders"]
    assert orphans == [0, 0, 0]  # of each GPU, and of the driver alone
    assert "Its two GPUs are simulated" in demo.text()


def test_the_journal_is_printed_as_it_happens(demo: Up) -> None:
    story = journaled(demo)
    for word in ("TrainingWorkerMemoryOverLimit", "act", "started process", "healed"):
        assert word in story


@pytest.mark.parametrize("part", ["exporter", "remediator"])
def test_the_metrics_are_good_in_both_formats(demo: Up, binaries: Binaries, part: str) -> None:
    url = f"{demo.url(part)}/metrics"
    _, text = fetch(url)
    lint = (binaries.promtool, "check", "metrics")
    result = subprocess.run(lint, input=text, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    names = sample_names(parse_text(text))
    assert "trainwarden_build_info" in names
    _, open_metrics = fetch(url, accept=OPENMETRICS)
    assert open_metrics.endswith("# EOF\n")
    assert sample_names(parse_openmetrics(open_metrics)) == names  # type: ignore[no-untyped-call]


def test_prometheus_scrapes_every_part_and_every_rule_works(demo: Up) -> None:
    url = demo.url("Prometheus")
    targets = json.loads(fetch(f"{url}/api/v1/targets")[1])["data"]["activeTargets"]
    assert {target["labels"]["job"]: target["health"] for target in targets} == {
        "trainwarden-exporter": "up",
        "trainwarden-remediator": "up",
        "prometheus": "up",
        "alertmanager": "up",
    }
    groups = json.loads(fetch(f"{url}/api/v1/rules")[1])["data"]["groups"]
    assert {rule["health"] for group in groups for rule in group["rules"]} <= {"ok", "unknown"}


@pytest.mark.parametrize("part", ["exporter", "remediator"])
def test_a_broken_reload_keeps_the_old_configuration_and_says_so(demo: Up, part: str) -> None:
    file = demo.folder / f"{part}.yml"
    good = file.read_text()
    url = demo.url(part)
    token = (demo.folder / "secrets" / "webhook-token").read_text().strip()
    metric = f"trainwarden_{'remediator_' * (part == 'remediator')}config_last_reload_successful"
    before = len((demo.folder / "logs" / f"{part}.log").read_text())
    try:
        file.write_text(good + "\nrnus: []\n")
        status, message = fetch(f"{url}/-/reload", data=b"", token=token)
        assert status == 500
        assert "unknown key" in message
        assert value(url, metric) == 0
        assert "unknown key" in (demo.folder / "logs" / f"{part}.log").read_text()[before:]
    finally:
        file.write_text(good)
    if part == "exporter":
        assert 'worker="rollout-0"' in fetch(f"{url}/metrics")[1]
    assert fetch(f"{url}/-/reload", data=b"", token=token)[0] == 200
    assert value(url, metric) == 1


def test_the_addresses_it_prints_show_something(demo: Up) -> None:
    addresses = re.findall(r"^  \w+ +(http://\S+)$", demo.text(), re.MULTILINE)
    assert len(addresses) == 4
    for address in addresses:
        status, page = fetch(address)
        assert (status, bool(page)) == (200, True), address


def test_everything_it_uses_is_in_the_wheel(demo: Detached) -> None:
    """Also where this project is a clone beside it."""
    parts = ("command", "deploy", "examples", "exporter", "grafana", "remediator", "rules")
    files = [demo.folder / name for name in ("prometheus.yml", "supervisord.conf", "exporter.yml")]
    used = [*demo.processes(), *(file.read_text() for file in files), demo.text()]
    assert [text for text in used for part in parts if f"{PROJECT / part}/" in text] == []


def test_down_ends_all_that_was_started_and_nothing_else(
    demo: Detached, bystander: Identity
) -> None:
    started = demo.processes()
    assert len(started) >= 10
    parts = [demo.url(part) for part in ("exporter", "remediator", "Prometheus", "Alertmanager")]
    running = claims.owner(claims.lock_of(demo.folder))
    assert running is not None
    assert f"process {running.pid}" in demo.run("down")
    assert not alive(running)
    assert demo.run("down") == "no stack runs\n"
    assert [line for line, identity in started.items() if alive(identity)] == []
    for url in parts:
        with pytest.raises(urllib.error.URLError, match="refused"):
            urllib.request.urlopen(url, timeout=60)  # noqa: S310 - once: fetch() repeats what is refused
    assert "All that was started has ended" in demo.text()
    assert alive(bystander)


def own_config(folder: Path, duration: str) -> Path:
    """A configuration like a user's, whose one worker does not run."""
    folder.mkdir()
    free = ports.choose(any_free=True)
    worker = {"name": "w", "match": {"command": f"^sleep {duration}$"}}
    process = {"start": ["sleep", duration]}
    remediator = {
        "mode": "act",
        "token_file": "token",
        "exporter": {
            "url": f"http://127.0.0.1:{free['exporter']}",
            "config": "exporter.yml",
        },
        "alertmanager": {"url": f"http://127.0.0.1:{free['alertmanager']}"},
        "targets": [{"run": "mine", "worker": "w", "process": process}],
    }
    (folder / "exporter.yml").write_text(
        yaml.safe_dump({"runs": [{"name": "mine", "workers": [worker]}]})
    )
    (folder / "remediator.yml").write_text(yaml.safe_dump(remediator))
    return folder


def sleeping(duration: str) -> list[Identity]:
    return [
        process.identity
        for process in read_processes().values()
        if process.alive and read_command_line(process.pid) == ("sleep", duration)
    ]


def is_up(stack: Up) -> bool:
    """Whether the exporter shows the one worker of `own_config`."""
    page = fetch(f"{stack.url('exporter')}/metrics")[1]
    return bool(
        re.search(r'^trainwarden_worker_processes{.*worker="w".*} 1(\.0)?$', page, re.MULTILINE)
    )


def test_a_run_of_the_users_is_observed_unless_in_act_mode_and_outlives_the_stack(
    tmp_path: Path,
) -> None:
    one, other = f"3600.1{os.getpid()}", f"3600.2{os.getpid()}"
    watched = own_config(tmp_path / "watched", one)
    healed = own_config(tmp_path / "healed", other)
    workers = [subprocess.Popen(["sleep", duration]) for duration in (one, other)]
    try:
        with (
            up(tmp_path / "observe", CONFIG=str(watched), MODE="") as observing,
            up(tmp_path / "act", CONFIG=str(healed), MODE="act") as acting,
        ):
            observing.wait_until_up()
            acting.wait_until_up()
            # A worker that was never seen is not missing.
            for stack in (observing, acting):
                stack.wait_until(partial(is_up, stack), STORY_SECONDS)
            for worker in workers:
                worker.kill()
                worker.wait()
            observing.wait_until(lambda: "mode is observe" in journaled(observing), STORY_SECONDS)
            acting.wait_until(lambda: "healed" in journaled(acting), STORY_SECONDS)
            started = observing.processes()
            observing.process.kill()
            acting.interrupt()
            assert "All that was started has ended" in acting.text()
            deadline = time.monotonic() + KILLED_SECONDS
            while any(map(alive, started.values())) and time.monotonic() < deadline:
                time.sleep(0.2)
            assert [line for line, identity in started.items() if alive(identity)] == []
        assert sleeping(one) == []  # observed, not started
        (kept,) = sleeping(other)
        assert f"left running, as they are your run: {kept.pid}" in acting.text()
    finally:
        for identity in (*sleeping(one), *sleeping(other)):
            children.send(identity, signal.SIGKILL)
        for worker in workers:
            worker.wait()


def test_a_wrong_configuration_is_reported_before_anything_starts(tmp_path: Path) -> None:
    config = own_config(tmp_path / "config", "1")
    (config / "exporter.yml").write_text("runs: []\nrnus: []\n")
    with up(tmp_path / "run", CONFIG=str(config), MODE="") as run:
        assert run.process.wait(UP_SECONDS) == 1
    assert "exporter.yml:2: rnus: unknown key" in run.text()
    assert "Traceback" not in run.text()
