"""Memory is short, and the worker that holds it may not be restarted: the others are spared."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.remediator.policy.test_decide import (
    HOLDING,
    OTHER,
    RELIEF,
    TRAINER,
    ago,
    crowd,
    snapshot,
    state,
)
from tests.remediator.samples import GIB, NOW, ROLLOUT, WORKERS, make_config

from trainwarden_remediator.alertmanager.api import AlertState
from trainwarden_remediator.holds.hold_file import Hold
from trainwarden_remediator.model import Decision, Verdict
from trainwarden_remediator.observation.snapshot import FAILSAFE_FINGERPRINT, AlertmanagerState
from trainwarden_remediator.policy.decide import decide

HELD = Hold(run="demo", worker="trainer", who="ann")
LEAK = {"trainer": 40.0, "rollout": 0.3, "other": 0.2}


def decided(
    folder: Path,
    *workers: str,
    sizes: dict[str, float] = LEAK,
    available: float = GIB,
    alert: AlertState | None = AlertState.ACTIVE,
    mode: str = "act",
    **changes: Any,
) -> Decision:
    config = make_config(folder, *(workers or WORKERS), mode=mode)
    seen = snapshot(crowd(**sizes), available=available, alert=alert)
    return decide(RELIEF, state(config, **{"snapshot": seen, **changes}), NOW)


def test_small_workers_are_not_restarted_in_place_of_a_held_one(tmp_path: Path) -> None:
    decision = decided(tmp_path, holds=(HELD,))
    assert decision.text == "refuse largest_left_alone"
    assert decision.detail == (
        "demo/trainer holds 40.0 GiB and is left alone: held by ann; demo/rollout-0, the largest"
        " worker that may be restarted, holds 307 MiB"
    )
    assert not decision.final


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"incidents": (RELIEF, replace(HOLDING, worker="trainer"))}, "TrainingWorkerRestartLoop"),
        ({"actions": tuple(ago(n, TRAINER) for n in (3000, 2000, 1000))}, "no attempts left"),
    ],
)
def test_what_keeps_it_from_a_restart_is_named(
    tmp_path: Path, changes: dict[str, Any], why: str
) -> None:
    decision = decided(tmp_path, **changes)
    assert decision.reason == "largest_left_alone"
    assert why in decision.detail


def test_a_worker_that_is_no_target_is_named_too(tmp_path: Path) -> None:
    decision = decided(tmp_path, "demo/rollout-0", "second/trainer")
    assert decision.detail.startswith("demo/trainer holds 40.0 GiB and is left alone: no target")


def test_without_any_other_worker_the_largest_one_is_named(tmp_path: Path) -> None:
    everything = tuple(Hold(run=key.run, worker=key.worker) for key in (TRAINER, ROLLOUT, OTHER))
    decision = decided(tmp_path, holds=everything)
    assert decision.text == "refuse largest_left_alone"
    assert decision.detail == "demo/trainer holds 40.0 GiB and is left alone: held by an operator"


@pytest.mark.parametrize(
    ("rollout", "reason"),
    [
        (20.0, "restart"),  # half of the largest one
        (2.0, "restart"),  # what is missing to the floor, and half of the floor
        (1.9, "largest_left_alone"),
    ],
)
def test_another_worker_is_restarted_if_that_matters(
    tmp_path: Path, rollout: float, reason: str
) -> None:
    decision = decided(tmp_path, sizes={**LEAK, "rollout": rollout}, holds=(HELD,))
    assert decision.reason == reason


def test_a_worker_in_its_cooldown_has_no_other_restarted_in_its_place(tmp_path: Path) -> None:
    decision = decided(tmp_path, actions=(ago(60, TRAINER),))
    assert (decision.reason, decision.target and decision.target.key) == ("cooldown", TRAINER)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"alert": AlertState.SILENCED}, "wait silenced"),
        ({"alert": None}, "wait not_active"),
        ({"available": 3 * GIB}, "wait condition_cleared"),
        ({"mode": "observe"}, "wait observe_mode"),
        ({"holds": (Hold(),)}, "wait held"),
    ],
)
def test_nobody_is_called_without_a_reason(
    tmp_path: Path, changes: dict[str, Any], text: str
) -> None:
    assert decided(tmp_path, **{"holds": (HELD,), **changes}).text == text


def test_nobody_is_called_without_word_of_alertmanager(tmp_path: Path) -> None:
    seen = replace(snapshot(crowd(**LEAK), available=GIB), alerts=None, unknown="refused")
    decision = decided(tmp_path, holds=(HELD,), snapshot=seen)
    assert (decision.text, decision.detail) == ("wait observation_failed", "refused")


def test_the_failsafe_spares_them_too(tmp_path: Path) -> None:
    local = snapshot(crowd(**LEAK), available=GIB)
    local = replace(local, alerts=AlertmanagerState({FAILSAFE_FINGERPRINT: AlertState.ACTIVE}))
    blind = replace(local, alerts=None, exporter=None, failsafe=local)
    about = replace(RELIEF, fingerprint=FAILSAFE_FINGERPRINT)
    config = make_config(tmp_path, *WORKERS)
    known = state(config, incidents=(about,), snapshot=blind, holds=(HELD,))
    assert decide(about, known, NOW) == Decision(
        Verdict.REFUSE, "largest_left_alone", detail=decided(tmp_path, holds=(HELD,)).detail
    )
