from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.remediator.samples import GIB, NOW, ROLLOUT, make_worker

from trainwarden_exporter.inference.engines import ENGINES
from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_remediator.config.playbooks import Verify
from trainwarden_remediator.observation.model import ExporterState, RunState, ServerState
from trainwarden_remediator.policy.effect import HOPELESS_SECONDS, NOT_PROBED, EffectCheck

TRAINER = WorkerKey("demo", "trainer")
SERVES = EffectCheck(ROLLOUT, NOW, Verify(serves=True))
STEPS = EffectCheck(TRAINER, NOW, Verify(progress=True), checkpoint=1870, step=1883)
ANSWERED = ServerState(
    "sglang-0", "rollout-0", "inference", up=True, reason="ok", answered=True, asked_at=NOW + 40
)
RESUMED = RunState(
    step=1871, last_step_at=NOW + 60, first_step=1871, resume_step=1870, step_spacing=1
)


def exporter(
    *servers: ServerState, run: RunState | None = None, started: float | None = NOW + 5
) -> ExporterState:
    workers = {ROLLOUT: make_worker(memory_bytes=GIB, started_at=started)}
    runs = {} if run is None else {"demo": run}
    return ExporterState(workers, 1, 1, servers={"demo": servers}, runs=runs)


@pytest.mark.parametrize(
    ("servers", "ill"),
    [
        ([ANSWERED], ""),
        ([ANSWERED, replace(ANSWERED, name="other", worker="elsewhere", up=False)], ""),
        ([], "the exporter shows no inference server for it"),
        ([replace(ANSWERED, up=False, reason="starting")], "sglang-0 is not up (starting)"),
        ([replace(ANSWERED, up=False, reason="")], "sglang-0 is not up (no reason given)"),
        ([replace(ANSWERED, answered=False)], "sglang-0 has not completed a token yet"),
        ([replace(ANSWERED, answered=None)], "sglang-0 has not completed a token yet"),
        ([replace(ANSWERED, asked_at=None)], "sglang-0 has not completed a token yet"),
        # somebody else got one out of it
        ([replace(ANSWERED, answered=False, worked_at=NOW + 6)], ""),
        (
            [replace(ANSWERED, asked_at=None, worked_at=NOW - 6)],
            "sglang-0 has not completed a token yet",
        ),
        # nobody can ask it for one; then it has to be up for a while
        ([replace(ANSWERED, asked_at=None, answered=None, since=NOW + 15)], ""),
        (
            [replace(ANSWERED, asked_at=None, answered=None, since=NOW + 16)],
            "sglang-0 has not completed a token yet",
        ),
        # what answered was the server before this one
        ([replace(ANSWERED, asked_at=NOW - 3)], "sglang-0 has not completed a token yet"),
        ([replace(ANSWERED, asked_at=NOW + 5)], "sglang-0 has not completed a token yet"),
        ([ANSWERED, replace(ANSWERED, name="b", up=False, reason="hung")], "b is not up (hung)"),
    ],
)
def test_a_server_serves_once_it_has_answered_with_a_token(
    servers: list[ServerState], ill: str
) -> None:
    assert SERVES.health_problem(exporter(*servers), NOW + 60) == ill


def test_where_its_start_is_not_shown_the_restart_itself_counts() -> None:
    assert (
        SERVES.health_problem(exporter(replace(ANSWERED, asked_at=NOW + 1), started=None), NOW)
        == ""
    )
    assert (
        SERVES.health_problem(exporter(replace(ANSWERED, asked_at=NOW - 1), started=None), NOW)
        != ""
    )


@pytest.mark.parametrize(
    ("run", "ill"),
    [
        (RESUMED, ""),
        (replace(RESUMED, last_step_at=NOW), "it has not made a step yet"),
        (replace(RESUMED, last_step_at=None), "it has not made a step yet"),
        (RunState(finished=True), ""),
        (RunState(last_step_made=True), ""),
        (None, "the exporter does not show the run's progress"),
    ],
)
def test_a_run_has_resumed_once_it_has_made_a_step(run: RunState | None, ill: str) -> None:
    assert STEPS.health_problem(exporter(run=run), NOW) == ill


@pytest.mark.parametrize(
    ("run", "ill"),
    [
        (RunState(phase="training", progress_at=NOW + 60), ""),
        (RunState(phase="starting", progress_at=NOW + 60), "it has not made a step yet"),
        (RunState(phase="training", progress_at=NOW - 1), "it has not made a step yet"),
        (RunState(phase="training", progress_at=NOW + 60, step=7), "it has not made a step yet"),
    ],
)
def test_a_search_without_steps_is_healed_once_a_trial_has_ended(run: RunState, ill: str) -> None:
    check = EffectCheck(ROLLOUT, NOW, Verify(), trainer=True)
    assert check.health_problem(exporter(run=run), NOW) == ill


@pytest.mark.parametrize("run", [None, RunState()])
def test_a_trainer_has_not_resumed_while_its_progress_is_not_shown(run: RunState | None) -> None:
    check = EffectCheck(ROLLOUT, NOW, Verify(), trainer=True, step=1900)
    assert check.health_problem(exporter(run=run), NOW) != ""
    never_seen = replace(check, step=None)
    assert never_seen.health_problem(exporter(run=run), NOW) == ""


def test_a_token_that_could_not_be_asked_for_is_reported() -> None:
    assert SERVES.remark(exporter(ANSWERED)) == ""
    unasked = replace(ANSWERED, asked_at=None, answered=None)
    asked = "no token was requested from server sglang-0, so it may answer and not work"
    why = "`deep_probe` of exporter.yml is off for it, or no model of it is known"
    assert SERVES.remark(exporter(unasked)) == f"{asked}: {why}"
    option = "`deep_probe: {enabled: true, path: …}`"
    why = f"its engine generic is asked for one only with {option} in an exporter.yml"
    assert SERVES.remark(exporter(replace(unasked, engine="generic"))) == f"{asked}: {why}"
    assert {one.name for one in ENGINES if not one.probes_completions} == set(NOT_PROBED)


def test_what_is_not_asked_for_is_not_looked_at() -> None:
    assert EffectCheck(ROLLOUT, NOW, Verify()).health_problem(exporter(), NOW) == ""
    assert (
        EffectCheck(ROLLOUT, NOW, Verify()).extra_seconds(exporter(run=RunState(stall_limit=900)))
        == 0
    )
    assert EffectCheck(ROLLOUT, NOW, Verify()).remark(exporter(run=RunState())) == ""


def test_an_engine_is_given_the_time_it_takes_to_start_while_it_starts() -> None:
    starting = replace(ANSWERED, up=False, reason="starting", start_grace=600)
    assert SERVES.extra_seconds(exporter(starting)) == 600
    assert SERVES.extra_seconds(exporter(replace(starting, reason="refused"))) == 0
    assert SERVES.extra_seconds(exporter(replace(starting, worker="elsewhere"))) == 0


def test_a_run_is_given_the_time_that_its_first_step_may_take() -> None:
    assert STEPS.extra_seconds(exporter(run=RunState(stall_limit=1800))) == 1800
    assert STEPS.extra_seconds(exporter(run=replace(RESUMED, stall_limit=1800))) == 0
    assert STEPS.extra_seconds(exporter()) == 0


@pytest.mark.parametrize(
    ("resumed", "first", "spacing"),
    [
        (100, 110, 10),
        (105, 111, 10),  # the same, from step 1
        (390, 490, 100),  # of the steps since the resume, while those before were multiples of 100
        (100, 105, None),
    ],
)
@pytest.mark.parametrize("announced", [True, False])
def test_steps_that_are_not_logged_were_not_skipped(
    resumed: float, first: float, spacing: float | None, *, announced: bool
) -> None:
    check = EffectCheck(TRAINER, NOW, Verify(progress=True), checkpoint=resumed, step=400)
    run = replace(RESUMED, first_step=first, step_spacing=spacing)
    run = replace(run, resume_step=resumed if announced else None)
    assert check.remark(exporter(run=run)) == ""


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
        # it saved once more on the request to end
        (replace(RESUMED, resume_step=1874, first_step=1875, checkpoint=1874), ""),
        # a checkpoint is not known to be complete before it is unchanged for a while
        (replace(RESUMED, resume_step=1874, first_step=1875), ""),
        (
            replace(RESUMED, resume_step=1874, first_step=1877),
            "skipped 2 steps: resumed with step 1877, not 1875",
        ),
        # and has saved again by now
        (replace(RESUMED, checkpoint=1871), ""),
        (replace(RESUMED, resume_step=None), ""),
        (
            replace(RESUMED, resume_step=None, first_step=1872),
            "skipped 1 step: resumed with step 1872, not 1871",
        ),
        (replace(RESUMED, first_step=None), "the step at which it resumed is unknown"),
        (replace(RESUMED, first_step=None, last_step_made=True), ""),  # it had none left to make
        (RunState(finished=True), ""),
    ],
)
def test_a_resume_that_repeats_or_skips_steps_is_reported(run: RunState, remark: str) -> None:
    assert STEPS.remark(exporter(run=run)) == remark


@pytest.mark.parametrize(
    ("step", "resumed", "first", "remark"),
    [
        (360, 0, 1, "resumed from step 0, though epoch 7 was saved"),
        (360, 300, 301, ""),
        (360, 5, 6, ""),
        (360, None, 301, "the step at which it resumed is unknown"),
        (None, 5, 6, ""),
        (8, 5, 6, "resumed from step 5, though step 7 was saved"),  # its steps are its epochs
    ],
)
def test_a_checkpoint_that_is_numbered_by_epoch_is_not_compared_with_steps(
    step: float | None, resumed: float | None, first: float, remark: str
) -> None:
    check = replace(STEPS, step=step, checkpoint=7, proved=7)
    run = replace(RESUMED, resume_step=resumed, first_step=first, proved_checkpoint="/r/epoch-7.pt")
    assert check.remark(exporter(run=run)) == remark


@pytest.mark.parametrize(
    ("proved", "resumed", "remark"),
    [
        (1800, 1800, ""),  # past a damaged one of step 1870
        (1800, 1870, ""),  # which was only not read yet
        (1870, 1800, "resumed from step 1800, though step 1870 was saved"),
        (1800, 1700, "resumed from step 1700, though step 1800 was saved"),
        (None, 1800, "resumed from step 1800, though step 1870 was saved"),
    ],
)
def test_a_resume_from_the_newest_proved_checkpoint_is_right(
    proved: float | None, resumed: float, remark: str
) -> None:
    check = replace(STEPS, proved=proved)
    run = replace(RESUMED, resume_step=resumed, first_step=resumed + 1)
    assert check.remark(exporter(run=run)) == remark
    if not remark:
        assert check.remark(exporter(run=replace(run, resume_step=None))) == ""


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
    check = replace(STEPS, restartable=frozenset({ROLLOUT, TRAINER}))
    message = check.hopeless_reason(exporter(replace(down, **changes)), NOW + after)
    assert message == ("its inference server sglang-0 is down (refused)" if lost else "")
    assert SERVES.hopeless_reason(exporter(down), NOW + 1000) == ""
