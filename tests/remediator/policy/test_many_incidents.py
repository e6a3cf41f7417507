"""Deciding each of thousands of incidents does not read all the others again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.remediator.policy.test_decide import WORKERS, incident, state
from tests.remediator.samples import NOW, ROLLOUT, make_config

from trainwarden_remediator.model import Incident, PastAction
from trainwarden_remediator.policy.decide import decide

MANY = 100
QUESTIONS = 10
"""More than the questions of a decision that all incidents answer."""


class Counted(list[Incident]):
    """Incidents that count how often all of them are read."""

    reads = 0

    def __iter__(self) -> Iterator[Incident]:
        self.reads += 1
        return super().__iter__()


@pytest.mark.parametrize(
    ("playbook", "healed"),
    [
        ("restart_leaking_worker", False),
        ("restart_inference", True),
    ],
)
def test_all_incidents_are_read_a_few_times_for_all_decisions(
    tmp_path: Path, playbook: str, *, healed: bool
) -> None:
    numbers = range(10, 10 + MANY)
    many = Counted(incident(id=number, remediation=playbook) for number in numbers)
    actions = [PastAction(number, ROLLOUT, NOW - 9, NOW - 1, healed=True) for number in numbers]
    known = state(
        make_config(tmp_path, *WORKERS), incidents=many, actions=actions if healed else []
    )
    many.reads = 0
    for one in list(many):
        decide(one, known, NOW)
    assert many.reads <= QUESTIONS
