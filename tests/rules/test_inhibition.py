"""What mutes what, asked of a running Alertmanager with the shipped configuration."""

from __future__ import annotations

import json
import re
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

from stack import Binaries

CONFIG = Path(__file__).resolve().parents[2] / "rules" / "alertmanager.yml"
PATIENCE = 15.0
Labels = dict[str, str]

A: Labels = {"run": "demo", "worker": "a", "instance": "box-1:10977"}
B: Labels = A | {"worker": "b"}
C: Labels = A | {"worker": "c"}
ELSEWHERE: Labels = A | {"instance": "box-2:10977"}
CRITICAL: Labels = {"severity": "critical"}
WARNING: Labels = {"severity": "warning"}

OVER_LIMIT = {"alertname": "TrainingWorkerMemoryOverLimit"} | CRITICAL
OVER_LIMIT |= {"remediation": "restart_leaking_worker"}
OVER_90 = {"alertname": "TrainingWorkerMemoryOverLimit"} | WARNING
GONE = {"alertname": "TrainingWorkerGone", "remediation": "start_missing_worker"} | CRITICAL
LEAK = {"alertname": "TrainingWorkerLeak"} | WARNING
OLD = {"alertname": "TrainingWorkerOldAndGrowing", "remediation": "recycle_aged_worker"} | WARNING
LOOP = {"alertname": "TrainingWorkerRestartLoop", "remediation": "hold_restarts"} | CRITICAL
FLOOR = {"alertname": "TrainingMemoryFloor", "remediation": "relieve_memory"} | CRITICAL
REBOOT = {"alertname": "TrainingReboot"} | WARNING
EXPORTER_DOWN = {"alertname": "TrainingExporterDown"} | CRITICAL
COLLECTOR = {"alertname": "TrainingCollectorFailing", "collector": "workers"} | WARNING
REMEDIATOR_DOWN = {"alertname": "TrainingRemediatorDown"} | CRITICAL
DEAF = {"alertname": "TrainingRemediatorDeaf"} | CRITICAL
GAVE_UP = {"alertname": "TrainingRemediationGaveUp", "run": "demo", "worker": "a"} | CRITICAL
WATCHDOG = {"alertname": "TrainingWatchdog", "severity": "none"}
BOX: Labels = {"instance": "box-1:10977"}
HEALER: Labels = {"instance": "box-1:10978"}

CASES: list[tuple[str, Labels, list[Labels], list[Labels]]] = [
    # what, the cause, what it mutes, what it leaves alone
    (
        "a critical alert mutes the warning of the same worker",
        OVER_LIMIT | A,
        [OVER_90 | A],
        [OVER_90 | B, OVER_90 | ELSEWHERE, LEAK | B],
    ),
    (
        "a restart loop mutes the restarts of its worker, but not its own hold or the floor",
        LOOP | A,
        [GONE | A, OVER_LIMIT | A],
        [GONE | B, OVER_LIMIT | B, FLOOR | BOX, GAVE_UP | HEALER],
    ),
    (
        "a restart loop mutes the recycling of its worker",
        LOOP | A,
        [OLD | A],
        [OLD | B, OLD | ELSEWHERE],
    ),
    (
        "an exporter that is down mutes what it said",
        EXPORTER_DOWN | BOX,
        [GONE | A, OVER_LIMIT | B, LEAK | C, FLOOR | BOX, REBOOT | BOX, COLLECTOR | BOX],
        [GONE | ELSEWHERE, GAVE_UP | HEALER, REMEDIATOR_DOWN | HEALER, WATCHDOG],
    ),
    (
        "an exporter that nobody knows mutes nothing, least of all the heartbeat",
        EXPORTER_DOWN,
        [],
        [WATCHDOG, FLOOR, GONE | A],
    ),
    (
        "a worker that is gone neither leaks nor is recycled",
        GONE | A,
        [LEAK | A, OLD | A],
        [LEAK | B, OLD | B, OLD | ELSEWHERE],
    ),
    (
        "a worker over its limit is not recycled besides",
        OVER_LIMIT | A,
        [LEAK | A, OLD | A],
        [LEAK | B, OLD | B, FLOOR | BOX, GONE | A],
    ),
    ("nearing the limit mutes nothing", OVER_90 | A, [], [LEAK | A, OLD | A, GONE | B]),
    ("a reboot leaves the workers to be started", REBOOT | BOX, [], [GONE | A, GONE | B]),
    (
        "a remediator that is down is not deaf besides",
        REMEDIATOR_DOWN | HEALER,
        [DEAF | HEALER],
        [DEAF | {"instance": "box-2:10978"}, GAVE_UP | HEALER, GONE | A],
    ),
]


class Running:
    """An Alertmanager of one's own."""

    def __init__(self, url: str) -> None:
        self.url = url

    def post(self, *alerts: Labels) -> None:
        body = json.dumps([{"labels": labels} for labels in alerts]).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(  # noqa: S310 - the URL is our own, http
            f"{self.url}/api/v2/alerts", body, headers
        )
        urllib.request.urlopen(request, timeout=5).close()  # noqa: S310 - as above

    def muted(self) -> dict[frozenset[tuple[str, str]], bool]:
        """Whether each alert it knows is inhibited, by its labels."""
        with urllib.request.urlopen(f"{self.url}/api/v2/alerts", timeout=5) as reply:  # noqa: S310 - as above
            alerts: list[dict[str, Any]] = json.load(reply)
        return {
            frozenset(alert["labels"].items()): bool(alert["status"]["inhibitedBy"])
            for alert in alerts
        }


def run(binaries: Binaries, config: str, folder: Path) -> Iterator[Running]:
    """Start an Alertmanager in `folder` on a port of its choice, and end it afterwards."""
    (folder / "alertmanager.yml").write_text(config)
    process = subprocess.Popen(
        [
            binaries.alertmanager,
            f"--config.file={folder / 'alertmanager.yml'}",
            f"--storage.path={folder / 'data'}",
            "--web.listen-address=127.0.0.1:0",
            "--cluster.listen-address=",
        ],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    lines: Queue[str] = Queue()
    reader = threading.Thread(target=_pump, args=(process.stderr, lines))
    reader.start()
    try:
        yield Running(_address(lines))
    finally:
        process.kill()
        process.wait()
        reader.join()
        process.stderr.close()


def _pump(source: Any, lines: Queue[str]) -> None:
    for line in source:
        lines.put(line)
    lines.put("")


def _address(lines: Queue[str]) -> str:
    """Where it listens, as its log says; fails with that log if it ends before."""
    log = ""
    while line := lines.get(timeout=PATIENCE):
        if (found := re.search(r'msg="Listening on" address=(\S+)', line)) is not None:
            return f"http://{found[1]}"
        log += line
    pytest.fail(f"Alertmanager ended:\n{log}")


@pytest.fixture(scope="module")
def alertmanager(binaries: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    # No webhook: nothing listens for it here, and refused deliveries would only fill the log.
    config = re.sub(r"    webhook_configs:\n(?:      .*\n)+", "", CONFIG.read_text())
    yield from run(binaries, config, tmp_path_factory.mktemp("alertmanager"))


def within(case: int, labels: Labels) -> frozenset[tuple[str, str]]:
    """The labels in a world of their own: the cases share one Alertmanager."""
    own = {name: f"{case}-{labels[name]}" for name in ("run", "instance") if name in labels}
    return frozenset((labels | own).items())


def test_the_shipped_rules_mute_as_told(alertmanager: Running) -> None:
    expected: dict[frozenset[tuple[str, str]], bool] = {}
    for case, (_, cause, muted, spared) in enumerate(CASES):
        expected |= {within(case, labels): False for labels in (cause, *spared)}
        expected |= {within(case, labels): True for labels in muted}
    alertmanager.post(*(dict(labels) for labels in expected))

    deadline = time.monotonic() + PATIENCE
    while (seen := alertmanager.muted()) != expected and time.monotonic() < deadline:
        time.sleep(0.05)  # a mute works once its source is in; there is nothing to wait on
    for case, (what, cause, muted, spared) in enumerate(CASES):
        for labels in muted:
            assert seen[within(case, labels)], f"{what}: {labels} is not muted"
        for labels in (cause, *spared):
            assert not seen[within(case, labels)], f"{what}: {labels} is muted"


def test_the_heartbeat_arrives_at_once_with_the_token_from_beside_the_configuration(
    binaries: Binaries, tmp_path: Path
) -> None:
    received: Queue[tuple[str, str, dict[str, Any]]] = Queue()

    class Webhook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            received.put((self.path, self.headers["Authorization"], body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "webhook-token").write_text("sesame\n")
    with HTTPServer(("127.0.0.1", 0), Webhook) as server:
        threading.Thread(target=server.serve_forever).start()
        config = CONFIG.read_text().replace("127.0.0.1:10978", f"127.0.0.1:{server.server_port}")
        try:
            for running in run(binaries, config, tmp_path):
                running.post(WATCHDOG)
                path, authorization, body = received.get(timeout=PATIENCE)
        finally:
            server.shutdown()
    assert (path, authorization) == ("/webhook", "Bearer sesame")
    assert [alert["labels"] for alert in body["alerts"]] == [WATCHDOG]
