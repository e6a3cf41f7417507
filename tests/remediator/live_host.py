"""A host with real worker processes, and an exporter and an Alertmanager over HTTP."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml
from tests.remediator.samples import FINGERPRINT, GIB, ROLLOUT, TOKEN, sent_alert

from trainwarden_exporter.config import load_config
from trainwarden_exporter.processes.config import hash_workers, hash_workers_by_run
from trainwarden_exporter.processes.matching import Matcher
from trainwarden_exporter.processes.procfs import Identity, read_environment
from trainwarden_exporter.processes.start_times import start_timestamp
from trainwarden_remediator.actions.process import ACTION_VARIABLE
from trainwarden_remediator.journal.database import connect
from trainwarden_remediator.journal.rows import Event, read_events

UPDATED = "2027-01-15T08:00:05Z"
WORKER = "import time; print('up', flush=True); time.sleep(600)"


class Box:
    """A real worker, and over HTTP an exporter that shows it and an Alertmanager that knows of it.

    As the exporter shows it, a worker leaks unless the remediator has started it. All files are in
    `folder`; what is under way there is ended by `close`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mark = f"box-{uuid.uuid4().hex}"
        self.known = {FINGERPRINT: "active"}
        self.firing: list[dict[str, Any]] = []
        self.blind = False
        self.checkpoints: list[dict[str, Any]] = []
        self.proved = ""
        """The path of the newest proved checkpoint that the exporter shows."""
        self.status: Any = {"remediator": None}
        """What the exporter's `/status.json` has."""
        self.stale_page = ""
        """What the exporter keeps showing, where it does not look again."""
        self.command = [sys.executable, "-c", WORKER, self.mark]
        self._children: list[subprocess.Popen[str]] = []
        self._turn = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        self.config_file = folder / "remediator.yml"
        self.token_file = folder / "token"
        self.token_file.write_text(TOKEN)
        self.match(self.mark)
        self.reload_exporter()
        self.configure()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def match(self, command: str, role: str = "rollout") -> None:
        """Write exporter.yml with this `match`; neither program has read it yet."""
        worker = {"name": "rollout-0", "role": role, "match": {"command": command}}
        run = {"name": "demo", "workers": [{**worker, "memory_limit": "8GiB"}]}
        if self.checkpoints:
            run |= {"path": str(self.folder), "checkpoints": self.checkpoints}
        runs = [run]
        (self.folder / "exporter.yml").write_text(yaml.safe_dump({"runs": runs}))

    def reload_exporter(self) -> None:
        """Have the exporter load its file."""
        loaded = load_config(self.folder / "exporter.yml")
        self._hashes = [
            f"trainwarden_config_workers_hash {hash_workers(loaded.runs)}",
            *(
                f'trainwarden_config_run_workers_hash{{run="{run}"}} {value}'
                for run, value in hash_workers_by_run(loaded.runs).items()
            ),
        ]
        self._matcher = Matcher({ROLLOUT: loaded.runs[0].workers[0].match})

    def configure(self, **changes: Any) -> None:
        """Write remediator.yml."""
        process = {"start": self.command, "grace": "2s", "log": "worker.log"}
        verify = {"timeout": "20s", "stable_for": "0s"}
        content = {
            "mode": "act",
            "token_file": "token",
            "journal": "state/journal.db",
            "hold_file": "state/hold",
            "exporter": {"url": self.url, "config": "exporter.yml"},
            "alertmanager": {"url": self.url},
            "targets": [{"run": "demo", "worker": "rollout-0", "process": process}],
            "playbooks": {
                "restart_leaking_worker": {"condition": "over_memory_limit", "verify": verify}
            },
            **changes,
        }
        self.config_file.write_text(yaml.safe_dump(content))

    def start_worker(self, *more: str) -> subprocess.Popen[str]:
        child = subprocess.Popen([*self.command, *more], stdout=subprocess.PIPE, text=True)
        self._children.append(child)
        assert child.stdout is not None
        child.stdout.readline()
        return child

    def workers(self) -> list[Identity]:
        """What runs of the worker now."""
        with self._turn:
            roots = self._matcher.find()[ROLLOUT].roots
        return [root.identity for root in roots if root.alive]

    def hashes(self) -> list[str]:
        """The lines of the exporter's page with the hashes of its workers."""
        return self._hashes

    def alert(self, *, ago: float = 0, **labels: str) -> dict[str, Any]:
        """An alert that began so many seconds ago."""
        starts = datetime.fromtimestamp(time.time() - ago, UTC)
        return sent_alert(startsAt=f"{starts:%Y-%m-%dT%H:%M:%S.%f}789Z", labels=labels)

    def events(self) -> list[Event]:
        """The journal, oldest first."""
        connection = connect(self.folder / "state" / "journal.db", mode="ro")
        try:
            return list(read_events(connection))
        finally:
            connection.close()

    def journaled(self) -> list[str]:
        """What happened, oldest first, without decisions."""
        return [
            e.facts.get("result") or e.facts.get("outcome") or e.kind
            for e in self.events()
            if e.kind != "decision"
        ]

    def close(self) -> None:
        for child in self._children:
            child.kill()
            child.wait(60)
            if child.stdout:
                child.stdout.close()
        for identity in self.workers():
            os.kill(identity.pid, signal.SIGKILL)
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        box = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                match self.path:
                    case "/metrics":
                        page = box.page()
                    case "/status.json":
                        page = json.dumps(box.status)
                    case _:
                        page = box._alerts(self.path)
                self.send_response(503 if box.blind else 200)
                self.send_header("Content-Length", str(len(page)))
                self.end_headers()
                self.wfile.write(page.encode())

            def log_message(self, *_: Any) -> None:
                pass

        return Handler

    def page(self) -> str:
        """What the exporter shows."""
        return self.stale_page or self._page()

    def _page(self) -> str:
        lines = [f'trainwarden_collector_success{{collector="{c}"}} 1' for c in ("host", "workers")]
        lines += ["trainwarden_memory_effective_available_bytes 2e10"]
        lines += ["trainwarden_memory_available_floor_bytes 2e9"]
        lines += self.hashes()
        roots = self.workers()
        marked = [ACTION_VARIABLE in (read_environment(identity.pid) or {}) for identity in roots]
        values = {
            "processes": len(roots),
            "expected_processes": 1,
            "memory_bytes": 0 if not roots else GIB if all(marked) else 9 * GIB,
            "memory_limit_bytes": 8 * GIB,
            "finished": 0,
        }
        if roots:
            values["start_timestamp_seconds"] = min(start_timestamp(root) for root in roots)
        labels = 'run="demo",worker="rollout-0",role="rollout"'
        lines += [f"trainwarden_worker_{name}{{{labels}}} {n}" for name, n in values.items()]
        if self.proved:
            lines += ['trainwarden_checkpoint_complete{run="demo",checkpoint="default"} 1']
            labels = f'run="demo",checkpoint="default",path="{self.proved}"'
            lines += [f"trainwarden_checkpoint_proved_info{{{labels}}} 1"]
            lines += ['trainwarden_checkpoint_proved_step{run="demo",checkpoint="default"} 20']
        return "".join(f"{line}\n" for line in lines)

    def _alerts(self, path: str) -> str:
        if path.endswith("/silences"):
            return "[]"
        return json.dumps(
            [
                {**sent_alert(fingerprint=name), "status": {"state": state}, "updatedAt": UPDATED}
                for name, state in self.known.items()
            ]
            + self.firing
        )

    def fire(self, **changes: Any) -> dict[str, Any]:
        """Let Alertmanager list another alert too."""
        alert = {**sent_alert(**changes), "status": {"state": "active"}, "updatedAt": UPDATED}
        self.firing.append(alert)
        return alert
