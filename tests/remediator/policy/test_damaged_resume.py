"""A run whose newest checkpoint cannot be loaded is restarted once, and then called about."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.remediator.observation.test_snapshot import PAGE
from tests.remediator.policy.test_decide import TRAINER, ago, incident, snapshot, state
from tests.remediator.samples import NOW, WORKERS, announced, make_config, make_worker

from trainwarden_exporter.processes.announcements import AnnouncedRuns
from trainwarden_remediator.model import Decision
from trainwarden_remediator.observation.exporter_page import parse_exporter_page
from trainwarden_remediator.observation.model import RunState
from trainwarden_remediator.policy.decide import decide

GONE = incident(alert="TrainingWorkerGone", worker="trainer", remediation="start_missing_worker")
ENDED = make_worker(processes=0, started_at=None, last_exit_code=1, last_exit_at=NOW - 140)
LAST = replace(ago(200, TRAINER), step=45.0, checkpoint=30.0)
PROVED = "/data/ck/checkpoint-30"
RUN = RunState(
    step=45,
    last_step_at=NOW - 500,
    checkpoint=30,
    checkpoints=3,
    proved_step=30,
    proved_checkpoint=PROVED,
    incomplete_step=40,
    incomplete="checkpoint-40",
)
ERROR = "safetensors_rust.SafetensorError: Error while deserializing header: incomplete metadata"
FAILED: dict[str, Any] = {
    "state": "failed",
    "ended_at": NOW - 140,
    "exits": ((7, 1, 256),),
    "last_lines": ("Traceback (most recent call last):", ERROR),
}
WAY = f"the newest proved one is {PROVED}: resume from that, or move the newer ones away"


def decided(folder: Path, run: RunState = RUN, last: Any = LAST, **changes: Any) -> tuple[str, str]:
    seen = snapshot({TRAINER: ENDED})
    assert seen.exporter is not None
    seen = replace(seen, exporter=replace(seen.exporter, runs={"demo": run}))
    known = state(make_config(folder, *WORKERS), snapshot=seen, actions=(last,) if last else ())
    workers = AnnouncedRuns(announced(**FAILED | changes))
    known = replace(known, setup=replace(known.setup, announced=workers))
    decision: Decision = decide(GONE, known, NOW)
    return decision.text, decision.detail


def test_a_second_restart_into_an_incomplete_checkpoint_is_refused(tmp_path: Path) -> None:
    found = "the newest checkpoint, checkpoint-40, is incomplete, and its load failed"
    assert decided(tmp_path) == ("refuse damaged_resume", f"{found}: {ERROR}; {WAY}")


def test_so_it_is_where_the_checkpoint_that_is_taken_is_damaged(tmp_path: Path) -> None:
    problem = "checkpoint-40: model.safetensors is cut (truncated)"
    run = replace(RUN, checkpoint=40, incomplete_step=None, resume_problem=problem)
    text, detail = decided(tmp_path, run)
    assert text == "refuse damaged_resume"
    assert detail == f"{problem}, and its load failed: {ERROR}; {WAY}"
    _, detail = decided(tmp_path, replace(run, proved_checkpoint=""))
    assert detail.endswith("no checkpoint is proved: `trainwarden checkpoints` lists them")


@pytest.mark.parametrize(
    ("run", "last", "changes"),
    [
        (RUN, None, {}),  # the framework may skip it: the first restart shows that
        (RUN, replace(LAST, healed=True), {}),
        (replace(RUN, last_step_at=NOW - 150), LAST, {}),
        (replace(RUN, checkpoint=50), LAST, {}),
        (replace(RUN, incomplete_step=None), LAST, {}),
        (RUN, LAST, {"last_lines": ("RuntimeError: loss diverged",)}),
        (RUN, LAST, {"last_lines": ()}),
    ],
)
def test_it_is_restarted_where_that_is_not_known(
    tmp_path: Path, run: RunState, last: Any, changes: dict[str, Any]
) -> None:
    assert decided(tmp_path, run, last, **changes)[0] == "act restart"


def test_what_the_decision_rests_on_is_read_off_the_exporter() -> None:
    page = PAGE + (
        'trainwarden_training_step{run="demo"} 45\n'
        'trainwarden_checkpoint_incomplete_step{run="demo",checkpoint="model"} 40\n'
        'trainwarden_checkpoint_incomplete_info{run="demo",checkpoint="model",name="c-40"} 1\n'
        'trainwarden_training_unended_info{run="demo",waits="it waits"} 1\n'
        'trainwarden_training_last_step_made{run="demo"} 1\n'
    )
    run = parse_exporter_page(page.encode()).runs["demo"]
    assert (run.incomplete_step, run.incomplete, run.unended) == (40, "c-40", "it waits")
    assert run.last_step_made
