"""Healthy runs of several frameworks beside each other on one host: nothing fires.

Three minutes by default; TRAINWARDEN_REAL_HEALTHY_SECONDS=3600 is the hour before a release.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest
from tests.real.cases import CASES, HEALTHY_SECONDS
from tests.real.watching import PATIENCE, Program, record_seen, require, watched
from tests.waiting import until

FIRST = ("plain", "trl_sft", "lightning_trainer", "optuna_search")
SECOND = ("transformers_trainer", "trl_grpo", "ray_train", "ray_tune")
SLOWER = 3.0
"""Factor of the duration of a step, so that four programs fit on two cores."""


@pytest.mark.parametrize("together", [FIRST, SECOND], ids=["first", "second"])
def test_four_healthy_runs_beside_each_other_raise_no_alert(
    tmp_path: Path, together: tuple[str, ...]
) -> None:
    programs = []
    for case in (one for one in CASES if one.program in together):
        require(case)
        slower = replace(case, seconds=SLOWER * case.seconds)
        programs.append(Program(slower, tmp_path / case.program))
    steps = int(HEALTHY_SECONDS + 10 * PATIENCE)
    try:
        for program in programs:
            program.folder.mkdir()
            program.start(steps)
            program.wait_for("step", 12)
        with watched(programs, tmp_path) as seen:
            began = time.monotonic()
            until(lambda: time.monotonic() - began > HEALTHY_SECONDS, HEALTHY_SECONDS + PATIENCE)
            for program in programs:
                assert program.alive, program.log()
                assert seen.value(program.name, "worker_processes") == 1
                fired = seen.fired(program.name, "critical|warning", time.monotonic() - began)
                assert (program.case.program, fired) == (program.case.program, set())
    finally:
        for program in programs:
            program.end()
    for program in programs:
        minutes = f"{HEALTHY_SECONDS / 60:.0f} min healthy beside three other runs"
        record_seen(program.case, minutes)
