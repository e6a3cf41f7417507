"""Ten states of a night: headline, colour and counts of both pages agree with the truth.

The exporter's page asks a real remediator over HTTP, which asks an Alertmanager over HTTP.
"""

from __future__ import annotations

import asyncio
import html
import json
import re
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from tests.exporter.status_page.test_overview import family
from tests.remediator.live_host import Box
from tests.remediator.samples import FINGERPRINT, LATER, ROLLOUT, delivery, make_alert

from trainwarden_exporter.config import RemediatorConfig
from trainwarden_exporter.scrape.scraper import Outcome
from trainwarden_exporter.status_page.page import PageData, render
from trainwarden_exporter.status_page.remediator_client import (
    ExporterIdentity,
    RemediatorStatus,
    fetch_status,
)
from trainwarden_remediator.alertmanager.webhook_payload import parse_notification
from trainwarden_remediator.api.server import build_app
from trainwarden_remediator.app import Remediator
from trainwarden_remediator.model import Decision, Verdict
from trainwarden_remediator.observation import active_alerts

Samples = Mapping[tuple[str, ...], float]

MIB = 1024.0**2
RUN = ("demo",)
WORKER = ("demo", "rollout-0", "rollout")
SERVER = ("demo", "server", "vllm")


@dataclass(frozen=True)
class Shown:
    """What both pages show."""

    tone: str
    sentence: str
    own_tone: str
    own_sentence: str
    text: str
    status: RemediatorStatus | str | None


def observed(**changes: Samples) -> Outcome:
    """A run that trains, with one rollout worker and one inference server."""
    now = time.time()
    series: dict[str, Samples] = {
        "training_finished": {RUN: 0},
        "training_phase": {(*RUN, "training"): 1},
        "training_step": {RUN: 216},
        "training_total_steps": {RUN: 100_000},
        "training_step_duration_median_seconds": {RUN: 1},
        "training_last_step_timestamp_seconds": {RUN: now - 1},
        "training_progress_timestamp_seconds": {RUN: now - 1},
        "training_stall_pause_limit_seconds": {RUN: 1800},
        "checkpoint_seen_timestamp_seconds": {(*RUN, "default"): now},
        "checkpoint_timestamp_seconds": {(*RUN, "default"): now - 17},
        "inference_up": {SERVER: 1},
        "inference_reason": {(*SERVER, "ok"): 1},
        "worker_expected_processes": {WORKER: 1},
        "worker_processes": {WORKER: 1},
        "worker_resident_bytes": {WORKER: 20 * MIB},
        "worker_memory_limit_bytes": {WORKER: 150 * MIB},
        **changes,
    }
    return Outcome("all", 0.1, tuple(family(name, samples) for name, samples in series.items()))


LEAKING: dict[str, Samples] = {"worker_resident_bytes": {WORKER: 178 * MIB}}
GONE: dict[str, Samples] = {"worker_processes": {WORKER: 0}}


def waiting(seconds: float) -> dict[str, Samples]:
    since = time.time() - seconds
    return {
        "training_phase": {(*RUN, "waiting_for_rollouts"): 1},
        "training_last_step_timestamp_seconds": {RUN: since},
        "training_progress_timestamp_seconds": {RUN: since},
    }


@dataclass
class Stage:
    box: Box
    remediator: Remediator
    client: TestClient[web.Request, web.Application]

    def deliver(self) -> None:
        self.remediator.journal.record_alerts(parse_notification(delivery(self.box.alert())).alerts)

    async def shown(self, **changes: Samples) -> Shown:
        status = await fetch_status(
            RemediatorConfig(url=str(self.client.make_url(""))),
            ExporterIdentity(None, self.remediator.setup.workers_hash),
        )
        page = rendered(status, **changes)
        own_tone, own_sentence = verdict(await (await self.client.get("/")).text())
        return Shown(*verdict(page), own_tone, own_sentence, plain(page), status)


def rendered(status: RemediatorStatus | str | None, **changes: Samples) -> str:
    now = time.time()
    return render(
        PageData(now, now - 60, None, now - 60, (observed(**changes),), remediator=status)
    )


def verdict(page: str) -> tuple[str, str]:
    found = re.search(r'<p class="verdict (\w+)">(.*?)</p>', page)
    assert found is not None
    return found[1], html.unescape(found[2])


def plain(page: str) -> str:
    body = re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL)
    return " ".join(html.unescape(re.sub("<[^>]*>", " ", body)).split())


@asynccontextmanager
async def staged(box: Box) -> AsyncIterator[Stage]:
    remediator = Remediator(box.config_file)
    async with remediator, TestClient(TestServer(build_app(remediator))) as client:
        remediator.readiness.ready = True
        yield Stage(box, remediator, client)


def counts(shown: Shown) -> tuple[int | None, int]:
    assert isinstance(shown.status, RemediatorStatus)
    return shown.status.firing_count, shown.status.unhandled_count


async def test_healthy(box: Box) -> None:
    box.known = {}
    async with staged(box) as stage:
        shown = await stage.shown()
    assert shown.tone == shown.own_tone == "good"
    assert shown.sentence == ("All is well: demo trains, step 216 of 100,000, saved 17 s ago.")
    assert shown.own_sentence == "No alert fires: it is allowed to restart 1 worker."
    assert counts(shown) == (0, 0)


async def test_leaking_and_then_restarting(box: Box) -> None:
    async with staged(box) as stage:
        stage.deliver()
        shown = await stage.shown(**LEAKING)
        leak = "rollout-0 is over its memory limit (178 of 150 MiB)."
        assert shown.tone == shown.own_tone == "bad"
        assert shown.sentence == f"{leak} The remediator is deciding what to do."
        assert counts(shown) == (1, 0)

        (incident,) = stage.remediator.journal.open_incidents()
        stage.remediator.journal.record_decisions([(incident, Decision(Verdict.ACT, "restart"))])
        stage.remediator.journal.record_intent(incident.id, ROLLOUT, "restart", ())
        shown = await stage.shown(**LEAKING)
        assert shown.tone == shown.own_tone == "bad"
        assert shown.sentence == f"{leak} The remediator is restarting it."
        assert shown.own_sentence == "The remediator is restarting demo/rollout-0."
        assert counts(shown) == (1, 0)


async def test_held_with_trouble(box: Box) -> None:
    until_time = time.time() + 3600
    hold = {"until": until_time, "who": "root"}
    async with staged(box) as stage:
        stage.remediator.setup.config.hold_file.write_text(json.dumps(hold))
        stage.deliver()
        (incident,) = stage.remediator.journal.open_incidents()
        stage.remediator.journal.record_decisions([(incident, Decision(Verdict.WAIT, "held"))])
        shown = await stage.shown(**GONE)
    until = time.strftime("%H:%M UTC", time.gmtime(until_time))
    held = f"Nothing will be healed: held by root until {until}."
    assert shown.tone == shown.own_tone == "bad"
    assert shown.sentence == f"rollout-0 is not running. {held}"
    assert shown.own_sentence.startswith(held)
    assert counts(shown) == (1, 1)
    assert "What to do first" in shown.text
    assert "Ask who set the hold" in shown.text


async def test_held_without_trouble_is_no_good_state(box: Box) -> None:
    box.known = {}
    async with staged(box) as stage:
        stage.remediator.setup.config.hold_file.touch()
        shown = await stage.shown()
    assert shown.tone == shown.own_tone == "warn"
    assert shown.sentence.startswith("Nothing will be healed: held by an operator until `resume`.")


async def test_stalled_is_shown_as_soon_as_it_is_longer_than_usual(box: Box) -> None:
    box.known = {}
    box.fire(
        fingerprint=LATER,
        labels={
            "alertname": "TrainingWaitingForRollouts",
            "severity": "warning",
            "remediation": "",
            "worker": "",
        },
    )
    async with staged(box) as stage:
        assert (await stage.shown(**waiting(30))).sentence.startswith("TrainingWaitingForRollouts")
        shown = await stage.shown(**waiting(120))
    assert shown.tone == shown.own_tone == "warn"
    assert shown.sentence == (
        "demo has made no step for 2 min (usually 1 s): it waits for rollouts. "
        "Nothing acts on it: an operator is needed."
    )
    assert "Alerts 1 fires TrainingWaitingForRollouts, nothing acts on it" in shown.text
    assert counts(shown) == (1, 1)


async def test_server_loading(box: Box) -> None:
    box.known = {}
    loading: dict[str, Samples] = {
        "inference_up": {SERVER: 0},
        "inference_reason": {(*SERVER, "starting"): 1},
    }
    async with staged(box) as stage:
        shown = await stage.shown(**loading, **waiting(120))
    assert shown.tone == "warn"
    assert shown.sentence == (
        "demo has made no step for 2 min (usually 1 s): it waits for its inference server server, "
        "which is starting. Nothing to do yet: an alert fires if it lasts."
    )


async def test_gave_up(box: Box) -> None:
    async with staged(box) as stage:
        stage.deliver()
        (incident,) = stage.remediator.journal.open_incidents()
        (target,) = stage.remediator.setup.config.targets
        stage.remediator.journal.record_decisions(
            [(incident, Decision(Verdict.REFUSE, "attempts_exhausted", target))]
        )
        shown = await stage.shown(**GONE)
    assert shown.tone == shown.own_tone == "bad"
    assert shown.sentence == (
        "rollout-0 is not running. An operator is needed: the remediator gave up on demo/rollout-0."
    )
    assert counts(shown) == (1, 1)
    assert "gave up: an operator is needed" in shown.text


async def test_remediator_gone() -> None:
    tone, sentence = verdict(rendered("connection refused"))
    assert tone == "warn"
    assert sentence.startswith("Nothing will be healed: the remediator does not answer")
    assert "What to do first TrainingRemediatorDown : Does it run?" in plain(rendered("refused"))
    assert "Alerts not known" in plain(rendered("connection refused"))
    tone, sentence = verdict(rendered("connection refused", **GONE))
    assert tone == "bad"
    assert sentence.startswith("rollout-0 is not running. Nothing will be healed: the remediator")


async def test_alertmanager_gone(box: Box) -> None:
    box.blind = True
    async with staged(box) as stage:
        shown = await stage.shown()
    assert shown.tone == shown.own_tone == "warn"
    assert shown.sentence.startswith(
        "Nothing will be healed, alerts are not known: Alertmanager does not answer."
    )
    assert shown.own_sentence.startswith(
        "Nothing will be healed, alerts are not known: Alertmanager does not answer."
    )
    assert "Alerts not known" in shown.text
    assert box.url not in shown.text
    assert counts(shown) == (None, 0)


async def test_an_alertmanager_that_hangs_delays_the_page_for_a_bounded_time(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(active_alerts, "TIMEOUT_SECONDS", 0.05)

    async def never(_: object) -> bytes:
        await asyncio.Event().wait()
        raise AssertionError

    async with staged(box) as stage:
        stage.remediator.active_alerts.reconfigure(None, never)
        shown = await stage.shown()
    assert "Alertmanager did not respond within 0.05 s" in shown.sentence


async def test_finished(box: Box) -> None:
    box.known = {}
    finished: dict[str, Samples] = {
        "training_finished": {RUN: 1},
        "training_step": {RUN: 100_000},
        "worker_finished": {WORKER: 1},
    }
    async with staged(box) as stage:
        stage.remediator.journal.set_worker_finished(ROLLOUT, finished=True)
        shown = await stage.shown(**finished, **GONE)
    assert shown.tone == "good"
    assert shown.sentence == "All is well: demo has finished, step 100,000 of 100,000."
    assert shown.own_sentence == "No alert fires: its worker has finished."


async def test_an_alert_that_nobody_acts_on_is_counted_and_marked(box: Box) -> None:
    box.known = {}
    labels = {"alertname": "TrainingOomKill", "severity": "warning", "remediation": ""}
    box.fire(
        fingerprint=LATER,
        labels={**labels, "run": "", "worker": ""},
        annotations={"summary": "The kernel killed a process for lack of memory."},
    )
    async with staged(box) as stage:
        shown = await stage.shown()
        own = plain(await (await stage.client.get("/")).text())
    assert shown.tone == shown.own_tone == "warn"
    assert shown.sentence == (
        "TrainingOomKill fires on the host: The kernel killed a process for lack of memory. "
        "Nothing acts on it: an operator is needed."
    )
    assert shown.own_sentence == (
        "On the host: the kernel killed a process for lack of memory. "
        "Nothing acts on it: an operator is needed."
    )
    for text in (shown.text, own):
        assert "What to do first TrainingOomKill : Which process was killed?" in text
    assert "TrainingOomKill the host nothing acts on it" in own
    assert counts(shown) == (1, 1)


async def test_silenced_alerts_and_the_watchdog_are_not_counted(box: Box) -> None:
    box.known = {FINGERPRINT: "suppressed"}
    box.fire(fingerprint=LATER, labels={"alertname": "TrainingWatchdog", "remediation": ""})
    async with staged(box) as stage:
        assert counts(await stage.shown()) == (0, 0)


async def test_alerts_of_other_hosts_are_not_counted_where_matchers_tell_them_apart(
    box: Box,
) -> None:
    box.known = {}
    box.configure(
        alertmanager={"url": box.url, "pull": {"match": ['instance="box-3"']}},
    )
    box.fire(fingerprint=LATER, labels={"instance": "box-3", "alertname": "TrainingOomKill"})
    box.fire(fingerprint="2" * 16, labels={"instance": "box-4", "alertname": "TrainingOomKill"})
    async with staged(box) as stage:
        assert counts(await stage.shown())[0] == 1


async def test_an_alert_for_information_is_no_problem_but_not_all_is_well(box: Box) -> None:
    box.known = {}
    box.fire(
        fingerprint=LATER,
        labels={"alertname": "TrainingWaitingForServer", "severity": "info", "remediation": ""},
    )
    async with staged(box) as stage:
        shown = await stage.shown()
    assert shown.tone == "good"
    assert "1 alert for information fires" in shown.sentence
    assert "All is well" not in shown.text


@pytest.mark.parametrize(("streak", "tone"), [(1, "good"), (3, "warn"), (12, "bad")])
async def test_a_brake_streak_that_grows_is_not_all_well(box: Box, streak: int, tone: str) -> None:
    box.known = {}
    brake = ("demo", "rollout", "memory_brake")
    series: dict[str, Samples] = {
        "log_match_streak": {brake: streak},
        "log_last_match_timestamp_seconds": {brake: time.time() - 5},
        "log_info": {("demo", "rollout", "rollout", "rollout-0"): 1},
        "worker_start_timestamp_seconds": {WORKER: time.time() - 600},
    }
    async with staged(box) as stage:
        shown = await stage.shown(**series)
        series["worker_start_timestamp_seconds"] = {WORKER: time.time() - 1}
        restarted = await stage.shown(**series)
    assert shown.tone == tone
    named = f"memory_brake of demo fired {streak} times in a row" in shown.sentence
    assert named is (streak > 1)
    assert restarted.sentence.startswith("All is well")


def test_a_remediator_that_does_not_report_active_alerts_leaves_them_unknown() -> None:
    older = RemediatorStatus(
        mode="act", tone="good", verdict="", open_alerts=0, alerts=(), actions=()
    )
    tone, sentence = verdict(rendered(older))
    assert tone == "warn"
    assert sentence.startswith("Nothing will be healed, alerts are not known")


async def test_a_healed_incident_in_follow_up_is_well_on_both_pages(box: Box) -> None:
    box.known = {}
    async with staged(box) as stage:
        stage.deliver()
        (incident,) = stage.remediator.journal.open_incidents()
        resolved = make_alert(starts_at=incident.starts_at, firing=False)
        stage.remediator.journal.record_alerts([resolved])
        shown = await stage.shown()
    assert shown.tone == shown.own_tone == "good"
    assert (
        shown.own_sentence
        == "No alert fires: it is allowed to restart 1 worker, following up 1 incident."
    )


async def test_in_mode_observe_nobody_acts(box: Box) -> None:
    box.configure(mode="observe")
    async with staged(box) as stage:
        stage.deliver()
        (incident,) = stage.remediator.journal.open_incidents()
        stage.remediator.journal.record_decisions(
            [(incident, Decision(Verdict.WAIT, "observe_mode"))]
        )
        shown = await stage.shown(**GONE)
        box.known = {}
    assert shown.tone == shown.own_tone == "bad"
    assert shown.sentence == "rollout-0 is not running. The remediator only observes."
    assert shown.own_sentence == (
        "On demo/rollout-0: a worker holds more memory than its limit. The remediator only "
        "observes."
    )
    assert counts(shown) == (1, 1)
    assert f"trainwarden approve {incident.id}, or the page /hold here" in shown.text
