"""The snapshot of the disks before a run: with real folders, a full and a read-only one."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from trainwarden_exporter.disk.config import DiskConfig
from trainwarden_exporter.disk.usage import DiskUsage, read_disk_usage
from trainwarden_exporter.preflight import disk_snapshot
from trainwarden_exporter.preflight.disk_snapshot import (
    DiskSnapshot,
    nearest_existing,
    take_disk_snapshots,
    write_error,
)
from trainwarden_exporter.run_config import RunConfig

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from tests.exporter.conftest import Mount

MIB = 1 << 20


@pytest.fixture(autouse=True)
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_snapshot, "PROBE_BYTES", MIB)


def look(path: Path, **more: Any) -> DiskSnapshot:
    (found,) = take_disk_snapshots([DiskConfig(path=path)], [], **more)
    return found


def test_a_disk_is_seen_with_room_and_speed_and_left_as_it_was(tmp_path: Path) -> None:
    found = look(tmp_path)
    assert found.disk_usage is not None
    assert found.disk_usage.free
    assert (found.problem, found.unwritable, found.stuck) == ("", "", False)
    assert found.measurement is not None
    assert found.speed_floor == 100_000_000
    assert list(tmp_path.iterdir()) == []


def test_what_is_configured_counts(tmp_path: Path) -> None:
    disk = DiskConfig.model_validate(
        {"path": tmp_path, "free_floor": "1MiB", "probe": {"speed_floor": "5MB"}}
    )
    (found,) = take_disk_snapshots([disk], [RunConfig(name="a", path=tmp_path)])
    assert (found.floor, found.speed_floor) == (MIB, 5_000_000)


def test_the_folder_of_a_run_may_not_be_there_yet(tmp_path: Path) -> None:
    path = tmp_path / "outputs" / "exp"
    (found,) = take_disk_snapshots([], [RunConfig(name="a", path=path)])
    assert (found.path, found.unwritable) == (path, "")
    assert found.measurement is not None
    assert list(tmp_path.iterdir()) == []
    assert look(path).problem == "No such file or directory"


def test_the_newest_checkpoint_of_the_run_is_measured(tmp_path: Path) -> None:
    for step, size in ((100, 5000), (200, 7000)):
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        (folder / "trainer_state.json").write_text(f'{{"global_step": {step}}}')
        (folder / "model.safetensors").write_bytes(b"x" * size)
        time.sleep(0.02)
    run = RunConfig.model_validate(
        {
            "name": "a",
            "path": tmp_path,
            "checkpoints": [
                {
                    "name": "default",
                    "folder": ".",
                    "entry": r"checkpoint-(?P<step>\d+)",
                    "complete": {"marker": ["trainer_state.json"]},
                }
            ],
        }
    )
    (found,) = take_disk_snapshots([], [run])
    assert found.checkpoint is not None
    assert 7000 < found.checkpoint < 7100


def test_a_disk_that_hangs_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = threading.Event()

    def hang(path: Path, *, or_above: bool = False) -> DiskUsage:
        over.wait(60)
        return read_disk_usage(path, or_above=or_above)

    monkeypatch.setattr(disk_snapshot, "read_disk_usage", hang)
    assert look(tmp_path, timeout=0.05).problem == "no answer within 50 ms"
    over.set()


def test_a_file_that_takes_too_long_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = threading.Event()
    monkeypatch.setattr(disk_snapshot, "measure", lambda *_, **__: over.wait(60))
    found = look(tmp_path, timeout=2)
    assert (found.stuck, found.measurement) == (True, None)
    assert found.disk_usage is not None
    over.set()


def test_a_full_disk_is_not_measured(tmp_path: Path, mount: Mount) -> None:
    point = tmp_path / "full"
    mount(point, "-t", "tmpfs", "-o", "size=4m", "full")
    with pytest.raises(OSError, match="No space"):
        (point / "checkpoint").write_bytes(bytes(5 * MIB))
    found = look(point)
    assert found.disk_usage is not None
    assert (found.disk_usage.free, found.measurement) == (0, None)
    assert found.unwritable == "No space left on device"


def test_a_read_only_bind_cannot_be_written_to(tmp_path: Path, mount: Mount) -> None:
    source, bound = tmp_path / "source", tmp_path / "bound"
    source.mkdir()
    mount(bound, "--bind", str(source))
    mount(bound, "-o", "remount,bind,ro")
    found = look(bound)
    assert found.unwritable == "Read-only file system"
    assert found.measurement is None


def test_another_users_folder_cannot_be_written_to(
    tmp_path: Path, as_nobody: Callable[[], AbstractContextManager[None]]
) -> None:
    tmp_path.chmod(0o755)
    with as_nobody():
        assert write_error(tmp_path) == "Permission denied"


def test_the_nearest_existing_folder_is_used(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert nearest_existing(tmp_path) == tmp_path
    assert nearest_existing(tmp_path / "a" / "b") == tmp_path
    assert nearest_existing(tmp_path / "file" / "b") == tmp_path
