"""Beats are taken, counted and remembered."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainwarden_exporter.progress.heartbeats import (
    FORGOTTEN_AFTER,
    MOST_STRANGERS,
    AmbiguousHeartbeatError,
    Beats,
    HeartbeatConfig,
    HeartbeatKey,
    Heartbeats,
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
    heartbeats = Heartbeats([BACKUP, TRAINER], now=clock)
    assert heartbeats.beat("trainer", step=5, interval=30) == KEY
    clock.now = 1010
    heartbeats.beat("trainer", "grpo")
    assert heartbeats.all() == {
        HeartbeatKey("", "backup"): Beats(),
        KEY: Beats(count=2, last=1010, step=5, interval=30),
    }


def test_a_step_is_handed_on_with_its_run(clock: Clock) -> None:
    steps: list[tuple[str, str, int, float]] = []
    heartbeats = Heartbeats([BACKUP, TRAINER], on_step=lambda *one: steps.append(one), now=clock)
    heartbeats.beat("trainer")
    heartbeats.beat("trainer", step=7)
    heartbeats.beat("backup", step=8)  # of no run
    assert steps == [("grpo", "trainer", 7, 1000)]


def test_only_what_is_configured_is_taken() -> None:
    heartbeats = Heartbeats([TRAINER])
    for name, run in (("other", None), ("trainer", "other"), ("", None)):
        with pytest.raises(UnknownHeartbeatError):
            heartbeats.beat(name, run)
    assert heartbeats.all() == {KEY: Beats()}


def test_of_two_with_one_name_it_must_be_said_which() -> None:
    heartbeats = Heartbeats([TRAINER, HeartbeatConfig(name="trainer", run="sft")])
    with pytest.raises(AmbiguousHeartbeatError, match="grpo, sft"):
        heartbeats.beat("trainer")
    assert heartbeats.beat("trainer", "sft") == HeartbeatKey("sft", "trainer")


def test_any_name_is_taken_where_that_is_wanted_but_not_any_number(clock: Clock) -> None:
    heartbeats = Heartbeats([TRAINER], accept_any=True, now=clock)
    for number in range(MOST_STRANGERS):
        heartbeats.beat(f"stranger-{number}")
        clock.now += 1
    with pytest.raises(TooManyHeartbeatsError):
        heartbeats.beat("one-more")
    heartbeats.beat("stranger-1")
    heartbeats.beat("trainer")
    clock.now += FORGOTTEN_AFTER - MOST_STRANGERS + 1
    heartbeats.beat("one-more")
    names = {key.name for key in heartbeats.all()}
    assert {"one-more", "trainer", "stranger-1"} <= names
    assert "stranger-0" not in names
    assert len(names) == MOST_STRANGERS + 1


def test_a_touched_file_is_a_beat_each_time_it_changes(clock: Clock) -> None:
    heartbeats = Heartbeats([TRAINER], now=clock)
    for moment in (900, 900, 990, 985):
        heartbeats.touched(KEY, moment)
    assert heartbeats.all()[KEY] == Beats(count=2, last=990, touched=990)
    heartbeats.touched(KEY, 5000)  # the clock of a file server is ahead
    assert heartbeats.all()[KEY].last == 1000


def test_beats_outlive_the_exporter(tmp_path: Path, clock: Clock) -> None:
    def start(*configured: HeartbeatConfig, accept_any: bool = True) -> Heartbeats:
        return Heartbeats(configured, accept_any=accept_any, state_folder=tmp_path, now=clock)

    first = start(TRAINER)
    first.beat("trainer", step=7)
    first.beat("stranger")
    first.touched(KEY, 500)
    first.save()
    clock.now = 2000
    again = start(TRAINER)
    assert again.all() == first.all()
    assert again.awaited == {KEY: 2000}
    again.touched(KEY, 500)
    assert again.all()[KEY].count == 2
    assert set(start(TRAINER, accept_any=False).all()) == {KEY}
    assert set(start(BACKUP, accept_any=False).all()) == {HeartbeatKey("", "backup")}


@pytest.mark.parametrize("kept", [False, True], ids=["in memory", "in a folder"])
def test_no_beat_is_lost_by_a_reload(tmp_path: Path, clock: Clock, *, kept: bool) -> None:
    def start(*configured: HeartbeatConfig) -> Heartbeats:
        return Heartbeats(configured, state_folder=tmp_path if kept else None, now=clock)

    before = start(TRAINER, BACKUP)
    before.beat("trainer", step=1)
    before.save()
    before.beat("trainer", step=2)
    clock.now = 1010
    after = start(TRAINER)
    after.beat("trainer", step=3)
    after.adopt(before)
    assert after.all() == {KEY: Beats(count=3, last=1010, step=3)}
    assert after.awaited == {KEY: 1000}
