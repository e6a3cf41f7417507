from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.remediator.samples import (
    FINGERPRINT,
    GIB,
    NOW,
    ROLLOUT,
    make_config,
    make_watched,
    make_worker,
)

from trainwarden_exporter.checkpoints.config import CheckpointConfig
from trainwarden_exporter.config import Config as ExporterConfig
from trainwarden_exporter.processes.announcements import (
    AnnouncedRuns,
    AnnouncedWorker,
    Announcement,
)
from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_remediator.alertmanager.api import AlertState, Silence
from trainwarden_remediator.config.playbooks import PLAYBOOKS, Condition, Playbook
from trainwarden_remediator.config.schema import Config, Setup
from trainwarden_remediator.config.targets import GPUS, ON_CALL, GpuCleanup, Target
from trainwarden_remediator.holds.hold_file import EVERYTHING, Hold
from trainwarden_remediator.model import (
    Approval,
    BreakerState,
    Decision,
    Incident,
    Need,
    PastAction,
    Reason,
    Verdict,
)
from trainwarden_remediator.observation.model import (
    DiskState,
    EmergencyBrakeState,
    ExporterState,
    RunState,
    ServerState,
    WorkerState,
)
from trainwarden_remediator.observation.snapshot import AlertmanagerState, Snapshot
from trainwarden_remediator.policy.agreement import SETTLING_SECONDS
from trainwarden_remediator.policy.conditions import still_holds
from trainwarden_remediator.policy.context import PolicyState
from trainwarden_remediator.policy.decide import decide
from trainwarden_remediator.policy.largest_worker import largest
from trainwarden_remediator.policy.rung import CLEARED_SECONDS

TRAINER = WorkerKey("demo", "trainer")
OTHER = WorkerKey("second", "trainer")
WORKERS = ("demo/rollout-0", "demo/trainer", "second/trainer")
HOLDING = Incident(
    id=2,
    fingerprint="f" * 16,
    starts_at=NOW,
    alert="TrainingWorkerRestartLoop",
    run="demo",
    worker="rollout-0",
    remediation="hold_restarts",
    last_received_at=NOW,
    resolved=False,
)


def incident(**changes: Any) -> Incident:
    """A worker over its limit, with an alert received just now."""
    leaking = Incident(
        id=1,
        fingerprint=FINGERPRINT,
        starts_at=NOW - 30,
        alert="TrainingWorkerMemoryOverLimit",
        run="demo",
        worker="rollout-0",
        remediation="restart_leaking_worker",
        last_received_at=NOW,
        resolved=False,
    )
    return replace(leaking, **changes)


def snapshot(
    workers: Mapping[WorkerKey, WorkerState] | None = None,
    *,
    alert: AlertState | None = AlertState.ACTIVE,
    available: float = 20 * GIB,
) -> Snapshot:
    """A world that confirms the incident."""
    shown = {ROLLOUT: make_worker()} if workers is None else workers
    alerts = {} if alert is None else {FINGERPRINT: alert}
    return Snapshot(AlertmanagerState(alerts), ExporterState(shown, available, 2 * GIB))


def state(config: Config, **changes: Any) -> PolicyState:
    """A state in which nothing stands in the way."""
    setup = Setup(config, make_watched(*WORKERS, finishes=("rollout-0",)))
    ready = PolicyState(setup, incidents=(incident(),), snapshot=snapshot())
    return replace(ready, **changes)


def ago(seconds: float, key: WorkerKey = ROLLOUT, *, took: float | None = 5) -> PastAction:
    start = NOW - seconds
    end = None if took is None else start + took
    return PastAction(9, key, start, end, result_at=end)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return make_config(tmp_path, *WORKERS)


def test_a_confirmed_alert_about_a_target_is_acted_upon(config: Config) -> None:
    decision = decide(incident(), state(config), NOW)
    target, need = config.target(ROLLOUT), Need(Condition.OVER_MEMORY_LIMIT, ROLLOUT)
    assert decision == Decision(Verdict.ACT, "restart", target, attempt=1, need=need)
    assert not decision.final
    again = decide(incident(), state(config, actions=(ago(1000),)), NOW)
    assert again.attempt == 2


@pytest.mark.parametrize("worker", ["rollout-0", ""])
@pytest.mark.parametrize(
    "playbook", ["page", "restart_leaking_worker", "hold_restarts", "restart_stalled_run", ""]
)
def test_a_run_that_an_operator_stopped_is_left_alone_and_pages_nobody(
    tmp_path: Path, worker: str, playbook: str
) -> None:
    """Its alert takes some seconds to resolve."""
    page = Playbook(condition=Condition.ANY, action="notify")
    config = make_config(tmp_path, "second/trainer", playbooks={"page": page})
    setup = Setup(config, make_watched("second/trainer"), frozenset({ROLLOUT, TRAINER}))
    about = incident(remediation=playbook, worker=worker)
    after_stop = state(config, setup=setup, snapshot=snapshot({}))
    assert decide(about, after_stop, NOW) == Decision(Verdict.REFUSE, "stopped")
    assert decide(replace(about, resolved=True), after_stop, NOW).reason == "resolved"
    other = incident(remediation="page", run="second", worker=worker and "trainer")
    assert decide(other, after_stop, NOW).reason == "notify"


@pytest.mark.parametrize("playbook", ["hold_restarts", "restart_stalled_run"])
def test_an_incident_of_what_was_stopped_ends_once_its_alert_is_not_listed(
    tmp_path: Path, playbook: str
) -> None:
    """Its end never arrives: the alert was inhibited when it ended, or the stack was down."""
    config = make_config(tmp_path, "second/trainer")
    setup = Setup(config, make_watched("second/trainer"), frozenset({ROLLOUT, TRAINER}))
    known = incident(remediation=playbook, last_received_at=NOW - 200, last_decided_at=NOW - 200)
    about = replace(known, last_decision="refuse stopped")
    stopped, over = (Decision(Verdict.REFUSE, one) for one in ("stopped", "alert_stale"))
    unlisted = state(config, setup=setup, snapshot=snapshot({}, alert=None), started_at=NOW - 90)
    assert decide(about, unlisted, NOW) == over
    assert decide(about, replace(unlisted, snapshot=None), NOW).reason == "needs_observation"
    assert decide(replace(about, last_received_at=NOW - 150), unlisted, NOW) == stopped
    assert decide(replace(about, last_decided_at=NOW - 150), unlisted, NOW) == stopped
    assert decide(replace(about, last_decision="act hold"), unlisted, NOW) == stopped
    unknown = replace(unlisted, snapshot=Snapshot(None, None))
    long_ago = replace(about, last_received_at=NOW - 7200, last_decided_at=NOW - 7200)
    assert decide(long_ago, unknown, NOW) == stopped
    listed = replace(unlisted, snapshot=snapshot({}, alert=AlertState.INHIBITED))
    assert decide(long_ago, listed, NOW) == stopped


def test_what_ended_with_its_run_was_stopped_by_no_operator(config: Config) -> None:
    server, trainer = WorkerKey("demo", "server"), WorkerKey("demo", "trainer-2")
    announced = AnnouncedRuns(ended_with_run=frozenset({server}))
    setup = Setup(config, make_watched(*WORKERS), frozenset({server, trainer}), announced)
    about = {name: incident(worker=name) for name in ("server", "trainer-2")}
    decided = {name: decide(one, state(config, setup=setup), NOW) for name, one in about.items()}
    assert decided["server"] == Decision(Verdict.REFUSE, "ended_with_run")
    assert decided["trainer-2"] == Decision(Verdict.REFUSE, "stopped")
    assert setup.stop_reason("demo", "") == "stopped"


def test_a_run_with_one_worker_that_an_operator_stopped_is_not_stopped(config: Config) -> None:
    setup = Setup(config, make_watched(*WORKERS), frozenset({WorkerKey("demo", "rollout-9")}))
    assert not setup.is_stopped("demo", "")
    assert not setup.is_stopped("demo", "rollout-0")
    assert not setup.is_stopped("", "")
    assert setup.is_stopped("demo", "rollout-9")


OBSERVE = {"mode": "observe"}
EXHAUSTED = (ago(3000), ago(2000), ago(1000))
GONE = make_worker(processes=0)
DOUBLE = make_worker(processes=2)
RELIEF = incident(remediation="relieve_memory", run="", worker="")

LEFTOVERS = incident(remediation="clean_gpu", run="", worker="")
CLEANS = {"gpu_cleanup": GpuCleanup()}


def held_by(orphans: float | None, alert: str = "active") -> Snapshot:
    known = snapshot(alert=AlertState(alert))
    assert known.exporter is not None
    return replace(known, exporter=replace(known.exporter, gpu_orphans=orphans))


SERVER = ServerState(
    "sglang-0", "rollout-0", "inference", up=False, reason="refused", since=NOW - 60
)
DOWN = incident(remediation="restart_inference", alert="TrainingInferenceDown")
STALLED = incident(remediation="restart_stalled_run", alert="TrainingRunStalled", worker="")
ENDED = replace(STALLED, resolved=True)
CLEARED = replace(
    STALLED,
    labels={"severity": "critical"},
    last_decision="wait condition_cleared",
    last_decided_at=NOW - CLEARED_SECONDS,
)
CONTRADICTED = replace(CLEARED, last_decision="wait contradicted", last_decided_at=NOW)
WITHOUT_CHECKPOINT = "refuse no_checkpoint"
RUN = RunState(
    step=1874,
    last_step_at=NOW - 900,
    progress_at=NOW - 900,
    stall_limit=300,
    phase="training",
    checkpoint=1870,
    checkpoints=3,
    checkpoints_seen_at=NOW - 5,
    recovery_matches=True,
)
"""A run that has stood still for a quarter of an hour and could resume."""
HUNG_SEARCH: dict[str, Any] = {
    "step": None,
    "last_step_at": None,
    "checkpoint": 9,
    "checkpoints": None,
    "checkpoints_seen_at": None,
    "recovery_matches": None,
    "trials": 9,
    "restart_limit": 120,
    "stuck": True,
}
DISK = DiskState("/data", size=1e12, free=5e11, inodes=1e6, free_inodes=5e5, seen_at=NOW - 5)


def inference(
    *, server: ServerState = SERVER, alert: AlertState | None = AlertState.ACTIVE, **run: Any
) -> Snapshot:
    """A world in which a server is down and its run stands still."""
    known = snapshot({ROLLOUT: make_worker(), TRAINER: make_worker()}, alert=alert)
    assert known.exporter is not None
    exporter = replace(
        known.exporter, servers={"demo": (server,)}, runs={"demo": replace(RUN, **run)}
    )
    return replace(known, exporter=exporter)


def standing(**run: Any) -> Snapshot:
    """All is well but that the run stands still."""
    up = replace(SERVER, up=True, reason="ok", since=NOW - 5000)
    return inference(server=up, **run)


STANDING = {"snapshot": standing()}
MOVED = standing(progress_at=NOW - 300)
EVALUATING: dict[str, Any] = {"phase": "evaluating", "stall_limit": 3600}


def listed(alert: AlertState) -> AlertmanagerState:
    return AlertmanagerState({FINGERPRINT: alert})


def healthy(**run: Any) -> Snapshot:
    """The server is up again, and its alert over."""
    return inference(server=replace(SERVER, up=True, reason="ok"), alert=None, **run)


BRAKING = incident(remediation="restart_braking_worker", alert="TrainingBrakeFiring")


def braking(
    *, streak: float = 10, last_at: float = NOW - 60, started_at: float = NOW - 3600
) -> Snapshot:
    known = snapshot({ROLLOUT: make_worker(started_at=started_at)})
    assert known.exporter is not None
    emergency_brakes = {ROLLOUT: EmergencyBrakeState(streak, last_at)}
    return replace(known, exporter=replace(known.exporter, emergency_brakes=emergency_brakes))


def with_disk(**changes: Any) -> Snapshot:
    known = inference()
    assert known.exporter is not None
    return replace(known, exporter=replace(known.exporter, disks=(replace(DISK, **changes),)))


def healed(seconds: float, rung: int = 0, key: WorkerKey = ROLLOUT) -> PastAction:
    """An action about the incident that has healed so long ago."""
    return PastAction(1, key, NOW - seconds - 5, NOW - seconds, healed=True, rung=rung)


def without_effect(
    seconds: float, rung: int = 0, key: WorkerKey = ROLLOUT, **marks: Any
) -> PastAction:
    return PastAction(1, key, NOW - seconds - 5, NOW - seconds, rung=rung, **marks)


OVER = replace(DOWN, resolved=True)
LEAKING = {ROLLOUT: make_worker()}
LARGER = make_worker(memory_bytes=10 * GIB)
TWICE_WITHOUT_EFFECT = (without_effect(1000), without_effect(500))
LOOPS = tuple(replace(ago(s), step=1874.0, checkpoint=1870.0) for s in (9000, 8000, 7000))

MANY = tuple(ago(s, OTHER) for s in (3000, 2500, 2000, 1500, 1000, 500))
CLEANINGS = tuple(replace(one, key=GPUS, kind="gpu_cleanup") for one in MANY)
MISSING = incident(remediation="start_missing_worker", alert="TrainingWorkerGone")
ALL_GONE = dict.fromkeys((ROLLOUT, TRAINER, OTHER), GONE)
FINISHED: dict[str, Any] = {"snapshot": snapshot({ROLLOUT: GONE}), "finished": {ROLLOUT: NOW - 60}}
LONG_HELD = replace(HOLDING, last_received_at=NOW - 7200)


def world_listing(about: Incident) -> Snapshot:
    return Snapshot(AlertmanagerState({about.fingerprint: AlertState.ACTIVE}), None)


def half_blind() -> Snapshot:
    known = snapshot()
    assert known.exporter is not None
    return replace(known, exporter=replace(known.exporter, collectors_failing=0.5))


def test_a_run_that_begins_is_no_reason_to_reload(tmp_path: Path) -> None:
    known = state(make_config(tmp_path, *WORKERS), snapshot=other_workers())
    soon = decide(incident(), known, NOW)
    assert (soon.text, "reload" in soon.detail) == ("wait observation_failed", False)
    waited = incident(last_decision=soon.text, last_decided_at=NOW - SETTLING_SECONDS)
    assert "has loaded other workers" in decide(waited, known, NOW).detail


def other_workers() -> Snapshot:
    """The exporter has loaded another version of its file."""
    known = snapshot()
    assert known.exporter is not None
    return replace(known, exporter=replace(known.exporter, workers_hash=1))


@pytest.mark.parametrize("held", [True, False])
def test_an_alert_that_stops_arriving_while_another_holds_restarts_is_not_over(
    tmp_path: Path, *, held: bool
) -> None:
    """Its condition may last: a restart loop inhibits the alert about the leak that causes it."""
    known = state(make_config(tmp_path, *WORKERS))
    by = {"last_decision": "wait held_by_alert", "last_detail": "TrainingWorkerRestartLoop"}
    found = decide(incident(last_received_at=NOW - 601, **(by if held else {})), known, NOW)
    assert found.text == "refuse alert_stale"
    assert found.detail == ("TrainingWorkerRestartLoop" if held else "")


CALLING = {
    "playbooks": {
        "restart_leaking_worker": Playbook(condition=Condition.OVER_MEMORY_LIMIT, action="notify")
    }
}
CALLED = replace(ago(100, ON_CALL), incident=incident().id, kind="notify")

APPROVED = {1: Approval(NOW, NOW - 20, "demo/rollout-0")}
CASES: list[tuple[Reason, Verdict, Incident, dict[str, Any]]] = [
    ("restart", Verdict.ACT, incident(), {}),
    ("hold", Verdict.ACT, HOLDING, {}),
    ("resolved", Verdict.REFUSE, incident(resolved=True), {}),
    ("alert_stale", Verdict.REFUSE, incident(last_received_at=NOW - 601), {}),
    ("no_remediation", Verdict.REFUSE, incident(remediation=""), {}),
    ("unknown_playbook", Verdict.REFUSE, incident(remediation="rm -rf /"), {}),
    ("unknown_target", Verdict.REFUSE, incident(worker="rollout-7"), {}),
    ("unknown_target", Verdict.REFUSE, incident(run=""), {}),
    ("unknown_target", Verdict.REFUSE, incident(run="", worker=""), {}),
    ("attempts_exhausted", Verdict.REFUSE, incident(), {"actions": EXHAUSTED}),
    ("observe_mode", Verdict.WAIT, incident(), {"config": OBSERVE}),
    ("restart", Verdict.ACT, incident(), {"config": OBSERVE, "approvals": APPROVED}),
    (
        "approval_void",
        Verdict.WAIT,
        incident(),
        {"config": OBSERVE, "approvals": {1: Approval(NOW, NOW - 20, "demo/trainer")}},
    ),
    (
        "approval_void",
        Verdict.WAIT,
        incident(),
        {"config": OBSERVE, "approvals": {1: Approval(NOW, NOW - 3610, "demo/rollout-0")}},
    ),
    ("observe_mode", Verdict.WAIT, incident(id=2), {"config": OBSERVE, "approvals": APPROVED}),
    ("held", Verdict.WAIT, incident(), {"holds": (EVERYTHING,)}),
    ("held", Verdict.WAIT, RELIEF, {"holds": (EVERYTHING,)}),
    ("held_by_alert", Verdict.WAIT, incident(), {"incidents": (incident(), HOLDING)}),
    (
        "held_by_alert",
        Verdict.WAIT,
        incident(),
        {"incidents": (incident(), replace(HOLDING, worker=""))},
    ),
    ("busy", Verdict.WAIT, incident(), {"actions": (ago(5, TRAINER, took=None),)}),
    ("busy", Verdict.WAIT, RELIEF, {"actions": (ago(5, OTHER, took=None),)}),
    ("cooldown", Verdict.WAIT, incident(), {"actions": (ago(100),)}),
    (
        "alert_lingers",
        Verdict.WAIT,
        incident(),
        {
            "actions": (replace(ago(100), incident=incident().id, healed=True),),
            "snapshot": snapshot({ROLLOUT: make_worker(memory_bytes=GIB)}),
        },
    ),
    (  # unknown is not healed
        "cooldown",
        Verdict.WAIT,
        incident(),
        {
            "actions": (replace(ago(100), incident=incident().id, healed=True),),
            "snapshot": Snapshot(None, None, "x"),
        },
    ),
    (  # it has exceeded its limit again
        "cooldown",
        Verdict.WAIT,
        incident(),
        {"actions": (replace(ago(100), incident=incident().id, healed=True),)},
    ),
    (
        "observation_failed",
        Verdict.WAIT,
        incident(),
        {"snapshot": Snapshot(None, snapshot().exporter, "x")},
    ),
    (
        "observation_failed",
        Verdict.WAIT,
        incident(),
        {"snapshot": Snapshot(snapshot().alerts, None, "x")},
    ),
    ("observation_failed", Verdict.WAIT, incident(), {"snapshot": snapshot({})}),
    (
        "observation_failed",
        Verdict.WAIT,
        RELIEF,
        {"snapshot": Snapshot(snapshot().alerts, None, "x")},
    ),
    ("not_active", Verdict.WAIT, incident(), {"snapshot": snapshot(alert=None)}),
    ("silenced", Verdict.WAIT, incident(), {"snapshot": snapshot(alert=AlertState.SILENCED)}),
    ("inhibited", Verdict.WAIT, incident(), {"snapshot": snapshot(alert=AlertState.INHIBITED)}),
    ("no_candidate", Verdict.WAIT, RELIEF, {"snapshot": snapshot({ROLLOUT: GONE})}),
    (
        "largest_left_alone",
        Verdict.REFUSE,
        RELIEF,
        {"snapshot": snapshot(available=GIB), "holds": (Hold("demo", "rollout-0"),)},
    ),
    ("ambiguous_target", Verdict.WAIT, incident(), {"snapshot": snapshot({ROLLOUT: DOUBLE})}),
    (
        "processes_differ",
        Verdict.REFUSE,
        incident(last_decision="wait ambiguous_target", last_decided_at=NOW - 10),
        {"snapshot": snapshot({ROLLOUT: DOUBLE})},
    ),
    ("config_differs", Verdict.REFUSE, incident(), {"config_problem": "not YAML"}),
    ("observation_failed", Verdict.WAIT, incident(), {"snapshot": other_workers()}),
    (
        "config_differs",
        Verdict.REFUSE,
        incident(last_decision="wait observation_failed", last_decided_at=NOW - 90),
        {"snapshot": other_workers()},
    ),
    (
        "config_differs",
        Verdict.REFUSE,
        incident(last_decision="refuse config_differs", last_decided_at=NOW - 1),
        {"snapshot": other_workers()},
    ),
    (
        "config_differs",
        Verdict.REFUSE,
        LEFTOVERS,
        {"config": CLEANS, "snapshot": held_by(2), "config_problem": "not YAML"},
    ),
    (
        "observe_mode",
        Verdict.WAIT,
        incident(),
        {"config": OBSERVE, "snapshot": other_workers()},
    ),
    (
        "larger_worker_first",
        Verdict.WAIT,
        incident(),
        {"snapshot": snapshot({**LEAKING, TRAINER: LARGER})},
    ),
    (
        "already_restarted",
        Verdict.WAIT,
        incident(),
        {"snapshot": snapshot({ROLLOUT: make_worker(started_at=NOW - 10)})},
    ),
    (
        "condition_cleared",
        Verdict.WAIT,
        incident(),
        {"snapshot": snapshot({ROLLOUT: make_worker(memory_bytes=GIB)})},
    ),
    ("clean", Verdict.ACT, LEFTOVERS, {"config": CLEANS, "snapshot": held_by(2)}),
    ("unknown_target", Verdict.REFUSE, LEFTOVERS, {"snapshot": held_by(2)}),
    (
        "clean",
        Verdict.ACT,
        LEFTOVERS,
        {"config": CLEANS, "holds": (EVERYTHING,), "snapshot": held_by(2)},
    ),
    ("busy", Verdict.WAIT, LEFTOVERS, {"config": CLEANS, "actions": (ago(5, OTHER, took=None),)}),
    ("busy", Verdict.WAIT, incident(), {"actions": (ago(5, GPUS, took=None),)}),
    ("cooldown", Verdict.WAIT, LEFTOVERS, {"config": CLEANS, "actions": (ago(100, GPUS),)}),
    ("needs_observation", Verdict.OBSERVE_FIRST, LEFTOVERS, {"config": CLEANS, "snapshot": None}),
    ("silenced", Verdict.WAIT, LEFTOVERS, {"config": CLEANS, "snapshot": held_by(2, "silenced")}),
    ("observation_failed", Verdict.WAIT, LEFTOVERS, {"config": CLEANS, "snapshot": held_by(None)}),
    ("condition_cleared", Verdict.WAIT, LEFTOVERS, {"config": CLEANS, "snapshot": held_by(0)}),
    (
        "attempts_exhausted",
        Verdict.REFUSE,
        LEFTOVERS,
        {
            "config": CLEANS,
            "snapshot": held_by(2),
            "actions": tuple(ago(s, GPUS) for s in (3000, 2000, 1000)),
        },
    ),
    (
        "observe_mode",
        Verdict.WAIT,
        LEFTOVERS,
        {"config": {**OBSERVE, **CLEANS}, "snapshot": held_by(2)},
    ),
    ("restart", Verdict.ACT, DOWN, {"snapshot": inference()}),
    (
        "condition_cleared",
        Verdict.WAIT,
        DOWN,
        {"snapshot": inference(server=replace(SERVER, up=True))},
    ),
    *(
        (
            "condition_cleared",
            Verdict.WAIT,
            DOWN,
            {"snapshot": inference(server=replace(SERVER, reason=r))},
        )
        for r in ("starting", "paused", "sleeping", "updating_weights", "unauthorized")
    ),
    *(
        (
            "condition_cleared",
            Verdict.WAIT,
            DOWN,
            {"snapshot": inference(server=replace(SERVER, reason=r))},
        )
        for r in ("unreachable", "")
    ),
    ("at_work", Verdict.WAIT, DOWN, {"snapshot": inference(server=replace(SERVER, reason="busy"))}),
    (
        "condition_cleared",
        Verdict.WAIT,
        DOWN,
        {"snapshot": inference(server=replace(SERVER, up=True, reason="busy"))},
    ),
    ("observation_failed", Verdict.WAIT, DOWN, {}),
    (
        "observation_failed",
        Verdict.WAIT,
        DOWN,
        {"snapshot": inference(server=replace(SERVER, seen_at=NOW - 121))},
    ),
    (
        "ladder_exhausted",
        Verdict.REFUSE,
        DOWN,
        {"snapshot": inference(), "actions": TWICE_WITHOUT_EFFECT},
    ),
    (
        "condition_cleared",
        Verdict.WAIT,
        DOWN,
        {
            "snapshot": inference(server=replace(SERVER, up=True)),
            "actions": TWICE_WITHOUT_EFFECT[:1],
        },
    ),
    ("awaiting_progress", Verdict.WAIT, OVER, {"snapshot": healthy(), "actions": (healed(299),)}),
    ("restart", Verdict.ACT, OVER, {"snapshot": healthy(), "actions": (healed(301),)}),
    (
        "progressing",
        Verdict.REFUSE,
        OVER,
        {"snapshot": healthy(last_step_at=NOW), "actions": (healed(9),)},
    ),
    (
        "progressing",
        Verdict.REFUSE,
        OVER,
        {"snapshot": healthy(finished=True), "actions": (healed(9),)},
    ),
    (
        "condition_returned",
        Verdict.WAIT,
        OVER,
        {"snapshot": inference(), "actions": (healed(301),)},
    ),
    ("resolved", Verdict.REFUSE, OVER, {"snapshot": inference(), "actions": TWICE_WITHOUT_EFFECT}),
    # a hang that its stacks do not prove any more for a while: its alert ends, and it does not
    ("stall_lasts", Verdict.WAIT, ENDED, {"snapshot": standing()}),
    ("stall_lasts", Verdict.WAIT, ENDED, {"snapshot": Snapshot(None, None, "nobody answers")}),
    ("needs_observation", Verdict.OBSERVE_FIRST, ENDED, {"snapshot": None}),
    (
        "no_checkpoint",
        Verdict.REFUSE,
        replace(ENDED, last_decision=WITHOUT_CHECKPOINT),
        {"snapshot": standing()},
    ),
    *(  # nothing compares these again while no alert fires
        ("stall_lasts", Verdict.WAIT, replace(ENDED, last_decision=f"refuse {called}"), STANDING)
        for called in ("processes_differ", "config_differs", "recovery_mismatch")
    ),
    # just before its end arrives, Alertmanager does not list the alert
    *(
        ("no_checkpoint", Verdict.REFUSE, replace(STALLED, last_decision=WITHOUT_CHECKPOINT), seen)
        for seen in (
            {"snapshot": replace(standing(), alerts=AlertmanagerState({}))},
            {"snapshot": replace(standing(), alerts=listed(AlertState.INHIBITED))},
            {"snapshot": replace(standing(), exporter=None)},
        )
    ),
    (
        "not_active",
        Verdict.WAIT,
        replace(STALLED, last_decision=WITHOUT_CHECKPOINT),
        {"snapshot": replace(standing(progress_at=NOW - 1), alerts=AlertmanagerState({}))},
    ),
    (
        "not_active",
        Verdict.WAIT,
        replace(incident(), last_decision=WITHOUT_CHECKPOINT),
        {"snapshot": replace(standing(), alerts=AlertmanagerState({}))},
    ),
    *(
        ("resolved", Verdict.REFUSE, one, {"snapshot": replace(standing(), alerts=silenced)})
        for one in (ENDED, replace(ENDED, last_decision=WITHOUT_CHECKPOINT))
        for silenced in (listed(AlertState.SILENCED), AlertmanagerState({}, (Silence(()),)))
    ),
    *(
        ("resolved", Verdict.REFUSE, ENDED, {"snapshot": standing(**moved)})
        for moved in (
            {"progress_at": NOW - 1},
            {"finished": True},
            {"trainer_processes": 0},
            {"progress_at": None},
        )
    ),
    (
        "resolved",
        Verdict.REFUSE,
        ENDED,
        {"snapshot": standing(), "incidents": (ENDED, replace(STALLED, starts_at=NOW - 1))},
    ),
    ("disk_unusable", Verdict.WAIT, DOWN, {"snapshot": with_disk(free=5e8)}),
    ("disk_unusable", Verdict.WAIT, DOWN, {"snapshot": with_disk(free_inodes=999)}),
    ("disk_unusable", Verdict.WAIT, DOWN, {"snapshot": with_disk(read_only=True)}),
    ("disk_unusable", Verdict.WAIT, DOWN, {"snapshot": with_disk(seen_at=NOW - 121)}),
    ("restart", Verdict.ACT, DOWN, {"snapshot": with_disk()}),
    ("restart", Verdict.ACT, STALLED, {"snapshot": standing()}),
    ("at_prompt", Verdict.WAIT, STALLED, {"snapshot": standing(at_prompt=True)}),
    ("root_cause_elsewhere", Verdict.WAIT, STALLED, {"snapshot": inference()}),
    ("observation_failed", Verdict.WAIT, STALLED, {}),
    ("observation_failed", Verdict.WAIT, STALLED, {"snapshot": standing(stall_limit=None)}),
    ("observation_failed", Verdict.WAIT, STALLED, {"snapshot": standing(checkpoints=None)}),
    (
        "observation_failed",
        Verdict.WAIT,
        STALLED,
        {"snapshot": standing(checkpoints_seen_at=NOW - 121)},
    ),
    ("restart", Verdict.ACT, STALLED, {"snapshot": standing(**HUNG_SEARCH)}),
    *(
        ("observation_failed", Verdict.WAIT, STALLED, {"snapshot": standing(**HUNG_SEARCH | one)})
        for one in ({"stuck": False}, {"restart_limit": math.inf}, {"trials": None})
    ),
    ("condition_cleared", Verdict.WAIT, STALLED, {"snapshot": standing(progress_at=NOW - 300)}),
    ("condition_cleared", Verdict.WAIT, STALLED, {"snapshot": standing(finished=True)}),
    ("contradicted", Verdict.WAIT, CLEARED, {"snapshot": MOVED}),
    ("contradicted", Verdict.WAIT, CONTRADICTED, {"snapshot": MOVED}),
    *(
        ("condition_cleared", Verdict.WAIT, one, {"snapshot": MOVED})
        for one in (
            replace(CLEARED, last_decided_at=NOW - CLEARED_SECONDS + 1),
            replace(CLEARED, last_decision="wait cooldown"),
            replace(CLEARED, labels={"severity": "warning"}),
        )
    ),
    # A proved hang in a phase with a limit of its own, and an evaluation that may go on.
    ("restart", Verdict.ACT, STALLED, {"snapshot": standing(**EVALUATING, restart_limit=120)}),
    *(
        ("condition_cleared", Verdict.WAIT, STALLED, {"snapshot": standing(**EVALUATING | one)})
        for one in ({"restart_limit": 3600}, {"restart_limit": None})
    ),
    # After its last step silence is no stall, and a proved hang is left to an operator.
    ("condition_cleared", Verdict.WAIT, STALLED, {"snapshot": standing(last_step_made=True)}),
    (
        "last_step_made",
        Verdict.REFUSE,
        STALLED,
        {"snapshot": standing(last_step_made=True, stuck=True)},
    ),
    ("no_checkpoint", Verdict.REFUSE, STALLED, {"snapshot": standing(checkpoints=0)}),
    (
        "recovery_mismatch",
        Verdict.REFUSE,
        STALLED,
        {"snapshot": standing(recovery_matches=False)},
    ),
    ("saving", Verdict.WAIT, STALLED, {"snapshot": standing(saving=True, recovery_matches=False)}),
    (
        "restarts_without_progress",
        Verdict.REFUSE,
        DOWN,
        {"snapshot": inference(), "actions": LOOPS},
    ),
    ("restart", Verdict.ACT, BRAKING, {"snapshot": braking()}),
    ("condition_cleared", Verdict.WAIT, BRAKING, {"snapshot": braking(streak=9)}),
    ("condition_cleared", Verdict.WAIT, BRAKING, {"snapshot": braking(last_at=NOW - 300)}),
    # since then it was restarted
    ("condition_cleared", Verdict.WAIT, BRAKING, {"snapshot": braking(started_at=NOW - 59)}),
    ("observation_failed", Verdict.WAIT, BRAKING, {}),
    ("breaker_open", Verdict.WAIT, incident(), {"breaker": BreakerState(NOW - 9000)}),
    ("breaker_open", Verdict.WAIT, RELIEF, {"breaker": BreakerState(NOW - 9000)}),
    ("breaker_open", Verdict.WAIT, incident(), {"actions": MANY}),
    ("restart", Verdict.ACT, incident(), {"actions": MANY, "breaker": BreakerState(None, NOW - 9)}),
    ("restart", Verdict.ACT, incident(), {"actions": CLEANINGS}),
    (
        "clean",
        Verdict.ACT,
        LEFTOVERS,
        {"config": CLEANS, "snapshot": held_by(2), "breaker": BreakerState(NOW - 9000)},
    ),
    ("mass_failure", Verdict.WAIT, MISSING, {"snapshot": snapshot(ALL_GONE)}),
    ("mass_failure", Verdict.WAIT, incident(), {"snapshot": half_blind()}),
    ("has_finished", Verdict.REFUSE, MISSING, FINISHED),
    ("restart", Verdict.ACT, MISSING, {"snapshot": FINISHED["snapshot"]}),
    (
        "observation_failed",
        Verdict.WAIT,
        LONG_HELD,
        {"snapshot": Snapshot(None, None, "nobody answers")},
    ),
    ("hold", Verdict.ACT, LONG_HELD, {"snapshot": world_listing(LONG_HELD)}),
    ("not_active", Verdict.WAIT, LONG_HELD, {}),
    ("notify", Verdict.ACT, incident(), {"config": CALLING}),
    ("awaiting_operator", Verdict.WAIT, incident(), {"config": CALLING, "actions": (CALLED,)}),
    ("needs_observation", Verdict.OBSERVE_FIRST, LONG_HELD, {"snapshot": None}),
    (
        "needs_observation",
        Verdict.OBSERVE_FIRST,
        OVER,
        {"snapshot": None, "actions": (healed(301),)},
    ),
    ("needs_observation", Verdict.OBSERVE_FIRST, incident(), {"snapshot": None}),
    ("needs_observation", Verdict.OBSERVE_FIRST, RELIEF, {"snapshot": None}),
]


@pytest.mark.parametrize(
    ("reason", "verdict", "about", "changes"),
    CASES,
    ids=[f"{case[0]}-{index}" for index, case in enumerate(CASES)],
)
def test_decides(
    config: Config, reason: Reason, verdict: Verdict, about: Incident, changes: dict[str, Any]
) -> None:
    config = config.model_copy(update=changes.get("config", {}))
    others = {key: value for key, value in changes.items() if key != "config"}
    decision = decide(about, state(config, **others), NOW)
    assert (decision.verdict, decision.reason) == (verdict, reason)


def test_there_is_a_case_for_every_reason() -> None:
    # what only an action itself can tell is decided when that is asked; `stopped` has tests above,
    # `several_trainers` and `suspended` those of the rungs, `account_limit` that of the breaker
    elsewhere = {"managed_elsewhere", "stopped", "ended_with_run", "several_trainers", "suspended"}
    elsewhere |= {"account_limit", "moving", "undecided", "damaged_resume"}
    assert {case[0] for case in CASES} == set(get_args(Reason)) - elsewhere


@pytest.mark.parametrize(
    ("reason", "final"),
    [
        ("resolved", True),
        ("alert_stale", True),
        ("no_remediation", True),
        ("attempts_exhausted", True),
        ("unknown_target", False),
        ("unknown_playbook", False),
        ("restart", False),
        ("observation_failed", False),
    ],
)
def test_only_what_cannot_change_is_final(reason: Reason, *, final: bool) -> None:
    assert Decision(Verdict.REFUSE, reason).final is final


STANDING_IN_THE_WAY: list[tuple[Reason, dict[str, Any]]] = [
    ("resolved", {"incident": {"resolved": True}}),
    ("alert_stale", {"incident": {"last_received_at": NOW - 601}}),
    ("held", {"holds": (EVERYTHING,)}),
    ("breaker_open", {"breaker": BreakerState(NOW - 60)}),
    ("held_by_alert", {"incidents": (incident(), HOLDING)}),
    ("busy", {"actions": (ago(100, took=None),)}),
    ("cooldown", {"actions": (ago(100),)}),
    ("observation_failed", {"snapshot": Snapshot(None, None, "nobody answers")}),
    ("silenced", {"snapshot": snapshot(alert=AlertState.SILENCED)}),
    ("observe_mode", {"config": OBSERVE}),
]
"""Of two reasons the earlier in this list is reported."""


def with_both(config: Config, earlier: dict[str, Any], later: dict[str, Any]) -> Decision:
    both = {**later, **earlier}
    if {"actions"} <= earlier.keys() & later.keys():
        both["actions"] = (*earlier["actions"], *later["actions"])
    about = incident(**both.pop("incident", {}))
    config = config.model_copy(update=both.pop("config", {}))
    return decide(about, state(config, **both), NOW)


@pytest.mark.parametrize("first", range(len(STANDING_IN_THE_WAY)))
def test_the_cheapest_and_gravest_reason_is_reported(config: Config, first: int) -> None:
    reason, earlier = STANDING_IN_THE_WAY[first]
    for _, later in STANDING_IN_THE_WAY[first + 1 :]:
        assert with_both(config, earlier, later).reason == reason


# budgets


def test_a_cooldown_ends_to_the_second(config: Config) -> None:
    for age, reason in ((124.9, "cooldown"), (125.0, "restart")):
        assert decide(incident(), state(config, actions=(ago(age),)), NOW).reason == reason


def test_a_decision_within_the_cooldown_says_when_it_ends_and_stays_the_same(
    config: Config,
) -> None:
    acted = state(config, actions=(ago(100),))
    now, later = (decide(incident(), acted, NOW + passed) for passed in (0.0, 20.0))
    assert now.detail == later.detail == "until 08:00:25 UTC, then attempt 2 of 3"


def test_each_action_of_the_window_doubles_the_cooldown(tmp_path: Path) -> None:
    config = make_config(tmp_path, attempts=100, attempts_window=100_000)
    older = [ago(90_000 + index) for index in range(20)]
    for count in range(1, 12):
        wait = 120 * min(2 ** (count - 1), 32)
        for age, reason in ((wait + 4.9, "cooldown"), (wait + 5.0, "restart")):
            past = (*older[: count - 1], ago(age))
            assert decide(incident(), state(config, actions=past), NOW).reason == reason


def test_a_cooldown_longer_than_the_window_of_attempts_is_kept(tmp_path: Path) -> None:
    config = make_config(tmp_path, cooldown=7200, attempts_window=60)
    assert decide(incident(), state(config, actions=(ago(3600),)), NOW).reason == "cooldown"
    assert decide(incident(), state(config, actions=(ago(7206),)), NOW).reason == "restart"


def test_attempts_are_counted_for_each_worker(config: Config) -> None:
    others = tuple(replace(action, key=TRAINER) for action in EXHAUSTED)
    assert decide(incident(), state(config, actions=others), NOW).reason == "restart"


def test_attempts_outside_the_window_do_not_count(config: Config) -> None:
    past = (ago(3601), ago(2000), ago(1500))
    assert decide(incident(), state(config, actions=past), NOW).reason == "restart"


def test_a_last_attempt_that_helped_is_not_given_up(config: Config) -> None:
    healed = make_worker(memory_bytes=GIB, started_at=NOW - 1000)
    seen = state(config, actions=EXHAUSTED, snapshot=snapshot({ROLLOUT: healed}))
    assert decide(incident(), seen, NOW).reason == "condition_cleared"


def test_what_cannot_be_seen_is_not_given_up(config: Config) -> None:
    blind = state(config, actions=EXHAUSTED, snapshot=Snapshot(None, None, "nobody answers"))
    assert decide(incident(), blind, NOW).reason == "observation_failed"


def test_giving_up_need_not_wait_for_the_cooldown(config: Config) -> None:
    past = (ago(300), ago(200), ago(6))
    assert decide(incident(), state(config, actions=past), NOW).reason == "attempts_exhausted"


@pytest.mark.parametrize(("key", "name"), [(TRAINER, "demo/trainer"), (GPUS, "gpus")])
def test_the_action_that_another_waits_for_has_the_name_of_its_run(
    config: Config, key: WorkerKey, name: str
) -> None:
    """Each run of `trainwarden run` has a worker `trainer`."""
    past = (ago(5, key, took=None),)
    for about in (incident(), RELIEF):
        assert decide(about, state(config, actions=past), NOW).detail == f"of {name}"


def test_another_run_does_not_make_this_one_busy(config: Config) -> None:
    past = (ago(5, OTHER, took=None),)
    assert decide(incident(), state(config, actions=past), NOW).reason == "restart"


def test_a_clock_set_back_does_not_shorten_a_cooldown(config: Config) -> None:
    assert decide(incident(), state(config, actions=(ago(-500),)), NOW).reason == "cooldown"


# the trouble


def test_a_worker_restarted_long_after_the_alert_began_is_restarted_if_the_trouble_persists(
    config: Config,
) -> None:
    seen = snapshot({ROLLOUT: make_worker(started_at=NOW - 121)})
    about = incident(starts_at=NOW - 1000)
    assert decide(about, state(config, snapshot=seen), NOW).reason == "restart"


SIGHT = ExporterState({}, available_bytes := 20 * GIB, 2 * GIB)


@pytest.mark.parametrize(
    ("trouble", "changes", "expected"),
    [
        (Condition.OVER_MEMORY_LIMIT, {}, True),
        (Condition.OVER_MEMORY_LIMIT, {"memory_bytes": 8 * GIB}, False),
        (Condition.OVER_MEMORY_LIMIT, {"memory_limit_bytes": None}, False),
        (Condition.OVER_MEMORY_LIMIT, {"processes": 0, "memory_bytes": 0}, False),
        (Condition.MISSING, {}, False),
        (Condition.MISSING, {"processes": 0}, True),
        (Condition.MISSING, {"processes": 1, "expected": 2}, True),
        (Condition.MISSING, {"processes": 0, "finished": True}, False),
        (Condition.MISSING, {"processes": 0, "unconfirmed": 1}, False),
        (Condition.MISSING, {"processes": 0, "expected": 2, "unconfirmed": 1}, True),
        (Condition.OVER_AGE_LIMIT, {"age_limit_seconds": 3599}, True),
        (Condition.OVER_AGE_LIMIT, {"age_limit_seconds": 3600}, False),
        (Condition.OVER_AGE_LIMIT, {}, False),
        (Condition.OVER_AGE_LIMIT, {"age_limit_seconds": 1, "started_at": None}, False),
        (Condition.ANY, {}, True),
    ],
)
def test_tells_whether_the_trouble_persists(
    trouble: Condition, changes: dict[str, Any], *, expected: bool
) -> None:
    exporter = replace(SIGHT, workers={ROLLOUT: make_worker(**changes)})
    assert still_holds(trouble, ROLLOUT, exporter, NOW) is expected


def test_memory_is_short_only_below_its_floor() -> None:
    for available, short in ((2 * GIB - 1, True), (2 * GIB, False)):
        exporter = ExporterState({}, available, 2 * GIB)
        assert still_holds(Condition.MEMORY_BELOW_FLOOR, ROLLOUT, exporter, NOW) is short


# relieving memory


def crowd(**changes: float) -> Mapping[WorkerKey, WorkerState]:
    sizes = {"rollout": 3.0, "trainer": 5.0, "other": 4.0, **changes}
    return {
        key: make_worker(memory_bytes=sizes[name] * GIB)
        for name, key in (("rollout", ROLLOUT), ("trainer", TRAINER), ("other", OTHER))
    }


def test_memory_is_relieved_by_the_largest_target(config: Config) -> None:
    seen = state(config, snapshot=snapshot(crowd(), available=GIB))
    decision = decide(RELIEF, seen, NOW)
    assert (decision.reason, decision.target) == ("restart", config.target(TRAINER))


def test_a_larger_worker_that_is_no_target_is_left_alone(tmp_path: Path) -> None:
    config = make_config(tmp_path, "demo/rollout-0")
    decision = decide(RELIEF, state(config, snapshot=snapshot(crowd(), available=GIB)), NOW)
    assert decision.target == config.target(ROLLOUT)


def test_no_worker_is_restarted_when_there_is_memory_again(config: Config) -> None:
    seen = state(config, snapshot=snapshot(crowd(), available=3 * GIB))
    assert decide(RELIEF, seen, NOW).reason == "condition_cleared"


def test_a_worker_held_by_an_alert_is_no_candidate(config: Config) -> None:
    holding = replace(HOLDING, worker="trainer")
    seen = state(config, snapshot=snapshot(crowd(), available=GIB), incidents=(RELIEF, holding))
    assert decide(RELIEF, seen, NOW).target == config.target(OTHER)


def test_relieving_memory_waits_between_one_worker_and_the_next(config: Config) -> None:
    seen = state(config, snapshot=snapshot(crowd(), available=GIB))
    for age, reason in ((124.0, "cooldown"), (126.0, "restart")):
        past = (replace(ago(age, OTHER), incident=RELIEF.id),)
        assert decide(RELIEF, replace(seen, actions=past), NOW).reason == reason


def test_without_targets_memory_cannot_be_relieved(config: Config) -> None:
    empty = config.model_copy(update={"targets": ()})
    assert decide(RELIEF, state(empty), NOW).reason == "unknown_target"


def test_the_largest_of_none_is_none(config: Config) -> None:
    assert largest(config.targets, ExporterState({}, 0, 0)) is None
    assert largest((), ExporterState(crowd(), 0, 0)) is None


# holding


def test_a_holding_alert_holds_its_worker_alone(config: Config) -> None:
    trainer = incident(worker="trainer", fingerprint="a" * 16)
    alerts = AlertmanagerState({"a" * 16: AlertState.ACTIVE})
    seen = Snapshot(alerts, ExporterState({TRAINER: make_worker()}, 1, 1))
    both = state(config, incidents=(trainer, HOLDING), snapshot=seen)
    assert decide(trainer, both, NOW).reason == "restart"


@pytest.mark.parametrize("changes", [{"resolved": True}, {"run": "second"}, {"run": ""}])
def test_an_alert_that_is_over_or_about_something_else_does_not_hold(
    config: Config, changes: dict[str, Any]
) -> None:
    both = state(config, incidents=(incident(), replace(HOLDING, **changes)))
    assert decide(incident(), both, NOW).reason == "restart"


def test_a_playbook_in_the_file_takes_the_place_of_the_shipped_one(tmp_path: Path) -> None:
    playbooks = {"restart_leaking_worker": {"condition": "any", "action": "hold"}}
    config = make_config(tmp_path, playbooks=playbooks)
    assert decide(incident(), state(config), NOW).reason == "hold"


# whatever comes

maybe = st.none() | st.floats(allow_nan=True)
numbers = st.sampled_from([0.0, 1.0, 2.0, 5e9, 9e9, float("inf"), float("nan")])
moments = st.floats(min_value=NOW - 8000, max_value=NOW + 8000)
keys = st.sampled_from([ROLLOUT, TRAINER, OTHER, WorkerKey("demo", "x"), WorkerKey("", "")])
words = st.sampled_from(["demo", "second", "", "rollout-0", "trainer", "\0", "x" * 300])
fingerprints = st.sampled_from([FINGERPRINT, "f" * 16])
incidents = st.builds(
    Incident,
    id=st.integers(0, 3),
    fingerprint=fingerprints,
    starts_at=moments,
    alert=words,
    run=words,
    worker=words,
    remediation=st.sampled_from([*PLAYBOOKS, "any", "", "unknown"]),
    last_received_at=moments,
    resolved=st.booleans(),
)
sights = st.builds(
    WorkerState,
    processes=numbers,
    expected=numbers,
    memory_bytes=numbers,
    finished=st.booleans(),
    started_at=st.none() | moments,
    memory_limit_bytes=st.none() | numbers,
    age_limit_seconds=st.none() | numbers,
)
servers = st.builds(
    ServerState,
    name=st.just("s"),
    role=st.sampled_from(["inference", "judge"]),
    worker=st.sampled_from(["rollout-0", "trainer", ""]),
    up=st.booleans(),
    reason=st.sampled_from(["ok", "refused", "hung", "starting", ""]),
    since=st.none() | moments,
    seen_at=st.none() | moments,
)
runs = st.builds(
    RunState,
    step=st.none() | numbers,
    last_step_at=st.none() | moments,
    progress_at=st.none() | moments,
    stall_limit=st.none() | numbers,
    phase=st.sampled_from(["training", "saving", ""]),
    finished=st.booleans(),
    checkpoint=st.none() | numbers,
    checkpoints=st.none() | st.sampled_from([0.0, 2.0]),
    checkpoints_seen_at=st.none() | moments,
    saving=st.booleans(),
    recovery_matches=st.none() | st.booleans(),
)
disks = st.builds(
    DiskState,
    path=st.just("/data"),
    size=st.none() | numbers,
    free=st.none() | numbers,
    inodes=st.none() | numbers,
    free_inodes=st.none() | numbers,
    read_only=st.booleans(),
    seen_at=st.none() | moments,
    runs=st.sampled_from([frozenset[str](), frozenset({"demo"}), frozenset({"second"})]),
)
worlds = st.none() | st.builds(
    Snapshot,
    alerts=st.none()
    | st.builds(AlertmanagerState, st.dictionaries(fingerprints, st.sampled_from(AlertState))),
    exporter=st.none()
    | st.builds(
        ExporterState,
        st.dictionaries(keys, sights),
        available := numbers,
        available,
        servers=st.dictionaries(st.just("demo"), st.tuples(servers)),
        runs=st.dictionaries(st.just("demo"), runs),
        disks=st.just(()) | st.tuples(disks),
    ),
    unknown=st.text(max_size=5),
)
pasts = st.builds(
    PastAction,
    incident=st.integers(0, 3),
    key=keys,
    intent_at=moments,
    ended_at=st.none() | moments,
    healed=st.booleans(),
    rung=st.integers(0, 3),
    step=st.none() | numbers,
    checkpoint=st.none() | numbers,
)
configs = st.builds(
    lambda mode, cooldown, attempts, window: make_config(
        Path("/nowhere"),
        *WORKERS,
        mode=mode,
        cooldown=cooldown,
        attempts=attempts,
        attempts_window=window,
        playbooks={"any": {"condition": "any"}},
    ),
    st.sampled_from(["act", "act", "observe"]),
    st.sampled_from([0, 120, 7200]),
    st.integers(1, 4),
    st.sampled_from([1, 3600]),
)
states = st.builds(
    PolicyState,
    setup=configs.map(lambda config: Setup(config, make_watched(*WORKERS))),
    holds=st.sampled_from([(), (EVERYTHING,)]),
    incidents=st.lists(incidents, max_size=4),
    actions=st.lists(pasts, max_size=4),
    snapshot=worlds,
)


@given(incidents, states)
def test_whatever_comes_is_decided_and_never_acted_upon_without_ground(
    about: Incident, known: PolicyState
) -> None:
    decision = decide(about, known, NOW)
    assert decision.reason in get_args(Reason)
    assert (decision.verdict is Verdict.OBSERVE_FIRST) == (decision.reason == "needs_observation")
    if decision.reason == "needs_observation":
        assert known.snapshot is None
    if decision.reason == "restart":
        assert_ground_to_restart(about, known, decision)


def assert_ground_to_restart(about: Incident, known: PolicyState, decision: Decision) -> None:
    target = decision.target
    assert target in known.config.targets
    assert known.config.mode == "act"
    assert not known.holds
    assert known.snapshot is not None
    assert known.snapshot.exporter is not None
    assert known.snapshot.alerts is not None
    state_there = known.snapshot.alerts.states.get(about.fingerprint)
    done = [a for a in known.actions if a.incident == about.id and a.ended_at is not None]
    if about.resolved or NOW - about.last_received_at > known.config.alert_stale_after:
        # only a run that was healed since: it has made no step, and has no other fault
        assert decision.rung == 1
        assert done[-1].healed
        assert target.worker == "trainer"
        run = known.snapshot.exporter.runs[done[-1].key.run]
        assert not run.finished
        assert (run.last_step_at or 0) <= (done[-1].ended_at or 0)
        assert state_there in (None, AlertState.ACTIVE)
    elif decision.rung == 0:
        assert state_there is AlertState.ACTIVE
    if about.remediation == "restart_stalled_run" or decision.rung == 1:
        run = known.snapshot.exporter.runs[target.run]
        assert run.checkpoints
        assert run.recovery_matches is not False
        assert not run.saving
    own = [action for action in known.actions if action.key == target.key]
    recent = [action for action in own if NOW - action.intent_at < target.attempts_window]
    assert len(recent) < target.attempts
    assert all(NOW - min(NOW, a.acted_at) >= target.cooldown for a in own)
    assert all(a.ended_at is not None for a in known.actions if a.key.run == target.run)
    assert not any(
        other.remediation == "hold_restarts" and not other.resolved
        for other in known.incidents
        if other.run == target.run and other.worker in ("", target.worker)
    )
    worker = known.snapshot.exporter.workers[target.key]
    assert not worker.processes > worker.expected


acting = st.builds(
    replace,
    st.just(incident()),
    last_received_at=st.floats(NOW - 600, NOW),
    remediation=st.sampled_from(
        ["restart_leaking_worker", "restart_inference", "restart_stalled_run", "any"]
    ),
    resolved=st.booleans(),
)
confirming = st.builds(
    replace,
    states,
    holds=st.just(()),
    incidents=st.just(()),
    actions=st.lists(pasts, max_size=2),
    snapshot=st.just(snapshot())
    | st.builds(inference, server=servers)
    | st.builds(healthy)
    | st.builds(standing),
)


@given(acting, confirming)
def test_what_is_acted_upon_has_ground_also_where_acting_is_likely(
    about: Incident, known: PolicyState
) -> None:
    decision = decide(about, known, NOW)
    if decision.reason == "restart":
        assert_ground_to_restart(about, known, decision)


def test_a_start_command_with_a_checkpoint_needs_a_proved_one(config: Config) -> None:
    target = config.target(ROLLOUT)
    assert isinstance(target, Target)
    assert target.process is not None
    process = target.process.model_copy(update={"start": ("/bin/true", "{checkpoint}")})
    targets = (target.model_copy(update={"process": process}),)
    config = config.model_copy(update={"targets": targets})
    known = snapshot()
    assert known.exporter is not None
    decisions = [
        decide(
            incident(),
            state(
                config,
                snapshot=replace(
                    known,
                    exporter=replace(
                        known.exporter, runs={"demo": RunState(proved_checkpoint=path)}
                    ),
                ),
            ),
            NOW,
        )
        for path in ("", "/srv/checkpoint-20")
    ]
    assert [(one.verdict, one.reason) for one in decisions] == [
        (Verdict.REFUSE, "no_checkpoint"),
        (Verdict.ACT, "restart"),
    ]


def test_what_must_never_be_restarted_is_refused_for_that_reason(
    config: Config, tmp_path: Path
) -> None:
    one = Announcement(run="demo", worker="rollout-7", pid=7, restart="never")
    announced = AnnouncedRuns({one.key: AnnouncedWorker(one, tmp_path / "a.json", 0)})
    setup = Setup(config, make_watched(*WORKERS), announced=announced)
    decision = decide(incident(worker="rollout-7"), state(config, setup=setup), NOW)
    assert (decision.reason, decision.detail) == (
        "unknown_target",
        "it was started with `--restart never`",
    )
    assert decide(incident(worker="rollout-8"), state(config, setup=setup), NOW).detail == ""


def test_a_run_started_without_checkpoints_needs_you_as_soon_as_it_is_proved_to_hang(
    config: Config, tmp_path: Path
) -> None:
    one = Announcement(run="demo", worker="trainer", pid=7)
    announced = AnnouncedRuns({one.key: AnnouncedWorker(one, tmp_path / "a.json", 0)})
    setup = Setup(config, make_watched(*WORKERS), announced=announced)
    hangs = standing(checkpoints=None)
    decision = decide(STALLED, state(config, setup=setup, snapshot=hangs), NOW)
    assert (decision.verdict, decision.reason) == (Verdict.REFUSE, "no_checkpoint")
    assert "`--checkpoints FOLDER`" in decision.detail
    search = state(config, setup=setup, snapshot=standing(**HUNG_SEARCH))
    assert decide(STALLED, search, NOW).reason == "restart"
    (demo, second) = setup.exporter_config.runs
    named = CheckpointConfig.model_validate(
        {
            "name": "default",
            "folder": "/ckpt",
            "entry": r"(?P<step>\d+)",
            "complete": {"settled": ["*"]},
        }
    )
    watched = ExporterConfig(runs=(demo.model_copy(update={"checkpoints": (named,)}), second))
    setup = replace(setup, exporter_config=watched)
    decision = decide(STALLED, state(config, setup=setup, snapshot=hangs), NOW)
    assert decision.reason == "observation_failed"
