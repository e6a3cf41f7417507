"""The runbooks are served by the program itself: a host may have no way to the web."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from trainwarden_exporter.webserver.runbook_pages import runbook_routes
from trainwarden_exporter.webserver.runbooks import (
    MAX_STEP_LENGTH,
    PUBLISHED,
    first_step,
    local_runbook,
    read_runbook,
    runbook_link,
)

RUNBOOKS = Path(__file__).resolve().parents[3] / "docs" / "runbooks"


def test_what_a_runbook_says_to_do_first_is_one_plain_sentence_or_two() -> None:
    assert first_step("TrainingOomKill", {}) == (
        "Find the process that was killed: `dmesg` names it; a worker shows exit status 137."
    )
    slow = first_step("TrainingWaitingForRollouts", {"cause": "slow", "run": "demo"})
    assert slow.startswith("Read the log of the worker that makes rollouts. Does it")
    gone = first_step("TrainingWaitingForRollouts", {"cause": "producer_gone"})
    assert gone.startswith("Find out how it ended")
    hang = first_step("TrainingStepStalled", {"run": "my run"})
    assert hang.startswith("`trainwarden stacks 'my run'` names the process")
    full = first_step("TrainingDiskFilling", {"path": "/data/my run"})
    assert "`du -xh '/data/my run' | sort -h | tail`" in full
    assert "`du -xh PATH |" in first_step("TrainingDiskFilling", {"path": "/a`id`"})
    assert first_step("TrainingNone", {}) == ""
    for path in RUNBOOKS.glob("*.md"):
        step = first_step(path.stem, {})
        assert "PID" not in step, path.stem  # a message has no number to put there
        assert step, path
        assert not re.search(r"[*\n]|^\d|^- |:$", step), step
        sentences = re.split(r"(?<=[.?]) (?=[A-Z])", step)
        assert not sentences[0].endswith("?"), step
        assert len(step) < MAX_STEP_LENGTH or len(sentences) == 1, step


async def test_each_runbook_is_a_page_whose_links_lead_to_others() -> None:
    app = web.Application()
    app.add_routes(runbook_routes("exporter"))
    names = sorted(path.stem for path in RUNBOOKS.glob("*.md"))
    assert "TrainingInferenceDown" in names
    async with TestClient(TestServer(app)) as client:
        for name in names:
            answer = await client.get(f"/runbook/{name}")
            assert (answer.status, answer.content_type) == (200, "text/html")
            text = await answer.text()
            assert f">{name}</p>" in text
            assert "<h3>What Trainwarden does automatically</h3>" in text
            for link in re.findall(r'href="(?:\.\./)?runbook/([^"]*)"', text):
                assert link in names
            assert not re.search(
                r"(?m)^(#|\||```)", unescape(re.sub(r"(?s)<pre>.*?</pre>", "", text))
            )
        assert (await client.get("/runbook/TrainingNone")).status == 404
        assert (await client.get("/runbook/..%2F..%2FREADME")).status == 404


def test_only_a_name_is_read() -> None:
    assert read_runbook("../../README") is None
    assert (read_runbook("TrainingOomKill") or "").startswith("# TrainingOomKill")


def test_an_alert_links_to_its_runbook_if_it_has_one() -> None:
    assert runbook_link("TrainingOomKill") == (
        '<a href="runbook/TrainingOomKill">TrainingOomKill</a>'
    )
    assert runbook_link("<b>") == "&lt;b&gt;"


def test_links_to_the_published_runbooks_stay_on_this_host() -> None:
    here = "../runbook/TrainingOomKill"
    assert local_runbook(f"{PUBLISHED}TrainingOomKill.md", prefix="../") == here
    assert local_runbook("TrainingOomKill.md", prefix="../") == here
    assert local_runbook("../configuration.md") is None
    assert local_runbook("https://a.example/x") == "https://a.example/x"
