"""The whole storm of tests/remediator/api/test_storm.py: 10,000 alerts in one, 1,000 at once."""

from __future__ import annotations

import pytest
from tests.remediator.api.test_storm import weathered
from tests.remediator.engine.test_crash_recovery import Program

ALERTS = 10_000
DELIVERIES = 1_000


async def test_all_of_it_is_journaled_and_decided_and_the_budget_kept(
    program: Program, capsys: pytest.CaptureFixture[str]
) -> None:
    first, *rest = await weathered(program, ALERTS, DELIVERIES)
    late = sorted(answer.seconds for answer in rest)[len(rest) * 99 // 100 - 1]
    with capsys.disabled():
        print(  # noqa: T201 - how long it took decides nothing here
            f"\na delivery of {ALERTS:,} alerts and {DELIVERIES:,} of one at the same time: the "
            f"first answered after {first.seconds:.2f} s, 99 % of the others within {late:.2f} s"
        )
