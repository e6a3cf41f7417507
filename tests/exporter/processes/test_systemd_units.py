"""A worker whose systemd service an operator has stopped; systemctl is a stand-in here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from trainwarden_exporter.processes.absence import AbsenceReason, RunSigns, find_absence_reason
from trainwarden_exporter.processes.matching import Matcher, WorkerKey
from trainwarden_exporter.processes.procfs import Cgroup, Identity
from trainwarden_exporter.processes.selector import Selector
from trainwarden_exporter.processes.systemd_units import (
    UnitStops,
    service_of,
    was_stop_requested,
)
from trainwarden_exporter.processes.worker_history import RootHistory

if TYPE_CHECKING:
    from tests.exporter.conftest import FakeProc

UNIT = {
    "LoadState": "loaded",
    "ActiveState": "inactive",
    "Result": "success",
    "InvocationID": "0123456789abcdef",
    "ExecMainStartTimestampMonotonic": "1000",
}
STOPPED = {"ExecMainExitTimestampMonotonic": "2001", "ActiveExitTimestampMonotonic": "2000"}
TIMEOUT = {
    "Result": "timeout",
    "ActiveState": "failed",
    "ActiveEnterTimestampMonotonic": "1500",
    "ActiveExitTimestampMonotonic": "5501500",
    "ExecMainExitTimestampMonotonic": "5501600",
}
CRASHED = {"ExecMainExitTimestampMonotonic": "2000", "ActiveExitTimestampMonotonic": "2001"}
WORKER = WorkerKey("run", "trainer")


def systemctl(folder: Path, unit: Mapping[str, str]) -> str:
    """A systemctl that shows `unit` and counts its calls."""
    text = "".join(f"{name}={value}\\n" for name, value in unit.items())
    program = folder / "systemctl"
    program.write_text(f"#!/bin/sh\necho \"$@\" >> {folder}/calls\nprintf '{text}'\n")
    program.chmod(0o755)
    return str(program)


@pytest.mark.parametrize(
    ("unit", "answer"),
    [
        ({**UNIT, **STOPPED}, True),
        ({**UNIT, **STOPPED, "ActiveState": "failed", "Result": "exit-code"}, True),
        ({**UNIT, **CRASHED, "ActiveState": "failed", "Result": "signal"}, False),
        ({**UNIT, **CRASHED}, False),
        ({**UNIT, **STOPPED, "Result": "oom-kill"}, False),
        ({**UNIT, **TIMEOUT, "RuntimeMaxUSec": "5.500s"}, False),
        ({**UNIT, **TIMEOUT, "RuntimeMaxUSec": "5s 500ms"}, False),
        # killed after the time for a stop that was requested
        ({**UNIT, **TIMEOUT, "RuntimeMaxUSec": "1month 1w 2d 3h 4min 6s"}, True),
        ({**UNIT, **TIMEOUT, "RuntimeMaxUSec": "infinity"}, True),
        ({**UNIT, **TIMEOUT}, True),
        ({**UNIT, "ActiveState": "active"}, None),
        ({**UNIT, **STOPPED, "ActiveState": "deactivating"}, None),
        ({**UNIT, "LoadState": "not-found", "InvocationID": ""}, None),
        ({}, None),
    ],
)
def test_systemd_says_whether_a_unit_was_stopped_on_request(
    tmp_path: Path,
    unit: dict[str, str],
    answer: bool | None,
) -> None:
    assert was_stop_requested("w.service", systemctl=systemctl(tmp_path, unit)) is answer


def test_without_systemd_no_stop_is_known(tmp_path: Path) -> None:
    assert was_stop_requested("w.service", systemctl=str(tmp_path / "none")) is None


@pytest.mark.parametrize(
    ("path", "service"),
    [
        ("/system.slice/trainer.service", "trainer.service"),
        ("/system.slice/trainer.service/workers", "trainer.service"),
        ("/user.slice/user-1000.slice/user@1000.service/app.slice/t.service", None),
        ("/user.slice/user-1000.slice/session-3.scope", None),
        ("/", None),
    ],
)
def test_only_a_service_of_the_system_counts(path: str, service: str | None) -> None:
    assert service_of((Cgroup("", path),)) == service


def test_a_worker_whose_unit_was_stopped_is_interrupted_and_systemd_is_asked_once(
    proc: FakeProc, tmp_path: Path
) -> None:
    stops = UnitStops(proc.root, systemctl=systemctl(tmp_path, {**UNIT, **STOPPED}))
    proc.add(100, ("python", "train.py"))
    (proc.root / "100" / "cgroup").write_text("0::/system.slice/trainer.service\n")
    matcher = Matcher({WORKER: Selector(command="train")}, root=proc.root)
    stops.record(matcher.find())
    proc.remove(100)
    stops.record(matcher.find())
    assert not stops.was_stopped(WORKER, None, now=1000.0)
    assert stops.was_stopped(WORKER, 1000.0, now=1001.0)
    assert stops.was_stopped(WORKER, 1000.0, now=1006.0)
    assert "-- trainer.service" in (tmp_path / "calls").read_text()
    assert len((tmp_path / "calls").read_text().splitlines()) == 1


@pytest.mark.parametrize("status", [None, 15, 1 << 8])
def test_a_stop_of_the_unit_explains_any_exit_status(status: int | None) -> None:
    history = RootHistory(last_exit_timestamp=1000.0, _unreplaced_roots={Identity(1, 1): status})

    def reason(*, unit_stopped: bool) -> AbsenceReason | None:
        return find_absence_reason(
            history,
            RunSigns(),
            seen=True,
            finishes=False,
            ended_by_reboot=False,
            is_only_trainer=False,
            unit_stopped=unit_stopped,
        )

    assert reason(unit_stopped=True) is AbsenceReason.INTERRUPTED
    assert reason(unit_stopped=False) is None
