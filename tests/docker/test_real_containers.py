"""What the exporter shows of containers of a real engine, and from inside one."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from dockerengine import DockerEngine
from stack import PROJECT
from trainwarden_exporter.collectors.containers import ContainersCollector
from trainwarden_exporter.containers.config import (
    ContainerConfig,
    ContainerKey,
    DockerConfig,
    history_path,
)
from trainwarden_exporter.containers.history import ContainerHistory
from trainwarden_exporter.runtime.state_file import StateFile
from trainwarden_exporter.scrape.validation import validated

FATAL = "fatal: destination path 'AReaL' already exists and is not an empty directory."
LOOP = f'echo "Cloning into AReaL..."; echo "{FATAL}" >&2; sleep 1.5; exit 128'
SLOW = f'echo "{FATAL}" >&2; sleep 11; exit 128'
"""Runs for more than 10 s: then the engine restarts it at once, and not later each time."""

Shown = Mapping[str, Mapping[str, Any]]


def collector(
    engine: DockerEngine, *names: str, state_folder: Path | None = None
) -> ContainersCollector:
    containers = {
        ContainerKey("real", name): ContainerConfig(name=name, docker=name) for name in names
    }
    docker = DockerConfig(socket=engine.socket)
    return ContainersCollector(containers, docker, state_folder=state_folder)


def show(collector: ContainersCollector) -> Shown:
    """By container, by short name: values, or the labels that hold."""
    found: dict[str, dict[str, Any]] = {}
    for family in validated(collector.collect(), collector.metrics):
        for sample in family.samples:
            _, container, *more = sample.labels.values()
            shown = found.setdefault(container, {})
            name = sample.name.removeprefix("trainwarden_container_")
            if not more:
                shown[name] = sample.value
            elif sample.value:
                shown[name] = more[0]
    return found


def wait_for(
    collector: ContainersCollector, condition: Callable[[Shown], bool], seconds: float = 30
) -> Shown:
    deadline = time.monotonic() + seconds
    while not condition(shown := show(collector)):
        assert time.monotonic() < deadline, shown
        time.sleep(0.2)
    return shown


@pytest.fixture
def run(engine: DockerEngine) -> Iterator[Callable[..., None]]:
    """Starts containers, and removes them when the test is over."""
    names: list[str] = []

    def run(name: str, script: str, *options: str) -> None:
        names.append(name)
        plain = ("run", "--detach", "--network=none", "--name", name)
        engine.docker(*plain, *options, "shell", "sh", "-c", script)

    yield run
    for name in names:
        if engine.docker("ps", "--all", "--quiet", "--filter", f"name=^{name}$"):
            engine.docker("rm", "--force", name)


def restart_count(engine: DockerEngine, name: str) -> int:
    return int(engine.docker("inspect", "--format", "{{.RestartCount}}", name))


def test_a_loop_is_counted_exactly_from_the_start_and_when_first_seen_late(
    engine: DockerEngine, run: Callable[..., None], tmp_path: Path
) -> None:
    looking = collector(engine, "loop", state_folder=tmp_path)
    assert show(looking)["loop"]["state"] == "absent"
    run("loop", LOOP, "--restart=always")
    shown = wait_for(looking, lambda shown: shown["loop"]["starts_total"] >= 5)["loop"]
    assert (shown["last_exit_code"], shown["last_line"]) == (128, FATAL)
    assert shown["recent_starts"] == shown["starts_total"]
    assert 1.5 < shown["start_period_seconds"] < 6
    engine.docker("stop", "--time=0", "loop")
    stopped = wait_for(looking, lambda shown: shown["loop"]["state"] == "exited")["loop"]
    # what the engine has counted, and the first; a stop cuts off the restart that was due
    assert stopped["restarts_total"] == restart_count(engine, "loop")
    assert stopped["starts_total"] in (stopped["restarts_total"] + 1, stopped["restarts_total"])
    late = show(collector(engine, "loop"))["loop"]
    again = show(collector(engine, "loop", state_folder=tmp_path))["loop"]
    for other in (late, again):
        for name in ("starts_total", "recent_starts", "last_exit_code", "last_line"):
            assert other[name] == stopped[name], name


def test_a_loop_of_many_seconds_has_its_period(
    engine: DockerEngine, run: Callable[..., None]
) -> None:
    looking = collector(engine, "slow")
    began = time.time()
    run("slow", SLOW, "--restart=always")
    shown = wait_for(looking, lambda shown: shown["slow"]["starts_total"] >= 4, 60)["slow"]
    known = {"since": str(int(began)), "until": str(int(time.time()) + 1)}
    times = [f"--{name}={moment}" for name, moment in known.items()]
    events = ("--filter=container=slow", "--filter=event=start", "--format={{.TimeNano}}")
    moments = [int(line) / 1e9 for line in engine.docker("events", *times, *events).splitlines()]
    periods = [later - earlier for earlier, later in pairwise(moments[:4])]
    assert shown["start_period_seconds"] == pytest.approx(median(periods), abs=0.7)
    assert min(periods) > 11, "it runs for so long"
    assert (shown["last_exit_code"], shown["last_line"]) == (128, FATAL)


def test_each_state_is_seen(engine: DockerEngine, run: Callable[..., None]) -> None:
    looking = collector(engine, "states")
    engine.docker("create", "--network=none", "--name", "states", "shell", "sleep", "100")
    for command, state, starts in (
        ((), "created", 0),
        (("start",), "running", 1),
        (("pause",), "paused", 1),
        (("unpause",), "running", 1),
        (("restart", "--time=0"), "running", 2),
        (("kill",), "exited", 2),
        (("rename", "renamed"), "absent", 2),
    ):
        if command:
            verb, *more = command
            target = [*more, "states"] if verb != "rename" else ["states", *more]
            engine.docker(verb, *target)
        wait_for(
            looking,
            lambda shown, state=state, starts=starts: (  # type: ignore[misc]
                (shown["states"]["state"], shown["states"]["starts_total"]) == (state, starts)
            ),
        )
    shown = show(looking)["states"]
    assert (shown["last_exit_code"], shown["recent_starts"]) == (137, 2)
    assert "start_period_seconds" not in shown
    assert show(collector(engine, "renamed"))["renamed"]["state"] == "exited"
    engine.docker("rm", "renamed")
    run("states", "sleep 100")
    # another container of the name, as after a deploy
    wait_for(
        looking,
        lambda shown: (shown["states"]["state"], shown["states"]["starts_total"]) == ("running", 3),
    )
    assert show(looking)["states"]["restarts_total"] == 0


def test_a_kill_for_want_of_memory_is_counted(
    engine: DockerEngine, run: Callable[..., None]
) -> None:
    looking = collector(engine, "hungry")
    show(looking)
    run("hungry", "echo loading weights; tail /dev/zero", "--memory=20m")

    def ended_by_that(shown: Shown) -> bool:
        # the engine hears of the kill and of the end from two sources, in either order
        hungry = shown["hungry"]
        return bool(hungry["state"] == "exited" and hungry["oom_kills_total"] >= 1)

    shown = wait_for(looking, ended_by_that)["hungry"]
    assert (shown["last_exit_code"], shown["last_line"]) == (137, "loading weights")
    assert show(collector(engine, "hungry"))["hungry"]["oom_kills_total"] >= 1


def test_health_is_what_its_check_says(engine: DockerEngine, run: Callable[..., None]) -> None:
    looking = collector(engine, "healthy", "plain")
    check = ("--health-cmd=test -e /tmp/well", "--health-interval=1s", "--health-retries=2")
    run("healthy", "echo > /tmp/well; sleep 3; rm /tmp/well; sleep 100", *check)
    run("plain", "sleep 100")
    wait_for(looking, lambda shown: shown["healthy"].get("health") == "healthy")
    shown = wait_for(looking, lambda shown: shown["healthy"]["health"] == "unhealthy")
    assert shown["healthy"]["state"] == "running"
    assert "health" not in shown["plain"]


def test_a_log_of_a_terminal_is_read_as_well(
    engine: DockerEngine, run: Callable[..., None]
) -> None:
    looking = collector(engine, "tty")
    run("tty", "printf '\\033[31mCUDA error\\033[0m: busy\\n'; exit 1", "--tty")
    shown = wait_for(looking, lambda shown: "last_line" in shown["tty"])["tty"]
    assert (shown["last_line"], shown["last_exit_code"]) == ("CUDA error: busy", 1)


def test_a_container_without_a_log_has_no_last_line(
    engine: DockerEngine, run: Callable[..., None]
) -> None:
    looking = collector(engine, "mute")
    run("mute", "echo lost; exit 3", "--log-driver=none")
    shown = wait_for(looking, lambda shown: "last_exit_code" in shown["mute"])["mute"]
    assert (shown["state"], shown["last_exit_code"]) == ("exited", 3)
    assert "last_line" not in shown


def test_a_restart_of_the_engine_is_one_start_of_each_container(
    engine: DockerEngine, run: Callable[..., None]
) -> None:
    looking = collector(engine, "steady")
    run("steady", "sleep 1000", "--restart=always")
    wait_for(looking, lambda shown: shown["steady"]["state"] == "running")
    engine.stop()
    away = wait_for(looking, lambda shown: shown["steady"]["engine_state"] != "ok")["steady"]
    assert away["engine_state"] in ("missing", "refused")
    assert away["recent_starts"] == 1
    assert "state" not in away
    engine.start()
    shown = wait_for(looking, lambda shown: shown["steady"].get("starts_total") == 2)["steady"]
    assert (shown["engine_state"], shown["state"]) == ("ok", "running")
    time.sleep(5)
    assert show(looking)["steady"]["starts_total"] == 2


def test_a_container_counts_its_own_starts_from_inside(
    engine: DockerEngine, run: Callable[..., None], tmp_path: Path
) -> None:
    """The exporter is started by the same command that fails, and ends with it each time."""
    config = "state_folder: /run/state\nruns: [{name: real, containers: [{name: pod, self: true,"
    (tmp_path / "exporter.yml").write_text(f"{config} exit_file: /run/state/pod.exit}}]}}]\n")
    exporter = "trainwarden_exporter run --config.file /run/state/exporter.yml"
    listen = "--web.listen-address 127.0.0.1:10977"
    path = history_path(tmp_path, ContainerKey("real", "pod"))
    assert path is not None
    kept = f"/run/state/{path.relative_to(tmp_path)}"
    (tmp_path / "work.sh").write_text(
        # However slow this box is: an exporter that has not come up yet has counted nothing.
        f'until [ "$(cat {kept})" != "$(cat /run/state/before)" ]; do sleep 0.1; done;'
        f' echo Cloning; echo "{FATAL}" >&2; exit 128\n'
    )
    work = "sh /run/state/work.sh"
    script = (
        f"cat {kept} > /run/state/before;"
        f" {sys.executable} -m {exporter} {listen} 2> /run/state/exporter.log &"
        f" {work} > /run/state/start.log 2>&1; code=$?;"
        " { echo $code; tail -n 1 /run/state/start.log; } > /run/state/pod.exit; exit $code"
    )
    python = (sys.prefix, sys.base_prefix, *("/usr", "/lib", "/lib64"), str(PROJECT))
    binds = [f"--volume={place}:{place}:ro" for place in python if Path(place).is_dir()]
    run("pod", script, "--restart=always", f"--volume={tmp_path}:/run/state", *binds)
    deadline = time.monotonic() + 180
    while (
        history := StateFile(path, ContainerHistory, empty=ContainerHistory()).value
    ).starts_total < 4:
        output = subprocess.run(
            ["tail", tmp_path / "exporter.log"], capture_output=True, text=True, check=False
        )
        assert time.monotonic() < deadline, output.stdout
        time.sleep(0.5)
    assert (history.exit_code, history.line) == (128, FATAL)
    # each of the engine's starts, and none for a start of the exporter alone
    reported = show(collector(engine, "pod"))["pod"]
    assert 0 <= reported["starts_total"] - history.starts_total <= 1
