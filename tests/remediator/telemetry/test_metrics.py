from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families
from tests.remediator.live_host import Box
from tests.remediator.samples import TOKEN, delivery, make_alert

import stack
from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.scrape import exposition
from trainwarden_remediator.api.server import build_app
from trainwarden_remediator.app import Remediator
from trainwarden_remediator.exceptions import JournalError
from trainwarden_remediator.holds.hold_file import Hold
from trainwarden_remediator.journal.journal import Journal
from trainwarden_remediator.model import Decision, Verdict
from trainwarden_remediator.notify.outbox import QueueState
from trainwarden_remediator.telemetry.metrics import METRICS, metric_families
from trainwarden_remediator.telemetry.state import BreakerFigures, JournalSummary, RemediatorState

RECORD = JournalSummary(
    counters={
        "alerts_received": {("firing",): 3, ("resolved",): 1},
        "decisions": {("act", "restart"): 2, ("wait", "cooldown"): 1},
        "actions": {("demo", "rollout-0", "restart", "done"): 1},
        "outcomes": {("demo", "rollout-0", "healed"): 1},
        "notifications": {("ops", "sent"): 5},
    },
    timestamps={"watchdog": 1_800_000_000.0},
    given_up=(WorkerKey("demo", "trainer"),),
    breaker=BreakerFigures(True, 6, 6, {"breaker_open": 1_800_000_000.0}),
    open_incidents=2,
    oldest_action=1_800_000_100.0,
    queue_states={"ops": QueueState(2, 1_800_000_050.0), "log": None},
)
FULL = RemediatorState(
    mode="act",
    paused=True,
    reload_successful=True,
    reload_timestamp=5.0,
    workers_hash=7,
    web_config_loaded=True,
    webhooks={200: 4, 401: 1},
    journal=RECORD,
    last_cycle_at=1_800_000_200.0,
    pulled_at=1_800_000_190.0,
    alerts_stale=True,
    failsafe_active=True,
    aborted_cycles=3,
    holds=(Hold("demo", "rollout-0", until=1_800_003_600.0), Hold("demo")),
)


def lines(state: RemediatorState) -> dict[str, float]:
    """The page as series and their values."""
    text = exposition.render(metric_families(state)).body.decode()
    pairs = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    return {name.removeprefix("trainwarden_remediator_"): float(value) for name, value in pairs}


def test_shows_how_it_stands() -> None:
    shown = lines(FULL)
    expected = {
        'mode{mode="act"}': 1,
        'mode{mode="observe"}': 0,
        "paused": 1,
        'hold_info{run="demo",worker=""}': 1,
        'hold_info{run="demo",worker="rollout-0"}': 1,
        'hold_expiry_timestamp_seconds{run="demo",worker="rollout-0"}': 1_800_003_600,
        'webhooks_total{code="200"}': 4,
        'webhooks_total{code="401"}': 1,
        'alerts_received_total{status="firing"}': 3,
        'alerts_received_total{status="resolved"}': 1,
        'decisions_total{reason="restart",verdict="act"}': 2,
        'decisions_total{reason="cooldown",verdict="wait"}': 1,
        'actions_total{action="restart",result="done",run="demo",worker="rollout-0"}': 1,
        'outcomes_total{outcome="healed",run="demo",worker="rollout-0"}': 1,
        "open_incidents": 2,
        "evaluations_aborted_total": 3,
        'incident_abandoned{run="demo",worker="trainer"}': 1,
        "watchdog_timestamp_seconds": 1_800_000_000,
        "oldest_action_timestamp_seconds": 1_800_000_100,
        "last_evaluation_timestamp_seconds": 1_800_000_200,
        "pull_timestamp_seconds": 1_800_000_190,
        "alerts_stale": 1,
        "failsafe_active": 1,
        'notifications_total{receiver="ops",result="sent"}': 5,
        'notifications_total{receiver="ops",result="dropped"}': 0,
        'notifications_total{receiver="log",result="failed"}': 0,
        'notifications_waiting{receiver="ops"}': 2,
        'notifications_waiting{receiver="log"}': 0,
        'oldest_notification_timestamp_seconds{receiver="ops"}': 1_800_000_050,
        "journal_success": 1,
        "config_last_reload_successful": 1,
        "config_last_reload_success_timestamp_seconds": 5,
    }
    assert {name: shown.get(name) for name in expected} == expected
    # only an operator lifts it
    assert 'hold_expiry_timestamp_seconds{run="demo",worker=""}' not in shown


def test_an_unreadable_journal_is_reported_without_invented_samples() -> None:
    state = RemediatorState(
        "observe",
        paused=False,
        reload_successful=False,
        reload_timestamp=1,
        web_config_loaded=None,
        webhooks={},
        journal=None,
    )
    shown = lines(state)
    assert shown["journal_success"] == 0
    assert shown['mode{mode="observe"}'] == 1
    # counters of the program that need no journal
    known = {"process_cpu_seconds_total", "evaluations_aborted_total"}
    assert not any("total" in name or "open_incidents" in name for name in shown.keys() - known)


def test_without_a_heartbeat_there_is_no_moment_of_it() -> None:
    summary = JournalSummary(counters={}, timestamps={}, given_up=(), open_incidents=0)
    quiet = RemediatorState("act", paused=False, reload_successful=True, reload_timestamp=1,
                      web_config_loaded=None, webhooks={}, journal=summary)  # fmt: skip
    absent = ("watchdog", "incident_abandoned", "oldest_action", "last_evaluation_")
    assert not any(name.startswith(absent) for name in lines(quiet))


def test_both_official_parsers_read_the_page_and_find_only_what_is_declared() -> None:
    declared = {metric.name: set(metric.labels) for metric in METRICS}
    text = exposition.render(metric_families(FULL)).body.decode()
    accept = "application/openmetrics-text; version=1.0.0"
    open_text = exposition.render(metric_families(FULL), accept=accept).body.decode()
    assert open_text.endswith("# EOF\n")
    parse_open: Callable[[str], Iterable[Any]] = openmetrics.text_string_to_metric_families
    for page in (text_string_to_metric_families(text), parse_open(open_text)):
        samples = [sample for family in page for sample in family.samples]
        shown = {s.name: set(s.labels) for s in samples if not s.name.endswith("_created")}
        assert shown.keys() == declared.keys()
        assert shown.items() <= declared.items()


def test_totals_survive_a_restart_of_the_program(journal: Journal) -> None:
    journal.record_alerts([make_alert()])
    journal.record_decisions([(journal.open_incidents()[0], Decision(Verdict.WAIT, "cooldown"))])
    summary = JournalSummary(
        journal.counters(), journal.timestamps(), (), len(journal.open_incidents())
    )
    shown = lines(RemediatorState("act", paused=False, reload_successful=True, reload_timestamp=1,
                            web_config_loaded=None, webhooks={}, journal=summary))  # fmt: skip
    assert shown['decisions_total{reason="cooldown",verdict="wait"}'] == 1


async def test_the_served_page_passes_promtool(box: Box, binaries: stack.Binaries) -> None:
    async with Remediator(box.config_file) as remediator:
        remediator.readiness.ready = True
        async with TestClient(TestServer(build_app(remediator))) as client:
            headers = {"Authorization": f"Bearer {TOKEN}"}
            await client.post("/webhook", data=delivery(box.alert()), headers=headers)
            await client.post("/webhook", data=b"")
            page = await client.get("/metrics")
            text = await page.text()
    assert 'webhooks_total{code="200"} 1.0' in text
    assert 'webhooks_total{code="401"} 1.0' in text
    check = await asyncio.to_thread(
        lambda: subprocess.run(
            [binaries.promtool, "check", "metrics"],
            input=text, capture_output=True, text=True, check=False, timeout=60,
        )
    )  # fmt: skip
    assert (check.returncode, check.stdout, check.stderr) == (0, "", "")


async def test_the_page_is_served_also_when_the_journal_fails(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise JournalError("disk on fire")

    remediator = Remediator(box.config_file)
    async with remediator, TestClient(TestServer(build_app(remediator))) as client:
        monkeypatch.setattr(remediator.journal._file, "read", fail)
        text = await (await client.get("/metrics")).text()
        assert "trainwarden_remediator_journal_success 0.0" in text
        assert (await client.get("/")).status == 200
