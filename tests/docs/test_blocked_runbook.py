"""The runbooks of the remediator cover every reason for which it does not act."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from trainwarden_remediator.model import CLOSED, GIVEN_UP, NEEDS_OPERATOR, NO_ACTION_NEEDED, Reason

PROJECT = Path(__file__).parents[2]
RUNBOOKS = PROJECT / "docs" / "runbooks"
PAGE = RUNBOOKS / "TrainingRemediationBlocked.md"
ACTS = {"restart", "clean", "hold", "notify"}
OTHERS = {
    "needs_observation",  # leads to an observation, then to another decision
    "no_remediation",  # closed at once
    "awaiting_operator",  # on-call was paged, which was the action
    "stall_lasts",  # its alert has ended: no alert waits
}
WAITING = sorted(
    {*get_args(Reason)} - NO_ACTION_NEEDED - NEEDS_OPERATOR - GIVEN_UP - CLOSED - ACTS - OTHERS
)


@pytest.mark.parametrize("reason", WAITING)
def test_it_says_what_to_do_about(reason: str) -> None:
    diagnosis = PAGE.read_text(encoding="utf-8").partition("## Diagnosis")[2]
    assert reason in re.findall(r"`(\w+)`", diagnosis.partition("## Mitigation")[0])


@pytest.mark.parametrize("reason", sorted(NEEDS_OPERATOR))
def test_the_runbook_of_a_give_up_names_each_refusal(reason: str) -> None:
    page = (RUNBOOKS / "TrainingRemediationGaveUp.md").read_text(encoding="utf-8")
    meaning = page.partition("## Meaning")[2].partition("##")[0]
    assert reason in re.findall(r"`(\w+)`", meaning)
