"""The clock of the host is set while both programs run, also in the middle of an action.

With REAL_CLOCK=1 it is the real one: only in a virtual machine that is thrown away.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.heavy.set_clock import HostClock, RealClock
from tests.hostile.programs import EXPORTER, REMEDIATOR, Program
from tests.remediator.samples import FINGERPRINT, LATER, TOKEN, delivery, sent_alert
from tests.waiting import until

from trainwarden_remediator.journal.database import connect
from trainwarden_remediator.journal.rows import Event, read_events

DAY = 86400.0
YEARS = 10 * 365 * DAY
NTP = 3.0
JUMPS = [pytest.param(YEARS, id="years ahead"), pytest.param(-DAY, id="a day back")]
JUMPS += [pytest.param(NTP, id="seconds")]

WORKER = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: None)  # it ends by SIGKILL, after its grace
held = b"" if "TRAINWARDEN_ACTION" in os.environ else b"x" * (200 << 20)
while True: time.sleep(1)
"""
GRACE = 4
COOLDOWN = 5.0


class Alertmanager:
    """Lists `alerts` as active."""

    def __init__(self) -> None:
        self.alerts: list[dict[str, Any]] = []
        manager = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                listed = [] if self.path.endswith("/silences") else manager.alerts
                body = json.dumps(listed).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class Host:
    """A worker with 200 MiB where 100 are allowed, both programs, and an Alertmanager."""

    def __init__(self, folder: Path, clock: HostClock | RealClock) -> None:
        self.folder, self.clock = folder, clock
        self.mark = f"set-clock-{uuid.uuid4().hex}"
        command = [*clock.within, sys.executable, "-c", WORKER, self.mark]
        self.alertmanager = Alertmanager()
        worker = {"name": "rollout-0", "role": "rollout", "match": {"command": self.mark}}
        pattern = {"name": "own", "regex": r"step (?P<step>\d+)"}
        run = {
            "name": "demo",
            "path": str(folder),
            "workers": [worker | {"memory_limit": "100MiB"}],
            "logs": [{"name": "own", "files": ["own.log"], "patterns": [pattern]}],
        }
        beat = {"name": "cron", "file": str(folder / "beat"), "interval": "60s"}
        config = {"runs": [run], "heartbeats": [beat], "state_folder": str(folder / "exporter")}
        (folder / "exporter.yml").write_text(json.dumps(config))
        self.exporter = Program(EXPORTER, folder, within=clock.within)
        process = {"start": command, "grace": GRACE, "log": "worker.log"}
        target = {"run": "demo", "worker": "rollout-0", "cooldown": COOLDOWN, "process": process}
        verify = {"timeout": "60s", "stable_for": "2s"}
        (folder / "token").write_text(TOKEN)
        (folder / "remediator.yml").write_text(
            json.dumps(
                {
                    "mode": "act",
                    "token_file": "token",
                    "journal": "state/journal.db",
                    "hold_file": "state/hold",
                    "exporter": {"url": f"http://127.0.0.1:{self.exporter.address[1]}"},
                    "alertmanager": {"url": self.alertmanager.url},
                    "targets": [target],
                    "playbooks": {
                        "restart_leaking_worker": {
                            "condition": "over_memory_limit",
                            "verify": verify,
                        }
                    },
                }
            )
        )
        self.remediator = Program(REMEDIATOR, folder, within=clock.within)
        self.command = command
        self._children: list[subprocess.Popen[bytes]] = []

    def start_worker(self) -> None:
        """Starts the worker that holds too much, as the operator does."""
        self._children.append(subprocess.Popen(self.command))
        until(lambda: self.value("worker_memory_bytes") > 150 << 20)

    def values(self, name: str, labels: str = "") -> list[float]:
        """What the exporter shows now under that name, and with these labels."""
        pattern = rf"^trainwarden_{name}(?:{{.*{labels}.*}})? (\S+)$"
        return [
            float(one) for one in re.findall(pattern, self.exporter.page("/metrics"), re.MULTILINE)
        ]

    def value(self, name: str) -> float:
        (value,) = self.values(name)
        return value

    def shows(self, name: str, value: float) -> bool:
        return self.values(name) == [value]

    def is_recent(self, name: str) -> bool:
        """Whether that time is within the last hour, on this clock."""
        return -1 < self.clock.now() - self.value(name) < DAY / 24

    def fire(self, fingerprint: str) -> None:
        """Alertmanager, on the same clock, sends an alert that began 20 s ago."""
        starts = datetime.fromtimestamp(self.clock.now() - 20, UTC)
        alert = sent_alert(fingerprint=fingerprint, startsAt=f"{starts:%Y-%m-%dT%H:%M:%S.%f}Z")
        listed = {**alert, "status": {"state": "active"}, "updatedAt": alert["startsAt"]}
        self.alertmanager.alerts = [listed]
        self.repeat()

    def repeat(self) -> None:
        """Alertmanager sends its alerts again."""
        for alert in self.alertmanager.alerts:
            assert self.ask("POST", "/webhook", delivery({**alert, "status": "firing"})) == 200

    def ask(self, method: str, path: str, body: bytes = b"") -> int:
        headers = {"Authorization": f"Bearer {TOKEN}", "Content_Type": "application/json"}
        return self.remediator.ask(method, path, body, **headers).status

    def events(self, kind: str) -> list[Event]:
        connection = connect(self.folder / "state" / "journal.db", mode="ro")
        try:
            return [event for event in read_events(connection) if event.kind == kind]
        finally:
            connection.close()

    def pids(self) -> list[int]:
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if self.mark.encode() in (folder / "cmdline").read_bytes():
                    found.append(int(folder.name))
        return found

    def close(self) -> None:
        self.exporter.close()
        self.remediator.close()
        self.alertmanager.close()
        for child in self._children:
            child.kill()
            child.wait()
        for pid in self.pids():
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    try:
        clock = RealClock() if os.environ.get("REAL_CLOCK") else HostClock(tmp_path)
    except OSError as error:
        pytest.skip(f"the clock of a program cannot be set here: {error}")
    host = Host(tmp_path, clock)
    yield host
    host.close()


@pytest.mark.parametrize("jump", JUMPS)
def test_an_action_is_verified_and_the_next_one_waits_no_longer(host: Host, jump: float) -> None:
    host.start_worker()
    host.fire(FINGERPRINT)
    until(lambda: host.events("stop"))
    host.clock.set_forward(jump)  # while the worker has its grace
    until(lambda: host.events("outcome"))
    (outcome,) = host.events("outcome")
    assert outcome.facts["outcome"] == "healed"
    assert GRACE <= outcome.facts["seconds"] < DAY / 24
    assert len(host.pids()) == 1
    reported = [event.facts["seconds"] for event in host.events("clock_set")]
    assert reported == ([] if jump == NTP else [pytest.approx(jump, abs=2)])

    host.clock.set_forward(-jump)
    os.kill(host.pids()[0], signal.SIGKILL)
    host.start_worker()
    host.fire(LATER)

    def again() -> bool:
        host.repeat()
        time.sleep(0.2)
        return len(host.events("outcome")) == 2

    until(again)
    assert host.events("outcome")[-1].facts["outcome"] == "healed"
    assert len(host.events("intent")) == 2  # the first was not pruned


@pytest.mark.parametrize("jump", JUMPS)
def test_a_hold_keeps_its_length(host: Host, jump: float) -> None:
    host.start_worker()
    began = time.monotonic()
    assert host.ask("POST", "/-/hold?for=20s") == 200
    host.clock.set_forward(jump)
    host.fire(FINGERPRINT)

    def acts() -> bool:
        host.repeat()
        time.sleep(0.2)
        return bool(host.events("intent"))

    until(acts)
    assert time.monotonic() - began > 20


@pytest.mark.parametrize("jump", JUMPS)
def test_the_exporter_shows_the_same_worker_and_counts_nothing_twice(
    host: Host, jump: float
) -> None:
    log, beat = host.folder / "own.log", host.folder / "beat"
    log.write_text("step 1\n")
    beat.touch()
    host.start_worker()
    until(partial(host.shows, "training_step", 1))
    until(lambda: host.values("heartbeat_timestamp_seconds"))

    for number, seconds in enumerate((jump, -jump), 2):
        time.sleep(2 * NTP)  # a correction by seconds hides the steps of as many seconds
        host.clock.set_forward(seconds)
        with log.open("a") as file:
            file.write(f"step {number}\n")
        beat.touch()
        until(partial(host.shows, "training_step", number))
        for name in (
            "worker_start_timestamp_seconds",
            "heartbeat_timestamp_seconds",
            "training_last_step_timestamp_seconds",
            "log_last_write_timestamp_seconds",
        ):
            until(partial(host.is_recent, name))
        assert host.value("worker_processes") == 1
        assert host.value("worker_restarts_total") == 0
        # the first line was there before the exporter
        assert host.values("log_matches_total", 'pattern="own"') == [number - 1]
        assert set(host.values("collector_success")) == {1}
