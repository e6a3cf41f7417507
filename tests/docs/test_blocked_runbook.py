"""The runbook of a blocked remediator tells of every reason that can keep an alert waiting."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from trainwarden_remediator.decision import AT_PEACE, GIVEN_UP, OVER, STUCK, Reason

PROJECT = Path(__file__).parents[2]
PAGE = PROJECT / "docs" / "runbooks" / "TrainingRemediationBlocked.md"
ACTS = {"restart", "clean", "hold", "notify"}
OTHERS = {
    "look",  # the world is asked, and then it is decided
    "no_remediation",  # closed at once
    "asked",  # a person was: that is what was to be done
}
WAITING = sorted({*get_args(Reason)} - AT_PEACE - STUCK - GIVEN_UP - OVER - ACTS - OTHERS)


@pytest.mark.parametrize("reason", WAITING)
def test_it_says_what_to_do_about(reason: str) -> None:
    diagnosis = PAGE.read_text(encoding="utf-8").partition("## Diagnosis")[2]
    assert reason in re.findall(r"`(\w+)`", diagnosis.partition("## Mitigation")[0])
