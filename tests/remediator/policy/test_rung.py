"""Each rung of a ladder: what it is about, and what stands in its way."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.remediator.samples import (
    FINGERPRINT,
    GIB,
    NOW,
    ROLLOUT,
    make_config,
    make_watched,
    make_worker,
)

from trainwarden_exporter.processes.announcements import AnnouncedRuns
from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_remediator.alertmanager.api import AlertState, Silence, SilenceMatcher
from trainwarden_remediator.config.playbooks import PLAYBOOKS
from trainwarden_remediator.config.schema import Setup
from trainwarden_remediator.config.targets import GPUS, GpuCleanup
from trainwarden_remediator.holds.hold_file import EVERYTHING, Hold
from trainwarden_remediator.model import Decision, Incident, PastAction, Verdict
from trainwarden_remediator.observation.model import DiskState, ExporterState, RunState, ServerState
from trainwarden_remediator.observation.snapshot import AlertmanagerState, Snapshot
from trainwarden_remediator.policy.context import PolicyState
from trainwarden_remediator.policy.decide import FOLLOW_UP_SECONDS, decide

TRAINER = WorkerKey("demo", "trainer")
WORKERS = ("demo/rollout-0", "demo/trainer", "second/trainer")
UP = ServerState("sglang-0", "rollout-0", "inference", up=True, reason="ok", seen_at=NOW)
DOWN = replace(UP, up=False, reason="hung")
STANDING = RunState(
    step=1874,
    last_step_at=NOW - 900,
    progress_at=NOW - 900,
    stall_limit=300,
    checkpoint=1870,
    checkpoints=3,
    recovery_matches=True,
)
HEALED = PastAction(1, ROLLOUT, NOW - 400, NOW - 390, healed=True)
"""The server was restarted, and has been up since."""


def incident(**changes: Any) -> Incident:
    down = Incident(
        id=1,
        fingerprint=FINGERPRINT,
        starts_at=NOW - 450,
        alert="TrainingInferenceDown",
        run="demo",
        worker="rollout-0",
        remediation="restart_inference",
        last_received_at=NOW - 300,
        resolved=False,
        labels={"alertname": "TrainingInferenceDown", "run": "demo"},
    )
    return replace(down, **changes)


OVER = incident(resolved=True)
HOLDING = incident(
    id=2,
    fingerprint="f" * 16,
    alert="TrainingContainerRestartLoop",
    worker="",
    remediation="hold_restarts",
)


class Scene:
    """Something to decide, in which nothing stands in the way unless a test says so."""

    def __init__(self, folder: Path, *workers: str, **config: Any) -> None:
        config.setdefault("alert_stale_after", 1000)
        self.config = make_config(folder, *(workers or WORKERS), **config)
        self.in_follow_up = make_watched(*WORKERS)
        self.server = UP
        self.run: RunState | None = STANDING
        self.disks: tuple[DiskState, ...] = ()
        self.workers = {key: make_worker(memory_bytes=GIB) for key in (ROLLOUT, TRAINER)}
        self.orphans: float | None = None
        self.available = 20 * GIB
        self.known = {FINGERPRINT: AlertState.ACTIVE}
        self.silences: tuple[Silence, ...] = ()
        self.holds: tuple[Hold, ...] = ()
        self.actions: tuple[PastAction, ...] = ()
        self.others: tuple[Incident, ...] = ()
        self.stopped: frozenset[WorkerKey] = frozenset()
        self.announced = AnnouncedRuns()

    def decide(self, about: Incident = OVER) -> Decision:
        runs = {} if self.run is None else {"demo": self.run}
        exporter = ExporterState(
            self.workers,
            self.available,
            2 * GIB,
            gpu_orphans=self.orphans,
            servers={"demo": (self.server,)},
            runs=runs,
            disks=self.disks,
        )
        state = PolicyState(
            Setup(self.config, self.in_follow_up, self.stopped, self.announced),
            holds=self.holds,
            incidents=(about, *self.others),
            actions=self.actions,
            snapshot=Snapshot(AlertmanagerState(self.known, self.silences), exporter),
        )
        return decide(about, state, NOW)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """The server is up again for long, and the run stands still."""
    made = Scene(tmp_path)
    made.actions = (HEALED,)
    made.known = {}
    return made


def test_a_run_that_stands_still_though_its_server_is_up_is_restarted(scene: Scene) -> None:
    decision = scene.decide()
    assert decision.reason == "restart"
    assert decision.target == scene.config.target(TRAINER)
    assert decision.rung == 1
    assert decision.need is not None
    assert decision.need.yields_to_halt


def test_so_it_is_when_the_alert_has_yet_to_clear(scene: Scene) -> None:
    scene.known = {FINGERPRINT: AlertState.ACTIVE}
    assert scene.decide(incident()).rung == 1


def test_it_may_take_the_time_that_the_exporter_allows_it(scene: Scene) -> None:
    scene.run = replace(STANDING, stall_limit=390)
    assert scene.decide().reason == "awaiting_progress"
    scene.run = replace(STANDING, stall_limit=389)
    assert scene.decide().reason == "restart"


def test_a_sign_of_progress_restarts_the_timer(scene: Scene) -> None:
    scene.run = replace(STANDING, progress_at=NOW - 299)
    assert scene.decide().reason == "awaiting_progress"


def test_a_run_that_has_made_its_last_step_owes_no_other_one(scene: Scene) -> None:
    scene.run = replace(STANDING, last_step_made=True)
    assert scene.decide().reason == "progressing"


def test_the_file_may_say_how_long_it_may_take(tmp_path: Path) -> None:
    for after, reason in (("389s", "restart"), ("390s", "awaiting_progress")):
        rungs = [
            {"verify": {"serves": True}},
            {"target": "trainer", "when": "no_progress", "after": after},
        ]
        scene = Scene(tmp_path, playbooks={"restart_inference": {"rungs": rungs}})
        scene.actions = (HEALED,)
        assert scene.decide().reason == reason


@pytest.mark.parametrize("resolved", [True, False])
def test_a_step_since_ends_it(scene: Scene, *, resolved: bool) -> None:
    scene.known = {FINGERPRINT: AlertState.ACTIVE}
    scene.run = replace(STANDING, last_step_at=NOW - 389)
    decision = scene.decide(incident(resolved=resolved))
    assert decision.reason == ("progressing" if resolved else "alert_lingers")
    assert decision.final is resolved


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (None, "does not show the run's progress"),
        (replace(STANDING, progress_at=None), "does not show the run's progress"),
        (replace(STANDING, stall_limit=None), "shows no stall limit"),
    ],
)
def test_what_of_a_run_is_not_seen_is_no_standstill(
    scene: Scene, run: RunState | None, words: str
) -> None:
    scene.run, scene.actions = run, (replace(HEALED, step=1874),)
    decision = scene.decide()
    assert decision.reason == "observation_failed"
    assert words in decision.detail


@pytest.mark.parametrize(("resolved", "reason"), [(True, "resolved"), (False, "alert_lingers")])
def test_where_no_steps_are_observed_a_healed_incident_ends_with_its_alert(
    scene: Scene, *, resolved: bool, reason: str
) -> None:
    scene.run = RunState(checkpoints=1)
    decision = scene.decide(incident(resolved=resolved))
    assert (decision.reason, decision.final) == (reason, resolved)


@pytest.mark.parametrize(("resolved", "reason"), [(True, "resolved"), (False, "stopped")])
def test_nobody_is_paged_for_progress_whose_trainer_an_operator_stopped(
    scene: Scene, *, resolved: bool, reason: str
) -> None:
    """The rest of the run goes on, so the next rung has no target."""
    targets = tuple(one for one in scene.config.targets if one.key != TRAINER)
    scene.config = scene.config.model_copy(update={"targets": targets})
    scene.in_follow_up = make_watched(*(one for one in WORKERS if one != "demo/trainer"))
    assert scene.decide(incident(resolved=resolved)).reason == "ladder_exhausted"
    scene.stopped = frozenset({TRAINER})
    assert scene.decide(incident(resolved=resolved)).reason == reason
    scene.announced = AnnouncedRuns(ended_with_run=frozenset({TRAINER}))
    with_run = "resolved" if resolved else "ended_with_run"
    assert scene.decide(incident(resolved=resolved)).reason == with_run


def test_what_was_waited_for_after_an_attempt_is_not_waited_for_again(scene: Scene) -> None:
    scene.run = replace(STANDING, progress_at=NOW - 20)
    failed = PastAction(1, TRAINER, NOW - 30, NOW - 10, rung=1)
    scene.actions = (HEALED, failed)
    decision = scene.decide()
    assert (decision.reason, decision.detail) == ("ladder_exhausted", "the run makes no progress")
    scene.run = replace(STANDING, last_step_at=NOW - 9)
    assert scene.decide().reason == "progressing"


def test_a_run_is_not_watched_for_ever(scene: Scene) -> None:
    long_ago = NOW - FOLLOW_UP_SECONDS
    scene.run = replace(STANDING, last_step_at=long_ago - 600)
    for healed_at, reason in ((long_ago, "restart"), (long_ago - 1, "resolved")):
        scene.actions = (replace(HEALED, intent_at=healed_at - 10, ended_at=healed_at),)
        assert scene.decide().reason == reason
    forgotten = incident(last_received_at=NOW - 1001)
    assert scene.decide(forgotten).reason == "alert_stale"


def test_watching_outlives_the_time_after_which_an_alert_is_forgotten(scene: Scene) -> None:
    assert scene.decide(incident(last_received_at=NOW - 1001)).reason == "restart"
    assert scene.decide(incident(last_received_at=NOW - 1001, resolved=True)).reason == "restart"


def test_a_new_alert_about_the_same_takes_over(scene: Scene) -> None:
    scene.others = (incident(id=7, fingerprint=FINGERPRINT, starts_at=NOW - 100),)
    assert scene.decide().reason == "resolved"
    scene.others = (incident(id=7, starts_at=NOW - 100, worker="trainer"),)
    assert scene.decide().reason == "restart"


def test_trouble_that_comes_back_while_its_alert_stands_is_tried_from_the_beginning(
    scene: Scene,
) -> None:
    scene.server = DOWN
    scene.known = {FINGERPRINT: AlertState.ACTIVE}
    decision = scene.decide(incident())
    assert (decision.reason, decision.rung) == ("restart", 0)
    scene.actions = (replace(HEALED, ended_at=NOW - 90, result_at=NOW - 100),)
    assert scene.decide(incident()).reason == "cooldown"


def test_trouble_that_comes_back_later_is_left_to_its_own_alert(scene: Scene) -> None:
    scene.server = DOWN
    decision = scene.decide()
    assert decision.reason == "condition_returned"
    assert not decision.final


# what holds on every rung


def test_an_operator_stops_every_rung(scene: Scene) -> None:
    scene.holds = (EVERYTHING,)
    assert scene.decide().reason == "held"


def test_in_observe_mode_every_rung_is_only_reported(tmp_path: Path) -> None:
    scene = Scene(tmp_path, mode="observe")
    scene.actions = (HEALED,)
    decision = scene.decide()
    assert (decision.reason, decision.rung) == ("observe_mode", 1)
    assert decision.target == scene.config.target(TRAINER)


def test_who_only_observes_calls_nobody(tmp_path: Path) -> None:
    scene = Scene(tmp_path, mode="observe")
    scene.actions, scene.run = (HEALED,), replace(STANDING, checkpoints=0)
    decision = scene.decide()
    assert (decision.reason, decision.detail) == (
        "observe_mode",
        "could not restart it: no_checkpoint",
    )


def test_one_action_at_a_time_in_a_run_on_every_rung(scene: Scene) -> None:
    scene.actions = (HEALED, PastAction(9, TRAINER, NOW - 5, None))
    assert scene.decide().reason == "busy"
    scene.actions = (HEALED, PastAction(9, GPUS, NOW - 5, None))
    assert scene.decide().reason == "busy"


def test_each_rung_has_the_budget_of_its_own_target(scene: Scene) -> None:
    scene.actions = (HEALED, PastAction(9, TRAINER, NOW - 105, NOW - 100))
    assert scene.decide().reason == "cooldown"
    three = tuple(PastAction(9, TRAINER, NOW - ago, NOW - ago + 5) for ago in (3000, 2000, 1000))
    scene.actions = (*three, HEALED)
    decision = scene.decide()
    assert (decision.reason, decision.target) == (
        "attempts_exhausted",
        scene.config.target(TRAINER),
    )
    # and what the first rung has cost is not put down to the second
    others = tuple(replace(one, key=ROLLOUT) for one in three)
    scene.actions = (*others, HEALED)
    assert scene.decide().reason == "restart"


def test_a_run_that_somebody_has_restarted_since_is_given_its_time(scene: Scene) -> None:
    scene.workers[TRAINER] = make_worker(started_at=NOW - 100)
    assert scene.decide().reason == "already_restarted"


@pytest.mark.parametrize(
    ("known", "silences", "reason"),
    [
        ({FINGERPRINT: AlertState.SILENCED}, (), "silenced"),
        ({FINGERPRINT: AlertState.INHIBITED}, (), "inhibited"),
        ({}, (Silence((SilenceMatcher("run", "demo"),)),), "silenced"),
        ({}, (Silence((SilenceMatcher("run", "second"),)),), "restart"),
    ],
)
def test_a_silence_is_heeded_also_when_the_alert_is_over(
    scene: Scene, known: dict[str, AlertState], silences: tuple[Silence, ...], reason: str
) -> None:
    scene.known, scene.silences = known, silences
    assert scene.decide().reason == reason


EVERY_RESTART = [name for name, one in PLAYBOOKS.items() if one.ladder[0].action == "restart"]


@pytest.mark.parametrize("playbook", EVERY_RESTART)
def test_an_alert_about_a_whole_run_holds_every_restart_in_it(
    tmp_path: Path, playbook: str
) -> None:
    scene = Scene(tmp_path, "demo/rollout-0", "demo/trainer")
    scene.server, scene.available = DOWN, GIB
    scene.run = replace(STANDING, progress_at=NOW - 900)
    ill = make_worker(processes=0 if playbook == "start_missing_worker" else 1, age_limit_seconds=1)
    scene.workers = {ROLLOUT: ill, TRAINER: ill}
    everywhere = {"relieve_memory": {"run": "", "worker": ""}}.get(playbook, {})
    about = incident(remediation=playbook, **everywhere)
    free = scene.decide(about).reason
    scene.others = (HOLDING,)
    assert scene.decide(about).reason in ("held_by_alert", "largest_left_alone")
    scene.others = (replace(HOLDING, resolved=True),)
    assert scene.decide(about).reason == free
    scene.others = (replace(HOLDING, run="second"),)
    assert scene.decide(about).reason == free


def test_it_holds_the_second_rung_too_and_lets_gpus_be_freed(tmp_path: Path) -> None:
    scene = Scene(tmp_path, gpu_cleanup=GpuCleanup())
    scene.actions, scene.others, scene.orphans = (HEALED,), (HOLDING,), 2
    assert scene.decide().reason == "held_by_alert"
    assert scene.decide().detail == "TrainingContainerRestartLoop"
    cleaning = incident(remediation="clean_gpu", run="", worker="")
    assert scene.decide(cleaning).reason == "clean"


def test_a_hold_may_be_the_last_rung(tmp_path: Path) -> None:
    rungs: list[dict[str, Any]] = [{}, {"action": "hold"}]
    scene = Scene(tmp_path, playbooks={"restart_inference": {"rungs": rungs}})
    scene.server, scene.actions = DOWN, (replace(HEALED, healed=False),)
    about = incident()
    decision = scene.decide(about)
    assert (decision.reason, decision.rung) == ("hold", 1)
    # what it holds is its worker, and no other
    scene.others = (about,)
    leak = incident(id=5, remediation="restart_leaking_worker")
    assert scene.decide(leak).reason == "held_by_alert"
    other = incident(id=5, remediation="restart_leaking_worker", worker="trainer")
    scene.workers[TRAINER] = make_worker()
    assert scene.decide(other).reason == "restart"


# the target of a rung


def test_without_a_trainer_that_may_be_restarted_the_on_call_is_paged(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "demo/rollout-0")
    scene.actions = (HEALED,)
    scene.run = replace(STANDING, stall_limit=1000)
    assert scene.decide().reason == "awaiting_progress"
    scene.run = STANDING
    decision = scene.decide()
    assert decision.reason == "ladder_exhausted"
    assert decision.final


def test_one_trainer_of_several_is_not_restarted_alone(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    trainers = [
        worker.model_copy(update={"role": "trainer"})
        for worker in make_watched("demo/rollout-0", "demo/trainer").runs[0].workers
    ]
    run = scene.in_follow_up.runs[0].model_copy(update={"workers": tuple(trainers)})
    scene.in_follow_up = scene.in_follow_up.model_copy(update={"runs": (run,)})
    scene.actions = (HEALED,)
    decision = scene.decide()
    assert (decision.verdict, decision.reason) == (Verdict.REFUSE, "several_trainers")
    assert decision.detail == "rollout-0 and trainer are trainers of several targets"
    stalled = incident(remediation="restart_stalled_run", worker="")
    scene.actions = ()
    assert scene.decide(stalled).reason == "several_trainers"
    # nobody is paged for what is over, silenced, or only observed
    scene.known = {FINGERPRINT: AlertState.SILENCED}
    assert scene.decide(stalled).reason == "silenced"
    scene.known = {FINGERPRINT: AlertState.ACTIVE}
    scene.config = scene.config.model_copy(update={"mode": "observe"})
    observed = scene.decide(stalled)
    assert observed.reason == "observe_mode"
    assert observed.detail == "could not restart it: several_trainers"
    scene.run = replace(STANDING, progress_at=NOW)
    assert scene.decide(stalled).reason == "condition_cleared"


def test_a_stalled_run_is_found_by_its_trainer_whatever_worker_the_alert_names(
    scene: Scene,
) -> None:
    scene.known = {FINGERPRINT: AlertState.ACTIVE}
    for worker in ("", "rollout-0", "trainer", "-oProxyCommand=x"):
        stalled = incident(id=8, remediation="restart_stalled_run", worker=worker)
        assert scene.decide(stalled).target == scene.config.target(TRAINER)
    stalled = incident(id=8, remediation="restart_stalled_run", run="third")
    assert scene.decide(stalled).reason == "unknown_target"


# what speaks against a restart


@pytest.mark.parametrize(
    ("saving", "phase", "reason"),
    [
        (True, "training", "saving"),
        (False, "saving", "saving"),
        (False, "training", "restart"),
    ],
)
def test_a_trainer_that_saves_is_given_its_time(
    scene: Scene, *, saving: bool, phase: str, reason: str
) -> None:
    leak = incident(id=5, remediation="restart_leaking_worker", worker="trainer")
    scene.known = {FINGERPRINT: AlertState.ACTIVE}
    scene.workers[TRAINER] = make_worker()
    scene.run = replace(STANDING, progress_at=NOW, saving=saving, phase=phase)
    assert scene.decide(leak).reason == reason


def test_a_save_whose_writer_has_ended_is_not_waited_for(scene: Scene) -> None:
    gone = incident(id=5, remediation="start_missing_worker", worker="trainer")
    scene.known = {FINGERPRINT: AlertState.ACTIVE}
    scene.workers[TRAINER] = make_worker(processes=0, started_at=None)
    scene.run = replace(STANDING, saving=True)
    assert scene.decide(gone).reason == "restart"


def test_but_no_longer_than_is_allowed(scene: Scene) -> None:
    scene.known = {FINGERPRINT: AlertState.ACTIVE}
    scene.workers[TRAINER] = make_worker()
    scene.run = replace(STANDING, saving=True)
    leak = incident(id=5, remediation="restart_leaking_worker", worker="trainer")
    for last_decided_at, reason in ((NOW - 599, "saving"), (NOW - 600, "restart")):
        assert (
            scene.decide(
                replace(leak, last_decision="wait saving", last_decided_at=last_decided_at)
            ).reason
            == reason
        )
    later = replace(leak, last_decision="wait cooldown", last_decided_at=NOW - 5000)
    assert scene.decide(later).reason == "saving"


@pytest.mark.parametrize(
    ("server", "reason"),
    [
        ({}, "restart"),
        ({"up": False, "reason": "hung"}, "root_cause_elsewhere"),
        ({"up": False, "reason": "starting"}, "root_cause_elsewhere"),
        ({"up": False, "reason": "unreachable"}, "root_cause_elsewhere"),
        ({"failures": 1}, "root_cause_elsewhere"),
        ({"reason": "busy"}, "root_cause_elsewhere"),
        ({"up": False, "reason": "busy"}, "root_cause_elsewhere"),
        # what has not been seen for long explains nothing, nor what the run does not wait for
        ({"up": False, "reason": "hung", "seen_at": NOW - 121}, "restart"),
        ({"up": False, "reason": "hung", "role": "judge"}, "restart"),
        # it has been back for a while only
        ({"since": NOW - 299}, "condition_cleared"),
        ({"since": NOW - 301}, "restart"),
        # and a weight update that goes on for ever is what a trainer hangs in
        ({"reason": "updating_weights", "since": NOW - 301}, "restart"),
    ],
)
def test_a_standstill_that_a_server_explains_is_not_the_trainers(
    scene: Scene, server: dict[str, Any], reason: str
) -> None:
    scene.known = {FINGERPRINT: AlertState.ACTIVE}
    scene.actions = ()
    scene.server = replace(UP, **server)
    stalled = incident(id=8, remediation="restart_stalled_run", worker="")
    assert scene.decide(stalled).reason == reason


def test_nor_is_it_while_the_run_is_watched(scene: Scene) -> None:
    scene.server = replace(UP, failures=1)
    assert scene.decide().reason == "root_cause_elsewhere"
    scene.server = replace(UP, worker="elsewhere", up=False, reason="refused")
    assert scene.decide().reason == "observation_failed"


def test_a_saving_phase_without_writes_does_not_block_a_restart(
    scene: Scene,
) -> None:
    scene.known = {FINGERPRINT: AlertState.ACTIVE}
    scene.run = replace(STANDING, phase="saving")
    stalled = incident(id=8, remediation="restart_stalled_run")
    assert scene.decide(stalled).reason == "restart"


def test_what_is_no_trainer_is_not_protected(scene: Scene) -> None:
    scene.server, scene.actions = DOWN, ()
    scene.known = {FINGERPRINT: AlertState.ACTIVE}
    scene.run = replace(STANDING, saving=True)
    assert scene.decide(incident()).reason == "restart"


FULL = DiskState("/data", size=1e12, free=1e8, inodes=1e6, free_inodes=5e5, seen_at=NOW)


@pytest.mark.parametrize(
    ("disk", "path", "message"),
    [
        (FULL, None, "the disk of /data is full"),
        (FULL, "/data/exp", "the disk of /data is full"),
        (replace(FULL, runs=frozenset({"demo"})), "/elsewhere", "the disk of /data is full"),
        (replace(FULL, runs=frozenset({"second"})), None, ""),
        (FULL, "/elsewhere", ""),
        (FULL, "/database", ""),
        (replace(FULL, free=None), None, ""),
        (replace(FULL, free=2e9), None, ""),
        # on a small disk, a small rest is enough
        (replace(FULL, size=5e9, free=5.1e7), None, ""),
        (replace(FULL, size=5e9, free=4.9e7), None, "the disk of /data is full"),
        (replace(FULL, free=2e9, free_inodes=0), None, "the disk of /data is out of inodes"),
        # some file systems have none to count
        (replace(FULL, free=2e9, inodes=0, free_inodes=0), None, ""),
        (replace(FULL, free=2e9, up=False), None, "the disk of /data does not answer"),
        (replace(FULL, free=2e9, read_only=True), None, "the disk of /data is read-only"),
        (replace(FULL, free=2e9, seen_at=NOW - 121), None, "the disk of /data does not answer"),
    ],
)
def test_a_disk_on_which_a_restart_could_not_write_forbids_it(
    scene: Scene, disk: DiskState, path: str | None, message: str
) -> None:
    runs = [
        run.model_copy(update={"path": None if path is None else Path(path)})
        for run in scene.in_follow_up.runs
    ]
    scene.in_follow_up = scene.in_follow_up.model_copy(update={"runs": tuple(runs)})
    scene.disks = (disk,)
    decision = scene.decide()
    assert (decision.reason, decision.detail) == (
        ("disk_unusable", message) if message else ("restart", "")
    )


def test_of_disks_within_disks_the_nearest_counts(scene: Scene) -> None:
    runs = [run.model_copy(update={"path": Path("/data/exp")}) for run in scene.in_follow_up.runs]
    scene.in_follow_up = scene.in_follow_up.model_copy(update={"runs": tuple(runs)})
    scene.disks = (replace(FULL, path="/"), replace(FULL, free=2e9))
    assert scene.decide().reason == "restart"
    scene.disks = (replace(FULL, path="/", free=2e9), FULL)
    assert scene.decide().detail == "the disk of /data is full"
    # and where it keeps its checkpoints besides
    kept = replace(FULL, path="/backup", runs=frozenset({"demo"}))
    scene.disks = (replace(FULL, free=2e9), kept)
    assert scene.decide().detail == "the disk of /backup is full"


def test_what_is_seen_in_place_of_a_dead_server_is_reported(scene: Scene) -> None:
    scene.server, scene.actions = replace(DOWN, reason="unreachable"), ()
    scene.known = {FINGERPRINT: AlertState.ACTIVE}
    decision = scene.decide(incident())
    assert (decision.reason, decision.detail) == ("condition_cleared", "sglang-0: unreachable")


def restarts(*steps: float | None, checkpoint: float | None = None) -> tuple[PastAction, ...]:
    """Restarts of the trainer long ago, the run having come to these steps."""
    return tuple(
        PastAction(9, TRAINER, NOW - 90_000 + i, NOW - 89_000 + i, step=step, checkpoint=checkpoint)
        for i, step in enumerate(steps)
    )


@pytest.mark.parametrize(
    ("past", "reason"),
    [
        (restarts(1874, 1874, 1874), "restarts_without_progress"),
        (restarts(1880, 1875, 1874), "restarts_without_progress"),
        (restarts(1874, 1874), "restart"),
        (restarts(1873, 1874, 1874), "restart"),
        # what came before the last progress does not count
        (restarts(1860, 1860, 1860, 1870), "restart"),
        # a fault that comes a step sooner or later brings the run no further
        (restarts(1874, 1872, 1873), "restarts_without_progress"),
        (restarts(1874, 1874, 1874, 1800), "restarts_without_progress"),
        # another run of that name
        (restarts(4000, 4000, 4000, 1800), "restart"),
        (restarts(1874, None, 1874), "restart"),
        (restarts(None, None, None), "restart"),
        (restarts(None, None, None, checkpoint=1870), "restarts_without_progress"),
        # a newer checkpoint is progress, though the step is not known to be a newer one
        (restarts(1874, 1874, 1874, checkpoint=1869), "restart"),
    ],
)
def test_restarts_that_bring_the_run_no_further_come_to_an_end(
    scene: Scene, past: tuple[PastAction, ...], reason: str
) -> None:
    scene.actions = (*past, HEALED)
    decision = scene.decide()
    assert decision.reason == reason
    assert decision.final is (reason == "restarts_without_progress")


def test_a_run_that_was_taken_back_to_an_older_checkpoint_need_not_exceed_its_highest_step(
    scene: Scene,
) -> None:
    long_before = restarts(1900, 1900, 1900, checkpoint=1890)
    scene.actions = (*long_before, *restarts(1874, checkpoint=1870), HEALED)
    assert scene.decide().reason == "restart"
    scene.actions = (*long_before, *restarts(1874, 1873, 1872, checkpoint=1870), HEALED)
    assert scene.decide().reason == "restarts_without_progress"


def test_where_no_progress_is_shown_restarts_are_not_counted_for_fruitless(scene: Scene) -> None:
    scene.known = {FINGERPRINT: AlertState.ACTIVE}
    scene.workers[TRAINER] = make_worker()
    scene.run = None
    scene.actions = restarts(1874, 1874, 1874)
    leak = incident(id=5, remediation="restart_leaking_worker", worker="trainer")
    assert scene.decide(leak).reason == "restart"


def test_the_operator_limits_the_restarts_without_progress(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    patient = tuple(
        t.model_copy(update={"max_restarts_without_progress": 4}) for t in scene.config.targets
    )
    scene.config = scene.config.model_copy(update={"targets": patient})
    scene.actions = (*restarts(1874, 1874, 1874), HEALED)
    assert scene.decide().reason == "restart"
    scene.actions = (*restarts(1874, 1874, 1874, 1874), HEALED)
    assert scene.decide().reason == "restarts_without_progress"


def test_a_run_at_a_prompt_is_left_to_its_operator(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.known = {FINGERPRINT: AlertState.ACTIVE}
    stalled = incident(remediation="restart_stalled_run", worker="")
    assert scene.decide(stalled).reason == "restart"

    waits = "process 7 of trainer waits for you at a prompt at train.py:8"
    scene.run = replace(STANDING, at_prompt=True, waits=waits)
    decision = scene.decide(stalled)
    assert (decision.text, decision.detail) == ("wait at_prompt", waits)
    down = replace(DOWN, since=NOW - 900)
    scene.server = down
    assert scene.decide(incident()).reason == "restart"


def test_a_run_whose_stacks_move_has_the_time_of_an_evaluation(tmp_path: Path) -> None:
    """An error line makes the alert fire after a minute; the error may have been caught."""
    scene = Scene(tmp_path)
    stalled = incident(remediation="restart_stalled_run", worker="")
    silent = replace(STANDING, moving=True, progress_at=NOW - 3000, restart_limit=3600)
    scene.run = silent
    assert scene.decide(stalled).text == "wait moving"
    scene.run = replace(silent, moving=False, undecided=True)
    assert scene.decide(stalled).text == "wait undecided"
    scene.run = replace(scene.run, restart_limit=2900)
    assert scene.decide(stalled).reason == "restart"
    scene.run = replace(silent, restart_limit=2900)
    assert scene.decide(stalled).reason == "restart"
    scene.run = replace(silent, moving=False)
    assert scene.decide(stalled).reason == "restart"


@pytest.mark.parametrize(
    ("limit", "text"), [(3600, "wait moving"), (2900, "act restart"), (math.inf, "act restart")]
)
def test_a_run_that_is_awake_has_that_time_only_where_its_pace_is_known(
    tmp_path: Path, limit: float, text: str
) -> None:
    """A run that polls for ever is awake, too."""
    scene = Scene(tmp_path)
    stalled = incident(remediation="restart_stalled_run", worker="")
    scene.run = replace(STANDING, awake=True, progress_at=NOW - 3000, restart_limit=limit)
    assert scene.decide(stalled).text == text


def test_a_run_whose_processes_are_stopped_is_left_to_its_operator(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    stalled = incident(remediation="restart_stalled_run", worker="")
    for halted in (TRAINER, ROLLOUT):  # a trainer waits for a stopped rollout worker
        scene.workers[halted] = make_worker(stopped=1)
        assert scene.decide(stalled).text == "wait suspended"
        scene.workers[halted] = make_worker()

    scene.workers[TRAINER] = make_worker(stopped=1)
    over = incident(worker="trainer", remediation="restart_worker", resolved=False)
    assert scene.decide(over).reason != "suspended"  # the host may need its memory
    scene.workers[TRAINER] = make_worker(stopped=0)
    assert scene.decide(stalled).reason == "restart"
