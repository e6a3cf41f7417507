from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import animate
from simulated_gpu import GIB, Gpu, Process, SimulatedBox, gpu

if TYPE_CHECKING:
    from tests.exporter.conftest import FakeProc

HZ = os.sysconf("SC_CLK_TCK")
BOOT = 1_700_000_000


def after(device: Gpu, *processes: Process, seconds: int) -> Gpu:
    for moment in range(seconds):
        device = animate.advance(device, processes, phase=0, moment=moment, seconds=1)
    return device


def test_a_gpu_in_use_is_busy_warm_and_drawing_power() -> None:
    busy = after(gpu(0), Process(pid=1, memory=3 * GIB), Process(pid=2, memory=GIB), seconds=120)
    assert busy.memory_used == 4 * GIB
    assert busy.utilization_gpu is not None
    assert 70 <= busy.utilization_gpu <= 94
    assert busy.temperature is not None
    assert 60 < busy.temperature <= 76
    assert busy.power_mw is not None
    assert busy.power_mw > 200_000
    assert busy.clock_reasons == 0
    assert [process.pid for process in busy.processes] == [1, 2]
    shares = [process.sm or 0 for process in busy.processes]
    assert abs(sum(shares) - busy.utilization_gpu) <= 1


def test_a_gpu_left_alone_cools_down_and_idles() -> None:
    idle = after(replace(gpu(0), temperature=76, memory_used=GIB), seconds=120)
    assert (idle.temperature, idle.utilization_gpu, idle.memory_used) == (34, 0, 0)
    assert (idle.power_mw, idle.clock_reasons, idle.processes) == (28_000, 1, ())


def test_energy_is_power_over_time() -> None:
    before = gpu(0, energy_mj=500)
    assert after(before, seconds=10).energy_mj == 500 + 10 * 28_000


def test_no_more_memory_is_used_than_there_is() -> None:
    device = after(gpu(0, memory_total=8, memory_reserved=2), Process(pid=1, memory=9), seconds=1)
    assert device.memory_used == 6


def test_what_has_ended_is_owed_for_a_while() -> None:
    ended = animate.Ended(4)
    two = {0: [Process(pid=1, memory=7)], 1: [Process(pid=2, memory=5)]}
    assert ended.owed(two, 10) == {}
    assert ended.owed({1: two[1]}, 11) == {0: 7}
    assert ended.owed({}, 14) == {0: 7, 1: 5}
    assert ended.owed({}, 15) == {1: 5}
    assert ended.owed({}, 18) == {}
    device = animate.advance(gpu(0), two[0], phase=0, moment=0, seconds=1, owed=5)
    assert device.memory_used == 12


@pytest.fixture
def holders(tmp_path: Path, proc: FakeProc) -> Path:
    (proc.root / "stat").write_text(f"cpu 1 2 3\nbtime {BOOT}\nprocesses 4\n")
    folder = tmp_path / "holders"
    folder.mkdir()
    return folder


def register(folder: Path, pid: int, text: str, *, at: float) -> None:
    file = folder / str(pid)
    file.write_text(text)
    os.utime(file, (at, at))


def test_holders_are_the_living_that_registered(proc: FakeProc, holders: Path) -> None:
    proc.add(10, start=50 * HZ)
    proc.add(11, start=50 * HZ)
    proc.add(12, start=50 * HZ, state="Z")
    for pid, line in ((10, "1 4096\n"), (11, "0 1"), (12, "0 1"), (13, "0 1")):
        register(holders, pid, line, at=BOOT + 60)
    assert animate.read_holders(holders, proc.root) == {
        1: [Process(pid=10, memory=4096)],
        0: [Process(pid=11, memory=1)],
    }


def test_a_later_process_of_the_same_number_is_no_holder(proc: FakeProc, holders: Path) -> None:
    proc.add(10, start=70 * HZ)
    register(holders, 10, "0 1", at=BOOT + 60)
    assert animate.read_holders(holders, proc.root) == {}


def test_a_half_written_holder_is_skipped(proc: FakeProc, holders: Path) -> None:
    proc.add(10, start=1)
    register(holders, 10, "0", at=BOOT + 60)
    assert animate.read_holders(holders, proc.root) == {}


def test_faults_are_switched_on(tmp_path: Path) -> None:
    box = SimulatedBox(tmp_path, [gpu(0), gpu(1)])
    for fault in ("xid 1 79", "lose 0", "exclusive 1", "hang"):
        assert animate.switch_on(box, fault)
    assert [(event.gpu, event.data) for event in box.state.events] == [(box.state.gpus[1].uuid, 79)]
    assert box.state.gpus[0].lost
    assert box.state.driver.hang == ("*",)
    assert [device.compute_mode for device in box.state.gpus] == [0, 3]
    assert animate.switch_on(box, "shared 1")
    assert box.state.gpus[1].compute_mode == 0
    assert animate.switch_on(box, "find 0")
    assert animate.switch_on(box, "release")
    assert not box.state.gpus[0].lost
    assert box.state.driver.hang == ()
    for unknown in ("xid 2 79", "xid one 79", "lose", "melt 0"):
        assert not animate.switch_on(box, unknown)


@pytest.fixture
def animation(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, animate.__file__, "--folder", str(tmp_path), "--devices", "2"]
    program = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    yield program
    program.kill()
    program.communicate()


def test_the_program_moves_two_gpus_until_it_is_asked_to_stop(
    animation: subprocess.Popen[str],
    tmp_path: Path,
    wait_until: Callable[[Callable[[], bool]], None],
) -> None:
    assert animation.stdout is not None
    environment = dict(animation.stdout.readline().strip().split("=", 1) for _ in range(2))
    state = tmp_path / "state"
    assert environment["SIMULATED_GPU_STATE"] == str(state)
    assert environment["LD_LIBRARY_PATH"].split(":")[0] == str(tmp_path)
    assert (tmp_path / "libnvidia-ml.so.1").exists()
    assert (tmp_path / "dev/nvidia1").exists()
    (tmp_path / "holders" / str(os.getpid())).write_text(f"1 {GIB}\n")
    (tmp_path / "fault").write_text("xid 1 31\n")
    wait_until(lambda: f"pid = {os.getpid()}" in state.read_text())
    assert "data = 31" in state.read_text()
    assert state.read_text().count("[gpu]") == 2
    assert "name = Simulated GPU 1" in state.read_text()
    assert animation.stdout.readline() == "fault: xid 1 31\n"
    animation.send_signal(signal.SIGTERM)
    assert animation.wait(5) == 0
    assert "init_error = DRIVER_NOT_LOADED" in state.read_text()
