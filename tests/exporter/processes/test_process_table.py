from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from trainwarden_exporter.exceptions import CollectError
from trainwarden_exporter.processes.pid_counters import read_pids_allocated
from trainwarden_exporter.processes.process_table import REREAD_SECONDS, ProcessTable
from trainwarden_exporter.processes.procfs import Process, list_pids, read_process, read_processes
from trainwarden_exporter.processes.start_times import boot_seconds

if TYPE_CHECKING:
    from pathlib import Path

    from tests.exporter.conftest import FakeProc

CIRCLE = 32_768
BOOTED = 1000.0  # seconds ago


class Clock:
    now = 50.0

    def __call__(self) -> float:
        return self.now


def wait_until(pid: int, name: str) -> None:
    """Until that program sleeps there."""
    deadline = time.monotonic() + 60
    while (one := read_process(pid)) is None or (one.name, one.state) != (name, "S"):
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Stage:
    """A table of a made up machine that says how far it has come in giving out pids."""

    def __init__(self, proc: FakeProc) -> None:
        self.proc = proc
        self.clock = Clock()
        (proc.root / "self").symlink_to(str(os.getpid()))
        (proc.root / "sys/kernel").mkdir(parents=True)
        (proc.root / "sys/kernel/pid_max").write_text(f"{CIRCLE}\n")
        self.give_out(500, 10_000)
        self.table = ProcessTable(proc.root, clock=self.clock, since_boot=lambda: BOOTED)

    def give_out(self, last: int, total: int) -> None:
        (self.proc.root / "loadavg").write_text(f"0.1 0.2 0.3 1/200 {last}\n")
        (self.proc.root / "stat").write_text(f"cpu 1 2\nbtime 3\nprocesses {total}\nsoftirq 4\n")

    def states(self, *refresh: int) -> dict[int, str]:
        return {pid: one.state for pid, one in self.table.read(refresh).items()}


@pytest.fixture
def stage(proc: FakeProc) -> Stage:
    return Stage(proc)


def test_what_is_of_interest_is_read_each_time_and_the_rest_is_remembered(stage: Stage) -> None:
    stage.proc.add(10, state="S")
    stage.proc.add(11, state="S")
    assert stage.states() == {10: "S", 11: "S"}
    stage.proc.add(10, state="D")
    stage.proc.add(11, state="D")
    assert stage.states(10) == {10: "D", 11: "S"}


def test_what_was_not_read_again_is_the_same_object(stage: Stage) -> None:
    stage.proc.add(10)
    stage.proc.add(11)
    before = stage.table.read()
    after = stage.table.read([10])
    assert after[11] is before[11]
    assert after[10] is not before[10]


def test_a_process_that_is_no_longer_young_is_remembered_like_all_others(proc: FakeProc) -> None:
    booted = [BOOTED]
    stage = Stage(proc)
    table = ProcessTable(proc.root, clock=stage.clock, since_boot=lambda: booted[0])
    proc.add(10, start=int(BOOTED - 5) * 100, state="S")
    table.read()
    booted[0] += 60
    proc.add(10, start=int(BOOTED - 5) * 100, state="D")
    assert table.read()[10].state == "D", "it was young when it was last read"
    proc.add(10, start=int(BOOTED - 5) * 100, state="R")
    assert table.read()[10].state == "D"


def test_all_is_read_again_in_time(stage: Stage) -> None:
    for pid in range(10, 40):
        stage.proc.add(pid, state="S")
    stage.states()
    for pid in range(10, 40):
        stage.proc.add(pid, state="D")
    stage.clock.now += REREAD_SECONDS * 0.75
    some = list(stage.states().values())
    assert {"S", "D"} == set(some), "not all of a moment at once"
    stage.clock.now += REREAD_SECONDS
    assert set(stage.states().values()) == {"D"}


def test_who_comes_and_goes_is_seen_at_once(stage: Stage) -> None:
    stage.proc.add(10)
    stage.states()
    stage.proc.add(600)
    stage.proc.remove(10)
    stage.give_out(600, 10_100)
    assert stage.states() == {600: "S"}


def test_a_young_process_is_read_each_time(stage: Stage) -> None:
    stage.proc.add(10, start=int(BOOTED - 5) * 100)
    stage.states()
    stage.proc.add(10, start=int(BOOTED - 5) * 100, name="exec")
    assert stage.table.read()[10].name == "exec"


def test_what_the_kernel_runs_itself_is_read_once(stage: Stage) -> None:
    stage.proc.add(10, flags=0x00200000, name="kworker/0:1")
    stage.proc.add(11)
    before = stage.table.read()
    stage.clock.now += 2 * REREAD_SECONDS
    after = stage.table.read()
    assert after[10] is before[10]
    assert after[11] is not before[11]
    stage.give_out(510, 10_010 + CIRCLE)  # it may have ended, and its pid be somebody else's
    assert stage.table.read()[10] is not before[10]


class Ran(dict[int, int]):
    """For how long each process has run, as the kernel tells; of others it does not."""

    def __call__(self, pid: int) -> int | None:
        return self.get(pid)


def test_what_has_not_run_since_is_not_read_again(stage: Stage) -> None:
    ran = Ran({10: 500, 11: 500})
    stage.table = ProcessTable(
        stage.proc.root, clock=stage.clock, since_boot=lambda: BOOTED, cpu_clock=ran
    )
    for pid in (10, 11, 12):
        stage.proc.add(pid, name="before")
    stage.table.read()
    stage.clock.now += REREAD_SECONDS
    before = stage.table.read()
    for pid in (10, 11, 12):
        stage.proc.add(pid, name="after")
    ran[11] += 1
    stage.clock.now += REREAD_SECONDS
    after = stage.table.read()
    assert after[10] is before[10]
    assert after[11].name == "after"
    assert after[12].name == "after", "no event reports this process"


def test_its_run_time_is_not_carried_over_to_the_next_process_with_its_pid(stage: Stage) -> None:
    ran = Ran({505: 500})
    stage.table = ProcessTable(
        stage.proc.root, clock=stage.clock, since_boot=lambda: BOOTED, cpu_clock=ran
    )
    stage.proc.add(505, start=100)
    stage.table.read()
    stage.clock.now += REREAD_SECONDS
    stage.table.read()
    stage.proc.add(505, start=90_000, name="fork")
    stage.give_out(510, 10_010)
    stage.table.read()
    stage.proc.add(505, start=90_000, name="exec")
    stage.clock.now += REREAD_SECONDS
    assert stage.table.read()[505].name == "exec", "that both ran as long is chance"


def test_turns_stay_apart_when_nobody_has_looked_for_long(stage: Stage) -> None:
    for pid in range(10, 40):
        stage.proc.add(pid, state="S")
    stage.states()
    stage.clock.now += 10 * REREAD_SECONDS
    stage.states()
    for pid in range(10, 40):
        stage.proc.add(pid, state="D")
    stage.clock.now += REREAD_SECONDS / 2
    assert set(stage.states().values()) == {"S", "D"}


class CrowdedStage(Stage):
    """That of a machine with ten processes that have been read."""

    def __init__(self, proc: FakeProc) -> None:
        super().__init__(proc)
        self.last, self.total = 500, 10_000
        for pid in range(10, 20):
            self.add(pid)
        self.table.read()

    def add(self, pid: int, **more: object) -> None:
        self.proc.add(pid, parent=2, **more)  # type: ignore[arg-type] # as they are handed on

    def give_to(self, *pids: int) -> None:
        """Give out so many, the last of them last."""
        self.last, self.total = pids[-1], self.total + len(pids)
        self.give_out(self.last, self.total)


@pytest.fixture
def crowded(proc: FakeProc) -> CrowdedStage:
    return CrowdedStage(proc)


def test_who_ends_while_another_begins_is_seen_at_once(crowded: CrowdedStage) -> None:
    crowded.proc.remove(12)
    crowded.add(501)
    crowded.give_to(501)
    assert crowded.states().keys() == {*range(10, 12), *range(13, 20), 501}
    crowded.proc.remove(501)
    crowded.add(502)
    crowded.add(503)
    crowded.give_to(502, 503)
    assert crowded.states().keys() == {*range(10, 12), *range(13, 20), 502, 503}


def test_who_begins_in_the_place_of_another_is_seen_at_once(crowded: CrowdedStage) -> None:
    crowded.add(505)
    crowded.table.read()
    crowded.add(505, start=90_000)
    crowded.give_to(501, 502, 503, 504, 505)
    assert crowded.table.read()[505].identity.start_ticks == 90_000


def test_who_has_a_pid_beyond_some_that_were_in_use_is_seen_at_once(crowded: CrowdedStage) -> None:
    crowded.proc.remove(12)
    crowded.add(503)
    crowded.give_out(503, crowded.total + 1)
    assert crowded.states().keys() == {*range(10, 12), *range(13, 20), 503}


def test_what_could_not_be_read_to_its_end_comes_again(stage: Stage) -> None:
    stage.proc.add(10)
    stage.states()
    stage.proc.add(600)
    stage.proc.add(601, files={"stat": "nonsense"})
    stage.give_out(601, 10_002)
    with pytest.raises(CollectError):
        stage.states()
    stage.proc.add(601)
    assert stage.states().keys() == {10, 600, 601}


def test_children_of_who_is_gone_are_read_again(stage: Stage) -> None:
    stage.proc.add(10)
    stage.proc.add(11, parent=10)
    stage.states()
    stage.proc.remove(10)
    stage.proc.add(11, parent=1)
    assert stage.table.read()[11].parent_pid == 1


def test_children_of_who_ended_before_it_could_be_read_are_read_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.proc.add(10)
    stage.proc.add(11, parent=10)
    stage.states()

    def listed(root: Path) -> list[int]:
        pids = list_pids(root)
        if 10 in pids:
            stage.proc.remove(10)
            stage.proc.add(11, parent=1)
        return pids

    monkeypatch.setattr("trainwarden_exporter.processes.process_table.list_pids", listed)
    stage.give_out(501, 10_001)
    assert stage.states(10).keys() == {11}
    stage.give_out(502, 10_002)
    assert stage.table.read()[11].parent_pid == 1


def test_threads_that_share_one_wait_for_each_other(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.proc.add(10)
    inside, most = 0, 0

    def slow(pid: int, root: Path) -> Process | None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        time.sleep(0.02)
        inside -= 1
        return read_process(pid, root)

    monkeypatch.setattr("trainwarden_exporter.processes.process_table.read_process", slow)
    with ThreadPoolExecutor(4) as pool:
        looks = list(pool.map(stage.table.read, [()] * 4))
    assert most == 1
    assert all(look[10] is looks[0][10] for look in looks)


def test_a_pid_that_was_given_out_again_is_somebody_else(stage: Stage) -> None:
    stage.proc.add(505, start=100)
    stage.states()
    stage.proc.add(505, start=90_000)
    stage.give_out(510, 10_010)
    assert stage.table.read()[505].identity.start_ticks == 90_000


@pytest.mark.parametrize("missing", ["loadavg", "stat", "sys/kernel/pid_max", "self"])
def test_where_the_kernel_does_not_tell_all_is_read(
    proc: FakeProc, stage: Stage, missing: str
) -> None:
    (proc.root / missing).unlink()
    table = ProcessTable(proc.root, clock=stage.clock, since_boot=lambda: BOOTED)
    proc.add(10, state="S")
    table.read()
    proc.add(10, state="D")
    assert table.read()[10].state == "D"


def test_another_namespace_is_identified_by_its_pid_of_us(proc: FakeProc, stage: Stage) -> None:
    (proc.root / "self").unlink()
    (proc.root / "self").symlink_to(str(os.getpid() + 1))
    table = ProcessTable(proc.root, clock=stage.clock, since_boot=lambda: BOOTED)
    proc.add(10, state="S")
    table.read()
    proc.add(10, state="D")
    assert table.read()[10].state == "D"


def test_no_process_can_be_listed(tmp_path: Path) -> None:
    with pytest.raises(CollectError, match="cannot list"):
        ProcessTable(tmp_path / "none").read()


@pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc")
def test_on_this_machine_it_agrees_with_a_whole_reading() -> None:
    allocated = read_pids_allocated()
    assert allocated is not None
    table = ProcessTable()
    table.read()
    sleeper = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        found, whole = table.read(), read_processes()
        assert sleeper.pid in found
        both = found.keys() & whole.keys()
        assert os.getpid() in both
        assert all(found[pid].identity == whole[pid].identity for pid in both)
        after = read_pids_allocated()
        assert after is not None
        assert after.total > allocated.total
    finally:
        sleeper.communicate()
    assert sleeper.pid not in table.read()


@pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc")
def test_on_this_machine_another_program_is_seen_and_what_sleeps_is_not_read() -> None:
    clock = Clock()
    table = ProcessTable(clock=clock, since_boot=lambda: boot_seconds() + 60)
    with subprocess.Popen(["sh", "-c", "read go; exec cat"], stdin=subprocess.PIPE) as shell:
        assert shell.stdin is not None
        wait_until(shell.pid, "sh")
        table.read()
        clock.now += REREAD_SECONDS
        asleep = table.read()[shell.pid]
        clock.now += REREAD_SECONDS
        assert table.read()[shell.pid] is asleep
        shell.stdin.write(b"\n")
        shell.stdin.flush()
        wait_until(shell.pid, "cat")
        clock.now += REREAD_SECONDS
        assert table.read()[shell.pid].name == "cat"
        shell.stdin.close()


@pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc")
def test_on_this_machine_who_comes_and_goes_is_seen() -> None:
    table, ours, rounds = ProcessTable(), dict[int, subprocess.Popen[bytes]](), 60
    try:
        for number in range(rounds):
            for _ in range(number % 3):
                one = subprocess.Popen(["sleep", "600"])
                ours[one.pid] = one
            if number % 4 > 1:
                with ours.popitem()[1] as gone:
                    gone.kill()
            found = table.read()
            assert ours.keys() <= found.keys()
            parents = {pid for pid, one in found.items() if one.parent_pid == os.getpid()}
            assert parents <= ours.keys()
    finally:
        for one in ours.values():
            with one:
                one.kill()
