"""Harm 29: it ends another process that matches too, or that an old copy of the file selects."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.remediator.api.test_webhook import come, post, running
from tests.remediator.decoys import restart_beside_decoys
from tests.remediator.live_host import Box
from tests.remediator.samples import delivery

from trainwarden_remediator.policy import agreement


async def test_a_narrowed_match_counts_though_only_the_exporter_was_reloaded(box: Box) -> None:
    own = box.start_worker()
    async with running(box, engine=True) as (client, _):
        stranger = box.start_worker("another")
        box.match(f"{box.mark}$")
        box.reload_exporter()
        assert (await post(client, delivery(box.alert()))).status == 200
        await come(lambda: "healed" in box.journaled())
        assert own.wait(60) == -15
        assert stranger.poll() is None


async def test_while_the_exporter_uses_an_older_file_no_worker_is_restarted(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agreement, "SETTLING_SECONDS", 0.0)
    own = box.start_worker()
    async with running(box, engine=True) as (client, remediator):
        stranger = box.start_worker("another")
        box.match(f"{box.mark} another$")
        assert (await post(client, delivery(box.alert()))).status == 200
        await come(lambda: "config_differs" in str(remediator.journal.counters().get("decisions")))
        assert remediator.journal.given_up(0) != ()
        assert (own.poll(), stranger.poll()) == (None, None)
        box.match(f"{box.mark}$")
        box.reload_exporter()
        await come(lambda: "healed" in box.journaled())
        assert own.wait(60) == -15
        assert stranger.poll() is None


async def test_a_file_that_cannot_be_parsed_stops_every_action(box: Box) -> None:
    own = box.start_worker()
    async with running(box, engine=True) as (client, remediator):
        file = box.folder / "exporter.yml"
        sound = file.read_text()
        file.write_text("runs: [")
        assert (await post(client, delivery(box.alert()))).status == 200
        await come(lambda: "config_differs" in str(remediator.journal.counters().get("decisions")))
        assert not remediator.program_state({}).reload_successful
        assert own.poll() is None
        file.write_text(sound)
        await come(lambda: "healed" in box.journaled())
        assert remediator.program_state({}).reload_successful


async def test_a_second_match_that_nobody_configured_stops_the_restart(box: Box) -> None:
    own = box.start_worker()
    async with running(box, engine=True) as (client, remediator):
        stranger = box.start_worker("another")
        assert (await post(client, delivery(box.alert()))).status == 200
        counters = remediator.journal.counters
        await come(lambda: "ambiguous_target" in str(counters().get("decisions")))
        await come(lambda: "processes_differ" in str(counters().get("decisions")))
        assert (own.poll(), stranger.poll()) == (None, None)
        stranger.kill()
        stranger.wait()
        await come(lambda: "healed" in box.journaled())
        assert own.wait(60) == -15


def test_no_decoy_is_ended_in_twenty_restarts(tmp_path: Path) -> None:
    """A thousand of them: tests/heavy/test_decoys.py."""
    tally = restart_beside_decoys(tmp_path, 20, random.Random(29))  # noqa: S311 - repeatable
    assert tally.wrongly_ended == []
    assert tally.restarts == 20
    assert tally.decoys > 0
