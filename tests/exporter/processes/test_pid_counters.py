from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from trainwarden_exporter.processes.pid_counters import (
    PidsAllocated,
    count_non_process_links,
    is_initial_pid_namespace,
    possibly_reused,
    read_link_count,
    read_pids_allocated,
    read_process_count,
)
from trainwarden_exporter.processes.procfs import list_pids

if TYPE_CHECKING:
    from pathlib import Path

CIRCLE = 32_768


def tell(root: Path, last: int, total: int) -> None:
    (root / "loadavg").write_text(f"0.1 0.2 0.3 1/200 {last}\n")
    (root / "stat").write_text(f"cpu 1 2\nbtime 3\nprocesses {total}\nsoftirq 4\n")


def test_a_kernel_that_never_gave_out_a_pid_does_not_count_them(tmp_path: Path) -> None:
    tell(tmp_path, 500, 10_000)
    assert read_pids_allocated(tmp_path) == PidsAllocated(500, 10_000)
    assert read_process_count(tmp_path) is not None
    tell(tmp_path, 0, 0)
    assert read_pids_allocated(tmp_path) is None
    assert read_process_count(tmp_path) is None


def test_an_empty_folder_counts_no_processes(tmp_path: Path) -> None:
    assert read_link_count(tmp_path / "none") is None
    assert count_non_process_links(tmp_path / "none") == 0


def test_other_folders_are_distinguished_from_processes_and_links(tmp_path: Path) -> None:
    for name in ("1", "27", "sys", "irq"):
        (tmp_path / name).mkdir()
    (tmp_path / "net").symlink_to("1")
    (tmp_path / "stat").touch()
    assert count_non_process_links(tmp_path) == 4


def test_the_namespace_of_a_made_up_machine_is_not_ours(tmp_path: Path) -> None:
    (tmp_path / "self").symlink_to(str(os.getpid()))
    (tmp_path / str(os.getpid()) / "ns").mkdir(parents=True)
    (tmp_path / "self/ns/pid").symlink_to("pid:[4026531836]")
    assert not is_initial_pid_namespace(tmp_path)


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
def test_on_this_machine_the_census_counts_who_comes_and_who_goes() -> None:
    before = read_process_count()
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE):
        after = read_process_count()
    assert before is not None
    assert after is not None
    assert after.allocated.total > before.allocated.total
    assert after.processes >= len(list_pids())


@pytest.mark.skipif(not is_initial_pid_namespace(), reason="a container, or no Linux")
def test_on_this_machine_there_are_links_of_no_process_and_of_each_process() -> None:
    for _ in range(100):
        before, links, pids = read_pids_allocated(), read_link_count(), len(list_pids())
        if before == read_pids_allocated() and links == read_link_count():
            assert links == count_non_process_links() + pids
            return
    pytest.skip("never was it quiet")
