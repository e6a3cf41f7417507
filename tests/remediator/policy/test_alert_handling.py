"""Who acts on the alerts of what an operator has stopped, or started again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
from tests.remediator.samples import OTHER, ROLLOUT, TRAINER, announced, make_alert, make_setup

from trainwarden_exporter.checkpoints.damages import DamageKind
from trainwarden_exporter.processes.announcements import AnnouncedWorker
from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.runtime.responsibility import NOBODY, OF_STANDSTILL, REMEDIATOR, YOU
from trainwarden_exporter.webserver.runbooks import first_step
from trainwarden_remediator.config.notifications import NotifySettings
from trainwarden_remediator.holds.hold_file import Hold
from trainwarden_remediator.model import Incident, PastAction
from trainwarden_remediator.observation.model import ExporterState, RunState
from trainwarden_remediator.policy.alert_handling import build_alert_views
from trainwarden_remediator.policy.situation import Situation, situation_of

RECEIVER = {"name": "phone", "kind": "ntfy", "url": "https://ntfy.sh/a"}
NO_PLAYBOOK = "the remediator takes no action on it"


FINISHED: list[dict[str, Any]] = [
    {"finished": {"demo"}},
    {"announced": announced(state="finished"), "trainers": (TRAINER,)},
]


@pytest.mark.parametrize("situation", FINISHED, ids=["as the exporter shows", "as announced"])
@pytest.mark.parametrize(
    ("name", "worker", "who", "handling"),
    [
        ("TrainingWorkerRestartLoop", "trainer", NOBODY, "seven minutes"),
        ("TrainingWorkerMemoryOverLimit", "trainer", NOBODY, ""),
        ("TrainingStepStalled", "", NOBODY, "half a minute"),
        ("TrainingCheckpointOverdue", "", NOBODY, ""),
        ("TrainingWaitingForRollouts", "", NOBODY, ""),
        ("TrainingInferenceDown", "server", NOBODY, ""),
        ("TrainingTroubleLine", "", NOBODY, "10 min of the line"),
        ("TrainingNotFinite", "", YOU, NO_PLAYBOOK),
        ("TrainingCheckpointDamaged", "", YOU, NO_PLAYBOOK),
        ("TrainingGpuFault", "", YOU, NO_PLAYBOOK),
        ("TrainingDiskFilling", "", YOU, NO_PLAYBOOK),
    ],
)
def test_an_alert_that_ends_with_its_run_is_for_nobody_once_the_run_has_finished(
    situation: dict[str, Any], name: str, worker: str, who: str, handling: str
) -> None:
    """Its step, such as `start it yourself`, would start a finished training again."""
    alert = make_alert(alertname=name, worker=worker, severity="critical", remediation="")
    known = Situation(alert.starts_at + 60, **situation)
    (view,) = build_alert_views((alert,), (), 0, known) or ()
    within = f": the alert ends within {handling}" if handling else ""
    over = f"its run has finished{within}" if who == NOBODY else handling
    assert (view.who, view.handling) == (who, over)
    other = make_alert(alertname=name, worker=worker, run="second", remediation="")
    assert "has finished" not in (build_alert_views((other,), (), 0, known) or ())[0].handling


def test_a_finished_worker_is_no_end_of_the_others() -> None:
    done = announced(worker="rollout-0", state="finished")
    known = Situation(0, announced={**announced(), **done}, trainers=(TRAINER,))
    found = [known.has_finished("demo", worker) for worker in ("rollout-0", "trainer", "", "odd")]
    assert found == [True, False, False, False]
    assert not known.has_finished("", "")


@pytest.mark.parametrize(
    ("name", "soon"),
    [
        ("TrainingStepStalled", "half a minute"),
        ("TrainingWorkerGone", "half a minute"),
        ("TrainingRemediationGaveUp", "two minutes"),
    ],
)
def test_an_alert_that_an_operator_ends_is_for_nobody(name: str, soon: str) -> None:
    alert = make_alert(alertname=name)
    stopped = Situation(alert.starts_at + 60, is_stopped=lambda *_: True)

    (view,) = build_alert_views((alert,), (), 0, stopped) or ()
    assert view.who == NOBODY
    assert view.handling == f"it was stopped: the alert ends within {soon}"

    (view,) = build_alert_views((alert,), (), 0, Situation(alert.starts_at + 60)) or ()
    assert "was stopped" not in view.handling

    changes: list[tuple[dict[str, Any], str]] = [
        ({}, NOBODY),
        ({"state": "failed"}, YOU),
        ({"announced_at": 0.0}, YOU),
    ]
    for change, who in changes:
        one = announced(worker="rollout-0", **{"announced_at": alert.starts_at + 1, **change})
        known = Situation(alert.starts_at + 60, announced=one, given_up=(ROLLOUT,))
        (view,) = build_alert_views((alert,), (), 0, known) or ()
        assert view.who == who
        again = f"it was started again: the alert ends within {soon}"
        assert (view.handling == again) == (who == NOBODY)


@pytest.mark.parametrize(
    ("change", "later", "who"),
    [
        ({}, 60, NOBODY),
        ({}, 600, YOU),
        ({"counted_since": 0.0}, 60, YOU),
        ({"own_restarts": ((2e9, 256),)}, 60, YOU),
        ({"state": "failed"}, 60, YOU),
    ],
)
def test_a_restart_loop_is_over_once_an_operator_has_started_the_worker(
    change: dict[str, Any], later: float, who: str
) -> None:
    """The alert is kept for five minutes more; a start that does not begin the count is no end."""
    loop = make_alert(alertname="TrainingWorkerRestartLoop", remediation="hold_restarts")
    at = loop.starts_at + 300
    started = {"announced_at": at, "counted_since": at, "worker": "rollout-0", **change}
    incident = Incident(
        *(7, loop.fingerprint, loop.starts_at, loop.name, "demo", "rollout-0", "hold_restarts"),
        last_received_at=loop.starts_at,
        resolved=False,
        last_decision="act hold",
    )
    known = Situation(at + later, announced=announced(**started))
    (view,) = build_alert_views((loop,), (incident,), 1, known) or ()
    assert view.who == who
    again = "it was started again: the alert ends within seven minutes"
    assert (view.handling == again) == (who == NOBODY)


@pytest.mark.parametrize("result", [None, "done"])
def test_a_restart_loop_is_yours_while_the_last_restart_is_checked(
    result: Literal["done"] | None,
) -> None:
    """As it was called out."""
    loop = make_alert(alertname="TrainingWorkerRestartLoop", remediation="hold_restarts")
    incident = Incident(
        *(7, loop.fingerprint, loop.starts_at, loop.name, "demo", "rollout-0", "hold_restarts"),
        last_received_at=loop.starts_at,
        resolved=False,
        last_decision="act hold",
    )
    key = WorkerKey("demo", "rollout-0")
    restart = PastAction(9, key, loop.starts_at - 5, None, kind="restart", result=result)
    now = Situation(loop.starts_at + 60, actions=[restart])
    (view,) = build_alert_views((loop,), (incident,), 1, now) or ()
    assert (view.who, view.handling.partition(":")[0]) == (YOU, "mend its cause")
    stall = replace(incident, last_decision="wait busy", last_detail="of demo/rollout-0")
    (view,) = build_alert_views((loop,), (stall,), 1, replace(now, actions=[])) or ()
    assert view.handling == "waits: another action is in progress (of demo/rollout-0)"


@pytest.mark.parametrize(
    ("name", "who", "handling"),
    [
        ("TrainingNotFinite", NOBODY, "an operator has stopped it"),
        ("TrainingTroubleLine", NOBODY, "its run has been stopped: the alert ends within 10 min"),
        ("TrainingGpuLinkSlow", YOU, NO_PLAYBOOK),
        ("TrainingDiskReadOnly", YOU, NO_PLAYBOOK),
        ("TrainingDiskFilling", NOBODY, "an operator has stopped it"),
        (
            *("TrainingWorkerRestartLoop", NOBODY),
            "it was stopped: the alert ends within seven minutes",
        ),
        ("TrainingWorkerMemoryOverLimit", NOBODY, "an operator has stopped it"),
        ("TrainingCheckpointDamaged", YOU, NO_PLAYBOOK),
        ("TrainingRemediationHeld", YOU, NO_PLAYBOOK),
    ],
)
def test_a_stop_mends_the_faults_of_a_run_and_not_of_a_device_or_a_file(
    name: str, who: str, handling: str
) -> None:
    """Neither does the decision that it was stopped."""
    alert = make_alert(alertname=name, severity="warning", remediation="")
    stopped = Situation(alert.starts_at + 60, is_stopped=lambda *_: True)
    (view,) = build_alert_views((alert,), (), 0, stopped) or ()
    assert (view.who, view.handling[: len(handling)]) == (who, handling)
    incident = Incident(
        *(7, alert.fingerprint, alert.starts_at, name, "demo", "rollout-0", "hold"),
        last_received_at=alert.starts_at,
        resolved=False,
    )
    for reason in ("stopped", "ended_with_run"):
        decided = replace(incident, last_decision=f"refuse {reason}")
        (view,) = build_alert_views((alert,), (decided,), 1, stopped) or ()
        assert view.who == who
    with_run = replace(stopped, stop_reason=lambda *_: "ended_with_run")
    (view,) = build_alert_views((alert,), (), 0, with_run) or ()
    assert "an operator" not in view.handling


def announce(*workers: str, at: float) -> dict[WorkerKey, AnnouncedWorker]:
    ones = (announced(worker=worker, announced_at=at) for worker in workers)
    return {key: one for found in ones for key, one in found.items()}


@pytest.mark.parametrize(
    ("alert", "key", "refused"),
    [
        ("TrainingRemediationGaveUp", TRAINER, True),
        ("TrainingRemediationGaveUp", ROLLOUT, False),  # it has a reason of its own
        ("TrainingStepStalled", WorkerKey("demo", ""), True),
        ("TrainingNotFinite", TRAINER, False),
    ],
)
def test_what_was_given_up_without_an_attempt_says_why(
    alert: str, key: WorkerKey, refused: bool
) -> None:
    """What was refused is the stall of the whole run: its trainer was given up."""
    fires = make_alert(alertname=alert, remediation="", severity="critical", worker=key.worker)
    now = fires.starts_at + 60
    known = Situation(now, given_up=(ROLLOUT, TRAINER), trainers=(TRAINER,))
    stalls = [
        Incident(
            *(7, "of-the-stall", now - 90, "TrainingStepStalled", run, "", "restart_stalled_run"),
            last_received_at=now,
            resolved=False,
            last_decision="refuse no_checkpoint",
        )
        for run in ("demo", "other")
    ]
    (view,) = build_alert_views((fires,), stalls[:1], 1, known) or ()
    needed = "no complete checkpoint to resume from"
    assert view.who == YOU
    assert (view.handling == f"the remediator does not act: {needed}") == refused
    assert (view.reason, view.incident) == (("no_checkpoint", 7) if refused else ("", None))
    (view,) = build_alert_views((fires,), stalls[1:], 1, known) or ()
    assert view.incident is None


def test_where_no_receiver_has_the_event_nobody_was_called(tmp_path: Path) -> None:
    fires = make_alert()
    called = Incident(
        *(7, fires.fingerprint, fires.starts_at, fires.name, "demo", "rollout-0", "page"),
        last_received_at=fires.starts_at,
        resolved=False,
        last_decision="wait awaiting_operator",
    )
    gave_up, paged = ({**RECEIVER, "events": [event]} for event in ("gave_up", "paged"))
    nobody = "calls nobody, as `notify` in remediator.yml has no receiver for `paged`"
    for receiver, calls, text in (
        (paged, False, "the remediator does not act: the on-call was notified"),
        (gave_up, True, f"the remediator {nobody}"),
    ):
        setup = make_setup(tmp_path)
        notify = NotifySettings.model_validate({"receivers": [receiver]})
        setup = replace(setup, config=setup.config.model_copy(update={"notify": notify}))
        known = situation_of(setup, fires.starts_at + 60)
        assert known.calls == calls
        (view,) = build_alert_views((fires,), (called,), 1, known) or ()
        assert (view.who, view.handling) == (YOU, text)


@pytest.mark.parametrize(
    ("workers", "who"),
    [(("rollout-0",), YOU), (("trainer",), NOBODY), (("rollout-0", "trainer"), NOBODY)],
)
def test_a_hang_is_over_only_if_the_trainer_was_started(workers: tuple[str, ...], who: str) -> None:
    """Another worker of the run, started again, ends no hang."""
    stall = make_alert(alertname="TrainingStepStalled", worker="")
    started = announce(*workers, at=stall.starts_at + 30)
    known = Situation(
        stall.starts_at + 60, announced=started, trainers=(TRAINER, OTHER), mode="observe"
    )
    (view,) = build_alert_views((stall,), (), 0, known) or ()
    assert view.who == who


@pytest.mark.parametrize(
    ("name", "seconds"),
    [("TrainingStepStalled", 60), ("TrainingWorkerGone", 60), ("TrainingRemediationGaveUp", 150)],
)
def test_a_start_is_believed_for_no_longer_than_the_alert_may_last(name: str, seconds: int) -> None:
    """Its announcement may go on though the command, with its `trainwarden run`, was killed."""
    alert = make_alert(alertname=name)
    started = announce("rollout-0", at=alert.starts_at + 5)
    for after, who in ((seconds - 1, NOBODY), (seconds, YOU)):
        now = alert.starts_at + 5 + after
        known = Situation(now, announced=started, given_up=(ROLLOUT,))
        (view,) = build_alert_views((alert,), (), 0, known) or ()
        assert view.who == who


@pytest.mark.parametrize("kind", [*DamageKind, None])
def test_the_first_step_about_a_damaged_checkpoint_is_that_of_its_damage(
    kind: DamageKind | None,
) -> None:
    """The words of its description decide nothing: a rule may be translated, or changed."""
    name = "TrainingCheckpointDamaged"
    alert = make_alert(alertname=name, run="demo", worker="", severity="critical", remediation="")
    annotations = {"description": "A file was bad (zeros).", "damage": kind or ""}
    alert = replace(alert, annotations=annotations)
    (view,) = build_alert_views((alert,), (), 0, Situation(alert.starts_at + 60)) or ()
    step, general = first_step(name, view.step_labels), "`trainwarden checkpoints demo` names each"
    assert step.startswith(general) is (kind is None)
    is_cut = kind in ("truncated", "interrupted")
    assert step.startswith("A file ends before its format says so. ") is is_cut
    assert step.startswith("A file that another one names, ") is (kind == "missing")
    assert "disk was full" not in step  # which nobody knows
    assert step.startswith("The run had diverged before it saved. ") is (kind == "not_finite")


@pytest.mark.parametrize(
    ("name", "remediation", "decision", "is_held"),
    [
        ("TrainingCheckpointDamaged", "", "", False),
        ("TrainingDiskFilling", "hold_restarts", "act hold", False),
        ("TrainingDiskFilling", "hold_restarts", "", True),
        ("TrainingWorkerGone", "start_missing_worker", "wait held", True),
        ("TrainingWorkerGone", "start_missing_worker", "wait managed_elsewhere", False),
        ("TrainingWorkerGone", "start_missing_worker", "refuse unknown_target", False),
        ("TrainingStepStalled", "", "", True),
        ("TrainingRemediationHeld", "", "", True),
        ("TrainingErrorStorm", "", "", True),
    ],
)
def test_who_set_a_hold_acts_where_its_end_changes_something(
    name: str, remediation: str, decision: str, *, is_held: bool
) -> None:
    alert = make_alert(alertname=name, severity="critical", remediation=remediation)
    incident = Incident(
        *(7, alert.fingerprint, alert.starts_at, name, "demo", "rollout-0", remediation),
        last_received_at=alert.starts_at,
        resolved=False,
        last_decision=decision,
    )
    held = Situation(alert.starts_at + 60, holds=[Hold(who="root")])
    known = (incident,) if remediation else ()
    (view,) = build_alert_views((alert,), known, len(known), held) or ()
    assert view.who == ("root, until the hold is lifted" if is_held else YOU)


def test_what_a_run_that_stands_still_does_not_do_is_for_nobody() -> None:
    """Alertmanager drops it only beside the critical alert of the stall."""
    quiet: dict[str, Any] = {"severity": "warning", "remediation": "", "worker": ""}
    stall = make_alert(alertname="TrainingStepStalled", fingerprint="1" * 16, **quiet)
    overdue = make_alert(alertname="TrainingCheckpointOverdue", fingerprint="2" * 16, **quiet)
    situation = Situation(stall.starts_at + 60, may_restart=[TRAINER], trainers=[TRAINER])
    first, second = build_alert_views((overdue, stall), (), 0, situation) or ()
    assert (first.alert.name, first.who) == (stall.name, REMEDIATOR)
    assert (second.alert.name, second.who, second.handling) == (overdue.name, NOBODY, OF_STANDSTILL)
    (alone,) = build_alert_views((overdue,), (), 0, situation) or ()
    assert alone.who == YOU


def test_what_somebody_acts_on_comes_before_what_is_over() -> None:
    over = make_alert(alertname="TrainingWorkerRestartLoop", severity="critical", run="second")
    slow: dict[str, Any] = {"severity": "warning", "remediation": ""}
    rank = make_alert(alertname="TrainingRankSlow", fingerprint="2" * 16, **slow)
    situation = Situation(over.starts_at + 60, is_stopped=lambda run, _: run == "second")
    held = replace(situation, holds=[Hold(who="root", run="demo")])
    gone = make_alert(alertname="TrainingWorkerGone", fingerprint="2" * 16, severity="warning")
    for other, known in ((rank, situation), (gone, held)):
        first, second = build_alert_views((over, other), (), 0, known) or ()
        assert (first.alert, second.who) == (other, NOBODY)


@pytest.mark.parametrize("cause", ["slow", "inference_down"])
def test_a_wait_for_rollouts_is_for_nobody_once_a_step_or_a_healing_ends_it(cause: str) -> None:
    name = "TrainingWaitingForRollouts"
    wait = make_alert(alertname=name, severity="warning", worker="", remediation="", cause=cause)
    now = wait.starts_at + 60
    healed = PastAction(1, ROLLOUT, now - 40, now - 20, healed=True)

    def handling(*actions: PastAction, **changes: Any) -> tuple[str, str]:
        (view,) = (
            build_alert_views((wait,), (), 0, Situation(now, actions=actions, **changes)) or ()
        )
        return view.who, view.handling

    stepped = "its run has made a step since: the alert ends within half a minute"
    for at in (wait.starts_at - 5, wait.starts_at + 5):  # it fires by the scrape before
        assert handling(last_steps={"demo": at}) == (NOBODY, stepped)
    yours = (YOU, NO_PLAYBOOK)
    assert handling(last_steps={"demo": wait.starts_at - 40, "other": now}) == yours
    after = "demo/rollout-0 was healed: the alert ends within two minutes"
    assert handling(healed) == ((NOBODY, after) if cause == "slow" else yours)
    assert handling(replace(healed, ended_at=now - 130)) == yours
    assert handling(replace(healed, healed=False)) == yours
    assert handling(replace(healed, key=WorkerKey("other", "rollout-0"))) == yours


@pytest.mark.parametrize("severity", ["warning", "critical"])
def test_a_stall_is_for_nobody_once_its_run_makes_steps_again(severity: str) -> None:
    quiet: dict[str, Any] = {"worker": "", "remediation": "", "severity": severity}
    stall = make_alert(alertname="TrainingStepStalled", fingerprint="1" * 16, **quiet)
    now = stall.starts_at + 60
    known = Situation(now, may_restart=[TRAINER], trainers=[TRAINER])

    def handling(**changes: Any) -> list[tuple[str, str]]:
        views = build_alert_views((stall,), (), 0, replace(known, **changes)) or ()
        return [(one.who, one.handling) for one in views]

    again = [(NOBODY, "its run has made a step since: the alert ends within half a minute")]
    since = {"demo": stall.starts_at + 1}
    assert handling(last_steps=since) == again
    assert handling(last_steps=since, mode="observe") == again
    assert handling(last_steps=since, holds=[Hold(who="root")]) == again
    before = {"demo": stall.starts_at - 1, "other": now}
    assert handling(last_steps=before) == handling() != again
    halted = {"demo": "it waits for you at a prompt"}
    assert handling(last_steps=since, halted=halted) == handling(halted=halted) != again


@pytest.mark.parametrize("severity", ["warning", "critical"])
def test_the_stall_of_a_run_that_is_dead_is_about_its_end(severity: str) -> None:
    """Its stacks show nothing any more."""
    quiet: dict[str, Any] = {"worker": "", "remediation": "", "severity": severity}
    stall = make_alert(alertname="TrainingStepStalled", **quiet)
    alone = Situation(stall.starts_at + 60, trainers=[TRAINER])
    known = replace(alone, dead=["demo"])
    soon = "restarts demo/trainer once its alert fires, some 20 s after its end"
    not_able = (YOU, "the remediator may not restart it")
    for now, handling in (
        (alone, not_able),
        (known, not_able),
        (replace(known, may_restart=[TRAINER]), (REMEDIATOR, soon)),
    ):
        (view,) = build_alert_views((stall,), (), 0, now) or ()
        assert (view.who, view.handling) == handling
        step = first_step(stall.name, view.step_labels)
        assert step.startswith("`trainwarden stacks demo`") is (now is alone)
        assert step.startswith("The last lines of its log show why ") is (now is not alone)


def test_the_last_step_of_a_run_that_has_finished_ends_no_wait() -> None:
    runs = {
        "demo": RunState(last_step_at=7.0),
        "done": RunState(last_step_at=8.0, finished=True),
        "new": RunState(),
    }
    assert ExporterState({}, 0, 0, runs=runs).last_steps == {"demo": 7.0}
