"""The restarts of workers, remembered over restarts of the exporter."""

from __future__ import annotations

from pathlib import Path

from trainwarden_exporter.processes import restart_loop
from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.processes.start_history import RestartLog

TRAINER, ROLLOUT = WorkerKey("grpo", "trainer"), WorkerKey("grpo", "rollout")
NOW = 1e9


def test_what_a_count_grows_by_is_remembered_for_ten_minutes() -> None:
    log, seen = RestartLog(None), list[int]()
    for moment, count in ((0, 0), (60, 2), (70, 2), (300, 3), (659, 3), (661, 3), (901, 3)):
        log.record({TRAINER: count}, NOW + moment)
        seen.append(log.recent(TRAINER))
    assert restart_loop.WINDOW_SECONDS == 600
    assert seen == [0, 2, 2, 3, 3, 1, 0]
    assert log.recent(ROLLOUT) == 0


def test_the_next_exporter_counts_from_zero_and_forgets_nothing(tmp_path: Path) -> None:
    path = tmp_path / "restarts.json"
    RestartLog(path).record({TRAINER: 2}, NOW)
    log = RestartLog(path)
    log.record({TRAINER: 0}, NOW + 10)
    assert log.recent(TRAINER) == 2
    log.record({TRAINER: 1}, NOW + 20)
    assert log.recent(TRAINER) == 3


def test_only_workers_that_are_configured_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "restarts.json"
    log = RestartLog(path)
    log.record({TRAINER: 1, ROLLOUT: 1}, NOW)
    log.record({ROLLOUT: 1}, NOW + 5)
    assert (RestartLog(path).recent(TRAINER), RestartLog(path).recent(ROLLOUT)) == (0, 1)


def test_a_reload_counts_nothing_twice_though_there_is_no_file() -> None:
    before, after = RestartLog(None), RestartLog(None)
    before.record({TRAINER: 2}, NOW)
    after.take_over_from(before)
    after.record({TRAINER: 3}, NOW + 5)
    assert after.recent(TRAINER) == 3


def test_restarts_before_the_operator_started_it_again_do_not_count() -> None:
    log = RestartLog(None)
    log.record({TRAINER: 3, ROLLOUT: 1}, NOW)
    log.record({TRAINER: 3, ROLLOUT: 1}, NOW + 5, {TRAINER: NOW + 4})
    assert (log.recent(TRAINER), log.recent(ROLLOUT)) == (0, 1)
