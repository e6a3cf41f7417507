from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from trainwarden_exporter.processes.pid_counters import (
    PidsAllocated,
    possibly_reused,
    read_pids_allocated,
)

if TYPE_CHECKING:
    from pathlib import Path

CIRCLE = 32_768


def tell(root: Path, last: int, total: int) -> None:
    (root / "loadavg").write_text(f"0.1 0.2 0.3 1/200 {last}\n")
    (root / "stat").write_text(f"cpu 1 2\nbtime 3\nprocesses {total}\nsoftirq 4\n")


def test_a_kernel_that_never_gave_out_a_pid_does_not_count_them(tmp_path: Path) -> None:
    tell(tmp_path, 500, 10_000)
    assert read_pids_allocated(tmp_path) == PidsAllocated(500, 10_000)
    tell(tmp_path, 0, 0)
    assert read_pids_allocated(tmp_path) is None


@pytest.mark.parametrize(
    ("pid", "before", "now", "may"),
    [
        (100, (500, 1), (500, 1), False),
        (501, (500, 1), (510, 11), True),
        (510, (500, 1), (510, 11), True),
        (500, (500, 1), (510, 11), False),
        (511, (500, 1), (510, 11), False),
        # over the end of the circle
        (32_700, (32_600, 1), (400, 600), True),
        (350, (32_600, 1), (400, 600), True),
        (401, (32_600, 1), (400, 600), False),
        (32_600, (32_600, 1), (400, 600), False),
        # once round, or nearly so; or a count that went back
        (100, (500, 1), (510, 1 + CIRCLE), True),
        (100, (500, 1), (510, 1 + CIRCLE // 2), True),
        (100, (500, 9), (510, 1), True),
    ],
)
def test_a_pid_may_be_somebody_elses_if_the_kernel_has_come_by(
    pid: int, before: tuple[int, int], now: tuple[int, int], *, may: bool
) -> None:
    assert possibly_reused([pid], PidsAllocated(*before), PidsAllocated(*now), CIRCLE) == (
        {pid} if may else set()
    )


@pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc")
def test_on_this_machine_each_start_is_counted() -> None:
    before = read_pids_allocated()
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE):
        after = read_pids_allocated()
    assert before is not None
    assert after is not None
    assert after.total > before.total
