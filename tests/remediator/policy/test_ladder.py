from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tests.remediator.samples import NOW, ROLLOUT

from trainwarden_remediator.config.playbooks import PLAYBOOKS, Rung, Verify
from trainwarden_remediator.model import PastAction
from trainwarden_remediator.policy.ladder import LadderPosition, find_position

FIRST, LAST_RESORT = Rung(), Rung(action="hold")
AGAIN = Rung(verify=Verify(timeout=600))
STUBBORN = Rung(tries=3)
FOR_PROGRESS = Rung(target="trainer", when="no_progress")
FOR_PROGRESS_TWICE = Rung(target="trainer", when="no_progress", tries=2)
HEALED_AT = NOW - 10


def in_follow_up(following: int | None, follow_up_rung: int | None) -> LadderPosition:
    return LadderPosition(
        following, in_follow_up=True, follow_up_rung=follow_up_rung, follow_up_since=HEALED_AT
    )


def done(*outcomes: str) -> list[PastAction]:
    """What became of each action: "0+" healed on the first rung, "1-" failed on the second."""
    return [
        PastAction(1, ROLLOUT, NOW - 20, HEALED_AT, healed=one.endswith("+"), rung=int(one[0]))
        for one in outcomes
    ]


@pytest.mark.parametrize(
    ("rungs", "outcomes", "expected"),
    [
        ([FIRST], [], LadderPosition(0)),
        ([FIRST], ["0-"], LadderPosition(None)),
        ([FIRST], ["0+"], LadderPosition(0)),
        ([FIRST, AGAIN], ["0-"], LadderPosition(1)),
        ([FIRST, AGAIN], ["0-", "1-"], LadderPosition(None)),
        ([FIRST, AGAIN, LAST_RESORT], ["0-", "1-"], LadderPosition(2)),
        ([FIRST, AGAIN], ["0-", "1+"], LadderPosition(0)),
        # the trouble came again after it had healed: from the beginning
        ([FIRST, AGAIN], ["0-", "1+", "0-"], LadderPosition(1)),
        ([FIRST, AGAIN], ["0+", "0+"], LadderPosition(0)),
        ([STUBBORN, AGAIN], ["0-"], LadderPosition(0)),
        ([STUBBORN, AGAIN], ["0-", "0-"], LadderPosition(0)),
        ([STUBBORN, AGAIN], ["0-", "0-", "0-"], LadderPosition(1)),
        ([STUBBORN, AGAIN], ["0-", "0-", "0+", "0-"], LadderPosition(0)),
        # what is there for a run that stands still is no answer to a server that stays down
        ([FIRST, FOR_PROGRESS], ["0-"], LadderPosition(None)),
        ([FIRST, FOR_PROGRESS, AGAIN], ["0-"], LadderPosition(2)),
        ([FIRST, FOR_PROGRESS], ["0+"], in_follow_up(0, 1)),
        ([FIRST, AGAIN, FOR_PROGRESS], ["0+"], in_follow_up(0, 2)),
        ([FIRST, AGAIN, FOR_PROGRESS], ["0-", "1+"], in_follow_up(0, 2)),
        # and after that, its own end is the end of what the run is looked after for
        ([FIRST, FOR_PROGRESS], ["0+", "1-"], in_follow_up(None, None)),
        ([FIRST, FOR_PROGRESS, AGAIN], ["0+", "1-"], in_follow_up(2, 2)),
        ([FIRST, FOR_PROGRESS_TWICE], ["0+", "1-"], in_follow_up(1, 1)),
        ([FIRST, FOR_PROGRESS], ["0+", "1+"], LadderPosition(0)),
        # of a ladder that was longer when it was begun
        ([FIRST], ["0-", "3-"], LadderPosition(None)),
        ([FIRST], ["3+"], LadderPosition(0)),
    ],
)
def test_tells_what_comes_next(
    rungs: Sequence[Rung], outcomes: Sequence[Any], expected: LadderPosition
) -> None:
    assert find_position(rungs, done(*outcomes)) == expected


def test_one_action_is_tried_for_as_long_as_its_budget_lasts() -> None:
    ladder = PLAYBOOKS["restart_leaking_worker"].ladder
    assert find_position(ladder, done(*["0-"] * 50)) == LadderPosition(0)
