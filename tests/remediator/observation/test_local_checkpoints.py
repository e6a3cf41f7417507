"""How checkpoints stand where the exporter cannot be asked, from real folders."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.remediator.harms.deadmount import dead_mount
from tests.remediator.samples import ROLLOUT, make_worker
from tests.waiting import until

from trainwarden_exporter.checkpoints.specs import SAVING_SECONDS
from trainwarden_exporter.collectors.checkpoints import CheckpointsCollector
from trainwarden_exporter.config import Config as ExporterConfig
from trainwarden_exporter.run_config import RunConfig
from trainwarden_exporter.runtime.blocking_thread import SerialThread
from trainwarden_exporter.scrape import exposition
from trainwarden_exporter.step_dirs.filesystem import FileSystem
from trainwarden_remediator.config.schema import Config, Setup
from trainwarden_remediator.observation import local_fallback
from trainwarden_remediator.observation.exporter_page import parse_exporter_page
from trainwarden_remediator.observation.local_checkpoints import local_checkpoint_observers
from trainwarden_remediator.observation.local_fallback import (
    CHECKPOINT_THREADS,
    CheckpointObserver,
    LocalFallback,
)
from trainwarden_remediator.observation.model import ExporterState, RunState

KIND = {
    "name": "default",
    "folder": "out",
    "entry": r"step_(?P<step>\d+)",
    "complete": {"marker": ["DONE"]},
}
BASE = """\
trainwarden_collector_success{collector="host"} 1
trainwarden_collector_success{collector="workers"} 1
trainwarden_memory_effective_available_bytes 1
trainwarden_memory_available_floor_bytes 1
"""
SILENT = "the disk of the checkpoints does not respond"
SIGHT = ExporterState({ROLLOUT: make_worker()}, 1, 1)


def a_run(folder: Path) -> RunConfig:
    return RunConfig.model_validate({"name": "demo", "path": folder, "checkpoints": [KIND]})


def looks(*runs: RunConfig) -> tuple[CheckpointObserver, ...]:
    return local_checkpoint_observers(Setup(Config(insecure=True), ExporterConfig(runs=runs)))


def saves_of(folder: Path) -> CheckpointObserver:
    (saves,) = looks(a_run(folder))
    return saves


def save(folder: Path, step: int, *, whole: bool, ago: float = 0.0) -> None:
    entry = folder / "out" / f"step_{step}"
    entry.mkdir(parents=True)
    written = [entry / "model.bin", *([entry / "DONE"] if whole else [])]
    at = time.time() - ago
    for file in written:
        file.write_text("x")
    for path in (*written, entry):
        os.utime(path, (at, at))


def test_a_save_in_progress_is_seen_and_how_far_the_run_has_come(tmp_path: Path) -> None:
    save(tmp_path, 10, whole=True, ago=600)
    saves = saves_of(tmp_path)
    seen = saves.observe()["demo"]
    assert (seen.checkpoint, seen.checkpoints, seen.saving) == (10, 1, False)
    assert seen.checkpoints_seen_at == pytest.approx(time.time(), abs=60)
    save(tmp_path, 11, whole=False)
    seen = saves.observe()["demo"]
    assert (seen.checkpoint, seen.checkpoints, seen.saving) == (10, 1, True)
    (tmp_path / "out" / "step_11" / "DONE").touch()
    seen = saves.observe()["demo"]
    assert (seen.checkpoint, seen.checkpoints, seen.saving) == (11, 2, False)


def test_a_checkpoint_without_recent_writes_is_not_being_saved(tmp_path: Path) -> None:
    save(tmp_path, 11, whole=False, ago=SAVING_SECONDS + 5)
    assert saves_of(tmp_path).observe()["demo"].saving is False


@pytest.mark.parametrize("ago", [0, SAVING_SECONDS + 5])
def test_it_sees_what_the_exporter_would_show(tmp_path: Path, ago: float) -> None:
    save(tmp_path, 10, whole=True, ago=600)
    save(tmp_path, 11, whole=False, ago=ago)
    collector = CheckpointsCollector([a_run(tmp_path)])

    def page() -> str:
        return exposition.render(collector.collect()).body.decode()

    until(lambda: "\ntrainwarden_checkpoint_step{" in page())
    reported = parse_exporter_page(f"{BASE}{page()}".encode()).runs["demo"]
    own = saves_of(tmp_path).observe()["demo"]
    for fact in ("checkpoint", "checkpoint_at", "checkpoints", "saving", "recovery_matches"):
        assert getattr(own, fact) == getattr(reported, fact), fact


def test_a_run_that_has_none_yet_saves_none(tmp_path: Path) -> None:
    assert saves_of(tmp_path).observe()["demo"].saving is False


def test_a_run_without_configured_checkpoints_is_not_reported() -> None:
    assert looks(RunConfig(name="demo")) == ()


@pytest.mark.parametrize(
    ("error", "why"), [(OSError(5, "Input/output error"), "Input/output error"),
                       (MemoryError(), "MemoryError")]
)  # fmt: skip
def test_what_cannot_be_read_is_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, why: str
) -> None:
    def fail(*_: Any) -> Any:
        raise error

    monkeypatch.setattr("trainwarden_exporter.step_dirs.filesystem.FileSystem.iter_names", fail)
    save(tmp_path, 10, whole=True)
    unknown = RunState(saves_unknown=f"checkpoints of demo: {why}")
    assert saves_of(tmp_path).observe() == {"demo": unknown}


def test_what_else_there_is_is_known_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = FileSystem.iter_names

    def spoilt(disk: FileSystem, folder: str, *others: Any, **more: Any) -> Any:
        if "/bad" in folder:
            raise OSError(5, "Input/output error")
        return names(disk, folder, *others, **more)

    monkeypatch.setattr(FileSystem, "iter_names", spoilt)
    bad = {**KIND, "name": "critic", "folder": "bad/out"}
    kinds = {"first": [KIND], "second": [bad], "third": [KIND, bad]}
    runs = []
    for name, checkpoints in kinds.items():
        save(tmp_path / name, 10, whole=True, ago=600)
        save(tmp_path / name / "bad", 9, whole=True, ago=600)
        content = {"name": name, "path": tmp_path / name, "checkpoints": checkpoints}
        runs.append(RunConfig.model_validate(content))
    save(tmp_path / "third", 11, whole=False)
    seen = {run: exporter for saves in looks(*runs) for run, exporter in saves.observe().items()}
    assert (seen["first"].checkpoint, seen["first"].saves_unknown) == (10, "")
    why = "checkpoints of {}: Input/output error"
    assert seen["second"] == RunState(saves_unknown=why.format("second"))
    assert seen["third"] == RunState(saving=True, saves_unknown=why.format("third"))
    exporter = replace(SIGHT, runs=seen)
    assert [bool(exporter.saves_unknown_of(run)) for run in kinds] == [False, True, True]


async def test_a_disk_that_never_answers_holds_up_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_fallback, "CHECKPOINT_TIMEOUT_SECONDS", 0.5)
    (tmp_path / "out").mkdir()
    own = LocalFallback(SerialThread)
    looked: list[int] = []
    saves = saves_of(tmp_path)

    def observe() -> dict[str, RunState]:
        looked.append(1)
        return dict(saves.observe())

    own.reconfigure(lambda: SIGHT, [CheckpointObserver(saves.runs, observe)])
    with dead_mount(tmp_path / "out"):
        for _ in range(2):
            async with asyncio.timeout(60):
                exporter = await own.observe_all()
            assert exporter.workers == SIGHT.workers
            assert exporter.saves_unknown_of("demo") == SILENT
            assert await own.observe_memory() == SIGHT
        assert looked == [1]  # the hanging scan is not followed by others
    late = own._threads[0]._asked
    assert late is not None
    async with asyncio.timeout(60):
        await asyncio.wait([late])
    demo = (await own.observe_all()).runs["demo"]
    assert (demo.saving, demo.saves_unknown) == (False, "")
    assert looked == [1, 1]


def many(folder: Path, count: int) -> list[RunConfig]:
    """Runs that each have saved as many steps as their number says."""
    runs = []
    for number in range(count):
        name = f"run-{number}"
        save(folder / name, number, whole=True, ago=600)
        content = {"name": name, "path": folder / name, "checkpoints": [KIND]}
        runs.append(RunConfig.model_validate(content))
    return runs


async def test_of_the_runs_on_other_disks_all_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_fallback, "CHECKPOINT_TIMEOUT_SECONDS", 3)
    runs = many(tmp_path, 4)
    own = LocalFallback(SerialThread)
    own.reconfigure(lambda: SIGHT, looks(*runs))
    with dead_mount(tmp_path / "run-1" / "out"):
        for _ in range(2):
            exporter = await own.observe_all()
            unknown = {run: one.saves_unknown for run, one in exporter.runs.items()}
            assert unknown == {one.name: SILENT if one.name == "run-1" else "" for one in runs}
            assert exporter.saves_unknown == ""
            assert exporter.runs["run-3"].checkpoint == 3


def test_of_very_many_runs_neighbours_share_a_look(tmp_path: Path) -> None:
    runs = many(tmp_path, 2 * CHECKPOINT_THREADS + 1)
    parts = [sorted(saves.runs) for saves in looks(*reversed(runs))]
    assert len(parts) == CHECKPOINT_THREADS
    assert [run for part in parts for run in part] == [run.name for run in runs]
    assert {run for saves in looks(*runs) for run in saves.observe()} == {run.name for run in runs}


async def test_what_was_asked_by_another_configuration_says_nothing_of_these_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(local_fallback, "CHECKPOINT_TIMEOUT_SECONDS", 0.1)
    go_on = threading.Event()
    old = RunState(checkpoint=1)

    def hang() -> dict[str, RunState]:
        go_on.wait(60)
        return {"old": old}

    own = LocalFallback(SerialThread)
    own.reconfigure(lambda: SIGHT, [CheckpointObserver(("old",), hang)])
    assert (await own.observe_all()).saves_unknown_of("old") == SILENT
    own.reconfigure(
        lambda: SIGHT, [CheckpointObserver(("new",), lambda: {"new": RunState(checkpoint=2)})]
    )
    monkeypatch.setattr(local_fallback, "CHECKPOINT_TIMEOUT_SECONDS", 60)
    asking = asyncio.create_task(own.observe_all())
    await asyncio.sleep(0.05)
    go_on.set()
    assert (await asking).runs == {"new": RunState(saves_unknown="not scanned yet")}
    assert (await own.observe_all()).runs == {"new": RunState(checkpoint=2)}
