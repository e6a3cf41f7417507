from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from trainwarden_exporter.collectors.rollouts import RolloutsCollector
from trainwarden_exporter.exceptions import NoData
from trainwarden_exporter.frameworks.base import Phase
from trainwarden_exporter.logs.events import LineEvent
from trainwarden_exporter.run_config import RunConfig
from trainwarden_exporter.scrape.validation import validated
from trainwarden_exporter.step_dirs.filesystem import FileSystem

if TYPE_CHECKING:
    from tests.exporter.conftest import FakeProc

NOW = 1_000_000.0
BATCHES = {
    "name": "batches",
    "folder": "rollouts",
    "entry": r"step_(?P<step>\d+)",
    "complete": {"renamed": True},
    "rank": r"rank_(?P<rank>\d+)\.pt",
    "ranks": 2,
}
WEIGHTS = {
    "name": "broadcasts",
    "folder": "broadcasts",
    "entry": r"step_(?P<step>\d+)",
    "complete": {"marker": ["STABLE"]},
    "carries": "weights",
}


class FakeProgress:
    def __init__(self) -> None:
        self.done: int | None = None
        self.doing: tuple[Phase, float] | None = None

    def step(self, run: str) -> int | None:
        return self.done if run == "demo" else None

    def phase(self, run: str) -> tuple[Phase, float] | None:
        return self.doing if run == "demo" else None


class Clock:
    now = NOW

    def __call__(self) -> float:
        return self.now


class Box:
    """A run, its folders, and a collector that looks at them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.progress = FakeProgress()
        self.clock = Clock()
        self.opened: list[RolloutsCollector] = []

    def run(self, *rollouts: dict[str, Any], name: str = "demo", **more: Any) -> RunConfig:
        given = {"name": name, "path": str(self.path), "rollouts": rollouts, **more}
        return RunConfig.model_validate(given)

    def collector(self, *runs: RunConfig, **more: Any) -> RolloutsCollector:
        collector = RolloutsCollector(runs, self.progress, now=self.clock, **more)
        self.opened.append(collector)
        return collector

    def look(self, *rollouts: dict[str, Any], **more: Any) -> dict[str, float]:
        """What a collector that has just begun shows of one run."""
        return values(self.collector(self.run(*rollouts), **more))

    def write(self, step: int, *ranks: int, moment: float = NOW - 100) -> None:
        for rank in ranks:
            self.put(f"rollouts/step_{step}/rank_{rank}.pt", moment)

    def put(self, name: str, moment: float = NOW - 100) -> None:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
        os.utime(path, (moment, moment))


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    box = Box(tmp_path)
    yield box
    for collector in box.opened:
        collector._pollers.close()


def values(collector: RolloutsCollector, run: str = "demo") -> dict[str, float]:
    """Every sample of `run` by short name; with the labels that not all have, and no limits."""
    found = {}
    for family in validated(collector.collect(), collector.metrics):
        for sample in family.samples:
            name = sample.name.removeprefix("trainwarden_rollout_")
            more = sample.labels.get("side", "")
            if sample.labels["run"] == run:
                key = f"{sample.labels['rollout']} {name} {more}".strip()
                found[key.removeprefix("batches ")] = sample.value
    return found


def line(run: str = "demo", timestamp: float = NOW, **groups: str) -> LineEvent:
    return LineEvent(run, "orchestrator", "orchestrator", "versions", groups, timestamp)


def test_nothing_configured_and_nothing_observed_is_no_fault(box: Box) -> None:
    with pytest.raises(NoData):
        box.collector(RunConfig(name="demo")).collect()


def test_every_metric_is_shown_for_batches_by_files(box: Box) -> None:
    for step in (1, 2, 3):
        box.write(step, 0, 1, moment=NOW - 400 + 60 * step)
    box.write(4, 0, moment=NOW - 10)
    box.progress.done = 3
    assert box.look(BATCHES) == {
        "seen_timestamp_seconds": NOW,
        "folders": 1,
        "step": 3,
        "timestamp_seconds": NOW - 220,
        "ranks": 1,
        "expected_ranks": 2,
        "lag_steps": 1,
        "lag_limit_steps": 1,
        "behind_since_timestamp_seconds": NOW,
        "folder_writable": 1,
    }


@pytest.mark.parametrize(("done", "lag"), [(2, 0), (3, 0), (4, 1), (9, 6), (0, 0)])
def test_batches_lag_behind_the_step_that_comes_next(box: Box, done: int, lag: int) -> None:
    box.write(4, 0, 1)
    box.progress.done = done
    found = box.look(BATCHES)
    assert found["lag_steps"] == lag
    assert ("behind_since_timestamp_seconds" in found) is (lag > 0)


@pytest.mark.parametrize(("done", "lag"), [(3, 0), (4, 0), (5, 1), (9, 5)])
def test_weights_lag_behind_the_step_that_made_them(box: Box, done: int, lag: int) -> None:
    box.put("broadcasts/step_4/STABLE")
    box.progress.done = done
    found = box.look({**WEIGHTS, "lag_limit": 2})
    assert (found["broadcasts step"], found["broadcasts lag_steps"]) == (4, lag)
    assert found["broadcasts lag_limit_steps"] == 2
    assert "broadcasts behind_since_timestamp_seconds" not in found


def test_steps_are_the_trainer_s_and_not_those_of_the_names(box: Box) -> None:
    box.write(4, 0, 1)
    box.progress.done = 6
    found = box.look({**BATCHES, "step_offset": 1})
    assert (found["step"], found["lag_steps"]) == (5, 2)


def test_without_a_step_of_the_trainer_no_lag_is_claimed(box: Box) -> None:
    box.write(4, 0, 1)
    found = box.look(BATCHES)
    assert found["step"] == 4
    assert not {"lag_steps", "behind_since_timestamp_seconds"} & set(found)


def test_what_is_needed_is_missing_since_the_trainer_came_to_need_it(box: Box) -> None:
    box.write(4, 0, 1)
    collector = box.collector(box.run(BATCHES))

    def missing(done: int, doing: Phase = Phase.TRAINING) -> float | None:
        box.clock.now += 10
        box.progress.done, box.progress.doing = done, (doing, NOW)
        found = values(collector).get("behind_since_timestamp_seconds")
        return None if found is None else found - NOW

    assert missing(3) is None
    assert missing(4) == 20
    assert missing(4) == 20
    assert missing(4, Phase.SAVING) == 40
    assert missing(4) == 40
    assert missing(5) == 60


def test_waiting_is_what_the_trainer_says_itself(box: Box) -> None:
    box.write(4, 0, 1)
    collector = box.collector(box.run(BATCHES, WEIGHTS))
    box.progress.doing = (Phase.WAITING_FOR_ROLLOUTS, NOW - 70)
    assert values(collector)["waiting_since_timestamp_seconds"] == NOW - 70
    box.progress.doing = (Phase.TRAINING, NOW)
    assert "waiting_since_timestamp_seconds" not in values(collector)


def test_a_run_without_files_may_wait_too(box: Box) -> None:
    collector = box.collector(RunConfig(name="demo"))
    box.progress.doing = (Phase.WAITING_FOR_ROLLOUTS, NOW - 70)
    assert values(collector) == {"waiting_since_timestamp_seconds": NOW - 70}


def test_versions_come_from_the_log_and_are_held_to_the_limit(box: Box) -> None:
    memory = {"name": "memory", "staleness_limit": 2}
    collector = box.collector(box.run(memory))
    with pytest.raises(NoData):
        collector.collect()
    collector.record_line(line(trainer_version="9", timestamp=NOW - 5))
    collector.record_line(line(rollout_version="4", timestamp=NOW - 3))
    assert values(collector) == {
        "memory policy_version trainer": 9,
        "memory policy_version rollout": 4,
        "memory staleness_steps": 5,
        "memory staleness_limit_steps": 2,
    }
    box.progress.doing = (Phase.FINISHED, NOW)
    assert "memory staleness_steps" not in values(collector)


def test_the_log_and_the_files_are_of_the_same_kind(box: Box) -> None:
    box.put("traces/step_1/rank_0.pt")
    traces = {**BATCHES, "name": "traces", "folder": "traces"}
    collector = box.collector(box.run(WEIGHTS, BATCHES, traces))
    collector.record_line(line(staleness="3"))
    assert values(collector)["traces staleness_steps"] == 3


def test_a_batch_that_was_consumed_is_not_missed(
    box: Box,
    monkeypatch: pytest.MonkeyPatch,
    wait_until: Callable[[Callable[[], bool]], None],
) -> None:
    monkeypatch.setattr("trainwarden_exporter.collectors.rollouts.INTERVAL", 0.01)
    box.write(4, 0, 1)
    box.write(5, 0, 1, moment=NOW - 40)
    collector = box.collector(box.run(BATCHES))
    box.progress.done = 4
    assert values(collector)["step"] == 5
    shutil.rmtree(box.path / "rollouts/step_5")
    ((_, poller),) = collector._pollers
    wait_until(lambda: (seen := poller.result()) is not None and seen.value.consumed is not None)
    found = values(collector)
    assert (found["step"], found["lag_steps"]) == (5, 0)


class TestWhoMayWrite:
    @staticmethod
    def status(user: int) -> dict[str, str]:
        ids = f"{user}\t{user}\t{user}\t{user}"
        return {"status": f"Uid:\t{ids}\nGid:\t{ids}\nGroups:\t\nCapEff:\t0000000000000000\n"}

    def test_is_asked_of_the_account_of_the_worker(self, box: Box, proc: FakeProc) -> None:
        box.write(1, 0, 1)
        for folder in (box.path, *list(box.path.parents)[:2]):
            folder.chmod(0o755)
        (box.path / "rollouts").chmod(0o755)
        workers = [{"name": "o", "role": "orchestrator", "match": {"command": "orchestrate"}}]
        collector = box.collector(box.run(BATCHES, workers=workers), root=proc.root)
        assert values(collector)["folder_writable"] == 1  # by its owner

        proc.add(10, ["python", "orchestrate"], files=self.status(os.getuid() + 4242))
        again = box.collector(box.run(BATCHES, workers=workers), root=proc.root)
        assert values(again)["folder_writable"] == 0
        (box.path / "rollouts").chmod(0o777)
        third = box.collector(box.run(BATCHES, workers=workers), root=proc.root)
        assert values(third)["folder_writable"] == 1

    def test_is_nobody_where_something_else_is_in_its_place(self, box: Box) -> None:
        box.put("rollouts")
        found = box.look(BATCHES)
        assert (found["folders"], found["folder_writable"]) == (0, 0)


class Hanging(FileSystem):
    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.waited_out = False

    def iter_names(self, folder: str) -> Iterator[str]:
        self.waited_out = not self.go_on.wait(60)
        return super().iter_names(folder)


def test_a_dead_mount_delays_nobody_and_does_not_hide_that_the_trainer_waits(
    box: Box, wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    box.write(4, 0, 1)
    filesystem = Hanging()
    collector = box.collector(box.run(BATCHES), filesystem=filesystem)
    box.progress.doing = (Phase.WAITING_FOR_ROLLOUTS, NOW - 70)
    values(collector)  # the first one waits for a first look
    for _ in range(20):
        assert values(collector) == {
            "waiting_since_timestamp_seconds": NOW - 70,
            "seen_timestamp_seconds": NOW,
        }
    assert not filesystem.waited_out
    filesystem.go_on.set()
    wait_until(lambda: values(collector).get("step") == 4)


def test_a_reload_goes_on_with_what_is_known(box: Box) -> None:
    box.write(4, 0, 1)
    box.progress.done = 4
    old = box.collector(box.run(BATCHES))
    old.record_line(line(trainer_version="4"))
    before = values(old)
    box.clock.now += 50
    new = box.collector(box.run(BATCHES), filesystem=Hanging())
    new.record_line(line(rollout_version="3"))
    new.take_over_from(old)
    old.record_line(
        line(trainer_version="5", timestamp=NOW + 1)
    )  # from a log still followed for it
    found = values(new)
    assert found["seen_timestamp_seconds"] == NOW
    assert (
        found["behind_since_timestamp_seconds"] == before["behind_since_timestamp_seconds"] == NOW
    )
    assert found["staleness_steps"] == 2
