"""Harm 28: it ends itself, or what it sees by."""

from __future__ import annotations

import os
import shutil
import sys

import pytest
from tests.remediator.process_yard import Steps, Yard, alive
from tests.waiting import until

from trainwarden_exporter.processes.procfs import read_process
from trainwarden_remediator.exceptions import ActionError

RUNS = "import os, sys; print(flush=True); os.execv(sys.argv[1], sys.argv[1:])"
OBSERVERS = (
    "init",
    "systemd",
    "sshd",
    "dockerd",
    "supervisord",
    "prometheus",
    "alertmanager",
    "prometheus-alertmanager",
    "trainwarden-exporter",
    "trainwarden-remediator",
)


@pytest.mark.parametrize("name", OBSERVERS)
def test_what_runs_under_such_a_name_is_refused_whatever_the_selector_finds(
    yard: Yard, name: str
) -> None:
    program = yard.folder / name
    shutil.copy(shutil.which("sleep") or "", program)
    guard, _ = yard.run_command(sys.executable, "-c", RUNS, program, "60")
    until(lambda: (one := read_process(guard.pid)) is not None and one.name == name[:15])
    yard.mark = str(program)
    action, steps = yard.acting(), Steps()
    with pytest.raises(ActionError, match=r"refused: .* is protected"):
        action.perform("7", steps)
    assert steps == []
    assert alive(guard.pid)


def test_nor_is_what_the_remediator_itself_runs_in(yard: Yard) -> None:
    """The selector finds this very process, which here is the remediator."""
    yard.mark = "pytest"
    action, steps = yard.acting(), Steps()
    assert any(member.pid == os.getpid() for member in yard.tree().members)
    with pytest.raises(ActionError, match=r"refused: "):
        action.perform("7", steps)
    assert steps == []
