"""What the remediator tells the exporter's status page, over real HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from tests.remediator.conftest import NOW, ROLLOUT, Box, delivery, make_alert, make_config

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.remediation.asking import ask
from trainwarden_exporter.remediation.config import RemediatorConfig
from trainwarden_exporter.remediation.told import MOST, Told
from trainwarden_remediator import telling
from trainwarden_remediator.alerts import parse_notification
from trainwarden_remediator.app import Remediator
from trainwarden_remediator.decision import Decision, PastAction, Verdict
from trainwarden_remediator.exceptions import JournalError
from trainwarden_remediator.metrics import Condition, Record
from trainwarden_remediator.records import as_incident
from trainwarden_remediator.status import ACTIONS, ALERTS, in_short
from trainwarden_remediator.targets import PERSON
from trainwarden_remediator.web import build_app

Client = TestClient[web.Request, web.Application]


@asynccontextmanager
async def asked(box: Box) -> AsyncIterator[tuple[Client, Remediator]]:
    """The remediator of `box`, without its engine: what it is told it holds, and does nothing."""
    remediator = Remediator(box.config_file)
    async with remediator, TestClient(TestServer(build_app(remediator))) as client:
        remediator.readiness.ready = True
        yield client, remediator


async def told_by(client: Client) -> Told:
    told = await ask(RemediatorConfig(url=str(client.make_url(""))))
    assert isinstance(told, Told), told
    return told


async def test_an_alert_it_has_heard_of_is_told(box: Box) -> None:
    async with asked(box) as (client, remediator):
        remediator.journal.hear(parse_notification(delivery(box.alert())).alerts)
        told = await told_by(client)
        assert (told.mode, told.open_alerts, told.actions) == ("act", 1, ())
        (alert,) = told.alerts
        assert (alert.alert, alert.run, alert.worker) == (
            "TrainingWorkerMemoryOverLimit",
            *ROLLOUT,
        )
        assert (alert.tone, alert.verdict, alert.reason) == ("warn", "is being decided", "")

        (incident,) = remediator.journal.open_incidents()
        remediator.journal.decided(incident, Decision(Verdict.WAIT, "observe_mode"))
        (alert,) = (await told_by(client)).alerts
        assert (alert.tone, alert.verdict) == ("quiet", "waits")
        assert alert.reason == "mode is observe: touched nothing"


async def test_an_action_is_told_with_what_came_of_it(box: Box) -> None:
    async with asked(box) as (client, remediator):
        journal = remediator.journal
        journal.hear(parse_notification(delivery(box.alert())).alerts)
        (incident,) = journal.open_incidents()
        action = journal.intend(incident.id, ROLLOUT, "restart", ())
        journal.reached(action, "start", command=["x"])
        (told,) = (await told_by(client)).actions
        assert (told.run, told.worker) == ROLLOUT
        assert (told.doing, told.outcome, told.tone) == ("restarted", "under way", "warn")

        journal.finished(action, "done", started_by="us", processes=[])
        journal.verified(action, "healed", seconds=2)
        (told,) = (await told_by(client)).actions
        assert (told.outcome, told.tone) == ("healed", "good")


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
        remediator.journal.hear(parse_notification(delivery(alert)).alerts)
        (told,) = (await told_by(client)).alerts
        for text in (told.alert, told.run, told.worker):
            assert text.isprintable()
            assert len(text) <= 200


async def test_of_a_storm_only_the_first_are_listed_and_all_are_counted(box: Box) -> None:
    many = [
        box.alert(worker=f"w-{number}") | {"fingerprint": f"{number:016x}"} for number in range(90)
    ]
    async with asked(box) as (client, remediator):
        remediator.journal.hear(parse_notification(delivery(*many)).alerts)
        told = await told_by(client)
        assert (told.open_alerts, len(told.alerts)) == (90, ALERTS)
    assert max(ALERTS, ACTIONS) <= MOST


async def test_of_a_storm_no_more_is_read_than_is_told(
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
        remediator.journal.hear(storm)
        monkeypatch.setattr(telling, "as_incident", counted)
        told = await told_by(client)
        assert told.open_alerts == 11_000
        oldest = [f"w-{number}" for number in range(10_999, 10_999 - ALERTS, -1)]
        assert [one.worker for one in told.alerts] == oldest
        assert len(read) == ALERTS


async def test_one_cut_short_before_its_first_step_is_no_action(box: Box) -> None:
    async with asked(box) as (client, remediator):
        journal = remediator.journal
        journal.hear([make_alert()])
        for step in (None, "stop"):
            action = journal.intend(1, ROLLOUT, "restart", ())
            if step:
                journal.reached(action, step, processes=[1])
            journal.finished(action, "interrupted", found="untouched")
        assert [one.outcome for one in (await told_by(client)).actions] == ["cut short"]


async def test_a_journal_that_cannot_be_read_is_said_and_no_failure(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asked(box) as (client, remediator):

        def broken(*_: Any) -> Any:
            raise JournalError("disk I/O error")

        remediator.journal.hear([make_alert()])
        for name in ("tallies", "first_incidents", "last_actions"):
            monkeypatch.setattr(remediator.journal, name, broken)
        told = await told_by(client)
        assert (told.tone, told.alerts) == ("bad", ())
        assert told.verdict == "The journal cannot be read: nothing will be done."


def test_the_newest_action_comes_first_and_each_says_what_came_of_it(tmp_path: Path) -> None:
    actions = (
        PastAction(1, ROLLOUT, NOW - 50, NOW - 40, healed=True),
        PastAction(1, WorkerKey("", "gpus"), NOW - 30, NOW - 20, kind="gpu_cleanup"),
        PastAction(1, ROLLOUT, NOW - 19, NOW - 18, result="interrupted"),
        PastAction(1, ROLLOUT, NOW - 17, NOW - 16, result="failed"),
        PastAction(1, ROLLOUT, NOW - 15, NOW - 14, healed=True, result="failed"),
        PastAction(1, PERSON, NOW - 10, NOW - 10, kind="notify"),
        PastAction(1, ROLLOUT, NOW - 5, None, kind="something new"),
    )
    record = Record(tallies={}, moments={}, given_up=(), open_incidents=0)
    condition = Condition("act", False, True, NOW, None, {}, record)
    told = Told.model_validate(in_short(condition, make_config(tmp_path), (), actions))
    assert [(one.doing, one.outcome, one.tone) for one in told.actions] == [
        ("something new", "under way", "warn"),
        ("called", "a person is asked to look", "warn"),
        ("restarted", "healed", "good"),
        ("restarted", "failed", "bad"),
        ("restarted", "cut short", "warn"),
        ("leftovers ended", "not healed", "bad"),
        ("restarted", "healed", "good"),
    ]
