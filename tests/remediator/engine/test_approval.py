"""In mode observe, an operator approves one proposed action; every guard applies to it."""

from __future__ import annotations

import asyncio
import base64
import html
import os
import re
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from tests.remediator.api.test_webhook import come, post, running
from tests.remediator.fake_clock import FakeClock
from tests.remediator.live_host import Box
from tests.remediator.samples import FINGERPRINT, ROLLOUT, TOKEN, delivery
from tests.remediator.stage import Scene, Stage

from trainwarden_exporter.processes.procfs import Identity
from trainwarden_remediator.__main__ import main
from trainwarden_remediator.alertmanager.api import AlertState
from trainwarden_remediator.engine.control_loop import CYCLE_SECONDS
from trainwarden_remediator.exceptions import ApprovalError
from trainwarden_remediator.holds import service
from trainwarden_remediator.journal.approvals import APPROVAL_SECONDS
from trainwarden_remediator.journal.journal import Journal

LOGIN = {"Authorization": f"Basic {base64.b64encode(f'anybody:{TOKEN}'.encode()).decode()}"}
_OLD_TICKS = count(10 * os.getpid())
"""Starts soon after the boot, of no other test: remediators lock the processes they end."""


def propose(scene: Scene) -> int:
    """Lets the alert of an old process arrive; returns the incident."""
    scene.action.identity = Identity(4242, next(_OLD_TICKS))
    scene.hear()
    return 1


def approve(scene: Scene, incident: int | str, **facts: float) -> None:
    service.approve(scene.setup, incident, scene.clock.now(), who="anna", **facts)
    scene.engine.wake()


async def test_an_approved_action_is_taken_once_and_journaled_with_who_approved_it(
    stage: Stage,
) -> None:
    async with stage(mode="observe") as scene:
        incident = propose(scene)
        await scene.clock.advance(CYCLE_SECONDS)
        scene.action.heal = {"processes": 1}  # it still leaks
        approve(scene, incident)
        await scene.clock.advance(400)
        assert scene.action.restarts == [1]
        words = scene.journaled()
        assert words[:5] == ["alert", "observe_mode", "approved", "restart", "intent"]
        assert words[-1] == "observe_mode"
        (event,) = [one for one in scene.journal.newest_events(100) if one.kind == "approved"]
        assert event.facts == {"who": "anna", "target": "demo/rollout-0"}


async def test_an_approval_expires(stage: Stage) -> None:
    async with stage(mode="observe") as scene:
        incident = propose(scene)
        await scene.clock.advance(CYCLE_SECONDS)
        (scene.folder / "hold").touch()
        approve(scene, incident)
        await scene.pass_time(APPROVAL_SECONDS + CYCLE_SECONDS)
        (scene.folder / "hold").unlink()
        await scene.clock.advance(60)
        assert scene.action.restarts == []
        assert scene.journaled()[-1] == "observe_mode"


def hold(scene: Scene) -> None:
    (scene.folder / "hold").touch()


def silence(scene: Scene) -> None:
    scene.observer.known[FINGERPRINT] = AlertState.SILENCED


def resolve(scene: Scene) -> None:
    del scene.observer.known[FINGERPRINT]


def recover(scene: Scene) -> None:
    worker = scene.observer.workers[ROLLOUT]
    scene.observer.workers[ROLLOUT] = replace(worker, memory_bytes=1.0)


def others_match(scene: Scene) -> None:
    scene.action.differs = "2 processes match"


def start_another(scene: Scene) -> None:
    """By the remediator's own observation."""
    scene.action.identity = Identity(4242, 1 << 50)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (hold, "held"),
        (silence, "silenced"),
        (resolve, "not_active"),
        (recover, "condition_cleared"),
        (others_match, "ambiguous_target"),
        (start_another, "approval_void"),
    ],
)
async def test_a_guard_that_stops_an_action_in_mode_act_stops_an_approved_one(
    stage: Stage, change: Callable[[Scene], None], reason: str
) -> None:
    async with stage(mode="observe") as scene:
        incident = propose(scene)
        await scene.clock.advance(CYCLE_SECONDS)
        change(scene)
        approve(scene, incident)
        await scene.clock.advance(CYCLE_SECONDS)
        assert scene.action.restarts == []
        assert scene.journaled()[-1] == reason


async def test_a_worker_that_the_exporter_shows_started_again_is_not_what_was_approved(
    stage: Stage,
) -> None:
    async with stage(mode="observe", cooldown=1) as scene:
        incident = propose(scene)
        await scene.clock.advance(CYCLE_SECONDS)
        (scene.folder / "hold").touch()
        approve(scene, incident)
        worker = scene.observer.workers[ROLLOUT]
        scene.observer.workers[ROLLOUT] = replace(worker, started_at=scene.clock.now() + 5)
        await scene.clock.advance(30)
        (scene.folder / "hold").unlink()
        await scene.clock.advance(CYCLE_SECONDS)
        assert scene.action.restarts == []
        assert scene.journaled()[-1] == "approval_void"


async def test_a_hold_after_the_intent_stops_an_approved_action(stage: Stage) -> None:
    async with stage(mode="observe") as scene:
        incident = propose(scene)
        await scene.clock.advance(CYCLE_SECONDS)
        scene.action.wait = (scene.folder / "hold").touch
        approve(scene, incident)
        await scene.clock.advance(30)
        assert scene.action.restarts == []
        assert scene.journaled()[-3:] == ["intent", "interrupted", "held"]


async def test_what_is_not_proposed_cannot_be_approved(stage: Stage) -> None:
    async with stage(mode="observe") as scene:
        incident, starts_at = propose(scene), scene.clock.now() - 20
        with pytest.raises(ApprovalError, match="no action is proposed; decided: nothing yet"):
            approve(scene, incident)
        await scene.clock.advance(CYCLE_SECONDS)
        with pytest.raises(ApprovalError, match=r"no incident 7 \(the last is 1\)"):
            approve(scene, 7)
        with pytest.raises(ApprovalError, match="the proposal has changed since"):
            approve(scene, incident, proposed_at=scene.clock.now() - 60)
        scene.hear(firing=False, starts_at=starts_at)
        with pytest.raises(ApprovalError, match="the alert has resolved"):
            approve(scene, incident)


async def test_the_number_of_an_alert_that_came_again_names_its_present_incident(
    stage: Stage,
) -> None:
    """The alert flaps: what a message proposed goes on as another incident."""
    async with stage(mode="observe") as scene:
        first, starts_at = propose(scene), scene.clock.now() - 20
        await scene.clock.advance(CYCLE_SECONDS)
        scene.hear(firing=False, starts_at=starts_at)
        await scene.clock.advance(CYCLE_SECONDS)
        scene.hear(starts_at=scene.clock.now())
        with pytest.raises(ApprovalError, match="the alert has resolved"):
            approve(scene, first)
        await scene.clock.advance(CYCLE_SECONDS)
        now = "incident 1 is over; demo/rollout-0 is #2 now: `trainwarden approve 2`"
        with pytest.raises(ApprovalError, match=now):
            approve(scene, first)
        with pytest.raises(ApprovalError, match=r"on other; proposed on: demo/rollout-0 \(#2\)"):
            approve(scene, "other")
        approve(scene, "demo/rollout-0")
        await scene.clock.advance(CYCLE_SECONDS)
        assert scene.action.restarts == [1]


async def test_a_run_on_which_one_action_is_proposed_is_named_in_place_of_a_number(
    stage: Stage,
) -> None:
    async with stage(mode="observe") as scene:
        propose(scene)
        await scene.clock.advance(CYCLE_SECONDS)
        db = scene.journal.file.connection
        db.execute(
            "INSERT INTO incident (fingerprint, starts_at, alert, run, worker, remediation, labels,"
            " first_received_at, last_received_at, last_decision) SELECT 'other', starts_at, alert,"
            " run, 'trainer', remediation, labels, first_received_at, last_received_at,"
            " last_decision FROM incident"
        )
        db.commit()
        several = r"several actions are proposed on demo: `trainwarden approve 1` \(.*approve 2` "
        with pytest.raises(ApprovalError, match=several):
            approve(scene, "demo")
        db.execute("DELETE FROM incident WHERE id = 2")
        db.commit()
        approve(scene, "demo")


def test_an_approval_needs_a_journal(tmp_path: Path, journal: Journal, clock: FakeClock) -> None:
    setup = Scene(tmp_path, journal, clock).configured(journal=tmp_path / "other.db")
    with pytest.raises(ApprovalError, match="has the remediator run"):
        service.approve(setup, 1, 0, who="anna")


def forms(page: str) -> dict[str, str]:
    """The fields of the first form of a page."""
    form = page.partition("<form")[2].partition("</form>")[0]
    fields = dict(re.findall(r'name="(\w+)" value="([^"]*)"', form))
    return {name: html.unescape(value) for name, value in fields.items()}


async def test_the_real_remediator_acts_by_an_approval_on_its_page_and_then_observes_again(
    box: Box,
) -> None:
    box.configure(mode="observe")
    old = box.start_worker()
    async with running(box, engine=True) as (client, remediator):
        await post(client, delivery(box.alert()))
        await come(lambda: bool(remediator.journal.proposals()))
        page = await (await client.get("/hold", headers=LOGIN)).text()
        assert "#1 TrainingWorkerMemoryOverLimit: act on demo/rollout-0" in page
        sent = forms(page)
        assert sent["command"] == "approve"
        assert (await client.post("/hold", data=sent)).status == 401
        forged = await client.post("/hold", headers=LOGIN, data={**sent, "token": "guessed"})
        assert "try again" in await forged.text()
        assert old.poll() is None

        sent = forms(await (await client.get("/hold", headers=LOGIN)).text())
        answer = await (await client.post("/hold", headers=LOGIN, data=sent)).text()
        assert "approved once, for 10 min: TrainingWorkerMemoryOverLimit" in html.unescape(answer)
        await come(lambda: "healed" in box.journaled())
        assert old.wait(60) != 0
    words = box.journaled()
    assert words[:3] == ["alert", "approved", "intent"]
    assert words.count("intent") == 1
    (event,) = [one for one in box.events() if one.kind == "approved"]
    assert event.facts["who"] == "token 1 from 127.0.0.1, on the page"


async def test_the_command_approves_for_a_remediator_that_runs(
    box: Box, capsys: pytest.CaptureFixture[str]
) -> None:
    box.configure(mode="observe")
    box.start_worker()
    command = ["approve", "#1", "--config.file", str(box.config_file)]
    async with running(box, engine=True) as (client, remediator):
        assert await asyncio.to_thread(main, command) == 1
        assert "no incident 1 (there is none at all)" in capsys.readouterr().err
        await post(client, delivery(box.alert()))
        await come(lambda: bool(remediator.journal.proposals()))
        began = time.time()
        assert await asyncio.to_thread(main, command) == 0
        shown = capsys.readouterr().out
        assert "approved once, for 10 min" in shown
        assert "`trainwarden journal --follow` shows what is done" in shown
        await come(lambda: "healed" in box.journaled())
        assert await asyncio.to_thread(main, command) == 1
    assert [one.at >= began for one in box.events() if one.kind == "intent"] == [True]
