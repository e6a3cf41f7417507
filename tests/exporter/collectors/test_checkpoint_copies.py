"""The copies of checkpoints in a second place, as they are scraped."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.exporter.preflight.test_checkpoints import save as write

from trainwarden_exporter.checkpoints.copies import MAX_REMEMBERED, Uncopied
from trainwarden_exporter.collectors.checkpoint_copies import CheckpointCopiesCollector
from trainwarden_exporter.collectors.checkpoints import CheckpointsCollector
from trainwarden_exporter.exceptions import NoData
from trainwarden_exporter.run_config import RunConfig
from trainwarden_exporter.scrape.validation import validated

NOW = 1_000_000.0
WaitUntil = Callable[[Callable[[], bool]], None]


def save(path: Path, step: int, moment: float, *, cut: int = 0) -> None:
    write(path, step, cut=cut)
    for file in (path / f"checkpoint-{step}").iterdir():
        os.utime(file, (moment, moment))


class Copies:
    """A run with a second place, and the collectors of both."""

    def __init__(self, path: Path) -> None:
        self.out, self.there = path / "out", path / "there"
        given = {"name": "demo", "framework": "trl", "path": str(self.out)}
        run = RunConfig.model_validate({**given, "copies": str(self.there)})
        self.checkpoints = CheckpointsCollector([run], state_folder=path, now=lambda: NOW)
        self.collector = CheckpointCopiesCollector(
            [run], originals=self.checkpoints.proofs, state_folder=path, now=lambda: NOW
        )

    def samples(self) -> dict[str, float]:
        list(self.checkpoints.collect())
        return {
            sample.name.removeprefix("trainwarden_checkpoint_"): sample.value
            for family in validated(self.collector.collect(), self.collector.metrics)
            for sample in family.samples
        }

    def close(self) -> None:
        for one in (self.checkpoints, self.collector):
            one._pollers.close()
            one._provers.close()


@pytest.fixture
def copies(tmp_path: Path) -> Iterator[Copies]:
    made = Copies(tmp_path)
    yield made
    made.close()


def test_without_a_second_place_there_is_no_data() -> None:
    with pytest.raises(NoData):
        CheckpointCopiesCollector([RunConfig(name="demo")], originals=tuple).collect()


def test_the_newest_proved_copy_is_shown_and_what_has_none(
    tmp_path: Path, copies: Copies, wait_until: WaitUntil
) -> None:
    for step, moment in ((10, 900.0), (20, 600.0), (30, 300.0)):
        save(copies.out, step, NOW - moment)
    save(copies.there, 10, NOW - 800)
    save(copies.there, 20, NOW - 500, cut=3)
    wait_until(
        lambda: (
            copies.samples().get("copies_damaged") == 1
            and "copy_proved_step" in copies.samples()
            and "uncopied_timestamp_seconds" in copies.samples()
        )
    )
    assert copies.samples() == {
        "copies_seen_timestamp_seconds": NOW,
        "copies": 2,
        "copies_damaged": 1,
        "copy_proved_step": 10,
        "uncopied_timestamp_seconds": NOW - 600,
    }
    names = {file.name for file in tmp_path.glob("*.json")}
    assert names == {"proofs-demo-default.json", "copies-demo-default.json"}
    assert list(copies.checkpoints.resume_points()) == [
        ("demo", [(30, NOW - 300), (20, NOW - 600), (10, NOW - 900)])
    ]


def test_a_second_place_that_is_not_there_has_no_copies(
    copies: Copies, wait_until: WaitUntil
) -> None:
    save(copies.out, 10, NOW - 900)
    wait_until(lambda: "uncopied_timestamp_seconds" in copies.samples())
    assert copies.samples()["uncopied_timestamp_seconds"] == NOW - 900
    assert copies.samples()["copies"] == 0


def test_what_the_run_has_deleted_without_a_copy_counts() -> None:
    uncopied = Uncopied()
    assert uncopied.update([(10, 1.0), (20, 2.0)], None) == 1.0
    assert uncopied.update([(20, 2.0), (30, 3.0)], None) == 1.0
    assert uncopied.update([(30, 3.0)], 10) == 2.0
    assert uncopied.update([(30, 3.0), (40, 4.0)], 30) == 4.0
    assert uncopied.update([(40, 4.0)], 40) is None
    many = [(step, float(step)) for step in range(1, 2 * MAX_REMEMBERED)]
    assert uncopied.update(many, None) == 1.0
    assert uncopied.update((), MAX_REMEMBERED) is None
