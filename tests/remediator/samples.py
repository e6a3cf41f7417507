"""Alerts, webhook bodies, workers and configurations with the values that most tests use."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainwarden_exporter.config import Config as ExporterConfig
from trainwarden_exporter.processes.announcements import AnnouncedWorker, Announcement
from trainwarden_exporter.processes.config import WorkerConfig
from trainwarden_exporter.processes.matching import Selector, WorkerKey
from trainwarden_exporter.run_config import RunConfig
from trainwarden_remediator.alertmanager.webhook_payload import Alert
from trainwarden_remediator.config.schema import Config, Setup
from trainwarden_remediator.holds.hold_file import read_holds
from trainwarden_remediator.observation.model import WorkerState

NOW = 1_800_000_000.0
TOKEN = "a-token-of-some-length"
FINGERPRINT = "0123456789abcdef"
ROLLOUT = WorkerKey("demo", "rollout-0")
GIB = 1024.0**3
TRAINER = WorkerKey("demo", "trainer")
OTHER = WorkerKey("second", "trainer")
WORKERS = ("demo/rollout-0", "demo/trainer", "second/trainer")
LATER = "1" * 16
QUICKLY_VERIFIED: dict[str, Any] = {
    name: {"verify": {"stable_for": "5s"}}
    for name in (
        "restart_leaking_worker",
        "start_missing_worker",
        "recycle_aged_worker",
        "restart_braking_worker",
    )
} | {"relieve_memory": {"target": "largest_worker", "verify": {"stable_for": "5s"}}}
"""The shipped playbooks, with a shorter time to settle."""


def announced(**changes: Any) -> dict[WorkerKey, AnnouncedWorker]:
    """A command of `trainwarden run`, in its announcement."""
    content = {"run": "demo", "worker": "trainer", "pid": 7, "started_at": NOW - 1000, **changes}
    one = Announcement.model_validate(content)
    return {one.key: AnnouncedWorker(one, Path("/runs.d/a.json"), 0)}


def is_held(hold_file: Path, now: float = NOW) -> bool:
    """Whether all actions are held."""
    return any(hold.everything for hold in read_holds(hold_file, now))


def sent_alert(**changes: Any) -> dict[str, Any]:
    """An alert as Alertmanager 0.25 sends it; `labels` are added to those it has."""
    labels = {
        "alertname": "TrainingWorkerMemoryOverLimit",
        "instance": "127.0.0.1:10977",
        "job": "trainwarden-exporter",
        "remediation": "restart_leaking_worker",
        "role": "rollout",
        "run": "demo",
        "severity": "critical",
        "worker": "rollout-0",
    }
    return {
        "status": "firing",
        "annotations": {"summary": "A worker holds more memory than its limit."},
        "startsAt": "2027-01-15T08:00:00.123456789Z",
        "endsAt": "0001-01-01T00:00:00Z",
        "generatorURL": "http://localhost:9090/graph?g0.expr=x&g0.tab=1",
        "fingerprint": FINGERPRINT,
        **changes,
        "labels": {**labels, **changes.get("labels", {})},
    }


def delivery(*alerts: dict[str, Any], **changes: Any) -> bytes:
    """The body of a webhook, with every key that Alertmanager 0.25 writes."""
    common = {"run": "demo", "worker": "rollout-0"}
    content = {
        "receiver": "trainwarden\\-remediator",
        "status": "firing",
        "alerts": list(alerts),
        "groupLabels": common,
        "commonLabels": common,
        "commonAnnotations": {},
        "externalURL": "http://localhost:9093",
        "version": "4",
        "groupKey": '{}/{remediation!=""}:{run="demo", worker="rollout-0"}',
        "truncatedAlerts": 0,
    }
    return json.dumps({**content, **changes}).encode()


def make_alert(
    *, fingerprint: str = FINGERPRINT, starts_at: float = NOW, firing: bool = True, **labels: str
) -> Alert:
    """An alert as parsed; labels given as "" are left out."""
    every = {
        "alertname": "TrainingWorkerMemoryOverLimit",
        "run": "demo",
        "worker": "rollout-0",
        "remediation": "restart_leaking_worker",
        **labels,
    }
    return Alert(fingerprint, starts_at, firing, {k: v for k, v in every.items() if v})


def make_worker(**changes: Any) -> WorkerState:
    """A worker over its memory limit that started long ago."""
    leaking = WorkerState(
        processes=1,
        expected=1,
        memory_bytes=9 * GIB,
        finished=False,
        started_at=NOW - 3600,
        memory_limit_bytes=8 * GIB,
        age_limit_seconds=None,
    )
    return replace(leaking, **changes)


def make_config(folder: Path, *workers: str, **changes: Any) -> Config:
    """A configuration that acts on `workers` ("run/worker"; demo/rollout-0 when none is given)."""
    budget = ("cooldown", "attempts", "attempts_window")
    each: dict[str, Any] = {key: changes.pop(key) for key in budget if key in changes}
    targets: list[dict[str, Any]] = []
    for name in workers or ("demo/rollout-0",):
        run, _, worker = name.partition("/")
        process = {"start": ["/bin/true"], "grace": 1}
        targets.append({"run": run, "worker": worker, "process": process})
    content = {
        "mode": "act",
        "insecure": True,
        "journal": folder / "journal.db",
        "hold_file": folder / "hold",
        "targets": targets,
        **changes,
        "playbooks": {**QUICKLY_VERIFIED, **changes.get("playbooks", {})},
    }
    config = Config.model_validate(content, context={"folder": folder})
    # Not validated: what is decided must be sound for budgets that no file may hold, too.
    copies = tuple(target.model_copy(update=each) for target in config.targets)
    return config.model_copy(update={"targets": copies})


def make_watched(*workers: str, finishes: Collection[str] = ()) -> ExporterConfig:
    """An exporter.yml with these workers ("run/worker"); the role of each is its name."""
    runs: dict[str, list[WorkerConfig]] = {}
    for name in workers:
        run, _, worker = name.partition("/")
        match = Selector.model_validate({"command": f"nothing-like-{worker}"})
        ends = worker in finishes
        one = WorkerConfig(name=worker, role=worker, match=match, finishes=ends)
        runs.setdefault(run, []).append(one)
    return ExporterConfig(
        runs=tuple(RunConfig(name=run, workers=tuple(found)) for run, found in runs.items())
    )


def with_folder(setup: Setup, folder: Path) -> Setup:
    """As `setup`, where each run saves its checkpoints below this folder."""
    own = {"framework": "trl", "path": folder}
    runs = tuple(run.model_copy(update=own) for run in setup.exporter_config.runs)
    config = setup.exporter_config.model_copy(update={"runs": runs})
    return replace(setup, exporter_config=config)


def make_setup(folder: Path, *workers: str, **changes: Any) -> Setup:
    """As `make_config`, with the exporter's file to it."""
    return Setup(make_config(folder, *workers, **changes), make_watched(*workers))
