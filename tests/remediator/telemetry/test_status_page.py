"""What the remediator tells the exporter's status page, over real HTTP."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from tests.remediator.live_host import Box
from tests.remediator.samples import NOW, ROLLOUT, TRAINER, delivery, make_alert, make_setup

from trainwarden_exporter.config import Config as ExporterConfig
from trainwarden_exporter.config import RemediatorConfig
from trainwarden_exporter.frameworks.error_lines import MAX_SHOWN
from trainwarden_exporter.processes.announcements import (
    AnnouncedRuns,
    AnnouncedWorker,
    Announcement,
)
from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.run_config import RunConfig
from trainwarden_exporter.runtime.formatting import shorten
from trainwarden_exporter.runtime.responsibility import NOBODY, YOU
from trainwarden_exporter.runtime.responsibility import REMEDIATOR as REMEDIATOR_ACTS
from trainwarden_exporter.status_page import remediator_client
from trainwarden_exporter.status_page.remediator_client import (
    MAX_ENTRIES,
    ExporterIdentity,
    RemediatorStatus,
    fetch_status,
    parse_status,
)
from trainwarden_remediator.alertmanager.webhook_payload import parse_notification
from trainwarden_remediator.api.server import build_app
from trainwarden_remediator.api.webhook import REMEDIATOR
from trainwarden_remediator.app import Remediator
from trainwarden_remediator.config.restart_methods.run import RunTarget
from trainwarden_remediator.config.targets import ON_CALL, AnnouncedTarget
from trainwarden_remediator.exceptions import JournalError
from trainwarden_remediator.journal import queries
from trainwarden_remediator.journal.evidence_text import FaultFacts
from trainwarden_remediator.journal.rows import as_incident
from trainwarden_remediator.model import Decision, Incident, PastAction, Verdict
from trainwarden_remediator.telemetry.headline import CurrentWork, headline
from trainwarden_remediator.telemetry.state import BreakerFigures, JournalSummary, RemediatorState
from trainwarden_remediator.telemetry.status_page import ACTIONS, ALERTS, render, status_json

Client = TestClient[web.Request, web.Application]


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is answered is of interest here, and not how soon."""
    monkeypatch.setattr(remediator_client, "TIMEOUT_SECONDS", 60.0)
    question = replace(remediator_client._QUESTION, timeout=60.0)
    monkeypatch.setattr(remediator_client, "_QUESTION", question)


@asynccontextmanager
async def asked(box: Box) -> AsyncIterator[tuple[Client, Remediator]]:
    """The remediator of `box`, without its engine: it keeps what it receives, and does not act."""
    remediator = Remediator(box.config_file)
    async with remediator, TestClient(TestServer(build_app(remediator))) as client:
        remediator.readiness.ready = True
        yield client, remediator


async def status_from(client: Client, exporter_file: Path | None = None) -> RemediatorStatus:
    workers_hash = 0 if exporter_file else client.app[REMEDIATOR].setup.workers_hash
    reported = await fetch_status(
        RemediatorConfig(url=str(client.make_url(""))),
        ExporterIdentity(exporter_file, workers_hash),
    )
    assert isinstance(reported, RemediatorStatus), reported
    return reported


async def test_an_exporter_recognises_its_remediator_by_its_file(box: Box) -> None:
    async with asked(box) as (client, remediator):
        file = remediator.setup.config.exporter.config
        assert (await status_from(client, file)).mode == "act"
        stranger = ExporterIdentity(file.with_name("another.yml"), 1)
        url = RemediatorConfig(url=str(client.make_url("")))
        assert await fetch_status(url, stranger) == (
            "the remediator of another exporter.yml answers at its address"
        )


async def test_a_received_alert_is_shown(box: Box) -> None:
    async with asked(box) as (client, remediator):
        remediator.journal.record_alerts(parse_notification(delivery(box.alert())).alerts)
        reported = await status_from(client)
        assert (reported.mode, reported.open_alerts, reported.actions) == ("act", 1, ())
        (alert,) = reported.alerts
        assert (alert.alert, alert.run, alert.worker) == (
            "TrainingWorkerMemoryOverLimit",
            *ROLLOUT,
        )
        assert alert.tone == "warn"
        assert (alert.who_acts, alert.handling) == ("The remediator", "is deciding what to do")

        (incident,) = remediator.journal.open_incidents()
        remediator.journal.record_decisions([(incident, Decision(Verdict.WAIT, "observe_mode"))])
        (alert,) = (await status_from(client)).alerts
        assert (alert.tone, alert.who_acts) == ("quiet", YOU)
        assert alert.handling.endswith(": mode is observe: no action taken")


async def test_an_action_is_reported_with_what_came_of_it(box: Box) -> None:
    async with asked(box) as (client, remediator):
        journal = remediator.journal
        journal.record_alerts(parse_notification(delivery(box.alert())).alerts)
        (incident,) = journal.open_incidents()
        action = journal.record_intent(incident.id, ROLLOUT, "restart", ())
        journal.record_step(action, "start", command=["x"])
        (reported,) = (await status_from(client)).actions
        assert (reported.run, reported.worker) == ROLLOUT
        assert (reported.action, reported.outcome, reported.tone) == (
            "restart",
            "in progress",
            "warn",
        )

        journal.record_result(action, "done", started_by="us", processes=[])
        journal.record_outcome(action, "healed", seconds=2)
        (reported,) = (await status_from(client)).actions
        assert (reported.outcome, reported.tone) == ("healed", "good")


async def test_the_journal_is_grouped_by_incident_and_only_the_newest_is_unfolded(
    box: Box,
) -> None:
    async with asked(box) as (client, remediator):
        journal = remediator.journal
        for number in "12":
            alert = {**box.alert(), "fingerprint": 16 * number}
            journal.record_alerts(parse_notification(delivery(alert)).alerts)
        first, _ = journal.open_incidents()
        action = journal.record_intent(first.id, ROLLOUT, "restart", ())
        log = {"name": "x", "path": "/x", "lines": ["ValueError: no such dataset"]}
        journal.keep_evidence(first.id, action, "act", json.dumps({"logs": [log]}))
        assert journal.faults()[ROLLOUT].at == pytest.approx(time.time(), abs=60)
        journal.record_outcome(action, "healed", seconds=2)
        journal.record_decisions([(first, Decision(Verdict.WAIT, "alert_lingers"))])
        journal.record_event("alerts_stale")
        page = await (await client.get("/")).text()
    shown = re.findall(r'<(?:details|p) class="event"( open)?>(?:<summary>(#\d))?', page)
    assert shown == [("", ""), (" open", "#1"), ("", "#2")]
    summary = re.search(r"<summary>#1.*?</summary>", page, re.DOTALL)
    assert summary is not None
    assert "healed: verified 2 s after the action began" in summary[0]
    assert page.count("ValueError: no such dataset") == 1
    assert '<a href="report/1">Report #1</a>' in page


async def test_the_page_shows_no_secret_of_a_command_line(box: Box) -> None:
    async with asked(box) as (client, remediator):
        journal = remediator.journal
        journal.record_alerts(parse_notification(delivery(box.alert())).alerts)
        (incident,) = journal.open_incidents()
        action = journal.record_intent(incident.id, ROLLOUT, "restart", ())
        journal.record_step(action, "start", command=["serve", "--api-key", "abcdefgh12345678"])
        page = await (await client.get("/")).text()
        assert "--api-key" in page
        assert "abcdefgh12345678" not in page


async def test_it_is_open_as_the_page_is_and_tells_no_secret(box: Box) -> None:
    async with asked(box) as (client, _):
        answer = await client.get("/status.json")
        assert (answer.status, answer.content_type) == (200, "application/json")
        assert answer.headers["Cache-Control"] == "no-store"
        text = await answer.text()
        assert box.token_file.read_text().strip() not in text
        assert (await client.post("/status.json")).status == 405


async def test_hostile_labels_come_through_as_text_of_bounded_length(box: Box) -> None:
    hostile = "<script>alert(1)</script>\n\0\N{RIGHT-TO-LEFT OVERRIDE}" + "x" * 5000
    async with asked(box) as (client, remediator):
        alert = box.alert(worker=hostile, run=hostile, alertname=hostile)
        remediator.journal.record_alerts(parse_notification(delivery(alert)).alerts)
        (reported,) = (await status_from(client)).alerts
        for text in (reported.alert, reported.run, reported.worker):
            assert text.isprintable()
            assert len(text) <= 200


async def test_of_a_storm_only_the_first_are_listed_and_all_are_counted(box: Box) -> None:
    many = [
        box.alert(worker=f"w-{number}") | {"fingerprint": f"{number:016x}"} for number in range(90)
    ]
    async with asked(box) as (client, remediator):
        remediator.journal.record_alerts(parse_notification(delivery(*many)).alerts)
        reported = await status_from(client)
        assert (reported.open_alerts, len(reported.alerts)) == (90, ALERTS)
    assert max(ALERTS, ACTIONS) <= MAX_ENTRIES


async def test_of_a_storm_no_more_is_read_than_is_reported(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Any] = []

    def counted(row: Any) -> Any:
        read.append(row)
        return as_incident(row)

    async with asked(box) as (client, remediator):
        storm = [
            make_alert(fingerprint=f"{number:016x}", worker=f"w-{number}", starts_at=NOW - number)
            for number in range(11_000)
        ]
        remediator.journal.record_alerts(storm)
        monkeypatch.setattr(queries, "as_incident", counted)
        reported = await status_from(client)
        assert reported.open_alerts == 11_000
        oldest = [f"w-{number}" for number in range(10_999, 10_999 - ALERTS, -1)]
        assert [one.worker for one in reported.alerts] == oldest
        assert len(read) == ALERTS


async def test_one_cut_short_before_its_first_step_is_no_action(box: Box) -> None:
    async with asked(box) as (client, remediator):
        journal = remediator.journal
        journal.record_alerts([make_alert()])
        for step in (None, "stop"):
            action = journal.record_intent(1, ROLLOUT, "restart", ())
            if step:
                journal.record_step(action, step, processes=[1])
            journal.record_result(action, "interrupted", found="untouched")
        assert [one.outcome for one in (await status_from(client)).actions] == ["interrupted"]


async def test_a_journal_that_cannot_be_read_is_reported_and_no_failure(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asked(box) as (client, remediator):

        def broken(*_: Any) -> Any:
            raise JournalError("disk I/O error")

        remediator.journal.record_alerts([make_alert()])
        for name in ("counters", "first_incidents", "last_actions"):
            monkeypatch.setattr(remediator.journal, name, broken)
        reported = await status_from(client)
        assert (reported.tone, reported.alerts) == ("bad", ())
        assert reported.verdict == "Nothing will be healed: the journal cannot be read."


def test_the_newest_action_comes_first_and_each_says_what_came_of_it(tmp_path: Path) -> None:
    actions = (
        PastAction(1, ROLLOUT, NOW - 50, NOW - 40, healed=True),
        PastAction(1, WorkerKey("", "gpus"), NOW - 30, NOW - 20, kind="gpu_cleanup"),
        PastAction(1, ROLLOUT, NOW - 19, NOW - 18, result="interrupted"),
        PastAction(1, ROLLOUT, NOW - 17, NOW - 16, result="failed"),
        PastAction(1, ROLLOUT, NOW - 15, NOW - 14, healed=True, result="failed"),
        PastAction(1, ON_CALL, NOW - 10, NOW - 10, kind="notify"),
        PastAction(1, ROLLOUT, NOW - 5, None, kind="something new"),
    )
    summary = JournalSummary(counters={}, timestamps={}, given_up=(), open_incidents=0)
    state = RemediatorState("act", False, True, NOW, None, {}, summary)
    reported = RemediatorStatus.model_validate(
        status_json(CurrentWork(state, (), (), actions), make_setup(tmp_path), now=NOW)
    )
    assert [(one.action, one.outcome, one.tone) for one in reported.actions] == [
        ("something new", "in progress", "warn"),
        ("notification", "the on-call is notified", "warn"),
        ("restart", "healed", "good"),
        ("restart", "failed", "bad"),
        ("restart", "interrupted", "warn"),
        ("cleanup of leftovers", "not healed", "bad"),
        ("restart", "healed", "good"),
    ]


def test_the_headline_of_a_proved_hang_names_what_it_waits_for(tmp_path: Path) -> None:
    summary = JournalSummary(counters={}, timestamps={}, given_up=(), open_incidents=0)
    state = RemediatorState("act", False, True, NOW, None, {}, summary)
    stall = make_alert(alertname="TrainingStepStalled", worker="", severity="critical")
    stall = replace(stall, annotations={"summary": "A run makes no progress."})
    chain = "process 7 of trainer waits for a queue at data.py:18"
    links = ", which ".join([chain] * 64)
    setup = make_setup(tmp_path)
    restarts = [
        PastAction(1, WorkerKey(run, "trainer"), NOW, None, result="done", result_at=at)
        for run, at in (("demo", NOW), ("other", NOW + 20))
    ]
    for faults, cause in (
        ({WorkerKey("demo", ""): FaultFacts(chain, at=NOW + 10)}, f": {chain}"),
        ({WorkerKey("demo", ""): FaultFacts(links, at=NOW + 10)}, f": {shorten(links, MAX_SHOWN)}"),
        # After its restart it may hang elsewhere.
        ({WorkerKey("demo", ""): FaultFacts(chain, at=NOW - 10)}, ""),
        ({}, ""),
    ):
        work = CurrentWork(state, (stall,), actions=restarts, setup=setup, faults=faults)
        found = headline(work, setup.config, now=stall.starts_at)
        assert found.sentence == f"On demo: a run makes no progress{cause}."
        assert not work.situation(NOW).calls  # no receiver is configured


def test_a_run_that_an_operator_has_halted_is_left_alone(tmp_path: Path) -> None:
    summary = JournalSummary(counters={}, timestamps={}, given_up=(), open_incidents=0)
    state = RemediatorState("act", False, True, NOW, None, {}, summary)
    names = ("TrainingStepStalled", "TrainingCheckpointOverdue", "TrainingLossSpike")
    alerts = tuple(
        make_alert(alertname=name, worker="", remediation="", severity="warning", fingerprint=key)
        for key, name in zip(("1" * 16, "2" * 16, "3" * 16), names, strict=True)
    )
    setup = make_setup(tmp_path, "demo/trainer")
    prompt = "it waits for you at a prompt"
    work = CurrentWork(state, alerts, setup=setup, halted={"demo": prompt})
    shown = {one["alert"]: one for one in status_json(work, setup, now=NOW)["firing"]}
    for name in names[:2]:
        assert shown[name]["who_acts"] == YOU
        assert shown[name]["handling"] == f"the remediator leaves it alone: {prompt}"
    assert [shown[name]["first_step"] for name in names[:2]] == ["", ""]
    assert "leaves it alone" not in shown[names[2]]["handling"]
    alone = replace(work, halted={}, alerts=alerts[1:])
    without = status_json(alone, setup, now=NOW)["firing"]
    assert all(one["first_step"] for one in without if one["alert"] == names[1])


def test_a_wait_that_a_step_has_ended_needs_nobody(tmp_path: Path) -> None:
    summary = JournalSummary(counters={}, timestamps={}, given_up=(), open_incidents=0)
    state = RemediatorState("act", False, True, NOW, None, {}, summary)
    name = "TrainingWaitingForRollouts"
    wait = make_alert(alertname=name, worker="", remediation="", severity="warning")
    setup = make_setup(tmp_path, "demo/trainer")
    for at, who in ((wait.starts_at + 1, NOBODY), (wait.starts_at - 60, YOU)):
        work = CurrentWork(state, (wait,), setup=setup, last_steps={"demo": at})
        (shown,) = status_json(work, setup, now=NOW)["firing"]
        assert shown["who_acts"] == who


def test_a_long_headline_does_not_cost_the_exporters_page_the_rest(tmp_path: Path) -> None:
    gone = tuple(WorkerKey("demo", f"rollout-{number}") for number in range(500))
    summary = JournalSummary(counters={}, timestamps={}, given_up=gone, open_incidents=0)
    state = RemediatorState("act", False, True, NOW, None, {}, summary)
    shown = status_json(CurrentWork(state, ()), make_setup(tmp_path), now=NOW)
    assert parse_status(json.dumps(shown).encode()).verdict.startswith("The remediator gave up on ")


def test_a_first_step_says_on_which_machine_and_in_which_log(tmp_path: Path) -> None:
    run = RunConfig.model_validate(
        {
            "name": "demo",
            "workers": [{"name": name, "match": {"command": "x"}} for name in ("a", "b")],
            "logs": [
                {"name": "a", "files": ["/runs/a.log"], "worker": "a"},
                {"name": "b", "files": ["/runs/b.log"], "worker": "b"},
            ],
        }
    )
    setup = replace(make_setup(tmp_path), exporter_config=ExporterConfig(runs=(run,)))
    alert = make_alert(
        alertname="TrainingWorkerRestartLoop", worker="b", remediation="", severity="critical"
    )
    summary = JournalSummary(counters={}, timestamps={}, given_up=(), open_incidents=0)
    state = RemediatorState("act", False, True, NOW, None, {}, summary)
    work = CurrentWork(state, (alert,))
    (shown,) = status_json(work, setup, now=NOW)["firing"]
    assert shown["first_step"].endswith(f" Its log, on {socket.gethostname()}: `/runs/b.log`.")
    assert f"on {socket.gethostname()}: <code>/runs/b.log</code>." in render(
        work, setup, (), now=NOW
    )


def test_a_command_that_has_failed_is_seen_before_its_alert(tmp_path: Path) -> None:
    summary = JournalSummary(counters={}, timestamps={}, given_up=(), open_incidents=0)
    work = CurrentWork(RemediatorState("act", False, True, NOW, None, {}, summary), ())
    key = WorkerKey("grpo", "trainer")
    announced = Announcement(
        run="grpo", worker="trainer", pid=7, state="failed", exits=((7, 1, 9),)
    )

    def shown(**facts: Any) -> tuple[str, str, str]:
        method = RunTarget(run="grpo/trainer", socket=tmp_path / "run.sock", owner=0, **facts)
        target = AnnouncedTarget(run="grpo", worker="trainer", announced=method)
        setup = make_setup(tmp_path)
        config = setup.config.model_copy(update={"targets": (target,)})
        runs = AnnouncedRuns({key: AnnouncedWorker(announced, tmp_path / "a", 0)})
        known = replace(work, setup=replace(setup, config=config, announced=runs))
        found = headline(known, config, now=NOW)
        return found.sentence, found.who, found.how

    assert shown()[:2] == ("No alert fires: it may restart 1 worker.", NOBODY)
    ended = "No alert fires: it may restart 0 workers."
    assert shown(wrapper_ended=True)[:2] == (ended, NOBODY)
    soon = "It restarts grpo/trainer once its alert fires, some 20 s after its end."
    failed = "grpo/trainer has failed (exit status 1)."
    assert shown(failure="exit status 1") == (failed, REMEDIATOR_ACTS, soon)
    dismisses = "`trainwarden stop grpo` dismisses it."
    not_restarted = f"The remediator may not restart it. {dismisses}"
    assert shown(failure="exit status 1", wrapper_ended=True) == (failed, YOU, not_restarted)
    work = replace(
        work, state=replace(work.state, journal=replace(summary, given_up_before=(key,)))
    )
    gave_up = f"The remediator gave up on grpo/trainer. {dismisses}"
    assert shown(failure="exit status 1") == (failed, YOU, gave_up)
    work = replace(work, state=replace(work.state, journal=summary))
    own = {"restart": "on-failure", "ended_at": NOW - 1, "own_restarts": ((NOW - 1, 256),)}
    announced = announced.model_copy(update=own)
    itself = "Its `trainwarden run --restart on-failure` starts it again."
    assert shown(failure="exit status 1") == (failed, NOBODY, itself)
    assert shown(failure="exit status 1", wrapper_ended=True) == (failed, YOU, not_restarted)


def test_of_two_commands_that_have_failed_the_page_has_first_what_needs_you(tmp_path: Path) -> None:
    summary = JournalSummary(counters={}, timestamps={}, given_up=(), open_incidents=0)
    work = CurrentWork(RemediatorState("act", False, True, NOW, None, {}, summary), ())
    facts = {"run": "grpo", "socket": tmp_path / "s", "owner": 0, "failure": "exit status 1"}
    targets = tuple(
        AnnouncedTarget(
            run="grpo",
            worker=name,
            announced=RunTarget.model_validate(facts | {"wrapper_ended": ended}),
        )
        for name, ended in (("a", False), ("b", True))
    )
    setup = make_setup(tmp_path)
    setup = replace(setup, config=setup.config.model_copy(update={"targets": targets}))
    found = headline(replace(work, setup=setup), setup.config, now=NOW)
    assert (found.sentence, found.who) == ("grpo/b has failed (exit status 1).", YOU)


def test_a_worker_that_was_given_up_is_named_though_another_one_is_blocked(tmp_path: Path) -> None:
    """The reason of an open incident is shown only where it is the one why it was given up."""
    summary = JournalSummary(counters={}, timestamps={}, given_up=(ROLLOUT,), open_incidents=1)
    state = RemediatorState("act", False, True, NOW, None, {}, summary)
    setup = make_setup(tmp_path)

    def shown(given_up: tuple[WorkerKey, ...], *incidents: Incident) -> tuple[str, str]:
        known = replace(state, journal=replace(summary, given_up=given_up))
        found = headline(CurrentWork(known, (), incidents, setup=setup), setup.config, now=NOW)
        assert found.who == YOU
        return found.sentence, found.how

    differs = "refuse processes_differ"
    refused = Incident(1, "a", NOW, "TrainingWorkerGone", *ROLLOUT, "x", NOW, False, differs)
    blocked = replace(refused, id=2, run="second", last_decision="wait managed_elsewhere")
    gave_up = "The remediator gave up on demo/rollout-0."
    assert shown((ROLLOUT,), blocked) == (gave_up, "")
    assert shown((ROLLOUT,), replace(blocked, run="demo")) == (gave_up, "")
    sentence, why = shown((ROLLOUT,), blocked, refused)
    assert sentence == "TrainingWorkerGone on demo/rollout-0 is open."
    assert why.startswith("The remediator does not act: ")
    both = "The remediator gave up on demo/rollout-0, demo/trainer."
    assert shown((ROLLOUT, TRAINER), refused) == (both, "")


@pytest.mark.parametrize(
    ("breaker_open", "changes", "needed"),
    [
        (False, {}, "The remediator gave up on demo/rollout-0."),
        (False, {"reload_successful": False}, "The configuration file is not in force."),
        (False, {"alerts_stale": True}, "No alerts arrive: only the failsafe monitors the memory."),
        (
            *(True, {}),
            "Nothing will be healed: circuit breaker open until an operator runs `resume`.",
        ),
    ],
)
def test_what_concerns_all_workers_comes_before_what_was_given_up(
    tmp_path: Path, breaker_open: bool, changes: dict[str, Any], needed: str
) -> None:
    """The exporter's page takes a sentence about one worker for a matter of that one only."""
    summary = JournalSummary(
        *({}, {}, (ROLLOUT,)),
        open_incidents=0,
        breaker=BreakerFigures(breaker_open, 3, 3, blocked_since={}),
    )
    state = replace(RemediatorState("act", False, True, NOW, None, {}, summary), **changes)
    shown = status_json(CurrentWork(state, ()), make_setup(tmp_path), now=NOW)
    assert shown["operator_needed"] == shown["verdict"] == needed


@pytest.mark.parametrize("healed", [1, 2])
def test_a_worker_that_crashes_after_each_healing_has_a_first_step_while_it_is_restarted(
    tmp_path: Path, healed: int
) -> None:
    summary = JournalSummary(counters={}, timestamps={}, given_up=(), open_incidents=0)
    state = RemediatorState("act", False, True, NOW, None, {}, summary)
    gone = make_alert(alertname="TrainingWorkerGone", remediation="start_missing_worker")
    crashes = [
        PastAction(1, ROLLOUT, NOW - ago, NOW - ago + 60, healed=True, alert=gone.name)
        for ago in (2400, 1200)
    ]
    setup = make_setup(tmp_path, "demo/rollout-0")
    work = CurrentWork(state, (gone,), actions=crashes[:healed], setup=setup)
    (shown,) = status_json(work, setup, now=NOW)["firing"]
    assert shown["who_acts"] == REMEDIATOR_ACTS
    step = "It has crashed 3 times since 07:20 UTC, though each restart healed it. Each restart"
    assert shown["first_step"].startswith(step) == (healed == 2)
    assert bool(shown["first_step"]) == (healed == 2)
