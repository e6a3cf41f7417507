from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import ClientResponse, web
from aiohttp.test_utils import TestClient, TestServer
from tests.remediator.live_host import Box
from tests.remediator.samples import ROLLOUT, TOKEN, delivery, make_alert, sent_alert

from trainwarden_remediator.actions.process import ProcessAction
from trainwarden_remediator.api import server
from trainwarden_remediator.api.server import build_app
from trainwarden_remediator.app import Remediator
from trainwarden_remediator.exceptions import JournalError
from trainwarden_remediator.model import Decision, Verdict

Client = TestClient[web.Request, web.Application]
BEARER = {"Authorization": f"Bearer {TOKEN}"}


@asynccontextmanager
async def running(box: Box, *, engine: bool = False) -> AsyncIterator[tuple[Client, Remediator]]:
    """The remediator of `box` over real HTTP, ready; with its `engine` it also acts."""
    remediator = Remediator(box.config_file)
    async with remediator, TestClient(TestServer(build_app(remediator))) as client:
        remediator.readiness.ready = True
        acting = asyncio.create_task(remediator.control_loop.run()) if engine else None
        try:
            yield client, remediator
        finally:
            if acting:
                assert not acting.done()
                acting.cancel()
                await asyncio.gather(acting, return_exceptions=True)
            for action in remediator.control_loop._executor._actions.values():
                assert isinstance(action, ProcessAction)
                for child in action._children:
                    child.kill()
                    child.wait(60)


async def post(client: Client, body: bytes, headers: dict[str, str] = BEARER) -> ClientResponse:
    data = io.BytesIO(body)
    answer = await client.post("/webhook", data=data, headers=headers, allow_redirects=False)
    await answer.read()
    return answer


async def come(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not await asyncio.to_thread(true):  # noqa: ASYNC110 - the journal sets no event
            await asyncio.sleep(0.02)


async def test_a_delivery_is_journaled_and_answered(box: Box) -> None:
    async with running(box) as (client, remediator):
        answer = await post(client, delivery(box.alert()))
        assert (answer.status, await answer.text()) == (200, "accepted\n")
        (incident,) = remediator.journal.open_incidents()
        assert (incident.run, incident.worker) == ROLLOUT


async def test_the_receiver_of_a_delivery_is_the_remediators_own(box: Box) -> None:
    async with running(box) as (client, remediator):
        await post(client, delivery(box.alert()))
        assert remediator.unhandled_alerts._own_receivers == {"trainwarden-remediator"}


async def test_an_empty_delivery_is_accepted(box: Box) -> None:
    async with running(box) as (client, _):
        assert (await post(client, delivery())).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": ""},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer "},
        {"Authorization": "Bearer wrong-token-of-some-length"},
        {"Authorization": f"Basic {TOKEN}"},
        {"X-Authorization": f"Bearer {TOKEN}"},
    ],
)
async def test_without_the_token_no_alert_is_accepted(box: Box, headers: dict[str, str]) -> None:
    async with running(box) as (client, remediator):
        for body in (delivery(box.alert()), b"not JSON", b""):
            answer = await post(client, body, headers)
            assert answer.status == 401
            assert answer.headers["WWW-Authenticate"] == "Bearer"
            assert TOKEN not in await answer.text()
        assert remediator.journal.open_incidents() == ()


async def test_a_token_in_the_url_is_no_token(box: Box) -> None:
    async with running(box) as (client, _):
        answer = await client.post(f"/webhook?token={TOKEN}", data=delivery())
        assert answer.status == 401


async def test_tokens_are_exchanged_without_a_restart(box: Box) -> None:
    other = {"Authorization": "Bearer the-token-of-tomorrow"}
    async with running(box) as (client, _):
        statuses = []
        for tokens in (f"{TOKEN}\nthe-token-of-tomorrow\n", "the-token-of-tomorrow\n", ""):
            box.token_file.write_text(tokens)
            old, new = await post(client, delivery()), await post(client, delivery(), other)
            statuses.append((old.status, new.status))
        box.token_file.unlink()
        assert (await post(client, delivery(), other)).status == 401
        assert statuses == [(200, 200), (401, 200), (401, 401)]


async def test_only_a_configuration_that_says_insecure_needs_no_token(box: Box) -> None:
    box.configure(insecure=True, token_file=None)
    async with running(box) as (client, _):
        assert (await post(client, delivery(), {})).status == 200


async def test_what_is_malformed_is_refused_without_an_echo(box: Box) -> None:
    async with running(box) as (client, remediator):
        spoilt = delivery(sent_alert(startsAt="s3cr3t"))
        for body in (b"", b"s3cr3t", spoilt, delivery(version="3")):
            answer = await post(client, body)
            assert answer.status == 400
            assert "s3cr3t" not in await answer.text()
        assert remediator.journal.counters() == {}


async def test_what_is_spoilt_on_the_way_is_refused(box: Box) -> None:
    async with running(box) as (client, _):
        headers = {**BEARER, "Content-Encoding": "gzip"}
        assert (await post(client, b"not gzip at all", headers)).status == 400


async def test_what_is_too_large_is_refused(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MAX_BODY_BYTES", 10_000)
    alert = box.alert(padding="x" * 20_000)
    async with running(box) as (client, remediator):
        assert (await post(client, delivery(alert))).status == 413
        assert remediator.journal.open_incidents() == ()
        assert (await post(client, delivery(box.alert()))).status == 200


async def test_a_storm_of_ten_thousand_alerts_is_accepted_within_seconds(box: Box) -> None:
    alerts = [{**box.alert(), "fingerprint": f"{index:016x}"} for index in range(10_000)]
    body = delivery(*alerts)
    assert len(body) > 2 * 1024**2
    async with running(box) as (client, remediator), asyncio.timeout(60):
        assert (await post(client, body)).status == 200
        assert len(remediator.journal.open_incidents()) == 10_000


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "HEAD"])
async def test_the_webhook_is_posted_to_and_nothing_else(box: Box, method: str) -> None:
    async with running(box) as (client, _):
        answer = await client.request(method, "/webhook", headers=BEARER, allow_redirects=False)
        assert answer.status == 405


@pytest.mark.parametrize("path", ["/webhook/", "/x/../webhook/", "/WEBHOOK", "/webhook/x"])
async def test_no_path_redirects(box: Box, path: str) -> None:
    async with running(box) as (client, _):
        answer = await client.post(path, data=delivery(), headers=BEARER, allow_redirects=False)
        assert answer.status == 404


@pytest.mark.parametrize("method", ["record_alerts"])
async def test_what_cannot_be_written_down_is_to_be_sent_again(
    box: Box, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise JournalError("/secret/place: disk full")

    async with running(box) as (client, remediator):
        with monkeypatch.context() as patch:
            patch.setattr(remediator.journal, method, fail)
            answer = await post(client, delivery(box.alert()))
            assert answer.status == 503
            assert "secret" not in await answer.text()
        assert (await post(client, delivery(box.alert()))).status == 200


async def test_while_starting_or_stopping_a_delivery_is_to_be_sent_again(box: Box) -> None:
    async with running(box) as (client, remediator):
        remediator.readiness.ready = False
        assert (await post(client, delivery(box.alert()))).status == 503
        assert (await client.get("/-/ready")).status == 503
        assert (await client.get("/-/healthy")).status == 200
        assert remediator.journal.open_incidents() == ()


async def test_an_unknown_worker_is_accepted_and_journaled_as_refused(box: Box) -> None:
    async with running(box, engine=True) as (client, remediator):
        alert = box.alert(worker="$(reboot)", run="-oProxyCommand=x")
        assert (await post(client, delivery(alert))).status == 200
        await come(lambda: len(remediator.journal.newest_events(5)) == 2)
        decision, received = remediator.journal.newest_events(5)
        assert decision.facts == {"verdict": "refuse", "reason": "unknown_target"}
        assert (received.kind, received.worker) == ("alert", "$(reboot)")


async def test_the_same_alert_fifty_times_at_once_is_one_action(box: Box) -> None:
    worker = box.start_worker()
    alert = box.alert()
    async with running(box, engine=True) as (client, _):
        peers = [delivery(alert, externalURL=f"http://peer-{index}") for index in range(50)]
        answers = await asyncio.gather(*(post(client, body) for body in peers))
        assert {answer.status for answer in answers} == {200}
        await come(lambda: "healed" in box.journaled())
        await asyncio.gather(*(post(client, body) for body in peers))
        await asyncio.sleep(0.3)
        assert box.journaled() == ["alert", "intent", "stop", "start", "done", "healed"]
        assert worker.wait(60) == -15
        assert len(box.workers()) == 1


async def test_a_worker_that_somebody_restarted_after_the_alert_began_is_left_alone(
    box: Box,
) -> None:
    worker = box.start_worker()
    async with running(box, engine=True) as (client, _):
        assert (await post(client, delivery(box.alert(ago=60)))).status == 200
        await come(lambda: len(box.events()) == 2)
    assert box.events()[-1].facts["reason"] == "already_restarted"
    assert [identity.pid for identity in box.workers()] == [worker.pid]


async def test_a_heartbeat_is_a_moment_and_no_incident(box: Box) -> None:
    async with running(box) as (client, remediator):
        beat = box.alert(alertname="TrainingWatchdog", remediation="")
        assert (await post(client, delivery(beat))).status == 200
        assert list(remediator.journal.timestamps()) == ["watchdog"]
        assert remediator.journal.open_incidents() == ()
        resolved = {**beat, "status": "resolved"}
        before = remediator.journal.timestamps()
        assert (await post(client, delivery(resolved))).status == 200
        assert remediator.journal.timestamps() == before


async def test_hostile_labels_do_no_harm_to_any_page(box: Box) -> None:
    async with running(box, engine=True) as (client, remediator):
        hostile = "<script>alert(1)</script>\n\0\N{RIGHT-TO-LEFT OVERRIDE}"
        alert = box.alert(worker=hostile, run=hostile, alertname=hostile, remediation=hostile)
        assert (await post(client, delivery(alert))).status == 200
        await come(lambda: len(remediator.journal.newest_events(5)) == 2)
        page = await client.get("/")
        assert page.status == 200
        assert "<script>" not in await page.text()
        assert "default-src 'none'" in page.headers["Content-Security-Policy"]
        metrics = await client.get("/metrics")
        assert "<script" not in await metrics.text()


async def test_a_reload_takes_up_the_mode_and_a_broken_file_keeps_the_last_good_one(
    box: Box,
) -> None:
    async with running(box) as (client, remediator):
        box.configure(mode="observe")
        assert (await client.post("/-/reload", headers=BEARER)).status == 200
        assert remediator.setup.config.mode == "observe"
        box.configure(mode="perhaps")
        answer = await client.post("/-/reload", headers=BEARER)
        assert answer.status == 500
        assert "remediator.yml:" in await answer.text()
        assert remediator.setup.config.mode == "observe"
        text = await (await client.get("/metrics")).text()
        assert "trainwarden_remediator_config_last_reload_successful 0.0" in text
        box.configure(journal="elsewhere.db")
        answer = await client.post("/-/reload", headers=BEARER)
        assert (answer.status, "restart" in await answer.text()) == (500, True)


async def test_a_long_action_does_not_keep_alertmanager_waiting(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = asyncio.Event()
    loop = asyncio.get_running_loop()

    def block(*_: Any, **__: Any) -> dict[str, Any]:
        asyncio.run_coroutine_threadsafe(released.wait(), loop).result(120)
        return {"started_by": "another", "processes": []}

    monkeypatch.setattr("trainwarden_remediator.actions.process.ProcessAction.perform", block)
    box.start_worker()
    async with running(box, engine=True) as (client, remediator):
        assert (await post(client, delivery(box.alert()))).status == 200
        await come(lambda: len(remediator.journal.open_actions()) == 1)
        async with asyncio.timeout(60):
            assert (await post(client, delivery(box.alert()))).status == 200
            assert (await client.get("/metrics")).status == 200
        released.set()
        await come(lambda: "done" in box.journaled())


async def test_a_run_that_nothing_names_any_more_was_not_given_up(box: Box) -> None:
    """Its announcement may have been removed with the folder, after an operator stopped it."""
    async with running(box) as (_, remediator):
        now = remediator.clock.now()
        for run in ("demo", "removed"):
            alert = make_alert(fingerprint=f"of {run}", run=run, starts_at=now)
            remediator.journal.record_alerts([alert])
        gave_up = Decision(Verdict.REFUSE, "attempts_exhausted")
        incidents = remediator.journal.open_incidents()
        remediator.journal.record_decisions([(one, gave_up) for one in incidents])
        summary = remediator.program_state({}).journal
        assert summary is not None
        assert summary.given_up == (ROLLOUT,)
