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
from dataclasses import dataclass, replace
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from tests.exporter.status_page.test_overview import family
from tests.remediator.live_host import Box
from tests.remediator.samples import FINGERPRINT, LATER, ROLLOUT, delivery, make_alert

from trainwarden.commands.status import describe
from trainwarden_exporter.config import RemediatorConfig
from trainwarden_exporter.exceptions import CollectError
from trainwarden_exporter.processes.announcements import (
    AnnouncedRuns,
    AnnouncedWorker,
    Announcement,
)
from trainwarden_exporter.runtime.responsibility import NOBODY, REMEDIATOR, WITH_CHECKPOINTS, YOU
from trainwarden_exporter.scrape.scraper import Outcome
from trainwarden_exporter.status_page.page import PageData, render, status_json
from trainwarden_exporter.status_page.remediator_client import (
    ExporterIdentity,
    RemediatorStatus,
    fetch_status,
)
from trainwarden_remediator.alertmanager.webhook_payload import parse_notification
from trainwarden_remediator.api.server import build_app
from trainwarden_remediator.app import Remediator
from trainwarden_remediator.config.notifications import NotifySettings
from trainwarden_remediator.holds.service import operator_name
from trainwarden_remediator.model import Decision, Verdict
from trainwarden_remediator.observation import active_alerts

Samples = Mapping[tuple[str, ...], float]

MIB = 1024.0**2
PHONE = NotifySettings.model_validate(
    {"receivers": [{"name": "phone", "kind": "ntfy", "url": "https://ntfy.sh/a"}]}
)
RUN = ("demo",)
WORKER = ("demo", "rollout-0", "rollout")
SERVER = ("demo", "server", "vllm")


@dataclass(frozen=True)
class Shown:
    """What both pages show: of each the tone, what is wrong, who acts, and what is done."""

    tone: str
    sentence: str
    who: str
    how: str
    own_tone: str
    own_sentence: str
    own_who: str
    own_how: str
    text: str
    status: RemediatorStatus | str | None
    lines: list[str]
    """Of `trainwarden status`."""


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
        "worker_memory_bytes": {WORKER: 20 * MIB},
        "worker_memory_limit_bytes": {WORKER: 150 * MIB},
        **changes,
    }
    return Outcome("all", 0.1, tuple(family(name, samples) for name, samples in series.items()))


LEAKING: dict[str, Samples] = {"worker_memory_bytes": {WORKER: 178 * MIB}}
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

    async def asked(self) -> RemediatorStatus | str | None:
        return await fetch_status(
            RemediatorConfig(url=str(self.client.make_url(""))),
            ExporterIdentity(self.box.folder / "exporter.yml", self.remediator.setup.workers_hash),
        )

    async def status_of(
        self, known: Mapping[str, Any] | None = None, /, **changes: Samples
    ) -> Mapping[str, Any]:
        """What `trainwarden status` shows, where the remediator reports what is `known`."""
        status = await self.asked()
        assert isinstance(status, RemediatorStatus)
        return status_json(page_data(status.model_copy(update=known), **changes))

    async def shown(self, **changes: Samples) -> Shown:
        status = await self.asked()
        page = rendered(status, **changes)
        lines = describe(status_json(page_data(status, **changes)))
        own = await (await self.client.get("/")).text()
        shown = Shown(*verdict(page), *verdict(own), plain(page), status, lines)
        assert shown.who == shown.own_who
        assert lines[0].endswith(f": {shown.sentence}")
        assert lines[1] == f"  Who acts: {shown.who}. {shown.how}".rstrip()
        return shown


def rendered(status: RemediatorStatus | str | None, **changes: Samples) -> str:
    return render(page_data(status, **changes))


def page_data(status: RemediatorStatus | str | None, **changes: Samples) -> PageData:
    now = time.time()
    return PageData(now, now - 60, None, now - 60, (observed(**changes),), remediator=status)


def verdict(page: str) -> tuple[str, str, str, str]:
    form = (
        r'<p class="verdict (\w+)">(.*?)</p>\n<p class="acts (\w*)"><span>Who acts</span> '
        r'<b>(.*?)</b>(?: <span class="quiet">(.*?)</span>)?</p>\s*<'
    )
    found = re.findall(form, page)
    assert len(found) == 1
    tone, sentence, colour, who, how = map(html.unescape, found[0])
    assert colour == (tone if who == YOU or tone == "good" else "")
    return tone, sentence, who, how


def plain(page: str) -> str:
    body = re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL)
    text = " ".join(html.unescape(re.sub("<[^>]*>", " ", body)).split())
    return text.replace(" ,", ",")


@asynccontextmanager
async def staged(box: Box) -> AsyncIterator[Stage]:
    remediator = Remediator(box.config_file)
    async with remediator, TestClient(TestServer(build_app(remediator))) as client:
        remediator.readiness.ready = True
        await remediator.reread_exporter_file()  # what a test sets then stays until a file changes
        yield Stage(box, remediator, client)


def counts(shown: Shown) -> tuple[int | None, int]:
    assert isinstance(shown.status, RemediatorStatus)
    return shown.status.firing_count, shown.status.unhandled_count


async def test_healthy(box: Box) -> None:
    box.known = {}
    async with staged(box) as stage:
        shown = await stage.shown()
    assert shown.tone == shown.own_tone == "good"
    assert (
        shown.sentence
        == "All is well: demo trains, step 216 of 100,000, last complete save 17 s ago. "
        "The mode is act."
    )
    assert shown.own_sentence == "No alert fires: it may restart 1 worker."
    assert (shown.who, shown.how, shown.own_how) == (NOBODY, "", "")
    assert counts(shown) == (0, 0)


async def test_leaking_and_then_restarting(box: Box) -> None:
    async with staged(box) as stage:
        stage.deliver()
        shown = await stage.shown(**LEAKING)
        leak = "demo/rollout-0 is over its memory limit (178 of 150 MiB)."
        assert shown.tone == shown.own_tone == "bad"
        assert shown.sentence == leak
        assert (shown.who, shown.how) == (REMEDIATOR, "It is deciding what to do.")
        assert shown.own_how == shown.how
        assert counts(shown) == (1, 0)

        (incident,) = stage.remediator.journal.open_incidents()
        stage.remediator.journal.record_decisions([(incident, Decision(Verdict.ACT, "restart"))])
        number = stage.remediator.journal.record_intent(incident.id, ROLLOUT, "restart", ())
        shown = await stage.shown(**LEAKING)
        assert shown.tone == shown.own_tone == "bad"
        assert shown.sentence == leak
        assert (shown.who, shown.how) == (REMEDIATOR, "It is restarting demo/rollout-0.")
        assert shown.own_how == shown.how
        assert "Last action in progress, restart of demo/rollout-0, " in shown.text
        assert "The remediator is restarting demo/rollout-0" in shown.text
        assert counts(shown) == (1, 0)

        stage.remediator.journal.record_result(number, "done", started_by="us", processes=[1])
        shown = await stage.shown()
        checking = "is checking that the restart of demo/rollout-0 has helped"
        assert (shown.who, shown.how) == (REMEDIATOR, f"It {checking}.")
        assert "Last action being checked, restart of demo/rollout-0, " in shown.text
        for text in ("restarted", "deciding"):
            assert text not in shown.text


async def test_an_alert_that_outlives_its_healing_does_not_say_that_the_fault_lasts(
    box: Box,
) -> None:
    async with staged(box) as stage:
        stage.deliver()
        (incident,) = stage.remediator.journal.open_incidents()
        lingers = Decision(Verdict.WAIT, "alert_lingers")
        stage.remediator.journal.record_decisions([(incident, lingers)])
        shown = await stage.shown()
    not_ended = "TrainingWorkerMemoryOverLimit on demo/rollout-0 has not ended yet."
    assert shown.sentence == shown.own_sentence == not_ended
    assert (shown.who, shown.how) == (NOBODY, "Healed; the alert has not resolved yet.")


async def test_a_restart_loop_that_holds_restarts_is_for_you_everywhere(box: Box) -> None:
    loop: dict[str, Any] = {
        "alertname": "TrainingWorkerRestartLoop",
        "remediation": "hold_restarts",
        "severity": "critical",
    }
    box.fire(fingerprint=LATER, labels=loop)
    async with staged(box) as stage:
        journal = stage.remediator.journal
        journal.record_alerts([make_alert(), make_alert(fingerprint=LATER, **loop)])
        first, second = journal.open_incidents()
        journal.record_decisions([(first, Decision(Verdict.WAIT, "held_by_alert"))])
        journal.record_decisions([(second, Decision(Verdict.ACT, "hold"))])
        shown = await stage.shown(**GONE)
    assert (shown.who, counts(shown)) == (YOU, (2, 2))
    assert shown.how in {
        "Mend its cause: until this alert ends, the remediator restarts nothing there.",
        "The remediator does not act: held while another alert fires.",
    }
    for text in (shown.text, *shown.lines):
        assert "acts on it" not in text
        assert "The remediator (" not in text


@pytest.mark.parametrize("who", ["ann", operator_name()])
async def test_held_with_trouble(box: Box, who: str) -> None:
    until_time = time.time() + 3600
    hold = {"until": until_time, "who": who}
    async with staged(box) as stage:
        stage.remediator.setup.config.hold_file.write_text(json.dumps(hold))
        stage.deliver()
        (incident,) = stage.remediator.journal.open_incidents()
        stage.remediator.journal.record_decisions([(incident, Decision(Verdict.WAIT, "held"))])
        shown = await stage.shown(**GONE)
    until = time.strftime("%H:%M UTC", time.gmtime(until_time))
    assert shown.tone == shown.own_tone == "bad"
    assert shown.sentence == "demo/rollout-0 is not running."
    assert shown.who == f"{who}, until {until}"
    assert shown.how == shown.own_how == "The remediator does nothing until then."
    assert counts(shown) == (1, 1)
    assert "What to do first" in shown.text
    # not of the account that looks
    assert ("ann may not know of this: ask." in shown.text) == (who == "ann")
    assert "When the reason of the hold is over: trainwarden resume" in shown.text
    assert f"{operator_name()} may not know" not in shown.text


async def test_held_without_trouble_is_no_good_state(box: Box) -> None:
    box.known = {}
    async with staged(box) as stage:
        stage.remediator.setup.config.hold_file.touch()
        shown = await stage.shown()
    assert shown.tone == shown.own_tone == "warn"
    assert shown.sentence == "No alert fires. Nothing will be healed."
    assert shown.who == "The operator of the hold, until the hold is lifted"
    assert shown.own_how == "The remediator does nothing until then."
    assert shown.how.startswith(f"{shown.own_how} No problem is seen: demo trains, ")


async def test_a_hold_while_a_restart_is_checked_names_both(box: Box) -> None:
    async with staged(box) as stage:
        stage.deliver()
        (incident,) = stage.remediator.journal.open_incidents()
        number = stage.remediator.journal.record_intent(incident.id, ROLLOUT, "restart", ())
        stage.remediator.journal.record_result(number, "done", started_by="us", processes=[1])
        hold = json.dumps({"who": "ann from 10.0.0.1, on the page", "run": "demo"})
        stage.remediator.setup.config.hold_file.write_text(hold)
        shown = await stage.shown(**GONE)
    assert shown.who == "ann, until the hold is lifted"
    assert shown.how == (
        "The remediator is checking that the restart of demo/rollout-0 has helped, "
        "and does nothing more until then."
    )


@pytest.mark.parametrize(
    ("mode", "who", "how"),
    [
        (
            "act",
            REMEDIATOR,
            "It restarts the run once its stacks show that it is stuck, or its limit is over.",
        ),
        ("observe", YOU, "The remediator only observes."),
    ],
)
async def test_a_stall_that_the_remediator_will_end_needs_nobody_yet(
    box: Box, mode: str, who: str, how: str
) -> None:
    box.configure(mode=mode)
    box.match(box.mark, role="trainer")
    box.known = {}
    box.fire(
        fingerprint=LATER,
        labels={
            "alertname": "TrainingStepStalled",
            "severity": "warning",
            "remediation": "",
            "worker": "",
        },
    )
    async with staged(box) as stage:
        shown = await stage.shown(**waiting(40))
    assert (shown.who, shown.how) == (who, how)


async def test_a_stall_is_yours_where_only_another_worker_than_the_trainer_may_be_restarted(
    box: Box,
) -> None:
    box.known = {}
    stall = {"alertname": "TrainingStepStalled", "severity": "warning"}
    box.fire(fingerprint=LATER, labels=stall | {"remediation": "", "worker": ""})
    async with staged(box) as stage:
        shown = await stage.shown(**waiting(40))
        box.firing.clear()
        stage.remediator.active_alerts._asked_at = None
        before = await stage.status_of(**waiting(2000))
    assert (shown.who, shown.how) == (YOU, "The remediator may not restart it.")
    assert (before["who_acts"], before["how"]) == (YOU, "The remediator may not restart it.")


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
        "demo has made no step for 2 min (usually 1 s), though it saved 17 s ago: "
        "it waits for rollouts."
    )
    assert (shown.who, shown.how) == (YOU, "The remediator takes no action on it.")
    assert "Alerts 1 active, TrainingWaitingForRollouts" in shown.text
    assert counts(shown) == (1, 1)


async def test_server_loading(box: Box) -> None:
    box.known = {}
    loading: dict[str, Samples] = {
        "inference_up": {SERVER: 0},
        "inference_reason": {(*SERVER, "starting"): 1},
    }
    async with staged(box) as stage:
        shown = await stage.shown(**loading, **waiting(120))
        restarted: dict[str, Samples] = {"training_stall_restart_limit_seconds": {RUN: 2400}}
        limited = await stage.shown(**loading, **waiting(120), **restarted)
    assert shown.tone == "warn"
    assert shown.sentence == (
        "demo has made no step for 2 min (usually 1 s), though it saved 17 s ago: "
        "it waits for its inference server, which is starting."
    )
    assert (shown.who, shown.how) == (NOBODY, "Nothing to do yet: an alert fires if it lasts.")
    assert limited.how == (
        "Nothing to do yet: an alert fires if it lasts for 40 min, or once its stacks show that it "
        "hangs."
    )


async def test_server_busy(box: Box) -> None:
    box.known = {}
    busy: dict[str, Samples] = {
        "inference_up": {SERVER: 1},
        "inference_reason": {(*SERVER, "busy"): 1},
    }
    async with staged(box) as stage:
        shown = await stage.shown(**busy, **waiting(120))
        overdue = await stage.shown(**(busy | {"inference_up": {SERVER: 0}}))
    assert shown.sentence == (
        "demo has made no step for 2 min (usually 1 s), though it saved 17 s ago: "
        "its inference server is busy with a request."
    )
    assert "Inference 1 of 1 up, server busy" in shown.text
    assert "inference server of demo works and has not answered" in overdue.sentence


@pytest.mark.parametrize(
    ("known", "who", "how"),
    [
        (
            {},
            REMEDIATOR,
            "It restarts demo/rollout-0 once its alert fires, some 20 s after its end.",
        ),
        (
            {"mode": "observe"},
            YOU,
            (
                "The remediator only observes: it proposes a restart once its alert fires, some "
                "20 s after its end."
            ),
        ),
        ({"may_restart": ()}, YOU, "The remediator may not restart it."),
        ({"may_restart": None}, NOBODY, "Nothing to do yet: an alert fires if it lasts."),
        ({"operator_needed": "Broken."}, YOU, "Broken."),
    ],
)
async def test_a_worker_that_is_gone_before_its_alert(
    box: Box, known: dict[str, Any], who: str, how: str
) -> None:
    box.known = {}
    async with staged(box) as stage:
        status = (await stage.shown()).status
    assert isinstance(status, RemediatorStatus)
    assert status.may_restart == ("demo/rollout-0",)
    shown = status_json(page_data(status.model_copy(update=known), **GONE))
    assert (shown["headline"], shown["tone"]) == ("demo/rollout-0 is not running.", "bad")
    assert (shown["who_acts"], shown["how"]) == (who, how)


@pytest.mark.parametrize(
    ("known", "who", "how"),
    [
        (
            {},
            REMEDIATOR,
            "It restarts demo/rollout-0 once its alert fires, some 20 s after it came",
        ),
        ({"mode": "observe"}, YOU, "The remediator only observes: it proposes a restart once "),
        ({"may_restart": ()}, YOU, "The remediator may not restart it."),
    ],
)
async def test_a_worker_that_is_over_its_limit_before_its_alert(
    box: Box, known: dict[str, Any], who: str, how: str
) -> None:
    """Also between two alerts about it: that nobody needs to act would not be so."""
    box.known = {}
    async with staged(box) as stage:
        status = (await stage.shown()).status
    assert isinstance(status, RemediatorStatus)
    shown = status_json(page_data(status.model_copy(update=known), **LEAKING))
    assert "is over its memory limit" in shown["headline"]
    assert shown["who_acts"] == who
    assert shown["how"].startswith(how)


async def test_a_run_whose_trainer_is_gone_neither_trains_nor_stands_still(box: Box) -> None:
    box.known = {}
    trainer = ("demo", "trainer", "trainer")
    gone: dict[str, Samples] = {
        "worker_expected_processes": {trainer: 1},
        "worker_processes": {trainer: 0},
        "run_trainer_processes": {RUN: 0},
        **waiting(120),
    }
    async with staged(box) as stage:
        status = (await stage.shown()).status
    shown = status_json(page_data(status, **gone))
    assert [one["text"] for one in shown["problems"]] == ["demo/trainer is not running"]
    at_step = r"step 216 of 100,000 \(2 min(?: \d s)? ago\)"
    stopped = f"demo does not run, {at_step}, last complete save 17 s ago"
    assert re.fullmatch(stopped, shown["runs"][0]["text"])
    assert "Run demo not running, step 216 of 100,000" in plain(rendered(status, **gone))


async def test_a_server_is_not_healed_by_the_restart_of_another_worker(box: Box) -> None:
    down: dict[str, Samples] = {
        "inference_up": {SERVER: 0},
        "inference_info": {(*SERVER, "server", "inference"): 1},
        **LEAKING,
    }
    async with staged(box) as stage:
        stage.deliver()
        (incident,) = stage.remediator.journal.open_incidents()
        stage.remediator.journal.record_intent(incident.id, ROLLOUT, "restart", ())
        shown = await stage.shown(**down)
        problems = status_json(page_data(shown.status, **down))["problems"]
    who_acts = {one["text"].split()[0]: one["who_acts"] for one in problems}
    assert who_acts == {"demo/rollout-0": REMEDIATOR, "inference": NOBODY}


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
    assert shown.sentence == "demo/rollout-0 is not running."
    assert (shown.who, shown.how) == (YOU, "The remediator gave up on demo/rollout-0.")
    assert shown.own_how == shown.how
    assert counts(shown) == (1, 1)
    assert "Last action none, The remediator gave up on demo/rollout-0." in shown.text


async def test_what_was_given_up_and_started_by_an_operator_needs_nobody(box: Box) -> None:
    """The alert outlasts its incident by a minute."""
    box.known = {}
    gave_up = {"alertname": "TrainingRemediationGaveUp", "severity": "critical", "remediation": ""}
    box.fire(fingerprint=LATER, labels=gave_up)
    async with staged(box) as stage:
        stage.deliver()
        (incident,) = stage.remediator.journal.open_incidents()
        (target,) = stage.remediator.setup.config.targets
        stage.remediator.journal.record_decisions(
            [(incident, Decision(Verdict.REFUSE, "attempts_exhausted", target))]
        )
        assert (await stage.shown()).who == YOU
        over = make_alert(starts_at=incident.starts_at, firing=False)
        stage.remediator.journal.record_alerts([over])
        shown = await stage.shown()
    assert shown.sentence == "TrainingRemediationGaveUp on demo/rollout-0 has not ended yet."
    assert (shown.who, shown.how) == (
        NOBODY,
        "What the remediator gave up is over: the alert ends within two minutes.",
    )


async def test_remediator_gone() -> None:
    tone, sentence, who, _ = verdict(rendered("connection refused"))
    assert (tone, who) == ("warn", YOU)
    assert sentence == (
        "Nothing will be healed: the remediator does not answer (connection refused)."
    )
    first = "What to do first TrainingRemediatorDown : See whether it runs:"
    assert first in plain(rendered("refused"))
    assert "Alerts not known" in plain(rendered("connection refused"))
    tone, sentence, who, how = verdict(rendered("connection refused", **GONE))
    assert (tone, sentence, who) == ("bad", "demo/rollout-0 is not running.", YOU)
    assert how.startswith("Nothing will be healed: the remediator does not answer")
    first = "  first, TrainingRemediatorDown: See whether it runs:"
    assert describe(status_json(page_data("refused")))[2].startswith(first)


async def test_alertmanager_gone(box: Box) -> None:
    box.blind = True
    async with staged(box) as stage:
        shown = await stage.shown()
    assert shown.tone == shown.own_tone == "warn"
    assert shown.sentence == shown.own_sentence
    assert shown.sentence == (
        "Alertmanager does not answer: no alert is known, and nothing will be healed."
    )
    assert shown.how.startswith("No problem is seen: demo trains, ")
    assert shown.who == YOU
    assert "Alerts not known" in shown.text
    assert box.url not in shown.text
    for text in (shown.text, shown.lines[2]):
        assert "pgrep -af alertmanager" in text
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
    assert shown.who == YOU
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
    assert (
        shown.sentence
        == "All is well: demo has finished, step 100,000 of 100,000. The mode is act."
    )
    assert shown.own_sentence == "No alert fires: its worker has finished."
    assert (shown.who, shown.how) == (NOBODY, "")


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
        "TrainingOomKill fires on the host: The kernel killed a process for lack of memory."
    )
    assert shown.own_sentence == "On the host: the kernel killed a process for lack of memory."
    assert (shown.who, shown.how) == (YOU, "The remediator takes no action on it.")
    assert shown.own_how == shown.how
    for text in (shown.text, own):
        assert "What to do first TrainingOomKill : Find the process that was killed:" in text
    assert "TrainingOomKill the host You, now the remediator takes no action on it" in own
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
    tone, _, who, _ = verdict(rendered(older))
    assert (tone, who) == ("warn", YOU)
    assert "Active alerts are not known: this remediator does not report" in plain(rendered(older))


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
        == "No alert fires: it may restart 1 worker, watching the progress after 1 incident."
    )
    assert (shown.who, REMEDIATOR in shown.text) == (NOBODY, False)


async def test_an_exporter_that_is_blind_is_for_you(box: Box) -> None:
    box.known = {}
    async with staged(box) as stage:
        status = (await stage.shown()).status
    failed = Outcome("workers", 9.5, error=CollectError("cannot read /proc"))
    page = replace(page_data(status), outcomes=(failed,))
    tone, sentence, who, how = verdict(render(page))
    assert (tone, sentence, who) == ("bad", "collectors failed: workers.", YOU)
    assert how.startswith("A part of the host is not seen")


async def test_a_cooldown_says_until_when(box: Box) -> None:
    async with staged(box) as stage:
        stage.deliver()
        (incident,) = stage.remediator.journal.open_incidents()
        cooldown = Decision(Verdict.WAIT, "cooldown", detail="until 08:01:40 UTC")
        stage.remediator.journal.record_decisions([(incident, cooldown)])
        shown = await stage.shown(**GONE)
        box.known = {}
    assert (shown.who, shown.how) == (
        REMEDIATOR,
        "It waits: too soon after the last action, until 08:01:40 UTC.",
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
    assert shown.sentence == "demo/rollout-0 is not running."
    assert shown.own_sentence == "On demo/rollout-0: a worker holds more memory than its limit."
    assert (shown.who, shown.how) == (
        YOU,
        "The remediator proposes an action and waits for your approval.",
    )
    assert counts(shown) == (1, 1)
    assert f"trainwarden approve {incident.id}, or the page /hold here" in shown.text


async def test_a_worker_that_fails_at_each_start_has_its_error_first(box: Box) -> None:
    """It is gone, and its restarts are a loop: one incident, and one thing to do."""
    error = "ValueError: learning rate must be positive"
    gone: dict[str, Any] = {
        "alertname": "TrainingWorkerGone",
        "remediation": "start_missing_worker",
    }
    loop: dict[str, Any] = {
        "alertname": "TrainingWorkerRestartLoop",
        "remediation": "hold_restarts",
    }
    box.known = {}
    async with staged(box) as stage:
        journal = stage.remediator.journal
        journal.record_alerts(parse_notification(delivery(box.alert(**gone))).alerts)
        for attempt in (1, 2, 3):
            action = journal.record_intent(1, ROLLOUT, "restart", (), attempt=(attempt, 3))
            log = {
                "name": "x",
                "path": "/x",
                "lines": ["Traceback (most recent call last):", error],
            }
            journal.keep_evidence(1, action, "act", json.dumps({"logs": [log]}))
            journal.record_result(action, "done", started_by="us", processes=[1])
            journal.record_outcome(action, "not_healed", seen="it ended soon after its start")
        box.fire(fingerprint="2" * 16, labels=loop)
        received = {**box.alert(**loop), "fingerprint": "2" * 16}
        journal.record_alerts(parse_notification(delivery(received)).alerts)
        first, second = journal.open_incidents()
        journal.record_decisions(
            [
                (first, Decision(Verdict.WAIT, "held_by_alert", detail=loop["alertname"])),
                (second, Decision(Verdict.ACT, "hold")),
            ]
        )
        shown = await stage.shown(**GONE)
        own = plain(await (await stage.client.get("/")).text())
    assert (shown.who, counts(shown)) == (YOU, (1, 1))
    assert shown.how == (
        "Mend its cause: until this alert ends, the remediator restarts nothing there."
    )
    mended = (
        "It failed after each restart by the remediator, 3 times of at most 3: "
        f"`{error}`. Another restart alone does not help: mend the cause, then start it yourself."
    )
    assert f"  first, demo/rollout-0, TrainingWorkerRestartLoop: {mended}" in shown.lines
    assert "  last action: restart of demo/rollout-0: not healed, attempt 3 of 3" in shown.lines
    assert "TrainingWorkerGone" not in shown.text
    assert f"On demo/rollout-0: a worker holds more memory than its limit: {error}." in own
    assert "Open incidents 1 " in own
    assert own.count(error) == 4  # the title, the headline, the first step, the incident
    assert "Report #1 of TrainingWorkerGone" in own
    assert "#2" not in own


async def test_a_stalled_run_stands_and_has_somebody_who_acts_before_its_alert(box: Box) -> None:
    box.known = {}
    box.match(box.mark, role="trainer")
    stalled = waiting(2000) | {"training_phase": {(*RUN, "training"): 1}}
    async with staged(box) as stage:
        shown = await stage.status_of(**stalled)
        run = shown["runs"][0]["text"]
        stands = r"demo stands at step 216 of 100,000 \(33 min 2\d s ago, usually every 1 s\)"
        assert re.fullmatch(f"{stands}, last complete save 17 s ago", run)
        proof = "It restarts the run once its stacks show that it is stuck"
        assert (shown["who_acts"], shown["how"]) == (REMEDIATOR, f"{proof}, or its limit is over.")
        limit: dict[str, Samples] = {"training_stall_restart_limit_seconds": {RUN: 1800}}
        shown = await stage.status_of(**stalled, **limit)
        assert shown["how"] == f"{proof}, at the latest after 30 min without a step."
        assert "30 min" not in shown["headline"]
        shown = await stage.status_of({"mode": "observe"}, **stalled)
        assert (shown["who_acts"], shown["how"]) == (YOU, "The remediator only observes.")
        shown = await stage.status_of({"may_restart_stalled": ("other",)}, **stalled)
        assert (shown["who_acts"], shown["how"]) == (YOU, "The remediator may not restart it.")
        late = waiting(50) | {"training_phase": {(*RUN, "training"): 1}}
        shown = await stage.status_of(**late)
        assert shown["who_acts"] == NOBODY  # no alert is due
        assert shown["runs"][0]["text"].startswith("demo stands at step 216")


async def test_an_alert_of_an_earlier_fault_hides_no_worker_that_is_gone(box: Box) -> None:
    box.match(box.mark, role="trainer")
    async with staged(box) as stage:
        stage.deliver()
        (incident,) = stage.remediator.journal.open_incidents()
        restarted = Decision(Verdict.WAIT, "already_restarted")
        stage.remediator.journal.record_decisions([(incident, restarted)])
        assert (await stage.status_of())["who_acts"] == NOBODY
        shown = await stage.status_of({"mode": "observe"}, **GONE)
        assert shown["who_acts"] == YOU
        assert shown["how"].startswith("The remediator only observes: it proposes a restart")
        stall = {"alertname": "TrainingStepStalled", "severity": "warning"}
        box.fire(fingerprint=LATER, labels=stall | {"remediation": "", "worker": ""})
        stage.remediator.active_alerts._asked_at = None
        shown = await stage.status_of(**GONE)
        assert shown["how"].startswith("It restarts demo/rollout-0 once its alert fires")


async def test_what_was_given_up_stays_yours_while_its_fault_is_seen(box: Box) -> None:
    """Its alert ends for a moment while the fault lasts, and fires again."""
    box.match(box.mark, role="trainer")
    box.known = {}
    gave_up = "The remediator gave up on demo/rollout-0."
    async with staged(box) as stage:
        journal = stage.remediator.journal
        stage.deliver()
        (incident,) = journal.open_incidents()
        (target,) = stage.remediator.setup.config.targets
        exhausted = Decision(Verdict.REFUSE, "attempts_exhausted", target)
        journal.record_decisions([(incident, exhausted)])
        journal.record_alerts([make_alert(starts_at=incident.starts_at, firing=False)])
        assert (await stage.status_of())["who_acts"] == NOBODY
        for fault in (GONE, waiting(2000)):
            shown = await stage.status_of(**fault)
            assert (shown["who_acts"], shown["how"]) == (YOU, gave_up)
        warning = {"alertname": "TrainingStepStalled", "severity": "warning"}
        box.fire(fingerprint=LATER, labels=warning | {"remediation": "", "worker": ""})
        stage.remediator.active_alerts._asked_at = None
        stalled = await stage.shown(**waiting(2000))
        assert (stalled.who, stalled.how, stalled.own_how) == (YOU, gave_up, gave_up)
        journal.record_event("resume")
        assert (await stage.shown(**waiting(2000))).who == REMEDIATOR


async def test_the_alert_of_a_run_at_a_prompt_is_yours_on_the_remediators_page(box: Box) -> None:
    box.known = {}
    async with staged(box) as stage:
        own = 'trainwarden_training_step{run="demo"} 3\n'
        prompt = 'trainwarden_stack_processes{run="demo",worker="rollout-0",activity="prompt"} 1\n'
        box.stale_page = f"{box.page()}{own}{prompt}"
        quiet = {"severity": "warning", "remediation": "", "worker": ""}
        box.fire(labels={"alertname": "TrainingStepStalled", **quiet})
        (shown,) = (await stage.status_of())["remediator"]["firing"]
        left = "the remediator leaves it alone: it waits for you at a prompt"
        assert (shown["who_acts"], shown["handling"]) == (YOU, left)


async def test_the_stall_of_a_run_that_is_dead_or_at_its_end_promises_no_restart(box: Box) -> None:
    box.match(box.mark, role="trainer")
    box.known = {}
    box.fire(
        labels={
            "alertname": "TrainingStepStalled",
            "severity": "warning",
            "remediation": "",
            "worker": "",
        }
    )
    made = 'trainwarden_training_step{run="demo"} 40\n'
    hangs = (
        'trainwarden_training_last_step_made{run="demo"} 1\n'
        'trainwarden_stack_movement{run="demo",movement="stuck"} 1\n'
    )
    dead = 'trainwarden_run_trainer_processes{run="demo"} 0\n'
    async with staged(box) as stage:
        box.stale_page = f"{box.page()}{made}{hangs}"
        ending: dict[str, Samples] = {
            "training_last_step_made": {RUN: 1},
            "stack_movement": {(*RUN, "stuck"): 1},
        }
        shown = await stage.shown(**{**waiting(2000), **ending})
        assert "demo made its last step 33 min 20 s ago, and has not ended" in shown.sentence
        never = "if its stacks prove that it hangs: after its last step it is never restarted."
        assert (shown.who, shown.how.endswith(never)) == (REMEDIATOR, True)
        assert shown.own_how == shown.how

        box.stale_page = box.stale_page.replace(hangs, dead)
        stage.remediator.active_alerts._asked_at = None
        shown = await stage.shown(**GONE)
        soon = "It restarts demo/rollout-0 once its alert fires, some 20 s after its end."
        assert (shown.how, shown.own_how) == (soon, soon)


BY_HAND = (
    "`trainwarden stop demo` ends it. Mend the cause, then start it again with `--checkpoints "
    "FOLDER` added"
)


async def test_a_hang_without_checkpoints_is_yours_as_long_as_the_run_does_not_move(
    box: Box,
) -> None:
    """Its alert ends, and fires again, with the proof of the hang."""
    box.known = {}
    box.match(box.mark, role="trainer")
    async with staged(box) as stage:
        remediator, journal = stage.remediator, stage.remediator.journal
        one = Announcement(run="demo", worker="rollout-0", pid=7)
        announced = AnnouncedRuns({one.key: AnnouncedWorker(one, box.folder / "a.json", 0)})
        remediator.setup = replace(remediator.setup, announced=announced)
        before = await stage.status_of(**waiting(2000))
        assert before["who_acts"] == REMEDIATOR
        assert before["how"].startswith(
            "It shows here that you are needed, once its stacks show that it is stuck, or its limit"
            " is over, and calls nobody, as `notify` in remediator.yml has no receiver for "
            "`gave_up`: "
        )
        assert "`--checkpoints FOLDER`" in before["how"]
        without_phone = remediator.setup
        called = without_phone.config.model_copy(update={"notify": PHONE})
        remediator.setup = replace(without_phone, config=called)
        how = (await stage.status_of(**waiting(2000)))["how"]
        assert how.startswith("It calls you once its stacks show that it is stuck, or ")
        remediator.setup = without_phone

        stall: dict[str, Any] = {
            "alertname": "TrainingStepStalled",
            "remediation": "restart_stalled_run",
        }
        assert counts(await stage.shown()) == (0, 0)
        alert = parse_notification(delivery(box.alert(**stall, worker=""))).alerts[0]
        box.fire(labels=stall | {"worker": ""})
        stage.remediator.active_alerts._asked_at = None
        journal.record_alerts([alert])
        (incident,) = journal.open_incidents()
        (target,) = remediator.setup.config.targets
        refused = Decision(Verdict.REFUSE, "no_checkpoint", target, WITH_CHECKPOINTS)
        journal.record_decisions([(incident, refused)])
        fires = await stage.shown(**waiting(2000))
        assert (fires.who, fires.how, fires.tone) == (YOU, fires.own_how, "bad")
        assert fires.how.endswith(
            "does not act: no complete checkpoint to resume from; started with "
            "`--checkpoints FOLDER`, it can be restarted."
        )

        # What it gave up it has not attempted: neither its journal nor "gave up" says more.
        box.firing.clear()
        gave_up = {"alertname": "TrainingRemediationGaveUp", "remediation": ""}
        box.fire(labels=gave_up, fingerprint=LATER)
        stage.remediator.active_alerts._asked_at = None
        (shown,) = (await stage.status_of())["remediator"]["firing"]
        assert f"The {shown['handling'][4:]}." == fires.how
        assert shown["first_step"].startswith(
            "Nothing was attempted, as there is no complete checkpoint to resume from. "
            f"`trainwarden stacks demo` names the line in which the run hangs. {BY_HAND}"
        )
        box.fire(labels=stall | {"worker": ""})
        stage.remediator.active_alerts._asked_at = None
        both = (await stage.status_of())["remediator"]["firing"]
        assert [(one["alert"], BY_HAND in one["first_step"]) for one in both] == [
            ("TrainingStepStalled", True),
            ("TrainingRemediationGaveUp", False),
        ]

        box.firing.clear()
        stage.remediator.active_alerts._asked_at = None
        journal.record_alerts([replace(alert, firing=False)])
        ended = await stage.shown(**waiting(2000))
        assert (counts(ended), ended.who) == ((0, 0), YOU)
        assert (ended.how, ended.own_how) == (fires.how, fires.how)
        assert (ended.tone, ended.own_tone) == ("bad", "bad")
