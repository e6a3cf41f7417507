"""An operator stops actions: all, or those on a run or a worker, for a while or until `resume`."""

from __future__ import annotations

import base64
import json
import os
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from tests.remediator.fake_clock import FakeClock
from tests.remediator.live_host import Box
from tests.remediator.samples import (
    NOW,
    OTHER,
    ROLLOUT,
    TOKEN,
    TRAINER,
    is_held,
    make_alert,
    make_setup,
)
from tests.remediator.stage import Stage

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_remediator.__main__ import main
from trainwarden_remediator.api.server import build_app
from trainwarden_remediator.app import Remediator
from trainwarden_remediator.exceptions import HoldError
from trainwarden_remediator.holds import service
from trainwarden_remediator.holds.hold_file import (
    EVERYTHING,
    Hold,
    add_hold,
    lift_holds,
    parse_holds,
    read_holds,
)
from trainwarden_remediator.journal.database import connect
from trainwarden_remediator.journal.event_text import describe
from trainwarden_remediator.journal.journal import Journal
from trainwarden_remediator.journal.rows import Event, read_events
from trainwarden_remediator.model import Decision, Verdict
from trainwarden_remediator.observation.active_alerts import ActiveAlertLister
from trainwarden_remediator.policy.context import PolicyState

BEARER = {"Authorization": f"Bearer {TOKEN}"}
WORKER_HOLD = Hold("demo", "rollout-0", NOW + 60, NOW, "ann", "measuring")


# the file


def test_a_hold_is_kept_until_its_time_or_until_it_is_lifted(tmp_path: Path) -> None:
    file = tmp_path / "state" / "hold"
    assert read_holds(file, NOW) == ()
    add_hold(file, WORKER_HOLD, NOW)
    add_hold(file, Hold("second", why="mine"), NOW)
    assert read_holds(file, NOW) == (WORKER_HOLD, Hold("second", why="mine"))
    assert read_holds(file, NOW + 61) == (Hold("second", why="mine"),)
    assert not is_held(file, NOW)
    assert lift_holds(file, "second", "", NOW + 61) == (Hold("second", why="mine"),)
    assert not file.exists()


def test_a_hold_of_the_same_scope_takes_the_place_of_the_last(tmp_path: Path) -> None:
    file = tmp_path / "hold"
    add_hold(file, WORKER_HOLD, NOW)
    longer = Hold("demo", "rollout-0", None)
    add_hold(file, longer, NOW)
    assert read_holds(file, NOW) == (longer,)


def test_to_lift_a_run_lifts_its_workers_and_nothing_that_holds_more(tmp_path: Path) -> None:
    file = tmp_path / "hold"
    holds = (WORKER_HOLD, Hold("demo"), Hold("second", "trainer"), EVERYTHING)
    for hold in holds:
        add_hold(file, hold, NOW)
    assert lift_holds(file, "demo", "trainer", NOW) == ()
    assert set(lift_holds(file, "demo", "", NOW)) == {WORKER_HOLD, Hold("demo")}
    assert read_holds(file, NOW) == holds[2:]
    assert set(lift_holds(file, "", "", NOW)) == set(holds[2:])
    assert not is_held(file, NOW)


@pytest.mark.parametrize(
    "content",
    [b"", b"\n", b"held by ann", b"[]", b'{"run": 1}', b'{"worker": "x"}', b'{"until": "soon"}',
     b"\xff\xfe", b'{"run": "demo"}\nwhat?'],
)  # fmt: skip
def test_what_cannot_be_understood_holds_everything(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "hold").write_bytes(content)
    assert EVERYTHING in parse_holds(content)
    assert is_held(tmp_path / "hold")


def test_what_is_there_and_is_no_file_holds_everything(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("nowhere")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "link", "folder"):
        assert is_held(tmp_path / name)


def test_a_touched_file_stays_a_hold_of_everything_when_another_is_added(tmp_path: Path) -> None:
    file = tmp_path / "hold"
    file.touch()
    add_hold(file, WORKER_HOLD, NOW)
    assert read_holds(file, NOW) == (EVERYTHING, WORKER_HOLD)


# decisions


def test_what_a_hold_covers() -> None:
    one = WorkerKey("demo", "rollout-0")
    assert EVERYTHING.covers(one)
    assert Hold("demo").covers(one)
    assert Hold("demo", "rollout-0").covers(one)
    assert not Hold("demo", "trainer").covers(one)
    assert not Hold("second").covers(one)


def test_a_hold_on_one_of_its_workers_holds_a_target(tmp_path: Path) -> None:
    state = PolicyState(make_setup(tmp_path), holds=(Hold("demo", "rank-1"),))
    assert state.active_hold(WorkerKey("demo", "rank-0"), WorkerKey("demo", "rank-1"))
    assert state.active_hold(WorkerKey("demo", "rank-0")) is None
    assert state.active_hold() is None


async def test_a_held_worker_is_left_alone_and_others_are_not(stage: Stage) -> None:
    async with stage() as scene:
        add_hold(scene.setup.config.hold_file, WORKER_HOLD, NOW)
        scene.hear()
        scene.hear(fingerprint="1" * 16, run="second", worker="trainer")
        await scene.clock.advance(10)
        assert not scene.actions[ROLLOUT].restarts
        assert scene.actions[OTHER].restarts
        (held,) = (e for e in scene.journal.newest_events(99) if e.facts.get("reason") == "held")
        assert held.facts["detail"] == "by ann until 2027-01-15 08:01:00 UTC: measuring"
        await scene.clock.advance(70)
        assert scene.actions[ROLLOUT].restarts


async def test_memory_is_taken_from_the_largest_that_is_not_held(stage: Stage) -> None:
    async with stage() as scene:
        add_hold(scene.setup.config.hold_file, Hold("demo", "rollout-0"), NOW)
        scene.observer.available = 0
        scene.hear(remediation="relieve_memory", run="", worker="")
        await scene.clock.advance(10)
        assert not scene.actions[ROLLOUT].restarts
        assert scene.actions[TRAINER].restarts or scene.actions[OTHER].restarts


# by command


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "exporter.yml").write_text(
        "runs: [{name: demo, workers: [{name: rollout-0, match: {command: rollout}}]}]\n"
    )
    (tmp_path / "remediator.yml").write_text(
        "insecure: true\njournal: state/journal.db\nhold_file: state/hold\n"
    )
    return tmp_path / "remediator.yml"


def events(config: Path) -> list[Event]:
    connection = connect(config.parent / "state" / "journal.db", mode="ro")
    try:
        return [
            one
            for one in read_events(connection)
            if one.kind in ("hold", "resume", "breaker_reset")
        ]
    finally:
        connection.close()


Captured = pytest.CaptureFixture[str]


@pytest.mark.parametrize("typed", [["--for=10"], ["--for", "2", "h"]])
def test_a_hold_without_a_unit_is_refused_and_not_over_in_seconds(
    config: Path, capsys: Captured, typed: list[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["hold", f"--config.file={config}", *typed])
    number = typed[-1].removeprefix("--for=") if len(typed) == 1 else "2"
    message = f"argument --for: {number} has no unit: {number}s, {number}m or {number}h"
    assert message in capsys.readouterr().err


def test_the_name_of_a_run_is_no_reason_to_hold_everything(config: Path, capsys: Captured) -> None:
    assert main(["hold", f"--config.file={config}", "demo"]) == 1
    assert "demo is a run: `hold --run demo` holds it" in capsys.readouterr().err
    assert not is_held(config.parent / "state" / "hold")


def test_who_holds_what_and_why_is_in_the_journal_also_beside_a_remediator(
    config: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUDO_USER", "ann")
    journal = Journal(config.parent / "state" / "journal.db", clock=FakeClock())
    file = f"--config.file={config}"
    try:
        scope = ["--run=demo", "--worker=rollout-0"]
        assert main(["hold", file, *scope, "--for=2h", "I am\nmeasuring"]) == 0
        output = capsys.readouterr().out
        assert "no actions on demo/rollout-0 until" in output
        assert "or `trainwarden resume --run demo --worker rollout-0`" in output
        assert main(["hold", file]) == 0
        assert main(["hold", file, "--list"]) == 0
        _, first_held, second_held = capsys.readouterr().out.splitlines()
        assert re.fullmatch(r"demo/rollout-0 by ann until \S+ \S+ UTC: I am measuring", first_held)
        assert second_held == "everything by ann"
        assert main(["hold", file, "--json"]) == 0  # sets none
        first, second = json.loads(capsys.readouterr().out)
        assert (first["run"], first["worker"]) == ("demo", "rollout-0")
        assert first["who_acts"].startswith("ann, until ")
        everything = {"run": "", "worker": "", "who_acts": "ann, until the hold is lifted"}
        assert second == everything | {"text": "held by ann until `resume`"}
        for option in ("--list", "--json"):
            for rest in ("a reason", "--run=demo", "--worker=trainer", "--for=2h"):
                assert main(["hold", file, option, rest]) == 1
                assert "show all holds and set none" in capsys.readouterr().err
        assert main(["resume", file, "--run=demo", "done"]) == 0
        output = capsys.readouterr().out
        assert "resumed: 1 hold lifted" in output
        assert "still held: everything" in output
    finally:
        journal.close()
    first, second, third = events(config)
    assert (first.run, first.worker, first.facts["who"]) == ("demo", "rollout-0", "ann")
    assert first.facts["why"] == "I am measuring"
    assert describe(second) == "no actions, by ann"
    assert describe(third) == "actions on demo are allowed again, by ann: done"


def test_resume_closes_the_breaker_again(config: Path, capsys: Captured) -> None:
    journal = Journal(config.parent / "state" / "journal.db", clock=FakeClock())
    try:
        journal.record_alerts([make_alert()])
        (incident,) = journal.open_incidents()
        journal.record_decisions([(incident, Decision(Verdict.WAIT, "breaker_open"))])
        assert journal.breaker().opened_at
        file = f"--config.file={config}"
        assert main(["resume", file, "--run=demo"]) == 0
        assert journal.breaker().opened_at
        assert main(["resume", file]) == 0
        assert "circuit breaker reset" in capsys.readouterr().out
        assert not journal.breaker().opened_at
    finally:
        journal.close()
    assert [event.kind for event in events(config)] == ["breaker_reset", "resume"]


def test_a_hold_counts_also_where_the_journal_cannot_be_written(
    config: Path, capsys: Captured
) -> None:
    folder = config.parent / "state"
    folder.mkdir()
    (folder / "journal.db").write_text("my thesis" * 500)
    assert main(["hold", f"--config.file={config}"]) == 0
    assert "not recorded in the journal" in capsys.readouterr().err
    assert is_held(folder / "hold")
    assert main(["resume", f"--config.file={config}"]) == 1
    assert "not a database" in capsys.readouterr().err
    assert not is_held(folder / "hold")


@pytest.mark.parametrize(
    ("scope", "output"),
    [
        (["--run=demo2"], "has no such run; it has demo; did you mean demo?"),
        (["--run=demo", "--worker=trainer"], "exporter.yml; it has rollout-0"),
        (["--worker=rollout-0"], "name the run, too"),
    ],
)
def test_what_does_not_exist_is_not_held(
    config: Path, capsys: Captured, scope: list[str], output: str
) -> None:
    assert main(["hold", f"--config.file={config}", *scope]) == 1
    assert output in capsys.readouterr().err
    assert not (config.parent / "state" / "hold").exists()


def test_a_hold_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    setup = make_setup(tmp_path)
    (tmp_path / "hold").mkdir()
    with pytest.raises(HoldError, match="hold"):
        service.hold(setup, EVERYTHING, NOW)


# over HTTP


@asynccontextmanager
async def served(box: Box) -> AsyncIterator[TestClient[web.Request, web.Application]]:
    remediator = Remediator(box.config_file)
    async with remediator, TestClient(TestServer(build_app(remediator))) as client:
        remediator.readiness.ready = True
        yield client


def hold_file(box: Box) -> Path:
    return box.folder / "state" / "hold"


async def test_with_a_token_it_is_held_and_resumed_over_http(box: Box) -> None:
    async with served(box) as client:
        url = "/-/hold?run=demo&worker=rollout-0&for=2h"
        answer = await client.post(url, data="measuring", headers=BEARER)
        assert (answer.status, (await answer.text())[:22]) == (200, "held: demo/rollout-0 b")
        (hold,) = read_holds(hold_file(box), time.time())
        assert hold.scope == "demo/rollout-0"
        assert hold.who == "token 1 from 127.0.0.1"
        assert hold.why == "measuring"
        page = await (await client.get("/")).text()
        assert "<b>token 1, until " in page
        metrics = await (await client.get("/metrics")).text()
        assert 'trainwarden_remediator_hold_info{run="demo",worker="rollout-0"} 1.0' in metrics
        end = 'trainwarden_remediator_hold_expiry_timestamp_seconds{run="demo",worker="rollout-0"} '
        assert float(metrics.partition(end)[2].split("\n")[0]) == hold.until
        assert "trainwarden_remediator_paused 0.0" in metrics
        answer = await client.post("/-/resume", headers=BEARER)
        assert await answer.text() == "resumed: 1 hold lifted\n"
        assert not hold_file(box).exists()
    assert [one.kind for one in box.events()] == ["hold", "resume"]


@pytest.mark.parametrize(
    ("url", "headers", "status"),
    [
        ("/-/hold", {}, 401),
        ("/-/resume", {"Authorization": "Bearer wrong-but-long-enough"}, 401),
        ("/-/resume", {"Authorization": f"Basic {TOKEN}"}, 401),
        ("/-/hold?run=nothing", BEARER, 400),
        ("/-/hold?for=soon", BEARER, 400),
        ("/-/hold?until=soon", BEARER, 400),
        ("/-/resume?for=2h", BEARER, 400),
    ],
)
async def test_what_may_not_or_makes_no_sense_changes_nothing(
    box: Box, url: str, headers: dict[str, str], status: int
) -> None:
    hold_file(box).parent.mkdir(parents=True, exist_ok=True)
    add_hold(hold_file(box), EVERYTHING, NOW)
    async with served(box) as client:
        assert (await client.post(url, headers=headers)).status == status
        assert (await client.get("/-/hold", headers=BEARER)).status == 405
    assert read_holds(hold_file(box), NOW) == (EVERYTHING,)


async def test_a_report_is_read_with_the_token_also_as_a_password(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(box) as client:
        await client.post("/webhook", json=webhook(box), headers=BEARER)
        assert (await client.get("/report/1")).status == 401
        with monkeypatch.context() as patch:  # the report of one incident asks the exporter alone
            patch.setattr(ActiveAlertLister, "list", None)
            answer = await client.get("/report/1", headers=BEARER)
        assert answer.status == 200
        assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
        assert "# Incident 1: TrainingWorkerMemoryOverLimit" in await answer.text()
        login = base64.b64encode(f"anybody:{TOKEN}".encode()).decode()
        browser = {"Authorization": f"Basic {login}"}
        assert (await client.get("/report", headers=browser)).status == 200
        for wrong in ("/report/2", "/report/x", "/report/-1"):
            assert (await client.get(wrong, headers=BEARER)).status == 404
        assert (await client.get("/report?since=x", headers=BEARER)).status == 400
        assert "password is a token" in await (await client.get("/report")).text()
        assert '<a href="report/1">Report #1</a>' in await (await client.get("/")).text()


async def test_a_browser_gets_a_report_as_a_page_and_markdown_on_request(box: Box) -> None:
    accepted = {**BEARER, "Accept": "text/html,application/xhtml+xml"}
    async with served(box) as client:
        await client.post("/webhook", json=webhook(box), headers=BEARER)
        answer = await client.get("/report/1", headers=accepted)
        page = await answer.text()
        assert answer.content_type == "text/html"
        assert ">Incident 1: TrainingWorkerMemoryOverLimit \u2014 demo/rollout-0</p>" in page
        assert '<a href="../runbook/TrainingWorkerMemoryOverLimit">' in page
        found = await client.get("/runbook/TrainingWorkerMemoryOverLimit")
        assert found.status == 200
        night = await (await client.get("/report", headers=accepted)).text()
        assert "<h3>What to do</h3>" in night
        answer = await client.get("/report/1?format=md", headers=accepted)
        assert answer.content_type == "text/plain"
        assert (await answer.text()).startswith("# Incident 1: ")


def webhook(box: Box) -> dict[str, Any]:
    return {"version": "4", "alerts": [box.alert()]}
