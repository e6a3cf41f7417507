"""The starts of workers, remembered over restarts of the exporter."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainwarden_exporter.processes import restart_loop, start_times
from trainwarden_exporter.processes.matching import ProcessTree, WorkerKey
from trainwarden_exporter.processes.procfs import Identity, Process
from trainwarden_exporter.processes.start_history import StartLog
from trainwarden_exporter.processes.start_times import start_timestamp

TRAINER, ROLLOUT = WorkerKey("grpo", "trainer"), WorkerKey("grpo", "rollout")


def process(pid: int, start: int, *, state: str = "S", parent: int = 1) -> Process:
    return Process(Identity(pid, start * 100), parent, "python", state, 1, 0.0, 0, ("python", 1))


def tree(*roots: Process, below: tuple[Process, ...] = ()) -> ProcessTree:
    return ProcessTree(roots, (*roots, *below))


def at(seconds: int) -> float:
    """So many seconds after the boot, in unix seconds."""
    return start_timestamp(Identity(0, seconds * 100))


def test_each_process_counts_once() -> None:
    log = StartLog(None)
    for _ in range(3):
        log.record({TRAINER: tree(process(10, 100))}, at(120))
    log.record({TRAINER: tree(process(11, 117))}, at(120))
    assert log.recent(TRAINER) == (at(100), at(117))
    assert log.recent(ROLLOUT) == ()


def test_a_loop_is_remembered_by_the_next_exporter(tmp_path: Path) -> None:
    for life, start in enumerate((100, 117, 134, 151)):
        log = StartLog(tmp_path / "starts.json")
        log.record({TRAINER: tree(process(10 + life, start))}, at(start + 5))
    assert log.recent(TRAINER) == tuple(map(at, (100, 117, 134, 151)))
    assert restart_loop.median_interval(log.recent(TRAINER)) == pytest.approx(17)


def test_what_is_old_is_forgotten() -> None:
    log = StartLog(None)
    log.record({TRAINER: tree(process(10, 100))}, at(120))
    log.record({TRAINER: tree(process(11, 690))}, at(701))
    assert log.recent(TRAINER) == (at(690),)


def test_a_child_that_its_root_leaves_behind_has_not_started() -> None:
    log = StartLog(None)
    root, child = process(10, 100), process(11, 110, parent=10)
    log.record({TRAINER: tree(root, below=(child,))}, at(120))
    log.record({TRAINER: tree(child)}, at(125))
    assert log.recent(TRAINER) == (at(100),)


def test_the_dead_have_not_started() -> None:
    log = StartLog(None)
    log.record({TRAINER: tree(process(10, 100, state="Z"))}, at(120))
    assert log.recent(TRAINER) == ()


def test_a_clock_that_is_set_makes_no_start(monkeypatch: pytest.MonkeyPatch) -> None:
    log, trees = StartLog(None), {TRAINER: tree(process(10, 100))}
    log.record(trees, at(120))
    boot = start_times._boot_time()
    monkeypatch.setattr(start_times, "_boot_time", lambda: boot + 30)
    log.record(trees, at(120))
    assert len(log.recent(TRAINER)) == 1


def test_only_workers_that_are_configured_are_kept(tmp_path: Path) -> None:
    log = StartLog(tmp_path / "starts.json")
    log.record({TRAINER: tree(process(10, 100)), ROLLOUT: tree(process(11, 100))}, at(120))
    log.record({ROLLOUT: tree(process(11, 100))}, at(121))
    assert StartLog(tmp_path / "starts.json").recent(TRAINER) == ()
    assert StartLog(tmp_path / "starts.json").recent(ROLLOUT) == (at(100),)
    assert log._members.keys() == {ROLLOUT}


def test_a_reload_forgets_nothing_though_there_is_no_file() -> None:
    before, after = StartLog(None), StartLog(None)
    before.record({TRAINER: tree(process(10, 100))}, at(120))
    after.take_over_from(before)
    after.record({TRAINER: tree(process(11, 117))}, at(120))
    assert after.recent(TRAINER) == (at(100), at(117))
