"""Pull mode against the real Alertmanager: received, healed, restarted, resolved; no webhook."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.remediator.api.test_webhook import come, running
from tests.remediator.live_host import Box
from tests.waiting import connected, until

import ports
from stack import Binaries

LEAK = {
    "alertname": "TrainingWorkerMemoryOverLimit",
    "instance": "node1",
    "remediation": "restart_leaking_worker",
    "run": "demo",
    "worker": "rollout-0",
}
DOG = {"alertname": "TrainingWatchdog"}
RESOLVE_SECONDS = 3


class RealAlertmanager:
    """One whose receivers reach nobody."""

    def __init__(self, folder: Path, binaries: Binaries) -> None:
        self._folder = folder
        port = ports.choose(any_free=True)["alertmanager"]
        self.url = f"http://127.0.0.1:{port}"
        config = folder / "alertmanager.yml"
        config.write_text("route: {receiver: nobody}\nreceivers: [{name: nobody}]\n")
        self._command = [
            *(str(binaries.alertmanager), f"--config.file={config}", "--cluster.listen-address="),
            f"--web.listen-address=127.0.0.1:{port}",
        ]
        self._child: subprocess.Popen[bytes] | None = None
        self._starts = 0
        self._began: datetime | None = None
        self.start()

    def start(self) -> None:
        """Start it with nothing remembered."""
        self._starts += 1
        storage = self._folder / f"storage-{self._starts}"
        with (self._folder / "alertmanager.log").open("ab") as log:
            command = [*self._command, f"--storage.path={storage}"]
            self._child = subprocess.Popen(command, stdout=log, stderr=log)
        until(self._is_ready, 60)

    def kill(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.wait(60)
            self._child = None

    def send(self, *alerts: Mapping[str, str], over: bool = False) -> None:
        """What Prometheus sends: these fire, or are over."""
        ends = datetime.now(UTC) + (timedelta(0) if over else timedelta(minutes=4))
        # An alert keeps the moment at which it began.
        starts = self._began = self._began or datetime.now(UTC)
        body = [
            {"labels": labels, "startsAt": starts.isoformat(), "endsAt": ends.isoformat()}
            for labels in alerts
        ]
        request = urllib.request.Request(  # noqa: S310 - on loopback
            f"{self.url}/api/v2/alerts",
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        connected(lambda: urllib.request.urlopen(request, timeout=60).close())  # noqa: S310 - as above

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=60):  # noqa: S310 - loopback
                return True
        except OSError:
            return False


@pytest.fixture
def alertmanager(tmp_path: Path, binaries: Binaries) -> Iterator[RealAlertmanager]:
    folder = tmp_path / "alertmanager"
    folder.mkdir()
    alertmanager = RealAlertmanager(folder, binaries)
    yield alertmanager
    alertmanager.kill()


async def send_until(
    alertmanager: RealAlertmanager, true: Callable[[], bool], *alerts: Mapping[str, str]
) -> None:
    """Send these again and again, as Prometheus does, until something has come about."""

    def step() -> bool:
        alertmanager.send(*alerts)
        time.sleep(0.2)
        return true()

    await come(step)


async def test_the_whole_story_without_a_webhook(box: Box, alertmanager: RealAlertmanager) -> None:
    pull = {
        "match": ['instance="node1"'],
        "interval": "1s",
        "resolve_after": f"{RESOLVE_SECONDS}s",
    }
    box.configure(token_file=None, alertmanager={"url": alertmanager.url, "pull": pull})
    box.start_worker()
    before = await asyncio.to_thread(box.workers)
    async with running(box, engine=True) as (client, remediator):
        pulling = asyncio.create_task(remediator.alert_poller.run())
        try:
            assert (await client.post("/webhook", data=b"{}")).status == 401
            neighbour = {**LEAK, "instance": "node2", "worker": "rollout-9"}
            await send_until(
                alertmanager, lambda: box.journaled()[-1:] == ["healed"], LEAK, neighbour, DOG
            )
            after = await asyncio.to_thread(box.workers)
            assert len(after) == 1
            assert after != before
            incidents = remediator.journal.open_incidents()
            assert [one.worker for one in incidents] == ["rollout-0"]
            assert "watchdog" in remediator.journal.timestamps()

            # An Alertmanager that was restarted, and knows only of the heartbeat's absence.
            await asyncio.to_thread(alertmanager.kill)
            await asyncio.to_thread(alertmanager.start)
            asked = remediator.alert_poller.last_answer_at
            assert asked is not None
            await come(
                lambda: (remediator.alert_poller.last_answer_at or 0) > asked + RESOLVE_SECONDS + 2
            )
            assert [one.resolved for one in remediator.journal.open_incidents()] == [False]

            await send_until(alertmanager, lambda: "resolved" in box.journaled(), DOG)
            assert not pulling.done()
        finally:
            pulling.cancel()
            await asyncio.gather(pulling, return_exceptions=True)
