"""All collectors are bound to their configuration, and bound again by a reload."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from prometheus_client import ProcessCollector

from trainwarden_exporter import __version__, app
from trainwarden_exporter.app import COLLECTORS, Exporter, build_collectors, declared_metrics
from trainwarden_exporter.config import Config, RemediatorConfig
from trainwarden_exporter.exceptions import ConfigError, Problem
from trainwarden_exporter.processes.announcements import AnnouncedRuns
from trainwarden_exporter.processes.config import hash_workers, hash_workers_by_run
from trainwarden_exporter.scrape.collector import Collector, Family, Metric
from trainwarden_exporter.scrape.process_metrics import PROCESS_METRICS

RUNS = Metric("trainwarden_runs", "gauge", "Runs configured.")


class FakeCollector(Collector):
    """Shows what it was built from."""

    name = "fake"
    metrics = (RUNS,)

    def __init__(self, config: Config) -> None:
        self.config = config

    def collect(self) -> Iterable[Family]:
        runs = RUNS.family()
        runs.add_metric([], len(self.config.runs))
        return [runs]


class FakeClock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class FakeWebFile:
    last_reload_successful: bool | None = True

    async def reload(self) -> None:
        if not self.last_reload_successful:
            raise ConfigError(Problem(Path("web.yml"), 1, "", "wrong"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "exporter.yml"
    path.write_text("runs: [{name: a}]")
    return path


def exporter(path: Path | None, clock: FakeClock | None = None) -> Exporter:
    return Exporter(path, build=lambda config: [FakeCollector(config)], now=clock or FakeClock())


def write(path: Path, text: str | None) -> None:
    """Make `text` the content of `path`; None removes it."""
    path.unlink(missing_ok=True)
    if text is not None:
        path.write_text(text)


async def runs_seen(exporter: Exporter) -> float:
    (outcome,) = await exporter.scraper.scrape(5)
    return outcome.families[0].samples[0].value


def own(exporter: Exporter) -> dict[str, float]:
    return {
        sample.name.removeprefix("trainwarden_"): sample.value
        for family in exporter.exporter_families()
        for sample in family.samples
    }


def test_a_collector_of_every_kind_is_built() -> None:
    assert tuple(map(type, build_collectors(Config()))) == COLLECTORS


def test_metrics_are_declared_once_and_named_well() -> None:
    names = [metric.name for metric in declared_metrics()]
    assert len(set(names)) == len(names)
    for metric in declared_metrics():
        assert metric.name.startswith(("trainwarden_", "process_"))
        assert metric.name.endswith("_total") == (metric.type == "counter")
        assert metric.help.endswith(".")


def test_what_is_declared_of_this_process_is_what_is_shown() -> None:
    shown = list(ProcessCollector(registry=None).collect())
    assert {(f"{f.name}_total" if f.type == "counter" else f.name, f.type) for f in shown} == {
        (metric.name, metric.type) for metric in PROCESS_METRICS
    }


async def test_it_tells_of_itself(path: Path) -> None:
    reported = exporter(path)
    values = own(reported)
    assert values["build_info"] == 1
    assert values["config_last_reload_successful"] == 1
    assert values["config_last_reload_success_timestamp_seconds"] == 1000
    assert values["config_workers_hash"] == hash_workers(reported.config.runs)
    assert values["process_resident_memory_bytes"] > 0
    assert "web_config_last_reload_successful" not in values
    assert reported.exporter_families()[0].samples[0].labels["version"] == __version__


async def test_a_reload_puts_the_new_file_in_force(path: Path) -> None:
    clock = FakeClock()
    reloaded = exporter(path, clock)
    assert await runs_seen(reloaded) == 1

    write(path, "runs: [{name: a}, {name: b}]")
    clock.now = 2000
    await reloaded.reloader.reload()

    assert await runs_seen(reloaded) == 2
    assert len(reloaded.config.runs) == 2
    assert own(reloaded)["config_last_reload_success_timestamp_seconds"] == 2000


async def test_it_shows_the_hash_of_the_workers_of_each_run(path: Path) -> None:
    write(path, RUNS_OF_TWO)
    shown = exporter(path)
    hashes = hash_workers_by_run(shown.config.runs)
    assert len(set(hashes.values())) == 2
    samples = [one for family in shown.exporter_families() for one in family.samples]
    assert hashes == {
        one.labels["run"]: one.value
        for one in samples
        if one.name == "trainwarden_config_run_workers_hash"
    }


RUNS_OF_TWO = """
runs:
  - {name: a, user: '61234', workers: [{name: w, match: {command: train}}]}
  - {name: b, user: '61235', workers: [{name: w, match: {command: train}}]}
"""


@pytest.mark.parametrize("text", ["runs: 3", "runs: [", None])
async def test_a_bad_file_leaves_the_old_one_in_force(path: Path, text: str | None) -> None:
    reloaded = exporter(path)
    write(path, text)

    with pytest.raises(ConfigError):
        await reloaded.reloader.reload()

    assert await runs_seen(reloaded) == 1
    assert own(reloaded)["config_last_reload_successful"] == 0
    write(path, "")
    await reloaded.reloader.reload()
    assert own(reloaded)["config_last_reload_successful"] == 1


def test_a_bad_file_at_the_start_is_an_error(path: Path) -> None:
    path.write_text("runs: 3")
    with pytest.raises(ConfigError, match="expected a list"):
        exporter(path)


async def test_without_a_file_the_defaults_are_in_force() -> None:
    bare = exporter(None)
    await bare.reloader.reload()
    assert bare.config == Config()
    assert own(bare)["config_last_reload_successful"] == 1


async def test_the_web_file_is_reloaded_and_shown(path: Path) -> None:
    reloaded, web_config_file = exporter(path), FakeWebFile()
    reloaded.reload_with(web_config_file)
    assert own(reloaded)["web_config_last_reload_successful"] == 1

    web_config_file.last_reload_successful = False
    with pytest.raises(ConfigError, match=r"web\.yml"):
        await reloaded.reloader.reload()
    values = own(reloaded)
    assert values["web_config_last_reload_successful"] == 0
    assert values["config_last_reload_successful"] == 1


async def test_a_server_without_a_web_file_shows_nothing_of_one(path: Path) -> None:
    reloaded, web_config_file = exporter(path), FakeWebFile()
    web_config_file.last_reload_successful = None
    reloaded.reload_with(web_config_file)
    assert "web_config_last_reload_successful" not in own(reloaded)


async def test_what_was_reported_between_two_reloads_that_nobody_scraped_is_not_lost(
    path: Path,
) -> None:
    write(path, "{runs: [{name: a}], heartbeats: [{name: hb, run: a}]}")
    reloaded = Exporter(path)
    names = ["heartbeats", "progress"]
    await reloaded.scraper.scrape(5, names)
    for step in range(1, 5):
        reloaded.heartbeats.record("hb", step=step)
        await reloaded.reloader.reload()
    values = {
        sample.name: sample.value
        for outcome in await reloaded.scraper.scrape(5, names)
        for family in outcome.families
        for sample in family.samples
    }
    assert values["trainwarden_heartbeat_beats_total"] == 4
    assert values["trainwarden_training_step"] == 4


async def test_an_error_in_announced_runs_leaves_the_configuration_in_force(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    one = exporter(path)
    config = one.config

    def read(*_: object) -> AnnouncedRuns:
        raise OverflowError("too large")

    monkeypatch.setattr(app, "read_announcements", read)
    await one.refresh_runs()
    assert one.config is config
    assert await runs_seen(one) == 1
    assert "announced runs not read" in caplog.text


async def test_a_remediator_given_at_the_start_replaces_that_of_the_file(path: Path) -> None:
    write(path, "remediator: {url: 'http://127.0.0.1:10978'}")
    given = RemediatorConfig(url="http://127.0.0.1:4711")
    exporter = Exporter(path, remediator=given)
    assert exporter.config.remediator == given
    await exporter.reloader.reload()
    assert exporter.config.remediator == given
