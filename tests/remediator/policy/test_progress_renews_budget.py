"""A trainer whose steps advance is restarted again; a trainer without progress is given up."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.remediator.samples import (
    GIB,
    NOW,
    ROLLOUT,
    TRAINER,
    WORKERS,
    announced,
    make_setup,
    make_worker,
)

from trainwarden_exporter.processes.announcements import AnnouncedRuns
from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_remediator.alertmanager.api import AlertState
from trainwarden_remediator.model import Decision, Incident, PastAction, Verdict
from trainwarden_remediator.observation.model import ExporterState, RunState, WorkerState
from trainwarden_remediator.observation.snapshot import AlertmanagerState, Snapshot
from trainwarden_remediator.policy.context import PolicyState
from trainwarden_remediator.policy.decide import decide

GONE = make_worker(processes=0, started_at=None, memory_bytes=0.0)


def restarts(*steps: float | None, key: WorkerKey = TRAINER, last: float = 900) -> Any:
    """Healed restarts, ten minutes apart, at these steps; the last one `last` seconds ago."""
    first = NOW - last - 600 * (len(steps) - 1)
    return tuple(
        PastAction(
            *(1, key, first + 600 * index, first + 600 * index + 60),
            healed=True,
            step=step,
            result="done",
            result_at=first + 600 * index + 5,
        )
        for index, step in enumerate(steps)
    )


def decided(
    folder: Path,
    actions: tuple[PastAction, ...],
    run: RunState,
    *,
    key: WorkerKey = TRAINER,
    worker: WorkerState = GONE,
    snapshot: str | None = "taken",
    started: float = 0.0,
    **changes: Any,
) -> Decision:
    gone = worker.processes == 0
    remediation = "start_missing_worker" if gone else "restart_leaking_worker"
    incident = Incident(
        *(1, "f" * 16, NOW - 4000, "TrainingWorkerGone", key.run, key.worker, remediation, NOW),
        resolved=False,
        **changes,
    )
    shown = {ROLLOUT: make_worker(memory_bytes=GIB), key: worker}
    exporter = ExporterState(shown, 20 * GIB, 2 * GIB, runs={"demo": run})
    seen = Snapshot(AlertmanagerState({"f" * 16: AlertState.ACTIVE}), exporter)
    known = AnnouncedRuns(announced(announced_at=started) if started else {})
    state = PolicyState(
        *(replace(make_setup(folder, *WORKERS), announced=known), (), (incident,), actions),
        snapshot=seen if snapshot else None,
    )
    return decide(incident, state, NOW)


def test_three_restarts_that_each_helped_do_not_use_up_the_attempts(tmp_path: Path) -> None:
    decision = decided(tmp_path, restarts(100, 200, 300), RunState(step=400))
    assert (decision.verdict, decision.reason) == (Verdict.ACT, "restart")


@pytest.mark.parametrize("now", [300, 250, None])
def test_restarts_without_a_later_step_do(tmp_path: Path, now: float | None) -> None:
    decision = decided(tmp_path, restarts(300, 300, 300), RunState(step=now))
    assert (decision.reason, decision.detail) == ("attempts_exhausted", "")


@pytest.mark.parametrize(
    ("started", "reason"),
    [(NOW - 3000, "attempts_exhausted"), (NOW - 1200, "restart"), (0.0, "restart")],
)
def test_a_far_lower_step_is_another_run_unless_no_operator_has_started_it_since(
    tmp_path: Path, started: float, reason: str
) -> None:
    decision = decided(tmp_path, restarts(40, 12, 40), RunState(step=40), started=started)
    assert decision.reason == reason
    decision = decided(tmp_path, restarts(40, 40, 12), RunState(step=12), started=started)
    assert decision.reason == reason


def test_only_the_restarts_since_the_last_progress_count(tmp_path: Path) -> None:
    run = RunState(step=300)
    decision = decided(tmp_path, restarts(100, 300, 300, last=600), run)
    assert decision.reason == "restart"


@pytest.mark.parametrize("steps", [(300, 298, 299), (300, 290, 297)])
def test_a_trainer_that_fails_each_time_before_its_highest_step_uses_up_its_attempts(
    tmp_path: Path, steps: tuple[float, ...]
) -> None:
    """It resumes from a checkpoint that is older than its fault, and makes the same steps again."""
    decision = decided(tmp_path, restarts(*steps), RunState(step=300))
    assert decision.reason == "attempts_exhausted"


def test_another_run_of_the_same_name_need_not_exceed_the_step_of_the_one_before(
    tmp_path: Path,
) -> None:
    decision = decided(tmp_path, restarts(4000, 100, 200), RunState(step=300))
    assert decision.reason == "restart"


def test_a_newer_checkpoint_is_progress_too(tmp_path: Path) -> None:
    past = tuple(
        PastAction(*(1, TRAINER, NOW - ago, NOW - ago + 60), checkpoint=100)
        for ago in (2500, 1800, 900)
    )
    assert decided(tmp_path, past, RunState(checkpoint=200)).reason == "restart"
    assert decided(tmp_path, past, RunState(checkpoint=100)).reason == "attempts_exhausted"


def test_another_worker_beside_an_advancing_trainer_still_uses_up_its_attempts(
    tmp_path: Path,
) -> None:
    past = restarts(100, 200, 300, key=ROLLOUT)
    decision = decided(tmp_path, past, RunState(step=400), key=ROLLOUT)
    assert decision.reason == "attempts_exhausted"


def test_the_cooldown_lasts_also_where_progress_has_renewed_the_attempts(tmp_path: Path) -> None:
    decision = decided(tmp_path, restarts(100, 200, 300, last=60), RunState(step=400))
    assert decision.reason in ("cooldown", "alert_lingers")


@pytest.mark.parametrize(
    ("ago", "until"),
    [(20, "until 08:01:40 UTC"), (-17 * 3600, "until 2027-01-16 01:02:00 UTC")],
)
def test_a_cooldown_names_its_end_and_the_day_unless_that_is_today(
    tmp_path: Path, ago: float, until: str
) -> None:
    act = PastAction(*(1, TRAINER, NOW - 61, NOW - 1), result="done", result_at=NOW - ago)
    decision = decided(tmp_path, (act,), RunState(step=5))
    assert (decision.reason, decision.detail) == ("cooldown", f"{until}, then attempt 2 of 3")


RENEWED = ", then attempt 1 of 3, as new steps have renewed the attempts"
LEAKS = make_worker(memory_bytes=3 * GIB, memory_limit_bytes=2 * GIB)


@pytest.mark.parametrize(
    ("step", "worker", "announced"),
    [
        (5, GONE, ", then attempt 2 of 3"),
        (6, GONE, RENEWED),
        (6, LEAKS, RENEWED),  # the restart has helped: it does not count
        (5, LEAKS, ""),  # it may advance until then
        (None, GONE, ", then attempt 2 of 3"),
    ],
)
def test_a_cooldown_announces_the_attempt_that_the_action_will_be(
    tmp_path: Path, step: float | None, worker: WorkerState, announced: str
) -> None:
    act = PastAction(
        *(2, TRAINER, NOW - 60, NOW - 40), step=5, healed=True, result="done", result_at=NOW - 50
    )
    run = RunState(step=step)
    unseen = decided(tmp_path, (act,), run, worker=worker, snapshot=None)
    assert (unseen.reason, unseen.detail) == ("cooldown", "until 08:01:10 UTC")
    decision = decided(tmp_path, (act,), run, worker=worker)
    assert (decision.reason, decision.detail) == ("cooldown", f"until 08:01:10 UTC{announced}")
    after = replace(act, intent_at=NOW - 160, ended_at=NOW - 140, result_at=NOW - 150)
    action = decided(tmp_path, (after,), run, worker=worker)
    assert (action.verdict, action.attempt) == (Verdict.ACT, 1 if step == 6 else 2)


def test_the_cooldown_counts_from_the_act(tmp_path: Path) -> None:
    act = PastAction(*(1, TRAINER, NOW - 126, NOW - 1), step=5, result="done", result_at=NOW - 121)
    assert decided(tmp_path, (act,), RunState(step=5)).reason == "restart"


# a run that saves all the time

LEAKING = make_worker()
SAVES_OFTEN = RunState(step=5, saving=True, saving_since=NOW - 12, save_seconds=2, stall_limit=600)


def waiting(seconds: float) -> dict[str, Any]:
    return {"last_decision": "wait saving", "last_decided_at": NOW - seconds}


def test_a_run_that_always_seems_to_be_saving_is_restarted_between_two_saves(
    tmp_path: Path,
) -> None:
    decision = decided(tmp_path, (), SAVES_OFTEN, worker=LEAKING, **waiting(30))
    assert decision.reason == "restart"


def test_saves_that_follow_each_other_for_a_minute_are_not_waited_for(tmp_path: Path) -> None:
    """The save at the decision is long complete, and the action itself looks for open files."""
    run = RunState(step=5, saving=True, saving_since=NOW - 2, save_seconds=2, stall_limit=600)
    assert decided(tmp_path, (), run, worker=LEAKING, **waiting(70)).reason == "restart"


@pytest.mark.parametrize(
    ("run", "waited"),
    [
        # the first save that was waited for
        (SAVES_OFTEN, 10),
        (RunState(step=5, saving=True, saving_since=None), 30),
        # the next save may still be writing
        (RunState(step=5, saving=True, saving_since=NOW - 12, save_seconds=4), 30),
        # a long save
        (RunState(step=5, saving=True, saving_since=NOW - 90, save_seconds=4), 70),
    ],
)
def test_a_save_that_may_be_writing_is_waited_for(
    tmp_path: Path, run: RunState, waited: float
) -> None:
    assert decided(tmp_path, (), run, worker=LEAKING, **waiting(waited)).reason == "saving"
