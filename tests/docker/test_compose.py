"""The shipped docker-compose.yml, all of it but Grafana and digests of images, in a real engine."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

import dockerengine
import standins
from stack import PROJECT
from trainwarden_exporter.processes.procfs import read_process

PARTS = {"exporter": 10977, "remediator": 10978, "prometheus": 9090, "alertmanager": 9093}
SERVERS = ("prometheus", "alertmanager")
WATCHERS = ("trainwarden-exporter", "trainwarden-remediator")
WORKERS = ("inference", "trainer", "rollout-0", "rollout-1")
OURS = "trainwarden:local"
UP_SECONDS = 90
STORY_SECONDS = 120
JUDGED_SECONDS = 90
"""Within which Prometheus has judged every group of rules: some once a minute."""
_LISTEN = "0A"


class Compose:
    """The stack of one project, in an engine whose network has nothing but loopback."""

    def __init__(self, engine: dockerengine.DockerEngine, folder: Path) -> None:
        self._engine = engine
        self._program = standins.newest() / "usr/libexec/docker/cli-plugins/docker-compose"
        # Nothing of the user's own settings, such as profiles, has a say here.
        self._environment = {"PATH": os.environ["PATH"], "HOME": str(folder)}
        self._environment |= {"DOCKER_HOST": f"unix://{engine.socket}", "DATA": str(folder)}
        self._standins = folder / "standins.yml"
        text = (PROJECT / "docker-compose.yml").read_text(encoding="utf-8")
        services = yaml.safe_load(text)["services"]
        named = {part: {"image": without_digest(services[part]["image"])} for part in SERVERS}
        self._standins.write_text(yaml.safe_dump({"services": named}))

    def run(self, *arguments: str, profile: str | None = None) -> str:
        chosen = () if profile is None else ("--profile", profile)
        result = subprocess.run(
            [
                *(self._program, "--project-directory", PROJECT),
                *("--file", PROJECT / "docker-compose.yml", "--file", self._standins),
                *(*chosen, *arguments),
            ],
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == 0, result.stderr
        return result.stdout

    def services(self, profile: str | None) -> list[str]:
        """All that a profile starts, but for Grafana, which no distribution packages."""
        return sorted(set(self.run("config", "--services", profile=profile).split()) - {"grafana"})

    def up(self, profile: str | None = None) -> None:
        services = self.services(profile)
        self.run("up", "--detach", "--no-build", "--pull=never", *services, profile=profile)
        self.wait_until(lambda: all(map(self.healthy, self.parts())), UP_SECONDS)

    def down(self) -> None:
        self.run("down", "--volumes", "--timeout=10", profile="*")

    def parts(self) -> list[str]:
        """The containers that are to run, by name."""
        return [
            *WATCHERS,
            "trainwarden-prometheus-1",
            "trainwarden-alertmanager-1",
        ]

    def inspect(self, container: str) -> dict[str, Any]:
        (found,) = json.loads(self._engine.docker("inspect", container))
        return dict(found)

    def healthy(self, container: str) -> bool:
        return bool(self.inspect(container)["State"]["Health"]["Status"] == "healthy")

    def pid(self, container: str) -> int:
        return int(self.inspect(container)["State"]["Pid"])

    def execute(self, container: str, *command: str) -> str:
        return self._engine.docker("exec", container, *command)

    def fetch(self, part: str, path: str) -> str:
        """What a part answers within the network of the stack."""
        ask = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1]).read().decode())"
        url = f"http://127.0.0.1:{PARTS[part]}{path}"
        return self.execute("trainwarden-exporter", "python3", "-c", ask, url)

    def journal(self) -> list[dict[str, Any]]:
        lines = self.execute(
            "trainwarden-remediator",
            *("trainwarden-remediator", "journal", "--json"),
            *("--config.file", "/etc/trainwarden/remediator.yml"),
        )
        return [json.loads(line) for line in lines.splitlines()]

    def logs(self) -> str:
        return self.run("logs", "--tail=15", profile="*")

    def wait_until(self, seen: Callable[[], object], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not seen():
            if time.monotonic() > deadline:
                pytest.fail(f"not seen within {seconds} s:\n{self.logs()}")
            time.sleep(0.5)


@pytest.fixture(scope="module")
def images() -> Sequence[str]:
    """The images of the compose file that are not built of this project."""
    text = (PROJECT / "docker-compose.yml").read_text(encoding="utf-8")
    services = yaml.safe_load(text)["services"].values()
    return sorted({service["image"] for service in services} - {OURS})


def without_digest(image: str) -> str:
    """The name under which a stand-in is made: no image can be made that has a given digest."""
    return image.partition("@")[0]


@pytest.fixture(scope="module")
def compose(images: Sequence[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compose]:
    """An engine of its own: its `host` network is one in which the usual ports are free."""
    folder = tmp_path_factory.mktemp("compose")
    programs = dockerengine.find_programs()
    real = shutil.which("dockerd", path=programs.environment["PATH"])
    shim = folder / "dockerd"
    alone = f"{sys.executable} {PROJECT}/tests/machines/ownnetwork.py"
    shim.write_text(f'#!/bin/sh\nexec {alone} {real} "$@"\n')
    shim.chmod(0o755)
    path = f"{folder}:{programs.environment['PATH']}"
    own = dockerengine.Programs({**programs.environment, "PATH": path}, programs.busybox)
    engine = dockerengine.DockerEngine(own)
    try:
        engine.start()
        standins.make_base(engine.docker)
        for image in images:
            if "/prometheus:" in image:
                standins.make_prometheus(engine.docker, without_digest(image))
            elif "/alertmanager:" in image:
                standins.make_alertmanager(engine.docker, without_digest(image))
        build = ("build", "--quiet", "--network=none", f"--build-arg=BASE={standins.BASE}")
        engine.docker(*build, "--tag", OURS, PROJECT)
        yield Compose(engine, folder)
    finally:
        engine.close()


@pytest.fixture(scope="module")
def demo(compose: Compose) -> Iterator[Compose]:
    compose.up("demo")
    yield compose
    compose.down()


def test_a_leak_is_healed_by_the_engine_that_starts_again_what_was_ended(
    demo: Compose, capsys: pytest.CaptureFixture[str]
) -> None:
    others = {name: demo.pid(f"trainwarden-demo-{name}-1") for name in WORKERS[:3]}
    demo.wait_until(lambda: any(one["kind"] == "outcome" for one in demo.journal()), STORY_SECONDS)
    story = demo.journal()
    at = {event["kind"]: event["at"] for event in reversed(story)}
    with capsys.disabled():
        print(  # noqa: T201 - for the developer: the promise is a number of seconds
            f"\nleak in containers: healed {at['outcome'] - at['alert']:.0f} s after its alert"
        )
    outcomes = [each["facts"]["outcome"] for each in story if each["kind"] == "outcome"]
    assert outcomes == ["healed"]
    assert {each["worker"] for each in story} == {"rollout-1"}
    assert demo.inspect("trainwarden-demo-rollout-1-1")["RestartCount"] == 1
    assert {name: demo.pid(f"trainwarden-demo-{name}-1") for name in others} == others


def test_prometheus_scrapes_every_part(demo: Compose) -> None:
    targets = json.loads(demo.fetch("prometheus", "/api/v1/targets"))["data"]["activeTargets"]
    assert {target["labels"]["job"]: target["health"] for target in targets} == {
        "trainwarden-exporter": "up",
        "trainwarden-remediator": "up",
        "prometheus": "up",
        "alertmanager": "up",
    }


def test_every_rule_works(demo: Compose) -> None:
    def health() -> set[str]:
        groups = json.loads(demo.fetch("prometheus", "/api/v1/rules"))["data"]["groups"]
        return {rule["health"] for group in groups for rule in group["rules"]}

    demo.wait_until(lambda: "unknown" not in health(), JUDGED_SECONDS)
    assert health() == {"ok"}


def test_the_exporter_sees_the_workers_of_other_accounts_whole(demo: Compose) -> None:
    page = demo.fetch("exporter", "/metrics")
    for worker in WORKERS:
        for metric in ("processes", "open_files", "read_bytes_total"):
            pattern = rf'trainwarden_worker_{metric}{{.*worker="{worker}".*}} [0-9.e+]+'
            assert re.search(pattern, page), (metric, worker)
    failing = re.findall(r'trainwarden_collector_success{collector="(\w+)"} 0', page)
    assert failing == []


def test_the_memory_it_shows_is_that_of_the_host(demo: Compose) -> None:
    page = demo.fetch("exporter", "/metrics")
    total, effective = (
        float(re.findall(rf"^trainwarden_memory_{name}_bytes (\S+)$", page, re.MULTILINE)[0])
        for name in ("total", "effective_total")
    )
    assert effective > 2 * demo.inspect(WATCHERS[0])["HostConfig"]["Memory"] > 0
    assert effective <= total


def test_nothing_listens_beyond_loopback(demo: Compose) -> None:
    listening = list(read_listeners(demo.pid(WATCHERS[0])))
    assert {port for _, port in listening} >= set(PARTS.values())
    assert [each for each in listening if not loopback(each[0])] == []


def read_listeners(pid: int) -> Iterator[tuple[str, int]]:
    """Address in hexadecimal, as the kernel shows it, and port of all that listen with `pid`."""
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]:
            _, local, _, state, *_ = line.split()
            address, _, port = local.partition(":")
            if state == _LISTEN:
                yield address, int(port, 16)


def loopback(address: str) -> bool:
    """Whether it is 127.0.0.0/8, ::1, or the former written as the latter (proc_net_tcp)."""
    return (len(address) == 8 and address.endswith("7F")) or address in (
        "00000000000000000000000001000000",
        "0000000000000000FFFF00000100007F",
    )


def test_none_has_more_rights_than_it_needs(demo: Compose) -> None:
    names = demo.run("ps", "--all", "--format={{.Names}}", profile="demo").split()
    assert len(names) >= 8
    for name in names:
        found = demo.inspect(name)
        host = found["HostConfig"]
        assert host["CapDrop"] == ["ALL"], name
        assert host["ReadonlyRootfs"], name
        assert not host["Privileged"], name
        assert "no-new-privileges:true" in host["SecurityOpt"], name
        assert all("docker.sock" not in bind for bind in host["Binds"] or ()), name
        if name not in WATCHERS:
            assert host["CapAdd"] is None, name
            assert uids(demo.pid(name)) in (set(), {65534}), name


def uids(pid: int) -> set[int]:
    """The accounts of a process; none when it has ended."""
    if pid == 0 or read_process(pid) is None:
        return set()
    status = Path(f"/proc/{pid}/status").read_text()
    return {int(each) for each in re.findall(r"^Uid:\s+(.*)$", status, re.MULTILINE)[0].split()}


def test_the_token_is_made_once_and_known_to_two_parts_alone(demo: Compose) -> None:
    where = "/run/trainwarden/token/webhook-token"
    token = demo.execute(WATCHERS[1], "cat", where)
    assert re.fullmatch("[0-9a-f]{64}", token)
    alertmanager = "trainwarden-alertmanager-1"
    assert demo.execute(alertmanager, "cat", "/etc/alertmanager/secrets/webhook-token") == token
    names = demo.run("ps", "--all", "--format={{.Names}}", profile="demo").split()
    holders = {
        name
        for name in names
        for mount in demo.inspect(name)["Mounts"]
        if "webhook-token" in mount.get("Name", "")
    }
    assert holders == {alertmanager, WATCHERS[1], "trainwarden-secrets-1"}
    demo.run("up", "--detach", "--no-build", "--pull=never", "secrets", profile="demo")
    demo.wait_until(
        lambda: not demo.inspect("trainwarden-secrets-1")["State"]["Running"], UP_SECONDS
    )
    assert demo.execute(WATCHERS[1], "cat", where) == token


@pytest.mark.parametrize("container", [*WATCHERS, "trainwarden-prometheus-1"])
def test_a_killed_service_is_restarted_automatically(demo: Compose, container: str) -> None:
    before = demo.pid(container)
    # by a process of the host: after `docker kill`, which is a user's wish, Docker does not restart
    os.kill(before, 9)
    demo.wait_until(lambda: demo.pid(container) not in (0, before), UP_SECONDS)
    demo.wait_until(lambda: demo.healthy(container), UP_SECONDS)
    if container == WATCHERS[1]:
        assert demo.journal()


def test_without_a_profile_the_host_is_watched_and_no_process_is_touched(compose: Compose) -> None:
    compose.down()
    compose.up()
    try:
        assert "trainwarden_memory_available_bytes" in compose.fetch("exporter", "/metrics")
        page = compose.fetch("remediator", "/metrics")
        assert 'trainwarden_remediator_mode{mode="observe"} 1' in page
    finally:
        compose.down()


def test_two_profiles_at_once_are_refused(compose: Compose) -> None:
    with pytest.raises(AssertionError, match="already in use"):
        compose.run("--profile=gpu", "--profile=demo", "config", "--quiet")


def test_with_gpus_all_of_them_are_asked_for_and_no_more(compose: Compose) -> None:
    found = json.loads(compose.run("config", "--format=json", profile="gpu"))["services"]
    assert set(found) >= {"exporter-gpu", "remediator-gpu", "grafana"}
    assert not {"exporter", "exporter-demo"} & set(found)
    for name in ("exporter-gpu", "remediator-gpu"):
        (devices,) = found[name]["deploy"]["resources"]["reservations"]["devices"]
        assert devices == {"driver": "nvidia", "count": -1, "capabilities": ["utility"]}


def test_every_image_is_pinned_and_every_service_is_limited(
    compose: Compose, images: Sequence[str]
) -> None:
    assert all(re.search(r":v?\d+\.\d+\.\d+(@sha256:[0-9a-f]{64})?$", image) for image in images), (
        images
    )
    found: dict[str, Any] = {}
    for profile in ("box", "gpu", "demo"):
        shown = compose.run("config", "--format=json", profile=profile)
        found |= json.loads(shown)["services"]
    assert len(found) >= 15
    for name, service in found.items():
        assert service["network_mode"] == "host", name
        assert "ports" not in service, name
        binds = [each for each in service.get("volumes", ()) if each["type"] == "bind"]
        assert [each["source"] for each in binds if not Path(each["source"]).exists()] == [], name
        if service["restart"] == "unless-stopped":
            assert {"mem_limit", "cpus", "pids_limit"} <= set(service), name
            if not name.startswith("demo-"):
                assert "healthcheck" in service, name
