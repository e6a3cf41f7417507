"""Beats are taken, counted and remembered."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainwarden_exporter.heartbeats.registry import (
    FORGET_AFTER_SECONDS,
    MAX_UNCONFIGURED,
    AmbiguousHeartbeatError,
    HeartbeatConfig,
    HeartbeatKey,
    HeartbeatRegistry,
    HeartbeatState,
    TooManyHeartbeatsError,
    UnknownHeartbeatError,
)

BACKUP = HeartbeatConfig(name="backup", interval=300)
TRAINER = HeartbeatConfig(name="trainer", run="grpo")
KEY = HeartbeatKey("grpo", "trainer")


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_beat_is_counted_with_all_that_it_carries(clock: Clock) -> None:
    heartbeats = HeartbeatRegistry([BACKUP, TRAINER], now=clock)
    assert heartbeats.record("trainer", step=5, interval=30) == KEY
    clock.now = 1010
    heartbeats.record("trainer", "grpo")
    assert heartbeats.all() == {
        HeartbeatKey("", "backup"): HeartbeatState(),
        KEY: HeartbeatState(count=2, last=1010, step=5, interval=30),
    }


def test_a_step_is_handed_on_with_its_run(clock: Clock) -> None:
    steps: list[tuple[str, str, int, float]] = []
    heartbeats = HeartbeatRegistry(
        [BACKUP, TRAINER], on_step=lambda *one: steps.append(one), now=clock
    )
    heartbeats.record("trainer")
    heartbeats.record("trainer", step=7)
    heartbeats.record("backup", step=8)  # of no run
    assert steps == [("grpo", "trainer", 7, 1000)]


def test_only_what_is_configured_is_taken() -> None:
    heartbeats = HeartbeatRegistry([TRAINER])
    for name, run in (("other", None), ("trainer", "other"), ("", None)):
        with pytest.raises(UnknownHeartbeatError):
            heartbeats.record(name, run)
    assert heartbeats.all() == {KEY: HeartbeatState()}


def test_a_name_in_two_runs_needs_the_run() -> None:
    heartbeats = HeartbeatRegistry([TRAINER, HeartbeatConfig(name="trainer", run="sft")])
    with pytest.raises(AmbiguousHeartbeatError, match="grpo, sft"):
        heartbeats.record("trainer")
    assert heartbeats.record("trainer", "sft") == HeartbeatKey("sft", "trainer")


def test_any_name_is_taken_where_that_is_wanted_but_not_any_number(clock: Clock) -> None:
    heartbeats = HeartbeatRegistry([TRAINER], accept_any=True, now=clock)
    for number in range(MAX_UNCONFIGURED):
        heartbeats.record(f"stranger-{number}")
        clock.now += 1
    with pytest.raises(TooManyHeartbeatsError):
        heartbeats.record("one-more")
    heartbeats.record("stranger-1")
    heartbeats.record("trainer")
    clock.now += FORGET_AFTER_SECONDS - MAX_UNCONFIGURED + 1
    heartbeats.record("one-more")
    names = {key.name for key in heartbeats.all()}
    assert {"one-more", "trainer", "stranger-1"} <= names
    assert "stranger-0" not in names
    assert len(names) == MAX_UNCONFIGURED + 1


def test_a_touched_file_is_a_beat_each_time_it_changes(clock: Clock) -> None:
    heartbeats = HeartbeatRegistry([TRAINER], now=clock)
    for moment in (900, 900, 990, 985):
        heartbeats.record_file_change(KEY, moment)
    assert heartbeats.all()[KEY] == HeartbeatState(count=2, last=990, touched=990)
    heartbeats.record_file_change(KEY, 5000)  # the clock of a file server is ahead
    assert heartbeats.all()[KEY].last == 1000
    clock.now = 1100
    heartbeats.record_file_change(KEY, 5000)
    assert heartbeats.all()[KEY].last == 1000  # it has not changed since


def test_a_silence_is_seen_although_the_clock_was_set_back(clock: Clock) -> None:
    heartbeats = HeartbeatRegistry([TRAINER, BACKUP], now=clock)
    clock.now = 90000.0
    heartbeats.record_file_change(KEY, 89990)
    heartbeats.record("backup")
    clock.now = 1000.0
    assert [beats.last for beats in heartbeats.all().values()] == [1000, 1000]
    clock.now = 1300.0
    assert [beats.last for beats in heartbeats.all().values()] == [1000, 1000]
    heartbeats.record_file_change(KEY, 1290)
    heartbeats.record("backup")
    assert {key.name: (beats.count, beats.last) for key, beats in heartbeats.all().items()} == {
        "trainer": (2, 1290),
        "backup": (2, 1300),
    }


def test_beats_outlive_the_exporter(tmp_path: Path, clock: Clock) -> None:
    def start(*configured: HeartbeatConfig, accept_any: bool = True) -> HeartbeatRegistry:
        return HeartbeatRegistry(
            configured, accept_any=accept_any, state_folder=tmp_path, now=clock
        )

    first = start(TRAINER)
    first.record("trainer", step=7)
    first.record("stranger")
    first.record_file_change(KEY, 500)
    first.save()
    clock.now = 2000
    again = start(TRAINER)
    assert again.all() == first.all()
    assert again.awaited_since == {KEY: 2000}
    again.record_file_change(KEY, 500)
    assert again.all()[KEY].count == 2
    assert set(start(TRAINER, accept_any=False).all()) == {KEY}
    assert set(start(BACKUP, accept_any=False).all()) == {HeartbeatKey("", "backup")}


@pytest.mark.parametrize("saved", [False, True], ids=["in memory", "in a folder"])
def test_no_beat_is_lost_by_a_reload(tmp_path: Path, clock: Clock, *, saved: bool) -> None:
    def start(*configured: HeartbeatConfig) -> HeartbeatRegistry:
        return HeartbeatRegistry(configured, state_folder=tmp_path if saved else None, now=clock)

    before = start(TRAINER, BACKUP)
    before.record("trainer", step=1)
    before.save()
    before.record("trainer", step=2)
    clock.now = 1010
    after = start(TRAINER)
    after.record("trainer", step=3)
    after.take_over_from(before)
    assert after.all() == {KEY: HeartbeatState(count=3, last=1010, step=3)}
    assert after.awaited_since == {KEY: 1000}
