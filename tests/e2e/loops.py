"""What the tests of night 1 have in common: a loop, and a restart that is asked for meanwhile."""

from __future__ import annotations

import json
import shlex
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.waiting import connected

from parts import Parts

FATAL = "fatal: destination path AReaL already exists and is not an empty directory."
"""What the start command of that night printed, without its quotes."""


def remediator(folder: Path) -> dict[str, Any]:
    """That may start the trainer, which would leave a file behind."""
    start = ["/bin/sh", "-c", f"touch {shlex.quote(str(folder / 'started'))}; sleep 100"]
    return {"targets": [{"run": "grpo", "worker": "trainer", "process": {"start": start}}]}


def ask_for_a_restart(stack: Parts) -> None:
    """Tell the remediator that the trainer is gone, as Alertmanager would."""
    labels = {
        "alertname": "TrainingWorkerGone",
        "run": "grpo",
        "worker": "trainer",
        "severity": "critical",
        "remediation": "start_missing_worker",
    }
    alert = {
        "status": "firing",
        "labels": labels,
        "annotations": {},
        "startsAt": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "endsAt": "0001-01-01T00:00:00Z",
        "generatorURL": "",
        "fingerprint": "a" * 16,
    }
    body = {"version": "4", "status": "firing", "receiver": "x", "groupKey": "x", "alerts": [alert]}
    token = (stack.config / "token").read_text().strip()
    request = urllib.request.Request(  # noqa: S310 - on loopback
        f"{stack.run.url('remediator')}/webhook",
        data=json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    with connected(lambda: urllib.request.urlopen(request, timeout=60)) as response:  # noqa: S310 - as above
        assert response.status == 200


def refused(stack: Parts) -> Callable[[], bool]:
    """Whether the remediator has logged that it does not start the trainer while the loop lasts."""

    def message() -> bool:
        return any(
            event["kind"] == "decision"
            and event["alert"] == "TrainingWorkerGone"
            and event["facts"]["reason"] == "held_by_alert"
            for event in stack.journal()
        )

    return message
