"""The headlines of commands of `trainwarden run`: both pages agree on who starts them again."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.remediator.live_host import Box
from tests.remediator.samples import FINGERPRINT, LATER, ROLLOUT, delivery, make_alert
from tests.remediator.telemetry.test_headline_states import (
    GONE,
    RUN,
    Samples,
    Stage,
    observed,
    page_data,
    plain,
    staged,
)

from trainwarden.commands.status import describe
from trainwarden_exporter.processes.announcements import (
    AnnouncedRuns,
    AnnouncedWorker,
    Announcement,
)
from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.runtime.responsibility import NOBODY, REMEDIATOR, YOU
from trainwarden_exporter.status_page.page import status_json
from trainwarden_exporter.status_page.remediator_client import RemediatorStatus
from trainwarden_remediator.alertmanager.webhook_payload import parse_notification
from trainwarden_remediator.api import server
from trainwarden_remediator.model import Decision, Reason, Verdict
from trainwarden_remediator.policy.failing_starts import mending

GONE_ALERT: dict[str, Any] = {
    "alertname": "TrainingWorkerGone",
    "remediation": "start_missing_worker",
}
GAVE_UP: dict[str, Any] = {"alertname": "TrainingRemediationGaveUp", "remediation": ""}
LINE: dict[str, Any] = {
    "alertname": "TrainingTroubleLine",
    "severity": "warning",
    "remediation": "",
    "worker": "",
    "log": "rollout-0",
}
COMMAND = "trainwarden run --name demo -- python roll.py"


def announcement(**changes: Any) -> Announcement:
    content = {"run": "demo", "worker": "rollout-0", "pid": 7, "announced_at": 1.0}
    content |= {"argv": ("python", "roll.py"), "options": ("--name", "demo")}
    return Announcement.model_validate({**content, **changes})


FAILED = announcement(state="failed", exits=((7, 1, 256),))


def announce(stage: Stage, one: Announcement) -> None:
    runs = AnnouncedRuns({one.key: AnnouncedWorker(one, stage.box.folder / "a.json", 0)})
    stage.remediator.setup = replace(stage.remediator.setup, announced=runs)
    stage.remediator.active_alerts._asked_at = None


async def reported(stage: Stage) -> RemediatorStatus:
    status = await stage.asked()
    assert isinstance(status, RemediatorStatus)
    return status


async def seen(
    stage: Stage, one: Announcement | None = None, **changes: Samples
) -> Mapping[str, Any]:
    """What `trainwarden status` shows of a host on which this command runs."""
    if one is not None:
        announce(stage, one)
    status = await reported(stage)
    outcome = observed(**changes)
    outcome = outcome if one is None else replace(outcome, artifacts=(one,))
    return status_json(replace(page_data(status), outcomes=(outcome,)))


async def own_page(stage: Stage) -> str:
    return plain(await (await stage.client.get("/")).text())


def fire(box: Box, labels: dict[str, Any], fingerprint: str = FINGERPRINT) -> None:
    """Let Alertmanager list an alert that begins now."""
    begins = box.alert(**labels)["startsAt"]
    box.fire(fingerprint=fingerprint, labels=labels, startsAt=begins)


async def give_up(stage: Stage, key: Mapping[str, str] = {}) -> None:
    """The remediator gives up on the worker, or that of `key`, whose alert then fires on."""
    journal, labels = stage.remediator.journal, {**GONE_ALERT, **key}
    journal.record_alerts(parse_notification(delivery(stage.box.alert(**labels))).alerts)
    fire(stage.box, labels)
    (incident,) = journal.open_incidents()
    run, targets = key.get("run", "demo"), stage.remediator.setup.config.targets
    (target,) = (one for one in targets if one.run == run)
    exhausted = Decision(Verdict.REFUSE, "attempts_exhausted", target)
    journal.record_decisions([(incident, exhausted)])


async def test_what_starts_a_command_again_is_shown_as_long_as_it_is_down(box: Box) -> None:
    box.known = {}
    async with staged(box) as stage:
        await give_up(stage)
        dismissal = "`trainwarden stop demo` dismisses it."
        how = f"The remediator gave up on demo/rollout-0. When its cause is mended: `{COMMAND}`."
        for _ in range(2):
            shown = await seen(stage, FAILED, **GONE)
            assert (shown["who_acts"], shown["how"]) == (YOU, f"{how} {dismissal}")
            assert COMMAND in await own_page(stage)
            box.firing.clear()  # its alert may end for a while, or be inhibited

        # the first step of its alert has the command, too: once is enough
        for attempt in (1, 2):
            journal = stage.remediator.journal
            action = journal.record_intent(1, ROLLOUT, "restart", (), attempt=(attempt, 2))
            journal.record_result(action, "done", started_by="us", processes=[1])
            journal.record_outcome(action, "not_healed", seen="it ended soon after its start")
        fire(box, GONE_ALERT)
        shown = await seen(stage, FAILED, **GONE)
        assert shown["how"] == f"The remediator gave up on demo/rollout-0. {dismissal}"
        assert "\n".join(describe(shown)).count(COMMAND) == 1


async def test_what_an_operator_has_started_again_needs_nobody_at_once(box: Box) -> None:
    box.known = {}
    async with staged(box) as stage:
        await give_up(stage)
        fire(box, GAVE_UP, LATER)
        assert (await seen(stage, FAILED, **GONE))["who_acts"] == YOU
        again = announcement(announced_at=time.time() + 1)
        shown = await seen(stage, again)
        assert (shown["who_acts"], "You, now" in "\n".join(describe(shown))) == (NOBODY, False)
        assert "It was started again: the alert ends within half a minute." in shown["how"]
        # What calls after that start is news.
        started = [stage.remediator.outbox._started(WorkerKey("demo", one)) for one in ("", "x")]
        assert stage.remediator.outbox._started(ROLLOUT) == again.announced_at
        assert started == [0.0, 0.0]  # neither the trainer of the run nor another worker
        own = await own_page(stage)
        assert "You, now" not in own
        assert "gave up on" not in own.partition("Journal")[0]
        # it has failed again, and the remediator starts it no more
        failed = announcement(state="failed", exits=((8, 2, 256),), announced_at=again.announced_at)
        assert (await seen(stage, failed, **GONE))["who_acts"] == YOU


async def test_what_an_operator_has_just_stopped_needs_nobody(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the next decision, and until the last of its alerts has ended."""
    monkeypatch.setenv("TRAINWARDEN_FOLDER", str(box.folder))
    monkeypatch.setattr(server, "REREAD_SECONDS", 0.0)
    box.known = {}
    file = box.folder / "runs.d" / "mine@trainer.json"
    file.parent.mkdir()
    content = {"run": "mine", "worker": "trainer", "pid": 7, "restart": "on-request"}
    content |= {"socket": str(file.with_suffix(".sock"))}
    file.write_text(json.dumps(content), encoding="utf-8")
    mine = {"run": "mine", "worker": "trainer"}
    async with staged(box) as stage:
        await give_up(stage, mine)
        fire(box, mine | {"severity": "warning", "remediation": ""}, LATER)
        before = await seen(stage)
        assert before["who_acts"] == YOU
        assert (await reported(stage)).given_up == ("mine/trainer",)

        file.write_text(json.dumps(content | {"state": "stopped"}), encoding="utf-8")
        shown = await seen(stage)
        assert (shown["who_acts"], "You, now" in "\n".join(describe(shown))) == (NOBODY, False)
        stopped = "an operator has stopped it"
        assert stopped in [one["handling"] for one in shown["remediator"]["firing"]]
        assert (await reported(stage)).given_up == ()
        assert "You, now" not in await own_page(stage)


LOOP: dict[str, Any] = {
    "alertname": "TrainingWorkerRestartLoop",
    "remediation": "hold_restarts",
    "severity": "critical",
}


async def loop(stage: Stage, *attempts: int, alert: Mapping[str, Any] = GONE_ALERT) -> None:
    """Its restarts are a loop, which holds the incident for which it was restarted."""
    journal, box = stage.remediator.journal, stage.box
    journal.record_alerts(parse_notification(delivery(box.alert(**alert))).alerts)
    for attempt in attempts:
        action = journal.record_intent(1, ROLLOUT, "restart", (), attempt=(attempt, 3))
        journal.record_result(action, "done", started_by="us", processes=[1])
        journal.record_outcome(action, "not_healed", seen="it ended soon after its start")
    box.fire(fingerprint=LATER, labels=LOOP)
    received = {**box.alert(**LOOP), "fingerprint": LATER}
    journal.record_alerts(parse_notification(delivery(received)).alerts)
    first, second = journal.open_incidents()
    held = Decision(Verdict.WAIT, "held_by_alert", detail=str(LOOP["alertname"]))
    journal.record_decisions([(first, held), (second, Decision(Verdict.ACT, "hold"))])


async def test_a_loop_that_an_operator_has_ended_is_for_nobody_in_every_line(box: Box) -> None:
    """Its incident, which the loop held, waits for the end of its alert."""
    box.known = {}
    async with staged(box) as stage:
        await loop(stage, alert={})
        assert (await seen(stage, announcement()))["who_acts"] == YOU
        now = time.time() + 1
        shown = await seen(stage, announcement(announced_at=now, counted_since=now))
        lines = "\n".join(describe(shown, every=True))
        ends = "it was started again: the alert ends within seven minutes"
        assert (ends[1:] in lines, "You, now" in lines) == (True, False)
        status = await reported(stage)
        (incident,) = (one for one in status.alerts if one.alert == "TrainingWorkerMemoryOverLimit")
        assert incident.who_acts == REMEDIATOR
        assert incident.handling == f"waits for the end of TrainingWorkerRestartLoop ({ends})"


async def test_a_loop_of_a_command_that_restarts_itself_is_yours_in_every_line(box: Box) -> None:
    box.known = {}
    again = FAILED.model_copy(
        update={"restart": "on-failure", "own_restarts": ((9.0, 256),), "ended_at": 9.0}
    )
    async with staged(box) as stage:
        await loop(stage, alert=LOOP)
        shown = await seen(stage, again, **GONE)
        lines = "\n".join(describe(shown, every=True))
        assert ("has failed" in lines, "You, now" in lines) == (True, True)
        assert NOBODY not in lines
        assert "Its trainwarden run starts it again" in lines


async def test_two_alerts_of_one_worker_have_each_who_acts_on_it(box: Box) -> None:
    box.known = {}
    async with staged(box) as stage:
        await loop(stage)
        fire(box, {"alertname": "TrainingSlow", "severity": "warning", "remediation": ""}, "3" * 16)
        now = time.time() + 1
        shown = await seen(stage, announcement(announced_at=now, counted_since=now))
        who = {one["text"].split()[0]: one["who_acts"] for one in shown["problems"]}
        assert who["TrainingSlow"] == YOU
        assert who["TrainingWorkerRestartLoop"] == NOBODY


async def test_what_nobody_needs_to_act_on_has_no_first_step(box: Box) -> None:
    box.known = {}
    async with staged(box) as stage:
        await loop(stage, 1, 2, 3)
        assert (await seen(stage, FAILED, **GONE))["first_steps"]
        stopped = frozenset({WorkerKey(*ROLLOUT)})
        stage.remediator.setup = replace(
            stage.remediator.setup, stopped=stopped, announced=AnnouncedRuns(stopped=stopped)
        )
        shown = await seen(stage)
        assert (shown["who_acts"], shown["first_steps"]) == (NOBODY, {})


async def test_the_end_of_an_alert_is_announced_only_while_it_is_active(box: Box) -> None:
    box.known = {}
    async with staged(box) as stage:
        await give_up(stage)
        stopped = frozenset({WorkerKey(*ROLLOUT)})
        stage.remediator.setup = replace(
            stage.remediator.setup, stopped=stopped, announced=AnnouncedRuns(stopped=stopped)
        )
        soon = "it was stopped: the alert ends within half a minute"
        assert soon in {one.handling for one in (await reported(stage)).firing or ()}
        stage.remediator.journal.record_alerts([make_alert(**GONE_ALERT)])  # open again
        box.firing.clear()
        stage.remediator.active_alerts._asked_at = None
        status = await reported(stage)
        assert [one.handling for one in status.alerts] == ["it was stopped"]


async def test_the_line_of_a_crash_hides_nobody_who_restarts_it(box: Box) -> None:
    box.known = {}
    async with staged(box) as stage:
        fire(box, LINE, LATER)
        assert (await seen(stage, announcement()))["who_acts"] == YOU
        soon = "It restarts demo/rollout-0 once its alert fires, some 20 s after its end."
        shown = await seen(stage, FAILED, **GONE)
        assert (shown["who_acts"], shown["how"]) == (REMEDIATOR, soon)
        assert f"{REMEDIATOR} {soon}" in await own_page(stage)
        stage.remediator.setup = replace(stage.remediator.setup, announced=AnnouncedRuns())
        shown = await stage.status_of(**GONE)  # a worker of exporter.yml
        assert (shown["who_acts"], shown["how"]) == (REMEDIATOR, soon)


async def test_what_an_earlier_attempt_has_left_is_named_where_a_restart_fails(
    box: Box, tmp_path: Path
) -> None:
    box.known = {}
    left = "of an earlier attempt process 7 (x, port 28700) still runs: `kill 7` ends what is left"
    failed = FAILED.model_copy(update={"left": left, "own_restarts": ((2.0, 256),)})
    async with staged(box) as stage:
        shown = await seen(stage, failed, **GONE)
        assert left in shown["problems"][0]["text"]
    announced = AnnouncedRuns({failed.key: AnnouncedWorker(failed, tmp_path, 0)})
    advice = mending(make_alert(**GONE_ALERT), (), announced)
    assert f"`--restart on-failure`. O{left[1:]}. Another restart alone does not help:" in advice


async def test_of_a_silent_command_the_first_step_is_to_show_steps_and_not_to_correct_a_file(
    box: Box,
) -> None:
    box.known = {}
    silent = {"alertname": "TrainingRunNotFound", "severity": "warning", "remediation": ""}
    async with staged(box) as stage:
        fire(box, {**silent, "worker": ""}, LATER)
        (step,) = (await seen(stage, announcement()))["first_steps"].values()
        assert step.startswith("The program has shown no step, so no hang can be seen: ")
        assert "PYTHONUNBUFFERED=1" in step
        assert "trainwarden.beat" in step
        assert "exporter.yml" not in step
        stage.remediator.setup = replace(stage.remediator.setup, announced=AnnouncedRuns())
        (step,) = (await stage.status_of())["first_steps"].values()
        assert step.startswith("`trainwarden-exporter check --against-host exporter.yml`")


async def test_no_first_step_names_a_checkpoint_of_a_command_without_a_folder(box: Box) -> None:
    box.known = {}
    lost = {"alertname": "TrainingNotFinite", "severity": "critical", "remediation": ""}
    async with staged(box) as stage:
        fire(box, {**lost, "worker": ""}, LATER)
        (step,) = (await seen(stage, announcement()))["first_steps"].values()
        begins = (
            "Stop it: `trainwarden stop demo`. No complete checkpoint of it is known: it begins"
        )
        assert step.startswith(f"{begins} at step 0.")


async def test_the_line_of_a_run_that_has_finished_is_for_nobody(box: Box) -> None:
    box.known = {}
    async with staged(box) as stage:
        fire(box, LINE, LATER)
        finished = "".join(
            f'trainwarden_training_{name}{{run="demo"}} {value}\n'
            for name, value in (("step", 5), ("finished", 1))
        )
        box.stale_page = box.page() + finished
        shown = await stage.status_of(training_finished={RUN: 1})
    assert shown["headline"] == "TrainingTroubleLine on demo has not ended yet."
    over = "Its run has finished: the alert ends within 10 min of the line."
    assert (shown["who_acts"], shown["how"]) == (NOBODY, over)


async def test_a_hold_decides_nothing_about_a_command_that_nobody_can_start_again(
    box: Box,
) -> None:
    box.known = {}
    async with staged(box) as stage:
        journal = stage.remediator.journal
        journal.record_alerts(parse_notification(delivery(box.alert(**GONE_ALERT))).alerts)
        fire(box, GONE_ALERT)
        (incident,) = journal.open_incidents()
        stage.remediator.setup.config.hold_file.write_text(json.dumps({"who": "ann"}))
        waits: dict[Reason, str] = {
            "held": "ann, until the hold is lifted",
            "managed_elsewhere": YOU,
        }
        for reason, who in waits.items():
            journal.record_decisions([(incident, Decision(Verdict.WAIT, reason))])
            shown = await seen(stage, FAILED, **GONE)
            lines = "\n".join(describe(shown, every=True))
            assert (shown["who_acts"], "trainwarden resume" in lines) == (who, who != YOU)
