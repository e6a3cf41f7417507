"""How a program of the demo holds a simulated GPU (examples/simulated-gpu), as CUDA would."""

from __future__ import annotations

import os
from pathlib import Path

GIB = 1 << 30


def hold_gpu(folder: Path, index: int, memory: int) -> bool:
    """Hold memory of a simulated GPU until this process ends.

    The process holds `memory` bytes of the GPU `index` of the host in `folder`, keeps its device
    files open, and is listed as a holder. Returns False without simulated GPUs.
    """
    box = folder / "gpu"
    try:
        for name in ("nvidiactl", "nvidia-uvm", f"nvidia{index}"):
            os.open(box / "dev" / name, os.O_RDONLY | os.O_CLOEXEC)
        (box / "holders" / str(os.getpid())).write_text(f"{index} {memory}\n", encoding="utf-8")
    except FileNotFoundError:
        return False
    return True
