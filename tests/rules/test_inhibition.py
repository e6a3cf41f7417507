"""What mutes what, asked of a running Alertmanager with the shipped configuration."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from queue import Queue
from typing import Any

CONFIG = Path(__file__).resolve().parents[2] / "rules" / "alertmanager.yml"
PATIENCE = 60.0
Labels = dict[str, str]
Case = tuple[str, Labels, list[Labels], list[Labels]]

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

CASES: list[Case] = [
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
        "an exporter that is down mutes its own alerts",
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


def test_the_shipped_rules_mute_as_the_table(assert_mutes: Callable[[list[Case]], None]) -> None:
    assert_mutes(CASES)


def test_the_heartbeat_arrives_at_once_with_the_token_from_beside_the_configuration(
    run_alertmanager: Callable[[str, Path], Iterator[Any]], tmp_path: Path
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
            for running in run_alertmanager(config, tmp_path):
                running.post(WATCHDOG)
                path, authorization, body = received.get(timeout=PATIENCE)
        finally:
            server.shutdown()
    assert (path, authorization) == ("/webhook", "Bearer sesame")
    assert [alert["labels"] for alert in body["alerts"]] == [WATCHDOG]
