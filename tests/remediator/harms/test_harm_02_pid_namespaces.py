"""Harm 2: the driver counts pids as the host does, and a container has strangers of these pids."""

from __future__ import annotations

from tests.remediator.harms.namespaces import run_apart

COLLIDE = """
import sys
from trainwarden_exporter.gpu.holders import read_numbering
from trainwarden_exporter.processes.procfs import read_processes

processes = read_processes()
# small numbers, all of which the host has as well
assert max(processes) < 100, sorted(processes)
for version in ("470.256.02", "580.65.06"):
    print(version, read_numbering(processes.values(), version))
"""


def test_in_a_namespace_of_its_own_no_pid_of_an_old_driver_is_believed() -> None:
    assert run_apart(COLLIDE).splitlines() == ["470.256.02 foreign", "580.65.06 translated"]
