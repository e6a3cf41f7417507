"""Half of the workers dead at once: one after the other, and not before it was looked twice."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.remediator.fakes import FakeObserver
from tests.remediator.samples import (
    FINGERPRINT,
    GIB,
    NOW,
    OTHER,
    ROLLOUT,
    TRAINER,
    WORKERS,
    make_config,
    make_watched,
    make_worker,
)
from tests.remediator.stage import Scene

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_remediator.alertmanager.api import AlertState
from trainwarden_remediator.config.restart_methods.run import RunTarget
from trainwarden_remediator.config.schema import Setup
from trainwarden_remediator.config.targets import AnnouncedTarget
from trainwarden_remediator.holds.hold_file import Hold
from trainwarden_remediator.model import Decision, Incident, PastAction, Verdict
from trainwarden_remediator.observation.exporter_page import parse_exporter_page
from trainwarden_remediator.observation.model import ExporterState
from trainwarden_remediator.observation.snapshot import AlertmanagerState, Snapshot
from trainwarden_remediator.policy.context import PolicyState
from trainwarden_remediator.policy.decide import decide

GONE = make_worker(processes=0, started_at=None, memory_bytes=0)
WELL = make_worker(memory_bytes=GIB)
MISSING = Incident(
    id=1,
    fingerprint=FINGERPRINT,
    starts_at=NOW - 30,
    alert="TrainingWorkerGone",
    run="demo",
    worker="rollout-0",
    remediation="start_missing_worker",
    last_received_at=NOW,
    resolved=False,
)
HELD = replace(MISSING, last_decision="wait mass_failure", last_decided_at=NOW - 61)


def announced_target(key: WorkerKey, **method_fields: Any) -> AnnouncedTarget:
    method_fields = {"owner": 0, **method_fields}
    method = RunTarget(run="/".join(key), socket=Path("/run.sock"), **method_fields)
    return AnnouncedTarget(run=key.run, worker=key.worker, announced=method)


def judged(
    folder: Path,
    gone: int,
    about: Incident = MISSING,
    *,
    done: Any = (),
    ended: Collection[WorkerKey] = (),
    holds: Sequence[Hold] = (),
    **seen: Any,
) -> Decision:
    """What is decided when so many of three workers are gone.

    The `trainwarden run` of the workers in `ended` has ended.
    """
    keys = (ROLLOUT, TRAINER, OTHER)
    workers = {key: GONE if index < gone else WELL for index, key in enumerate(keys)}
    exporter = ExporterState(workers, 20 * GIB, 2 * GIB, **seen)
    snapshot = Snapshot(AlertmanagerState({FINGERPRINT: AlertState.ACTIVE}), exporter)
    config = make_config(folder, *WORKERS, cooldown=0)
    config = config.model_copy(
        update={
            "targets": tuple(
                announced_target(one.key, wrapper_ended=True) if one.key in ended else one
                for one in config.targets
            )
        }
    )
    setup = Setup(config, make_watched(*WORKERS))
    state = PolicyState(setup, holds=holds, incidents=(about,), actions=done, snapshot=snapshot)
    return decide(about, state, NOW)


@pytest.mark.parametrize(
    ("gone", "reason"), [(1, "restart"), (2, "mass_failure"), (3, "mass_failure")]
)
def test_it_begins_with_half_of_the_workers_and_with_two(
    tmp_path: Path, gone: int, reason: str
) -> None:
    assert judged(tmp_path, gone).reason == reason


def test_after_a_restart_of_the_host_it_is_no_wonder(tmp_path: Path) -> None:
    assert judged(tmp_path, 3, booted_at=NOW - 899).reason == "restart"
    assert judged(tmp_path, 3, booted_at=NOW - 901).reason == "mass_failure"


def test_it_is_looked_twice_and_then_one_is_brought_back(tmp_path: Path) -> None:
    assert judged(tmp_path, 3, replace(HELD, last_decided_at=NOW - 59)).reason == "mass_failure"
    assert judged(tmp_path, 3, HELD).reason == "restart"


def ended(key: WorkerKey, ago: float, *, healed: bool) -> PastAction:
    return PastAction(9, key, NOW - ago - 5, NOW - ago, healed=healed)


def test_the_next_is_brought_back_when_the_first_is_well(tmp_path: Path) -> None:
    first = (ended(TRAINER, 10, healed=True),)
    assert judged(tmp_path, 3, done=first).reason == "restart"
    ill = (ended(TRAINER, 10, healed=False),)
    decision = judged(tmp_path, 3, HELD, done=ill)
    assert decision.reason == "mass_failure"
    assert decision.detail.endswith("trainer was restarted first and is not healthy")


def test_a_worker_that_does_not_come_back_does_not_hold_the_others_for_ever(tmp_path: Path) -> None:
    long_ago = replace(HELD, starts_at=NOW - 900)
    for ago, reason in ((599, "mass_failure"), (601, "restart")):
        ill = (ended(TRAINER, ago, healed=False),)
        assert judged(tmp_path, 3, long_ago, done=ill).reason == reason


def test_an_exporter_that_is_half_blind_shows_nothing_to_rely_on(tmp_path: Path) -> None:
    assert judged(tmp_path, 1, collectors_failing=0.49).reason == "restart"
    assert judged(tmp_path, 1, collectors_failing=0.5).reason == "mass_failure"


def test_a_worker_that_lives_and_leaks_is_evidence_of_its_own(tmp_path: Path) -> None:
    leak = replace(MISSING, run="second", worker="trainer", remediation="restart_leaking_worker")
    keys = {ROLLOUT: GONE, TRAINER: GONE, OTHER: make_worker()}
    exporter = ExporterState(keys, 20 * GIB, 2 * GIB)
    snapshot = Snapshot(AlertmanagerState({FINGERPRINT: AlertState.ACTIVE}), exporter)
    setup = Setup(make_config(tmp_path, *WORKERS), make_watched(*WORKERS))
    assert decide(
        leak, PolicyState(setup, holds=(), incidents=(leak,), snapshot=snapshot), NOW
    ).target


def test_the_page_says_when_the_host_was_booted_and_what_fails() -> None:
    page = (
        'trainwarden_collector_success{collector="host"} 1\n'
        'trainwarden_collector_success{collector="workers"} 1\n'
        'trainwarden_collector_success{collector="gpu"} 0\n'
        'trainwarden_collector_success{collector="disk"} 0\n'
        "trainwarden_memory_effective_available_bytes 2e10\n"
        "trainwarden_memory_available_floor_bytes 2e9\n"
        "trainwarden_host_boot_timestamp_seconds 1.7e9\n"
    )
    exporter = parse_exporter_page(page.encode())
    assert (exporter.booted_at, exporter.collectors_failing) == (1.7e9, 0.5)


def hear_of_all(scene: Scene) -> None:
    for number, key in enumerate((ROLLOUT, TRAINER, OTHER)):
        fingerprint = f"{number:016x}"
        scene.observer.known[fingerprint] = AlertState.ACTIVE
        scene.hear(
            fingerprint=fingerprint,
            run=key.run,
            worker=key.worker,
            remediation="start_missing_worker",
            starts_at=NOW - 20,
        )


class Booted(FakeObserver):
    """A box that was booted a minute ago."""

    async def observe(self) -> ExporterState:
        return replace(await super().observe(), booted_at=NOW - 60)


async def test_after_a_restart_of_the_host_the_workers_come_back_one_at_a_time(
    stage: Any,
) -> None:
    def boot(scene: Scene) -> None:
        scene.observer.__class__ = Booted
        scene.observer.workers = dict.fromkeys((ROLLOUT, TRAINER, OTHER), GONE)

    async with stage(before=boot) as scene:
        hear_of_all(scene)
        under_way = 0
        for _ in range(120):
            await scene.clock.advance(1)
            under_way = max(under_way, len(scene.journal.open_actions()))
        assert under_way == 1
        assert [len(action.restarts) for action in scene.actions.values()] == [1, 1, 1]
        assert "mass_failure" not in scene.journaled()


async def test_after_a_wrong_observation_no_action_starts(stage: Any) -> None:
    async with stage() as scene:
        seen = dict(scene.observer.workers)
        scene.observer.workers = dict.fromkeys((ROLLOUT, TRAINER, OTHER), GONE)
        hear_of_all(scene)
        await scene.clock.advance(40)
        assert scene.journaled().count("mass_failure") == 3
        scene.observer.workers = seen
        await scene.clock.advance(120)
        assert all(action.restarts == [] for action in scene.actions.values())


@pytest.mark.parametrize(("acted", "reason"), [(29, "busy"), (31, "restart")])
def test_the_next_is_not_delayed_by_the_verification_of_the_restart_before(
    tmp_path: Path, acted: float, reason: str
) -> None:
    """The trainer of another run is up again and awaits its first step."""
    at = NOW - acted
    verified = PastAction(9, OTHER, at - 5, None, result="done", result_at=at)
    decision = judged(tmp_path, 2, done=(verified,), booted_at=NOW - 60)
    assert decision.reason == reason


def test_the_target_that_is_waited_for_is_named(tmp_path: Path) -> None:
    acting = PastAction(9, OTHER, NOW - 5, None)
    decision = judged(tmp_path, 2, done=(acting,), booted_at=NOW - 60)
    assert decision.detail == "targets are restarted one after the other: now second/trainer"


def test_runs_that_nobody_can_restart_are_not_down(tmp_path: Path) -> None:
    """Runs that failed in their terminals would delay the restart of another run."""
    assert judged(tmp_path, 2, ended=(TRAINER,)).reason == "restart"
    assert judged(tmp_path, 3, ended=(TRAINER,)).reason == "mass_failure"
    assert judged(tmp_path, 3, ended=(TRAINER, OTHER)).reason == "restart"


def test_that_nobody_can_restart_a_run_is_its_first_reason(tmp_path: Path) -> None:
    """Also while an operator holds it: no action would follow the end of that hold."""
    assert judged(tmp_path, 1, holds=[Hold()]).reason == "held"
    decision = judged(tmp_path, 1, ended=(ROLLOUT,), holds=[Hold()])
    assert (decision.verdict, decision.reason) == (Verdict.WAIT, "managed_elsewhere")
    assert "type `trainwarden run --detach -- COMMAND`" in decision.detail


def test_nobody_is_needed_to_start_what_has_finished(tmp_path: Path) -> None:
    """The alert of a run that leaked, and has finished since, is still active for a moment."""
    config = make_config(tmp_path, *WORKERS)
    done = announced_target(ROLLOUT, wrapper_ended=True, finished=True)
    setup = Setup(config.model_copy(update={"targets": (done,)}), make_watched(*WORKERS))
    leak = replace(MISSING, remediation="restart_leaking_worker")
    for about in (MISSING, leak):
        decision = decide(about, PolicyState(setup, incidents=(about,)), NOW)
        assert (decision.verdict, decision.reason) == (Verdict.REFUSE, "has_finished")
        assert not decision.final


RUNS = tuple(WorkerKey(f"run-{number}", "trainer") for number in range(8))


def judged_runs(
    folder: Path, *, down: int, seen_to_fail: int, of: int, restarting: int = 0
) -> Decision:
    """What is decided about the first of so many runs of `trainwarden run`."""
    runs = RUNS[:of]
    gone = set(runs[:down])
    workers = {key: GONE if key in gone else WELL for key in runs}
    exporter = ExporterState(workers, 20 * GIB, 2 * GIB)
    about = replace(MISSING, run=runs[0].run, worker="trainer")
    snapshot = Snapshot(AlertmanagerState({FINGERPRINT: AlertState.ACTIVE}), exporter)
    targets = tuple(
        announced_target(key, failure="SIGKILL" if index < seen_to_fail else "")
        for index, key in enumerate(runs)
    )
    config = make_config(folder, *WORKERS, cooldown=0).model_copy(update={"targets": targets})
    acting = tuple(
        PastAction(9, key, NOW - 5, None) for key in runs[down - restarting : down] if restarting
    )
    setup = Setup(config, make_watched(*("/".join(key) for key in runs)))
    state = PolicyState(setup, incidents=(about,), actions=acting, snapshot=snapshot)
    return decide(about, state, NOW)


@pytest.mark.parametrize(
    ("down", "seen_to_fail", "of", "reason"),
    [
        (2, 2, 2, "restart"),
        (3, 3, 3, "restart"),
        (2, 1, 2, "restart"),
        (2, 0, 2, "mass_failure"),
        (3, 1, 3, "mass_failure"),
        (4, 4, 4, "mass_failure"),
        (4, 4, 8, "mass_failure"),
        (3, 3, 8, "restart"),
    ],
)
def test_runs_that_were_seen_to_fail_are_restarted_and_those_of_unknown_end_wait(
    tmp_path: Path, down: int, seen_to_fail: int, of: int, reason: str
) -> None:
    decision = judged_runs(tmp_path, down=down, seen_to_fail=seen_to_fail, of=of)
    assert decision.reason == reason


def test_a_run_that_was_seen_to_fail_does_not_wait_for_another_that_is_restarted(
    tmp_path: Path,
) -> None:
    decision = judged_runs(tmp_path, down=3, seen_to_fail=1, of=3, restarting=2)
    assert decision.reason == "restart"


ACCOUNT = 61234
FOREIGN = tuple(WorkerKey(f"foreign-{number}", "w") for number in range(3))


def judged_beside(
    folder: Path, key: WorkerKey, *, gone: Collection[WorkerKey], done: Any = ()
) -> Decision:
    """What is decided about a worker beside three runs that another account announces."""
    keys = (ROLLOUT, TRAINER, *FOREIGN)
    workers = {one: GONE if one in gone else WELL for one in keys}
    exporter = ExporterState(workers, 20 * GIB, 2 * GIB)
    about = replace(MISSING, run=key.run, worker=key.worker)
    snapshot = Snapshot(AlertmanagerState({FINGERPRINT: AlertState.ACTIVE}), exporter)
    config = make_config(folder, "demo/rollout-0", "demo/trainer", cooldown=0)
    foreign = [announced_target(one, owner=ACCOUNT) for one in FOREIGN]
    config = config.model_copy(update={"targets": (*config.targets, *foreign)})
    setup = Setup(config, make_watched(*("/".join(one) for one in keys)))
    state = PolicyState(setup, incidents=(about,), actions=done, snapshot=snapshot)
    return decide(about, state, NOW)


@pytest.mark.parametrize(
    ("key", "gone", "reason"),
    [
        (ROLLOUT, (ROLLOUT, *FOREIGN), "restart"),
        (ROLLOUT, (ROLLOUT, TRAINER), "mass_failure"),
        (FOREIGN[0], (ROLLOUT, *FOREIGN), "mass_failure"),
        (FOREIGN[0], (ROLLOUT, TRAINER, FOREIGN[0]), "mass_failure"),
        (FOREIGN[0], (FOREIGN[0],), "restart"),
    ],
)
def test_dead_runs_of_another_account_hold_back_only_their_own(
    tmp_path: Path, key: WorkerKey, gone: Collection[WorkerKey], reason: str
) -> None:
    assert judged_beside(tmp_path, key, gone=gone).reason == reason


@pytest.mark.parametrize(
    "ended_at", [pytest.param(None, id="goes on"), pytest.param(NOW - 10, id="healed")]
)
def test_an_action_of_another_account_shows_nothing_of_the_host(
    tmp_path: Path, ended_at: float | None
) -> None:
    theirs = PastAction(9, FOREIGN[0], NOW - 20, ended_at, healed=bool(ended_at), account=ACCOUNT)
    decision = judged_beside(tmp_path, ROLLOUT, gone=(ROLLOUT, TRAINER), done=(theirs,))
    assert decision.reason == "mass_failure"
