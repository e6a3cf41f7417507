"""A worker that may end so many trials, counted from its own log since it started."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.exporter.conftest import FakeProc

from trainwarden_exporter.collectors.logs import LogsCollector
from trainwarden_exporter.collectors.workers import WorkersCollector
from trainwarden_exporter.config import load_config
from trainwarden_exporter.exceptions import ConfigError
from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.run_config import RunConfig
from trainwarden_exporter.run_specs import log_specs
from trainwarden_exporter.scrape.validation import validated

KEY = WorkerKey("search", "worker-0")
RUN = r"""
name: search
framework: optuna
path: {folder}
workers:
  - {{name: worker-0, match: {{command: search-0}}, trials_limit: 3}}
  - {{name: worker-1, match: {{command: search-1}}}}
logs:
  - {{name: zero, files: [zero.txt], worker: worker-0}}
  - {{name: one, files: [one.txt], worker: worker-1}}
"""
ENDED = (
    "Trial 7 finished with value: 0.5 and parameters: {'x': 1}. Best is trial 7 with value: 0.5\n"
)


class Reported:
    """The trials that the logs have reported until now."""

    def __init__(self) -> None:
        self.trials: int | None = 0

    def __call__(self, _: WorkerKey) -> int | None:
        return self.trials


@pytest.fixture
def reported() -> Reported:
    return Reported()


def watch(proc: FakeProc, reported: Reported, state: Path) -> WorkersCollector:
    worker = {"name": "worker-0", "match": {"command": "search-0"}, "trials_limit": 3}
    run = RunConfig.model_validate({"name": "search", "workers": [worker]})
    return WorkersCollector([run], state_folder=state, trials_logged=reported, root=proc.root)


def trials(collector: WorkersCollector) -> float | None:
    found = {
        sample.name: sample.value
        for family in validated(collector.collect(), collector.metrics)
        for sample in family.samples
    }
    assert found["trainwarden_worker_trials_limit"] == 3
    return found.get("trainwarden_worker_trials")


def test_trials_are_counted_since_the_worker_started(
    proc: FakeProc, reported: Reported, tmp_path: Path
) -> None:
    collector = watch(proc, reported, tmp_path)
    assert trials(collector) is None
    proc.add(10, ["search-0"])
    reported.trials = 40  # of its predecessors
    assert trials(collector) == 0
    reported.trials = 43
    assert trials(collector) == 3
    proc.remove(10)
    assert trials(collector) is None
    proc.add(11, ["search-0"], start=900)
    assert trials(collector) == 0
    reported.trials = 44
    assert trials(collector) == 1


def test_the_count_outlives_the_exporter_and_a_reload(
    proc: FakeProc, reported: Reported, tmp_path: Path
) -> None:
    proc.add(10, ["search-0"])
    trials(watch(proc, reported, tmp_path))
    reported.trials = None  # not looked at yet
    restarted = watch(proc, reported, tmp_path)
    assert trials(restarted) is None
    reported.trials = 2
    assert trials(restarted) == 2
    reloaded = watch(proc, reported, tmp_path / "elsewhere")
    reloaded.take_over_from(restarted)
    reported.trials = 3
    assert trials(reloaded) == 3


def test_a_count_that_was_lost_begins_again(
    proc: FakeProc, reported: Reported, tmp_path: Path
) -> None:
    proc.add(10, ["search-0"])
    reported.trials = 40
    collector = watch(proc, reported, tmp_path)
    assert trials(collector) == 0
    reported.trials = 1
    assert trials(collector) == 0
    reported.trials = 2
    assert trials(collector) == 1


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[LogsCollector]:
    file = tmp_path / "exporter.yml"
    text = RUN.format(folder=tmp_path).strip().replace("\n", "\n    ")
    file.write_text(f"runs:\n  - {text}\n")
    (run,) = load_config(file).runs
    collector = LogsCollector(log_specs(run), interval=0.01)
    yield collector
    collector.close()


def test_every_end_of_a_trial_in_a_worker_s_own_log_counts(
    logs: LogsCollector, tmp_path: Path
) -> None:
    assert logs.trials_logged(KEY) is None
    list(logs.collect())
    (tmp_path / "one.txt").write_text(ENDED * 9)
    (tmp_path / "zero.txt").write_text(
        f"{ENDED}A new study created in memory\nTrial 8 pruned. \n"
        "Trial 9 failed with parameters: {} because of the following error: ValueError()\n"
    )
    deadline = time.monotonic() + 60
    while logs.trials_logged(KEY) != 3:
        assert time.monotonic() < deadline, logs.trials_logged(KEY)
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("framework", "worker"), [("generic", "worker-0"), ("optuna", "worker-1"), ("optuna", "")]
)
def test_a_limit_that_nothing_counts_against_is_refused(
    framework: str, worker: str, tmp_path: Path
) -> None:
    file = tmp_path / "exporter.yml"
    which = f", worker: {worker}" if worker else ""
    file.write_text(
        f"runs:\n  - name: search\n    framework: {framework}\n    path: {tmp_path}\n    workers:\n"
        "      - {name: worker-0, match: {command: x}, trials_limit: 3}\n"
        "      - {name: worker-1, match: {command: y}}\n"
        f"    logs:\n      - {{name: zero, files: [zero.txt]{which}}}\n"
    )
    with pytest.raises(ConfigError, match="no log with `worker: worker-0` has a pattern") as caught:
        load_config(file)
    assert ":6: runs[0].workers[0].trials_limit: " in str(caught.value)
