"""Half of the workers dead at once: one after the other, and not before it was looked twice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.remediator.conftest import (
    FINGERPRINT,
    GIB,
    NOW,
    OTHER,
    ROLLOUT,
    TRAINER,
    WORKERS,
    FakeEyes,
    Scene,
    make_config,
    make_watched,
    make_worker,
)

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_remediator.alertmanager import AlertState
from trainwarden_remediator.config import Setup
from trainwarden_remediator.decision import Decision, Incident, PastAction, State
from trainwarden_remediator.policy import decide
from trainwarden_remediator.seeing import parse_sight
from trainwarden_remediator.sight import Sight
from trainwarden_remediator.world import Alerts, World

GONE = make_worker(processes=0, started_at=None, resident_bytes=0)
WELL = make_worker(resident_bytes=GIB)
MISSING = Incident(
    id=1,
    fingerprint=FINGERPRINT,
    starts_at=NOW - 30,
    alert="TrainingWorkerGone",
    run="demo",
    worker="rollout-0",
    remediation="start_missing_worker",
    last_heard=NOW,
    resolved=False,
)
HELD = replace(MISSING, said="wait widespread", said_at=NOW - 61)


def judged(
    folder: Path, gone: int, about: Incident = MISSING, *, done: Any = (), **seen: Any
) -> Decision:
    """What is decided when so many of three workers are gone."""
    keys = (ROLLOUT, TRAINER, OTHER)
    workers = {key: GONE if index < gone else WELL for index, key in enumerate(keys)}
    sight = Sight(workers, 20 * GIB, 2 * GIB, **seen)
    world = World(Alerts({FINGERPRINT: AlertState.ACTIVE}), sight)
    setup = Setup(make_config(folder, *WORKERS, cooldown=0), make_watched(*WORKERS))
    state = State(setup, holds=(), incidents=(about,), actions=done, world=world)
    return decide(about, state, NOW)


@pytest.mark.parametrize(("gone", "reason"), [(1, "restart"), (2, "widespread"), (3, "widespread")])
def test_it_begins_with_half_of_the_workers_and_with_two(
    tmp_path: Path, gone: int, reason: str
) -> None:
    assert judged(tmp_path, gone).reason == reason


def test_after_a_restart_of_the_box_it_is_no_wonder(tmp_path: Path) -> None:
    assert judged(tmp_path, 3, booted_at=NOW - 899).reason == "restart"
    assert judged(tmp_path, 3, booted_at=NOW - 901).reason == "widespread"


def test_it_is_looked_twice_and_then_one_is_brought_back(tmp_path: Path) -> None:
    assert judged(tmp_path, 3, replace(HELD, said_at=NOW - 59)).reason == "widespread"
    assert judged(tmp_path, 3, HELD).reason == "restart"


def ended(key: WorkerKey, ago: float, *, healed: bool) -> PastAction:
    return PastAction(9, key, NOW - ago - 5, NOW - ago, healed=healed)


def test_the_next_is_brought_back_when_the_first_is_well(tmp_path: Path) -> None:
    first = (ended(TRAINER, 10, healed=True),)
    assert judged(tmp_path, 3, done=first).reason == "restart"
    ill = (ended(TRAINER, 10, healed=False),)
    decision = judged(tmp_path, 3, HELD, done=ill)
    assert decision.reason == "widespread"
    assert decision.detail.endswith("trainer was brought back first, and is not well")


def test_one_that_does_not_come_back_does_not_hold_the_others_for_ever(tmp_path: Path) -> None:
    long_ago = replace(HELD, starts_at=NOW - 900)
    for ago, reason in ((599, "widespread"), (601, "restart")):
        ill = (ended(TRAINER, ago, healed=False),)
        assert judged(tmp_path, 3, long_ago, done=ill).reason == reason


def test_an_exporter_that_is_half_blind_shows_nothing_to_rely_on(tmp_path: Path) -> None:
    assert judged(tmp_path, 1, collectors_failing=0.49).reason == "restart"
    assert judged(tmp_path, 1, collectors_failing=0.5).reason == "widespread"


def test_a_worker_that_lives_and_leaks_is_evidence_of_its_own(tmp_path: Path) -> None:
    leak = replace(MISSING, run="second", worker="trainer", remediation="restart_leaking_worker")
    keys = {ROLLOUT: GONE, TRAINER: GONE, OTHER: make_worker()}
    sight = Sight(keys, 20 * GIB, 2 * GIB)
    world = World(Alerts({FINGERPRINT: AlertState.ACTIVE}), sight)
    setup = Setup(make_config(tmp_path, *WORKERS), make_watched(*WORKERS))
    assert decide(leak, State(setup, holds=(), incidents=(leak,), world=world), NOW).target


def test_the_page_says_when_the_box_was_booted_and_what_fails() -> None:
    page = (
        'trainwarden_collector_success{collector="host"} 1\n'
        'trainwarden_collector_success{collector="workers"} 1\n'
        'trainwarden_collector_success{collector="gpu"} 0\n'
        'trainwarden_collector_success{collector="disk"} 0\n'
        "trainwarden_memory_effective_available_bytes 2e10\n"
        "trainwarden_memory_available_floor_bytes 2e9\n"
        "trainwarden_host_boot_timestamp_seconds 1.7e9\n"
    )
    sight = parse_sight(page.encode())
    assert (sight.booted_at, sight.collectors_failing) == (1.7e9, 0.5)


def hear_of_all(scene: Scene) -> None:
    for number, key in enumerate((ROLLOUT, TRAINER, OTHER)):
        fingerprint = f"{number:016x}"
        scene.eyes.known[fingerprint] = AlertState.ACTIVE
        scene.hear(
            fingerprint=fingerprint,
            run=key.run,
            worker=key.worker,
            remediation="start_missing_worker",
            starts_at=NOW - 20,
        )


class Booted(FakeEyes):
    """A box that was booted a minute ago."""

    async def look(self) -> Sight:
        return replace(await super().look(), booted_at=NOW - 60)


async def test_after_a_restart_of_the_box_the_workers_come_back_one_at_a_time(
    stage: Any,
) -> None:
    def boot(scene: Scene) -> None:
        scene.eyes.__class__ = Booted
        scene.eyes.workers = dict.fromkeys((ROLLOUT, TRAINER, OTHER), GONE)

    async with stage(before=boot) as scene:
        hear_of_all(scene)
        under_way = 0
        for _ in range(120):
            await scene.clock.advance(1)
            under_way = max(under_way, len(scene.journal.unfinished()))
        assert under_way == 1
        assert [len(action.restarts) for action in scene.actions.values()] == [1, 1, 1]
        assert "widespread" not in scene.told()


async def test_where_the_look_was_wrong_nothing_is_done(stage: Any) -> None:
    async with stage() as scene:
        seen = dict(scene.eyes.workers)
        scene.eyes.workers = dict.fromkeys((ROLLOUT, TRAINER, OTHER), GONE)
        hear_of_all(scene)
        await scene.clock.advance(40)
        assert scene.told().count("widespread") == 3
        scene.eyes.workers = seen
        await scene.clock.advance(120)
        assert all(action.restarts == [] for action in scene.actions.values())
