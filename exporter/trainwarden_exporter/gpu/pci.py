"""Counts the NVIDIA GPUs of a host, whether or not the driver can use them."""

from __future__ import annotations

import os
from pathlib import Path

_NVIDIA = "0x10de"
_DISPLAY_CLASSES = ("0x0300", "0x0302")  # VGA and 3D controllers


def count_expected(proc: Path, sys: Path) -> int:
    """Returns the number of GPUs of the driver, or of those on the PCI bus without another driver.

    The driver's list takes precedence: a container sees the PCI bus of the whole host, but in that
    list only its own GPUs.
    """
    try:
        return sum(1 for _ in (proc / "driver" / "nvidia" / "gpus").iterdir())
    except OSError:
        pass  # no driver
    bus = sys / "bus" / "pci" / "devices"
    try:
        names = os.listdir(bus)  # noqa: PTH208 - at each scrape, for hundreds of devices
    except OSError:
        return 0
    return sum(1 for name in names if _is_free_gpu(f"{bus}/{name}"))


def _is_free_gpu(device: str) -> bool:
    try:
        if not _is_gpu(device):
            return False
        driver = Path(device, "driver")
        return not driver.is_symlink() or driver.readlink().name == "nvidia"
    except (OSError, ValueError):
        return False


def _is_gpu(device: str) -> bool:
    """Whether the device is an NVIDIA GPU. Raises OSError and ValueError."""
    vendor = Path(device, "vendor").read_text(encoding="ascii").strip()
    kind = Path(device, "class").read_text(encoding="ascii").strip()
    return vendor == _NVIDIA and kind.startswith(_DISPLAY_CLASSES)
