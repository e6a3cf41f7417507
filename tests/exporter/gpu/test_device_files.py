"""Open device files are found, cheaply and without false matches."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from trainwarden_exporter.gpu.device_files import (
    MAPS_TTL_SECONDS,
    OPEN_FILES_TTL_SECONDS,
    DeviceFileScanner,
    HeldDeviceFiles,
    parse_mapped,
    read_device_files,
)
from trainwarden_exporter.processes.procfs import Process, read_processes

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from tests.exporter.conftest import FakeProc, Start


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def dev(tmp_path: Path) -> Path:
    """A folder of device files, made of plain files."""
    dev = tmp_path / "dev"
    (dev / "nvidia-caps").mkdir(parents=True)
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "nvidia-caps/nvidia-cap2"):
        (dev / name).touch()
    (dev / "null").touch()
    return dev


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def watch(dev: Path, proc: FakeProc, clock: Clock) -> DeviceFileScanner:
    return DeviceFileScanner(dev, root=proc.root, clock=clock)


def held(watch: DeviceFileScanner, proc: FakeProc) -> dict[int, set[str]]:
    found = watch.find(read_processes(proc.root).values())
    return {identity.pid: set(names) for identity, names in found.held.items()}


def test_processes_with_open_device_files_are_found(
    watch: DeviceFileScanner, proc: FakeProc, dev: Path
) -> None:
    proc.add(10)
    proc.open(10, "/dev/null", dev / "nvidia0", dev / "nvidiactl", "socket:[123]")
    proc.add(11)
    proc.open(11, dev / "nvidia-caps" / "nvidia-cap2")
    proc.add(12)
    proc.open(12, dev / "null")
    proc.add(13)  # its files cannot be listed: it is ending

    assert held(watch, proc) == {
        10: {"nvidia0", "nvidiactl"},
        11: {"nvidia-caps/nvidia-cap2"},
    }


def test_another_file_with_the_name_of_a_device_is_ignored(
    watch: DeviceFileScanner, proc: FakeProc, tmp_path: Path, dev: Path
) -> None:
    (tmp_path / "nvidia0").touch()
    (dev / "nvidia0.log").touch()
    proc.add(10)
    proc.open(10, tmp_path / "nvidia0", dev / "nvidia0.log", tmp_path / "gone" / "nvidia1")
    assert held(watch, proc) == {}


def test_a_device_is_recognised_under_any_path(
    watch: DeviceFileScanner, proc: FakeProc, tmp_path: Path, dev: Path
) -> None:
    elsewhere = tmp_path / "container"
    elsewhere.mkdir()
    os.link(dev / "nvidia1", elsewhere / "nvidia0")  # as in another mount namespace
    proc.add(10)
    proc.open(10, elsewhere / "nvidia0")
    assert held(watch, proc) == {10: {"nvidia1"}}


def test_stat_is_called_only_for_names_of_device_files(
    watch: DeviceFileScanner, proc: FakeProc, dev: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file may be on a dead network mount."""
    proc.add(10)
    proc.open(10, "/mnt/dead/data.bin", "/mnt/nvidia/set", dev / "nvidia0")
    asked: list[str] = []
    real = os.stat

    def ask(path: str, **options: bool) -> os.stat_result:
        asked.append(str(path))
        return real(path, **options)

    monkeypatch.setattr(os, "stat", ask)
    held(watch, proc)
    assert [path for path in asked if path.startswith(f"{proc.root}/10/fd/")] == [
        f"{proc.root}/10/fd/2"
    ]


def test_a_file_that_is_only_mapped_is_held_too(
    watch: DeviceFileScanner, proc: FakeProc, dev: Path
) -> None:
    proc.add(10, files={"maps": f"7f00-7f01 rw-s 00000000 00:05 461    {dev}/nvidia0\n"})
    proc.open(10)
    assert held(watch, proc) == {10: {"nvidia0"}}


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("7f00-7f01 rw-s 00000000 00:05 461                 /dev/nvidia0", {"nvidia0"}),
        ("7f00-7f01 rw-s 00000000 00:05 461    /dev/nvidiactl (deleted)", {"nvidiactl"}),
        (
            "7f00-7f01 rw-p 00000000 00:05 461    /dev/nvidia-caps/nvidia-cap1",
            {"nvidia-caps/nvidia-cap1"},
        ),
        ("7f00-7f01 rw-p 00000000 08:01 461    /usr/lib/libnvidia-ml.so.1", set()),
        ("7f00-7f01 rw-p 00000000 08:01 461    /home/dev/nvidia0", set()),
        ("7f00-7f01 rw-p 00000000 00:00 0", set()),
    ],
)
def test_maps_are_read(line: str, names: set[str]) -> None:
    assert parse_mapped(f"{line}\n", Path("/dev")) == names


def test_a_process_whose_first_thread_has_ended_holds_files_through_other_threads(
    watch: DeviceFileScanner, proc: FakeProc, dev: Path
) -> None:
    proc.add(10, state="Z", threads=2)
    proc.open(10, dev / "nvidia0", folder="task/11/fd")
    proc.add(20, state="Z")
    proc.open(20, dev / "nvidia0")
    assert held(watch, proc) == {10: {"nvidia0"}}


def test_kernel_threads_are_skipped(watch: DeviceFileScanner, proc: FakeProc, dev: Path) -> None:
    proc.add(10, flags=0x00200000)
    proc.open(10, dev / "nvidia0")
    assert held(watch, proc) == {}


class TestAProcessThatIsKnown:
    def test_is_scanned_again_after_a_while(
        self, watch: DeviceFileScanner, proc: FakeProc, dev: Path, clock: Clock
    ) -> None:
        proc.add(10)
        proc.open(10)
        assert held(watch, proc) == {}
        proc.open(10, dev / "nvidia0")
        clock.now += OPEN_FILES_TTL_SECONDS - 1
        assert held(watch, proc) == {}
        clock.now += 1
        assert held(watch, proc) == {10: {"nvidia0"}}

    def test_with_a_device_file_is_scanned_each_time(
        self, watch: DeviceFileScanner, proc: FakeProc, dev: Path
    ) -> None:
        proc.add(10)
        proc.open(10, dev / "nvidia0")
        assert held(watch, proc) == {10: {"nvidia0"}}
        proc.open(10)
        assert held(watch, proc) == {}

    def test_is_scanned_again_after_executing_another_program(
        self, watch: DeviceFileScanner, proc: FakeProc, dev: Path
    ) -> None:
        proc.add(10)
        proc.open(10)
        assert held(watch, proc) == {}
        proc.add(10, mark=2)
        proc.open(10, dev / "nvidia0")
        assert held(watch, proc) == {10: {"nvidia0"}}

    def test_is_another_process_if_only_its_pid_is_the_same(
        self, watch: DeviceFileScanner, proc: FakeProc, dev: Path
    ) -> None:
        proc.add(10, start=100)
        proc.open(10)
        assert held(watch, proc) == {}
        proc.remove(10)
        proc.add(10, start=200)
        proc.open(10, dev / "nvidia0")
        assert held(watch, proc) == {10: {"nvidia0"}}

    def test_has_its_maps_read_less_often(
        self, watch: DeviceFileScanner, proc: FakeProc, dev: Path, clock: Clock
    ) -> None:
        proc.add(10)
        proc.open(10)
        assert held(watch, proc) == {}
        proc.add(10, files={"maps": f"7f00-7f01 rw-s 00000000 00:05 461  {dev}/nvidia0\n"})
        clock.now += OPEN_FILES_TTL_SECONDS
        assert held(watch, proc) == {}
        clock.now += MAPS_TTL_SECONDS - OPEN_FILES_TTL_SECONDS
        assert held(watch, proc) == {10: {"nvidia0"}}

    def test_is_forgotten_when_it_has_ended(self, watch: DeviceFileScanner, proc: FakeProc) -> None:
        proc.add(10)
        proc.open(10)
        held(watch, proc)
        proc.remove(10)
        held(watch, proc)
        assert watch._cache == {}


def test_without_a_driver_no_file_is_read(tmp_path: Path, proc: FakeProc) -> None:
    proc.add(10)
    watch = DeviceFileScanner(tmp_path / "none", root=proc.root)

    class Untouchable(Process):
        def __getattribute__(self, name: str) -> object:
            raise AssertionError(name)

    untouchable = object.__new__(Untouchable)
    assert watch.find([untouchable]) == HeldDeviceFiles()
    assert read_device_files(tmp_path / "none") == {}


OPENS = "import sys; files = [open(path) for path in sys.argv[1:]]; print(1, flush=True); input()"


def test_a_real_program_is_found(start: Start, dev: Path) -> None:
    program = start(OPENS, str(dev / "nvidia1"))
    processes = [one for one in read_processes().values() if one.pid == program.pid]
    assert list(DeviceFileScanner(dev).find(processes).held.values()) == [{"nvidia1"}]


def test_a_device_is_known_by_its_number(start: Start, dev: Path, tmp_path: Path) -> None:
    null = os.makedev(1, 3)  # a device that can be opened here
    (tmp_path / "container").mkdir()
    (dev / "nvidia1").unlink()
    try:
        for path in (dev / "nvidia1", tmp_path / "container" / "nvidia0"):
            os.mknod(path, stat.S_IFCHR | 0o600, null)
    except PermissionError:
        pytest.skip("only root can make device files")
    program = start(OPENS, str(tmp_path / "container" / "nvidia0"))
    processes = [one for one in read_processes().values() if one.pid == program.pid]
    assert list(DeviceFileScanner(dev).find(processes).held.values()) == [{"nvidia1"}]


def test_a_program_of_another_user_is_counted_as_unreadable(
    start: Start, as_nobody: Callable[[], AbstractContextManager[None]]
) -> None:
    program = start("print(1, flush=True); input()")
    processes = [one for one in read_processes().values() if one.pid == program.pid]
    with tempfile.TemporaryDirectory() as folder:  # readable for all users
        Path(folder).chmod(0o755)
        (Path(folder) / "nvidia0").touch()
        with as_nobody():
            found = DeviceFileScanner(Path(folder)).find(processes)
    assert (found.held, found.unreadable) == ({}, 1)
