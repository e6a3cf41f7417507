"""GPUs are counted whether or not the driver can use them."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainwarden_exporter.gpu.pci import count_expected


def device(sys: Path, address: str, vendor: str, kind: str, driver: str | None = None) -> None:
    folder = sys / "bus" / "pci" / "devices" / address
    folder.mkdir(parents=True)
    (folder / "vendor").write_text(f"{vendor}\n")
    (folder / "class").write_text(f"{kind}\n")
    if driver:
        (folder / "driver").symlink_to(f"../../drivers/{driver}")


@pytest.fixture
def sys(tmp_path: Path) -> Path:
    sys = tmp_path / "sys"
    device(sys, "0000:00:00.0", "0x8086", "0x060000")
    device(sys, "0000:17:00.0", "0x10de", "0x030200", "nvidia")
    device(sys, "0000:17:00.1", "0x10de", "0x040300", "snd_hda_intel")
    device(sys, "0000:27:00.0", "0x10de", "0x030000")
    device(sys, "0000:37:00.0", "0x10de", "0x030200", "vfio-pci")
    device(sys, "0000:47:00.0", "0x1002", "0x030000", "amdgpu")
    return sys


def test_gpus_on_the_bus_count_unless_another_driver_has_them(sys: Path, tmp_path: Path) -> None:
    assert count_expected(tmp_path / "proc", sys) == 2


def test_the_list_of_the_driver_takes_precedence(sys: Path, tmp_path: Path) -> None:
    (tmp_path / "proc/driver/nvidia/gpus/0000:17:00.0").mkdir(parents=True)
    assert count_expected(tmp_path / "proc", sys) == 1


def test_a_host_may_have_none(tmp_path: Path) -> None:
    assert count_expected(tmp_path / "proc", tmp_path / "sys") == 0


def test_a_device_in_the_place_of_another_is_looked_at_again(sys: Path, tmp_path: Path) -> None:
    proc, slots = tmp_path / "proc", sys / "bus" / "pci" / "devices"
    assert count_expected(proc, sys) == 2
    device(sys, "new", "0x10de", "0x030200", "nvidia")
    (slots / "0000:00:00.0").rename(tmp_path / "taken out")
    (slots / "new").rename(slots / "0000:00:00.0")
    assert count_expected(proc, sys) == 3
    (slots / "0000:27:00.0/driver").symlink_to("../../drivers/vfio-pci")
    assert count_expected(proc, sys) == 2
