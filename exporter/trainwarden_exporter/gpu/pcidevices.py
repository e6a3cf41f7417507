"""How many of NVIDIA's GPUs the machine has, whether or not the driver can use them."""

from __future__ import annotations

from pathlib import Path

from trainwarden_exporter.processes.procfs import PROC

_NVIDIA = "0x10de"
_DISPLAY_CLASSES = ("0x0300", "0x0302")  # VGA and 3D controllers


def count_expected(proc: Path = PROC, sys: Path = Path("/sys")) -> int:
    """GPUs that the driver has been given, else those on the PCI bus that no other driver has.

    The driver's own list comes first: a container sees all of the machine's bus, but of that list
    only the GPUs that are meant for it.
    """
    try:
        return sum(1 for _ in (proc / "driver" / "nvidia" / "gpus").iterdir())
    except OSError:
        pass  # no driver
    try:
        devices = list((sys / "bus" / "pci" / "devices").iterdir())
    except OSError:
        return 0
    return sum(1 for device in devices if _is_free_gpu(device))


def _is_free_gpu(device: Path) -> bool:
    try:
        vendor = (device / "vendor").read_text(encoding="ascii").strip()
        kind = (device / "class").read_text(encoding="ascii").strip()
        if vendor != _NVIDIA or not kind.startswith(_DISPLAY_CLASSES):
            return False
        driver = device / "driver"
        return not driver.is_symlink() or driver.readlink().name == "nvidia"
    except (OSError, ValueError):
        return False
