"""When evidence is taken without an action."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.remediator.samples import NOW, ROLLOUT, make_config, make_watched

from trainwarden_remediator.config.schema import Setup
from trainwarden_remediator.evidence.triggers import trigger_for_decision
from trainwarden_remediator.model import WORKER_GONE, Decision, Incident, PastAction, Verdict
from trainwarden_remediator.policy.context import PolicyState

GONE = Incident(1, "0" * 16, NOW, WORKER_GONE, *ROLLOUT, "start_missing_worker", NOW, False)
HELD = Decision(Verdict.WAIT, "held_by_alert", detail="TrainingWorkerRestartLoop")


@pytest.mark.parametrize("tried", [True, False])
def test_a_hold_after_restarts_is_evidence_of_how_the_last_one_ended(
    tmp_path: Path, *, tried: bool
) -> None:
    done = PastAction(1, ROLLOUT, NOW - 20, NOW - 10)
    setup = Setup(make_config(tmp_path), make_watched("demo/rollout-0"))
    state = PolicyState(setup, incidents=(GONE,), actions=(done,) if tried else ())
    found = trigger_for_decision(GONE, HELD, state)
    assert (found is not None) == tried
    assert found is None or (found.kind, found.key) == ("hold", ROLLOUT)


def test_what_may_not_be_restarted_is_evidence_of_how_it_ended(tmp_path: Path) -> None:
    state = PolicyState(Setup(make_config(tmp_path), make_watched("demo/rollout-0")))
    found = trigger_for_decision(GONE, Decision(Verdict.WAIT, "managed_elsewhere"), state)
    assert found is not None
    assert (found.kind, found.key) == ("hold", ROLLOUT)
