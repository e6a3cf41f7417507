from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.remediator.conftest import GIB, NOW, ROLLOUT, make_worker

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_remediator.playbooks import Verify
from trainwarden_remediator.sight import RunSight, ServerSight, Sight
from trainwarden_remediator.verification import HOPELESS_SECONDS, Check

TRAINER = WorkerKey("demo", "trainer")
SERVES = Check(ROLLOUT, NOW, Verify(serves=True))
STEPS = Check(TRAINER, NOW, Verify(progress=True), checkpoint=1870)
ANSWERED = ServerSight(
    "sglang-0", "rollout-0", "inference", up=True, reason="ok", answered=True, asked_at=NOW + 40
)
RESUMED = RunSight(step=1871, last_step_at=NOW + 60, first_step=1871, resume_step=1870)


def sight(
    *servers: ServerSight, run: RunSight | None = None, started: float | None = NOW + 5
) -> Sight:
    workers = {ROLLOUT: make_worker(resident_bytes=GIB, started_at=started)}
    runs = {} if run is None else {"demo": run}
    return Sight(workers, 1, 1, servers={"demo": servers}, runs=runs)


@pytest.mark.parametrize(
    ("servers", "ill"),
    [
        ([ANSWERED], ""),
        ([ANSWERED, replace(ANSWERED, name="other", worker="elsewhere", up=False)], ""),
        ([], "the exporter shows no inference server of it"),
        ([replace(ANSWERED, up=False, reason="starting")], "sglang-0 is not up (starting)"),
        ([replace(ANSWERED, up=False, reason="")], "sglang-0 is not up (not said why)"),
        ([replace(ANSWERED, answered=False)], "sglang-0 has not answered with a token yet"),
        ([replace(ANSWERED, answered=None)], "sglang-0 has not answered with a token yet"),
        ([replace(ANSWERED, asked_at=None)], "sglang-0 has not answered with a token yet"),
        # somebody else got one out of it
        ([replace(ANSWERED, answered=False, worked_at=NOW + 6)], ""),
        (
            [replace(ANSWERED, asked_at=None, worked_at=NOW - 6)],
            "sglang-0 has not answered with a token yet",
        ),
        # nobody can ask it for one; then it has to be up for a while
        ([replace(ANSWERED, asked_at=None, answered=None, since=NOW + 15)], ""),
        (
            [replace(ANSWERED, asked_at=None, answered=None, since=NOW + 16)],
            "sglang-0 has not answered with a token yet",
        ),
        # what answered was the server before this one
        ([replace(ANSWERED, asked_at=NOW - 3)], "sglang-0 has not answered with a token yet"),
        ([replace(ANSWERED, asked_at=NOW + 5)], "sglang-0 has not answered with a token yet"),
        ([ANSWERED, replace(ANSWERED, name="b", up=False, reason="hung")], "b is not up (hung)"),
    ],
)
def test_a_server_serves_once_it_has_answered_with_a_token(
    servers: list[ServerSight], ill: str
) -> None:
    assert SERVES.illness(sight(*servers), NOW + 60) == ill


def test_where_its_start_is_not_shown_the_restart_itself_counts() -> None:
    assert SERVES.illness(sight(replace(ANSWERED, asked_at=NOW + 1), started=None), NOW) == ""
    assert SERVES.illness(sight(replace(ANSWERED, asked_at=NOW - 1), started=None), NOW) != ""


@pytest.mark.parametrize(
    ("run", "ill"),
    [
        (RESUMED, ""),
        (replace(RESUMED, last_step_at=NOW), "it has made no step yet"),
        (replace(RESUMED, last_step_at=None), "it has made no step yet"),
        (RunSight(finished=True), ""),
        (None, "the exporter does not show the run's progress"),
    ],
)
def test_a_run_has_resumed_once_it_has_made_a_step(run: RunSight | None, ill: str) -> None:
    assert STEPS.illness(sight(run=run), NOW) == ill


def test_a_token_that_could_not_be_asked_for_is_told() -> None:
    assert SERVES.remark(sight(ANSWERED)) == ""
    unasked = replace(ANSWERED, asked_at=None, answered=None)
    assert SERVES.remark(sight(unasked)) == "it could not be asked for a token"


def test_what_is_not_asked_for_is_not_looked_at() -> None:
    assert Check(ROLLOUT, NOW, Verify()).illness(sight(), NOW) == ""
    assert Check(ROLLOUT, NOW, Verify()).grant(sight(run=RunSight(stall_limit=900))) == 0
    assert Check(ROLLOUT, NOW, Verify()).remark(sight(run=RunSight())) == ""


def test_an_engine_is_given_the_time_it_takes_to_start_while_it_starts() -> None:
    starting = replace(ANSWERED, up=False, reason="starting", start_grace=600)
    assert SERVES.grant(sight(starting)) == 600
    assert SERVES.grant(sight(replace(starting, reason="refused"))) == 0
    assert SERVES.grant(sight(replace(starting, worker="elsewhere"))) == 0


def test_a_run_is_given_the_time_that_its_first_step_may_take() -> None:
    assert STEPS.grant(sight(run=RunSight(stall_limit=1800))) == 1800
    assert STEPS.grant(sight(run=replace(RESUMED, stall_limit=1800))) == 0
    assert STEPS.grant(sight()) == 0


@pytest.mark.parametrize(
    ("run", "remark"),
    [
        (RESUMED, ""),
        (replace(RESUMED, first_step=1870), "repeated 1 step: resumed with step 1870, not 1871"),
        (replace(RESUMED, first_step=1873), "skipped 2 steps: resumed with step 1873, not 1871"),
        (
            replace(RESUMED, resume_step=1860, first_step=1861),
            "resumed from step 1860, though step 1870 was saved",
        ),
        # it saved once more when it was told to end
        (replace(RESUMED, resume_step=1874, first_step=1875, checkpoint=1874), ""),
        (
            replace(RESUMED, resume_step=1874, first_step=1875),
            "skipped 4 steps: resumed with step 1875, not 1871",
        ),
        # and has saved again by now
        (replace(RESUMED, checkpoint=1871), ""),
        (replace(RESUMED, resume_step=None), ""),
        (
            replace(RESUMED, resume_step=None, first_step=1872),
            "skipped 1 step: resumed with step 1872, not 1871",
        ),
        (replace(RESUMED, first_step=None), "at which step it resumed is not known"),
        (RunSight(finished=True), ""),
    ],
)
def test_a_resume_that_repeats_or_skips_steps_is_told(run: RunSight, remark: str) -> None:
    assert STEPS.remark(sight(run=run)) == remark


@pytest.mark.parametrize(
    ("changes", "after", "lost"),
    [
        ({}, HOPELESS_SECONDS, True),
        ({}, HOPELESS_SECONDS - 1, False),
        ({"since": NOW + 10}, HOPELESS_SECONDS + 9, False),
        ({"since": NOW + 10}, HOPELESS_SECONDS + 10, True),
        ({"reason": "starting"}, 1000, False),
        ({"worker": "trainer"}, 1000, False),
        ({"worker": "elsewhere"}, 1000, False),
    ],
)
def test_a_first_step_is_not_waited_for_while_a_server_is_down_that_could_be_mended(
    changes: dict[str, Any], after: float, *, lost: bool
) -> None:
    down = replace(ANSWERED, up=False, reason="refused", since=NOW - 500)
    check = replace(STEPS, mendable=frozenset({ROLLOUT, TRAINER}))
    said = check.lost_cause(sight(replace(down, **changes)), NOW + after)
    assert said == ("its inference server sglang-0 is down (refused)" if lost else "")
    assert SERVES.lost_cause(sight(down), NOW + 1000) == ""
