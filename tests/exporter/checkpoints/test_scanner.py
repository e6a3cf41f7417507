from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from trainwarden_exporter.checkpoints.scanner import CheckpointScanner, CheckpointSnapshot
from trainwarden_exporter.disk.usage import DiskUsage
from trainwarden_exporter.run_config import RunConfig
from trainwarden_exporter.run_specs import checkpoint_specs
from trainwarden_exporter.step_dirs.locations import FOUND_SECONDS

SPACE = DiskUsage(size=100, free=50, inodes=None, free_inodes=None, read_only=False, mount=None)


class Trainer:
    """Saves as AReaL does, in place and without a mark; its clock is everybody's."""

    def __init__(self, path: Path, trial: str = "trial0") -> None:
        self.path = path
        self.trial = path / "checkpoints/root/gsm8k" / trial
        self.now = 1_000_000.0

    def write(self, path: Path, size: int = 10, text: str = "") -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text or "x" * size)
        for one in (path, path.parent, path.parent.parent):
            os.utime(one, (self.now, self.now))

    def entry(self, step: int) -> Path:
        """`step` is zero-based, as in its names."""
        return self.trial / "default" / f"epoch0epochstep{step}globalstep{step}"

    def begin(self, step: int) -> None:
        self.write(self.entry(step) / "model.safetensors", 90)

    def finish(self, step: int) -> None:
        self.write(self.entry(step) / "config.json")
        self.write(self.entry(step) / "tokenizer_config.json")

    def save(self, step: int, *, seconds: float = 20, pause: float = 600) -> None:
        self.begin(step)
        self.now += seconds
        self.finish(step)
        self.now += pause

    def record(self, step: int) -> None:
        self.write(self.trial / "default/recover_checkpoint/.metadata")
        self.write(self.trial / "recover_info/step_info.json", text=f'{{"global_step": {step}}}')
        self.write(self.trial / "recover_info/dataloader_info.pkl")


@pytest.fixture
def trainer(tmp_path: Path) -> Trainer:
    return Trainer(tmp_path)


def eye(trainer: Trainer, **more: Any) -> CheckpointScanner:
    given = {"name": "r", "framework": "areal", "path": str(trainer.path), **more}
    spec = checkpoint_specs(RunConfig.model_validate(given))[0]
    return CheckpointScanner(
        spec, measure=lambda _: SPACE, now=lambda: trainer.now, clock=lambda: trainer.now
    )


def newest(seen: CheckpointSnapshot) -> int | None:
    return None if seen.result.newest is None else seen.result.newest.name.number


def test_a_save_is_followed_from_its_first_write_to_its_last(trainer: Trainer) -> None:
    looks = eye(trainer)
    assert looks().folders == 0
    trainer.save(49)
    assert newest(looks()) == 49
    began_at = trainer.now
    trainer.begin(99)
    trainer.now += 25
    seen = looks()
    assert newest(seen) == 49
    assert seen.in_progress is not None
    assert (seen.in_progress[0].name.number, seen.in_progress[1]) == (99, began_at)
    trainer.finish(99)
    trainer.now += 10
    assert newest(looks()) == 49  # it may go on
    trainer.now += 20
    seen = looks()
    assert (newest(seen), seen.in_progress, seen.save_seconds) == (99, None, 25)
    assert seen.result.newest is not None
    assert seen.result.newest.size == 110
    assert seen.space == SPACE


def test_the_interval_is_learned_and_kept_though_old_ones_are_deleted(trainer: Trainer) -> None:
    looks = eye(trainer)
    for number in range(5):
        trainer.save(50 * number)
        seen = looks()
        for old in range(number):
            shutil.rmtree(trainer.entry(50 * old), ignore_errors=True)
    assert seen.interval == 620
    assert looks().result.complete_count == 1


def test_the_record_is_read_beside_them(trainer: Trainer) -> None:
    trainer.save(1869)
    trainer.record(1869)
    looks = eye(trainer)
    recovery = looks().recovery
    assert recovery is not None
    assert recovery.matches(1870)


def test_another_trial_begins_with_nothing(trainer: Trainer) -> None:
    looks = eye(trainer)
    for number in range(4):
        trainer.save(number)
    assert looks().interval is not None
    later = Trainer(trainer.path, "trial1")
    later.now = trainer.now
    later.begin(0)
    trainer.now += FOUND_SECONDS
    seen = looks()
    assert (newest(seen), seen.interval, seen.result.incomplete_count) == (None, None, 1)


def test_a_checkpoint_of_one_file_tells_no_duration(tmp_path: Path) -> None:
    trainer = Trainer(tmp_path)
    trainer.write(tmp_path / "own/s5.ckpt")
    looks = eye(
        trainer,
        framework="generic",
        checkpoints=[
            {
                "name": "own",
                "folder": "own",
                "entry": r"s(?P<step>\d+)\.ckpt",
                "complete": {"renamed": True},
            }
        ],
    )
    seen = looks()
    assert (newest(seen), seen.save_seconds) == (5, None)


def test_a_disk_that_cannot_be_measured_hides_nothing_else(trainer: Trainer) -> None:
    trainer.save(1)

    def measure(_: Path) -> DiskUsage:
        raise OSError(5, "input/output error")

    spec = checkpoint_specs(
        RunConfig.model_validate({"name": "r", "framework": "areal", "path": str(trainer.path)})
    )[0]
    seen = CheckpointScanner(spec, measure=measure, now=lambda: trainer.now)()
    assert (newest(seen), seen.space) == (1, None)


def test_before_there_is_a_folder_the_disk_is_known_where_the_place_is(tmp_path: Path) -> None:
    trainer = Trainer(tmp_path)
    asked: list[Path] = []

    def measure(path: Path) -> DiskUsage:
        asked.append(path)
        return SPACE

    given = {"name": "r", "framework": "trl", "path": str(tmp_path / "out")}
    (spec,) = checkpoint_specs(RunConfig.model_validate(given))
    assert CheckpointScanner(spec, measure=measure, now=lambda: trainer.now)().space == SPACE
    assert asked == [tmp_path / "out"]
