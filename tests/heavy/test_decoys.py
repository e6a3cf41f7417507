"""A thousand restarts beside decoys that start and end between scrape, decision and act.

And a thousand beside shells whose own copy of the worker has started or ended.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.remediator.decoys import restart_beside_decoys

RESTARTS = 1000
IN_A_ROW = 250


@pytest.mark.parametrize("shells", [False, True])
@pytest.mark.parametrize("seed", range(RESTARTS // IN_A_ROW))
def test_no_wrong_process_is_ended_in_a_thousand_restarts(
    tmp_path: Path, seed: int, *, shells: bool
) -> None:
    chance = random.Random(seed)  # noqa: S311 - repeatable
    tally = restart_beside_decoys(tmp_path, IN_A_ROW, chance, shells=shells)
    assert tally.wrongly_ended == []
    assert tally.restarts == IN_A_ROW
    assert tally.refused > 0
    assert tally.decoys > IN_A_ROW / 10
