"""What is shown of the trees that frameworks leave."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from framework_trees import BUILDERS, NOW, State, Written, framework, write
from trainwarden_exporter.collectors.checkpoints import CheckpointsCollector
from trainwarden_exporter.collectors.rollouts import RolloutsCollector
from trainwarden_exporter.frameworks import get_framework
from trainwarden_exporter.frameworks.base import Phase
from trainwarden_exporter.run_config import RunConfig
from trainwarden_exporter.runtime.background_poller import BackgroundPoller


class NoProgress:
    def step(self, run: str) -> int | None:
        return None

    def phase(self, run: str) -> tuple[Phase, float] | None:
        return None


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first scrape waits for the first look, for however long that takes on this machine."""
    assert BackgroundPoller.result.__kwdefaults__ is not None
    monkeypatch.setitem(BackgroundPoller.result.__kwdefaults__, "timeout", 60.0)


Collector = CheckpointsCollector | RolloutsCollector


@contextmanager
def looking(collector: Collector) -> Iterator[dict[tuple[str, str], float]]:
    """By kind and short name."""
    found = {}
    for family in collector.collect():
        for sample in family.samples:
            kind = sample.labels.get("checkpoint") or sample.labels["rollout"]
            name = sample.name.removeprefix("trainwarden_checkpoint_")
            found[kind, name.removeprefix("trainwarden_rollout_")] = sample.value
    yield found
    collector._pollers.close()


def run(name: str, written: Written) -> RunConfig:
    return RunConfig(name="r", framework=framework(name), path=written.path)


@pytest.mark.parametrize("state", State, ids=lambda state: state.name)
@pytest.mark.parametrize(
    "name", [name for name in BUILDERS if get_framework(framework(name)).checkpoints]
)
def test_the_newest_checkpoint_is_the_newest_complete_one(
    tmp_path: Path, name: str, state: State
) -> None:
    written = write(tmp_path, name, state)
    with looking(CheckpointsCollector([run(name, written)], now=lambda: NOW)) as found:
        for place in get_framework(framework(name)).checkpoints:
            complete = written.complete.get(place.name, ())
            incomplete = written.incomplete.get(place.name, ())
            if not (complete or incomplete):
                assert found[place.name, "folders"] == 0
                continue
            assert found[place.name, "complete"] == len(complete)
            assert found[place.name, "incomplete"] == len(incomplete)
            if place is get_framework(framework(name)).checkpoints[0]:
                under_way = bool(incomplete) and state in (State.HALF_WRITTEN, State.REWRITTEN)
                assert found[place.name, "saving"] == under_way
                assert found.get((place.name, "step")) == written.step
            if place.recovery is not None and written.recovery is not None:
                assert found[place.name, "recovery_step"] == written.recovery
                assert found[place.name, "recovery_matches"] == 1


@pytest.mark.parametrize(
    "name", [name for name in BUILDERS if get_framework(framework(name)).rollouts]
)
def test_batches_and_weights_are_complete_with_all_their_parts(tmp_path: Path, name: str) -> None:
    written = write(tmp_path, name, State.COMPLETE)
    collector = RolloutsCollector([run(name, written)], NoProgress(), now=lambda: NOW)
    with looking(collector) as found:
        for place in get_framework(framework(name)).rollouts:
            complete = written.rollouts.get(place.name, ())
            incomplete = written.incomplete_rollouts.get(place.name, ())
            if not (complete or incomplete):
                assert found[place.name, "folders"] == 0
                continue
            newest = max(int(name.rpartition("_")[2]) for name in complete)
            assert found[place.name, "step"] == newest + place.step_offset
            assert found[place.name, "folder_writable"] == 1
