"""The collector: what it shows of containers of Docker, and of its own."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from trainwarden_exporter.collectors.containers import ContainersCollector
from trainwarden_exporter.config import Config
from trainwarden_exporter.config_file import loader
from trainwarden_exporter.containers.config import (
    ContainerConfig,
    ContainerKey,
    DockerConfig,
    history_path,
)
from trainwarden_exporter.containers.history import ContainerHistory
from trainwarden_exporter.exceptions import ConfigError, NoData
from trainwarden_exporter.runtime.state_file import StateFile
from trainwarden_exporter.scrape.validation import validated

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.exporter.conftest import FakeProc
    from tests.exporter.containers.conftest import FakeEngine

KEY = ContainerKey("grpo", "pod")
RECORDED_AT = 1795240864.0
"""Unix seconds, when the recorded answers were given."""


def collector(engine: FakeEngine | None = None, **more: Any) -> ContainersCollector:
    """Of the container `trainer` of an engine."""
    docker = None if engine is None else DockerConfig(socket=engine.path)
    config = ContainerConfig(name="pod", docker="trainer")
    return ContainersCollector({KEY: config}, docker, now=lambda: RECORDED_AT, **more)


def samples(collector: ContainersCollector) -> dict[str, Any]:
    """Values by short name; where a label tells which of several holds, the ones that do."""
    found: dict[str, Any] = {}
    for family in validated(collector.collect(), collector.metrics):
        for sample in family.samples:
            run, container, *more = sample.labels.values()
            assert (run, container) == KEY
            name = sample.name.removeprefix("trainwarden_container_")
            if more and sample.value:
                found.setdefault(name, []).extend(more)
            elif not more:
                found[name] = sample.value
    return found


@pytest.fixture
def trainer(engine: FakeEngine, recorded: Callable[[str], bytes]) -> FakeEngine:
    engine.containers["trainer"] = recorded("inspect-running.json")
    engine.logs["trainer"] = recorded("log-frames.bin")
    engine.events = recorded("events.jsonl")
    return engine


def test_without_containers_there_is_nothing_to_see() -> None:
    with pytest.raises(NoData):
        ContainersCollector({}).collect()


def test_a_loop_is_shown_with_all_that_names_it(trainer: FakeEngine) -> None:
    assert samples(collector(trainer)) == {
        "engine_state": ["ok"],
        "state": ["running"],
        "start_timestamp_seconds": pytest.approx(1795240863.506),
        "restarts_total": 5,
        "starts_total": 6,
        "recent_starts": 6,
        "start_period_seconds": pytest.approx(1.552, abs=0.001),
        "last_exit_code": 128,
        "last_exit_timestamp_seconds": pytest.approx(1795240861.79, abs=0.05),
        "last_line": [
            "fatal: destination path 'AReaL' already exists and is not an empty directory."
        ],
        "oom_kills_total": 0,
        "seen_timestamp_seconds": RECORDED_AT,
    }


def test_every_state_is_shown_and_one_holds(trainer: FakeEngine) -> None:
    families = {family.name: family for family in collector(trainer).collect()}
    states = {s.labels["state"] for s in families["trainwarden_container_state"].samples}
    assert states == {
        *("created", "running", "paused", "restarting", "removing", "exited", "dead", "absent")
    }
    engine = families["trainwarden_container_engine_state"].samples
    assert [s.labels["state"] for s in engine if s.value] == ["ok"]
    assert len(engine) == 5


def test_health_is_shown_where_it_is_checked(
    engine: FakeEngine, recorded: Callable[[str], bytes]
) -> None:
    engine.containers["trainer"] = recorded("inspect-unhealthy.json")
    assert samples(collector(engine))["health"] == ["unhealthy"]


def test_a_container_that_is_not_there_is_absent(engine: FakeEngine) -> None:
    found = samples(collector(engine))
    assert found["state"] == ["absent"]
    assert (found["starts_total"], found["recent_starts"]) == (0, 0)
    assert "restarts_total" not in found


def test_without_an_engine_only_the_past_is_known(trainer: FakeEngine, tmp_path: Path) -> None:
    samples(collector(trainer, state_folder=tmp_path))
    trainer.stop()
    found = samples(collector(trainer, state_folder=tmp_path))
    assert found["engine_state"] == ["refused"]
    assert (found["recent_starts"], found["last_exit_code"]) == (6, 128)
    assert not found.keys() & {"state", "restarts_total", "seen_timestamp_seconds", "health"}


def test_a_hanging_file_of_the_past_is_read_in_no_scrape(
    trainer: FakeEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, ended = threading.Event(), threading.Event()

    def hang(_: Path) -> bytes:
        go_on.wait(60)
        ended.set()
        raise OSError("hung")

    monkeypatch.setattr(Path, "read_bytes", hang)
    assert samples(collector(trainer, state_folder=tmp_path)) == {}
    assert not ended.is_set(), "a scrape waited for it"
    go_on.set()


class TestOurOwn:
    def own(self, proc: FakeProc, folder: Path) -> ContainersCollector:
        config = ContainerConfig.model_validate({"name": "pod", "self": True})
        return ContainersCollector({KEY: config}, state_folder=folder, root=proc.root)

    def test_is_counted_before_anybody_scrapes(
        self, proc: FakeProc, tmp_path: Path, wait_until: Callable[[Callable[[], bool]], None]
    ) -> None:
        proc.add(1, start=500)
        self.own(proc, tmp_path)
        path = history_path(tmp_path, KEY)
        assert path is not None
        wait_until(path.exists)
        assert StateFile(path, ContainerHistory, empty=ContainerHistory()).value.starts_total == 1

    def test_is_running_and_asks_no_engine(self, proc: FakeProc, tmp_path: Path) -> None:
        proc.add(1, start=500)
        found = samples(self.own(proc, tmp_path))
        assert found["state"] == ["running"]
        assert (found["starts_total"], found["restarts_total"]) == (1, 0)
        assert "engine_state" not in found

    def test_is_looked_at_by_one_only_after_a_reload(self, proc: FakeProc, tmp_path: Path) -> None:
        proc.add(1, start=500)
        before, after = self.own(proc, tmp_path), self.own(proc, tmp_path)
        samples(before)
        ((_, replaced),) = list(after._pollers)
        after.take_over_from(before)
        assert replaced._closing.is_set()
        assert [poller for _, poller in after._pollers] == [poller for _, poller in before._pollers]
        assert samples(after)["starts_total"] == 1


class TestConfiguration:
    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            ("{name: a}", ":2: runs[0].containers[0]: either `docker: NAME` or `self: true`"),
            (
                "{name: a, docker: b, self: true}",
                ":2: runs[0].containers[0]: either `docker: NAME` or `self: true`",
            ),
            (
                "{name: a, docker: b, exit_file: c}",
                ":2: runs[0].containers[0].exit_file: only for `self: true`",
            ),
            ("{name: a, docker: 'b/../c'}", ":2: runs[0].containers[0].docker: "),
            (
                "{name: a, docker: b}, {name: a, docker: c}",
                ":2: runs[0].containers[1].name: another container is named a",
            ),
            (
                "{name: a, self: true}",
                ":2: runs[0].containers[0].self: needs a state_folder",
            ),
        ],
    )
    def test_a_mistake_is_shown_where_it_stands(self, text: str, problem: str) -> None:
        content = f"runs:\n  - {{name: grpo, containers: [{text}]}}\n"
        with pytest.raises(ConfigError) as caught:
            loader.parse(content, Path("exporter.yml"), Config)
        assert f"exporter.yml{problem}" in str(caught.value)

    def test_our_own_is_good_with_a_place_to_count(self) -> None:
        content = "state_folder: s\nruns: [{name: grpo, containers: [{name: a, self: true}]}]"
        config = loader.parse(content, Path("/etc/exporter.yml"), Config)
        assert config.runs[0].containers[0].own
        assert config.docker.socket == Path("/var/run/docker.sock")
