"""Harm 31: the fault that is watched kills the watcher before it can heal it."""

from __future__ import annotations

import configparser
import subprocess
import sys
from pathlib import Path

import pytest

from trainwarden_remediator.runtime.oom_score import PROTECTED_SCORE

ROOT = Path(__file__).parents[3]
PROGRAM = """
import pathlib
from trainwarden_remediator.actions.spawn import start_process
from trainwarden_remediator.config.restart_methods.process import ProcessTarget
from trainwarden_remediator.runtime.oom_score import PROCESS_SCORE

if not PROCESS_SCORE.lower():
    raise SystemExit("not permitted")
worker = start_process(ProcessTarget(start=["sleep", "60"]), "demo/rollout-0/1")
scores = [pathlib.Path(f"/proc/{pid}/oom_score_adj").read_text() for pid in ("self", worker.pid)]
worker.kill()
worker.wait()
print(*map(int, scores))
"""


def test_the_kernel_kills_a_worker_that_it_started_before_the_remediator() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False
    )
    if "not permitted" in done.stderr:
        pytest.skip("lowering a score needs CAP_SYS_RESOURCE")
    assert done.returncode == 0, done.stderr
    own, theirs = map(int, done.stdout.split())
    assert own <= PROTECTED_SCORE
    assert theirs >= 0


@pytest.mark.parametrize("name", ["exporter", "remediator"])
def test_the_units_of_both_programs_are_killed_last(name: str) -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(ROOT / "deploy" / "systemd" / f"trainwarden-{name}.service")
    assert int(unit["Service"]["OOMScoreAdjust"]) <= PROTECTED_SCORE
