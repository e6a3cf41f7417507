"""Who acts on an error line: who acts on the fault that it is a sign of."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.remediator.samples import LATER, NOW, ROLLOUT, TRAINER, announced, make_alert

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.runtime.responsibility import NOBODY, REMEDIATOR, YOU
from trainwarden_remediator.alertmanager.webhook_payload import Alert
from trainwarden_remediator.holds.hold_file import Hold
from trainwarden_remediator.model import Incident, PastAction
from trainwarden_remediator.policy.alert_handling import AlertView, build_alert_views
from trainwarden_remediator.policy.situation import Situation

LINE = make_alert(
    alertname="TrainingTroubleLine",
    fingerprint=LATER,
    starts_at=NOW - 100,
    severity="warning",
    remediation="",
    worker="",
    log="trainer",
)
GONE = make_alert(
    alertname="TrainingWorkerGone",
    starts_at=NOW - 10,
    severity="critical",
    remediation="start_missing_worker",
    worker="trainer",
)
DECIDED = Incident(
    id=1,
    fingerprint=GONE.fingerprint,
    starts_at=GONE.starts_at,
    alert=GONE.name,
    run="demo",
    worker="trainer",
    remediation="start_missing_worker",
    last_received_at=NOW,
    resolved=False,
    last_decision="wait cooldown",
)


FAILED = announced(state="failed", exits=((7, 1, 9),), ended_at=NOW - 110)


def views(
    *alerts: Alert, incidents: tuple[Incident, ...] = (), **situation: Any
) -> list[AlertView]:
    able = {"may_restart": (TRAINER, ROLLOUT)}
    known = Situation(NOW, trainers=(TRAINER,), **(able | situation))
    return list(build_alert_views(alerts, incidents, len(incidents), known) or ())


def test_an_error_line_of_a_run_that_goes_on_is_for_you() -> None:
    (view,) = views(LINE, announced=announced())
    assert (view.who, view.handling) == (YOU, "the remediator takes no action on it")


@pytest.mark.parametrize(
    ("pattern", "log", "stepped", "who"),
    [
        ("gpu_out_of_memory", "trainer", 1, NOBODY),
        ("oom_thrown", "trainer", 1, NOBODY),
        ("nccl_timeout", "trainer", 1, NOBODY),
        ("nccl_error", "trainer", 1, NOBODY),
        ("gpu_fault", "trainer", 1, YOU),
        ("gpu_out_of_memory", "rollout-0", 1, YOU),
        ("nccl_timeout", "rollout-0", -1, YOU),
        ("gpu_fault", "trainer", -1, YOU),
        ("checkpoint_failed", "trainer", 1, YOU),
    ],
)
def test_a_trainer_that_makes_steps_after_an_error_that_ends_it_has_caught_that(
    pattern: str, log: str, stepped: float, who: str
) -> None:
    line = replace(LINE, labels={**LINE.labels, "pattern": pattern, "log": log})
    last = {"demo": line.starts_at + stepped}
    (view,) = views(line, announced=announced(), last_steps=last)
    assert view.who == who
    within = "the alert ends within 10 min of the line"
    assert (view.handling == f"its run has made steps since: {within}") == (who == NOBODY)
    (view,) = [
        one
        for one in views(line, GONE, incidents=(DECIDED,), announced=announced(), last_steps=last)
        if one.alert is line
    ]
    assert view.who == (YOU if log == "rollout-0" else REMEDIATOR), "the fault has its own alert"


@pytest.mark.parametrize("pattern", ["gpu_out_of_memory", "nccl_timeout"])
def test_an_error_that_may_end_a_living_trainer_is_of_who_acts_on_its_end_and_its_hang(
    pattern: str,
) -> None:
    """A silent evaluation after it is no more than any other."""
    line = replace(LINE, labels={**LINE.labels, "pattern": pattern})
    stall = {**LINE.labels, "alertname": "TrainingStepStalled"}
    stalls = replace(LINE, labels=stall, fingerprint=GONE.fingerprint, starts_at=NOW - 20)
    last: dict[str, Any] = {"last_steps": {"demo": NOW - 120}, "announced": announced()}
    for alerts in ((line,), (stalls, line)):
        found = views(*alerts, **last)
        assert {one.who for one in found} == {REMEDIATOR}
        (handling,) = [one.handling for one in found if one.alert is line]
        assert handling.startswith("acts if this error ends the run or leaves it hanging")
    ended = announced(state="failed", restart="never", exits=((7, 1, 9),), ended_at=NOW - 110)
    others: tuple[dict[str, Any], ...] = (
        {"mode": "observe"},
        {"given_up": (TRAINER,)},
        {"given_up_before": (TRAINER,)},
        {"halted": {"demo": "it waits for you at a prompt"}},
        {"last_steps": {}},
        {"may_restart": (ROLLOUT,)},
        {"announced": ended, "may_restart": (ROLLOUT,)},
    )
    for nobody_else in others:
        (view,) = views(line, **{**last, **nobody_else})
        assert view.who == YOU, nobody_else


def test_the_line_of_a_crash_is_of_the_remediator_before_the_alert_of_the_crash() -> None:
    (view,) = views(LINE, announced=FAILED)
    soon = "restarts demo/trainer once its alert fires, some 20 s after its end"
    assert (view.who, view.handling) == (REMEDIATOR, soon)
    (view,) = views(LINE, announced=FAILED, given_up=(TRAINER,))
    assert view.who == YOU
    (view,) = views(LINE, announced=FAILED, mode="observe")
    assert view.who == YOU


def test_the_line_of_a_command_that_is_restarted_by_its_own_run_is_for_nobody() -> None:
    end = {"exits": ((7, 1, 9),), "ended_at": NOW - 110, "own_restarts": ((NOW - 110, 9),)}
    itself = announced(state="failed", restart="on-failure", **end)
    (view,) = views(LINE, announced=itself)
    assert view.who == NOBODY
    assert view.handling == "its `trainwarden run --restart on-failure` starts it again"
    (view,) = views(LINE, announced=itself, given_up=(TRAINER,))
    assert view.who == YOU


def test_the_alert_with_a_playbook_decides() -> None:
    received, line = views(GONE, LINE)
    assert (received.alert, line.alert) == (GONE, LINE)
    assert (line.who, line.handling) == (REMEDIATOR, "is about to receive it")
    for alerts in ((GONE, LINE), (LINE,)):
        (*_, line) = views(*alerts, incidents=(DECIDED,))
        assert (line.who, line.handling) == (REMEDIATOR, "waits: too soon after the last action")
    other = replace(LINE, labels={**LINE.labels, "run": "second"})
    assert views(other, incidents=(DECIDED,))[0].who == YOU


def test_what_an_operator_has_started_again_is_over_though_its_incident_is_open() -> None:
    again = announced(announced_at=NOW - 5, started_at=NOW - 5)
    for view in views(GONE, LINE, incidents=(DECIDED,), announced=again):
        assert view.who == NOBODY
    (*_, line) = views(LINE, incidents=(DECIDED,), announced=again)
    assert line.who == NOBODY


def restart(**changes: Any) -> PastAction:
    begun = PastAction(1, TRAINER, NOW - 60, NOW - 30, healed=True, result_at=NOW - 50)
    return replace(begun, **changes)


@pytest.mark.parametrize(
    ("situation", "since"),
    [
        ({"announced": announced(state="finished", ended_at=NOW - 50)}, "finished"),
        ({"announced": announced(started_at=NOW - 50)}, "been started since"),
        ({"actions": (restart(),)}, "been started since"),
    ],
)
def test_the_line_of_a_run_that_was_started_since_or_has_finished_is_for_nobody(
    situation: dict[str, Any], since: str
) -> None:
    (view,) = views(LINE, **situation)
    over = f"its run has {since}: the alert ends within 10 min of the line"
    assert (view.who, view.handling) == (NOBODY, over)


@pytest.mark.parametrize(("read", "who"), [(-60, NOBODY), (-40, YOU), (None, YOU)])
def test_the_line_of_a_start_before_is_for_nobody_though_prometheus_is_new(
    read: float | None, who: str
) -> None:
    """Its alert begins again after `down` and `up`; the exporter keeps when it read the line."""
    own = {**LINE.labels, "pattern": "worker_failed"}
    line = replace(LINE, labels=own, starts_at=NOW - 5)
    labels = (line.run, line.labels["log"], line.labels["pattern"])
    lines = {} if read is None else {labels: NOW + read}
    other = {("demo", "other", labels[2]): NOW - 60}
    (view,) = views(line, announced=announced(started_at=NOW - 50), last_lines={**other, **lines})
    assert view.who == who


def replaced(state: str) -> Any:
    """The trainer was started after the line, and has ended since."""
    return announced(started_at=NOW - 50, state=state, exits=((7, 1, 1),), ended_at=NOW - 40)


@pytest.mark.parametrize(
    "situation",
    [
        {"announced": announced(started_at=NOW - 101)},
        {"actions": (restart(healed=False),)},
        {"actions": (restart(key=WorkerKey("second", "trainer")),)},
        {"actions": (restart(key=ROLLOUT),)},
        {"announced": announced(worker="rollout-0", state="failed", exits=((7, 1, 9),))},
        {"incidents": (replace(DECIDED, worker="rollout-0"),)},
        {"announced": replaced("failed"), "mode": "observe"},
        {"announced": replaced("stopped")},
    ],
)
def test_a_line_of_the_run_that_goes_on_stays_yours(situation: dict[str, Any]) -> None:
    (view,) = views(LINE, **situation)
    assert view.who == YOU


def test_the_line_of_a_log_without_the_name_of_a_worker_is_of_the_trainer() -> None:
    of_all = replace(LINE, labels={**LINE.labels, "log": "main"})
    for key, who in ((TRAINER, NOBODY), (ROLLOUT, YOU)):
        (view,) = views(of_all, actions=(restart(key=key),))
        assert view.who == who


def test_an_alert_of_the_whole_run_decides_about_each_of_its_lines() -> None:
    stall = replace(DECIDED, worker="", alert="TrainingStepStalled")
    (view,) = views(LINE, incidents=(stall,))
    assert view.who == REMEDIATOR


@pytest.mark.parametrize(
    "situation",
    [
        {"incidents": (replace(DECIDED, last_decision="wait silenced"),)},
        {"incidents": (replace(DECIDED, last_decision="wait held_by_alert"),)},
        {"holds": (Hold(run="demo", worker="trainer"),)},
    ],
)
def test_the_line_of_a_crash_that_nobody_restarts_is_yours(situation: dict[str, Any]) -> None:
    """What is done before an alert is of no use once the alert is decided, or a hold is set."""
    (view,) = views(LINE, announced=FAILED, **situation)
    assert view.who == YOU


def test_many_errors_end_their_alert_sooner() -> None:
    labels = {**LINE.labels, "alertname": "TrainingErrorStorm"}
    storm = replace(LINE, starts_at=NOW - 900, labels=labels)
    for ago, who in ((119, NOBODY), (121, YOU)):
        (view,) = views(storm, announced=announced(started_at=NOW - ago))
        assert view.who == who
    assert "within 2 min" in views(storm, announced=announced(started_at=NOW - 1))[0].handling


def test_a_line_that_keeps_its_alert_active_is_of_the_run_that_was_started() -> None:
    old = replace(LINE, starts_at=NOW - 900)
    for ago, who in ((599, NOBODY), (601, YOU)):
        (view,) = views(old, announced=announced(started_at=NOW - ago))
        assert view.who == who


def test_a_line_before_a_restart_is_yours_while_the_fault_of_its_worker_is() -> None:
    """Its restart helped for a moment: it is dead again, and waits for an operator."""
    held = replace(DECIDED, last_decision="act hold", alert="TrainingWorkerRestartLoop")
    (view,) = views(LINE, incidents=(held,), actions=(restart(),))
    assert view.who == YOU
