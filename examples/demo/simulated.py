"""How a program of the demo holds a simulated GPU (examples/simulated-gpu), as CUDA would."""

from __future__ import annotations

import os
from pathlib import Path

GIB = 1 << 30


def hold_gpu(folder: Path, index: int, memory: int) -> bool:
    """Hold `memory` bytes of the GPU `index` in the box below `folder` until this process ends.

    Its device files stay open, and it is listed as a holder. False where the box is left out.
    """
    box = folder / "gpu"
    try:
        for name in ("nvidiactl", "nvidia-uvm", f"nvidia{index}"):
            os.open(box / "dev" / name, os.O_RDONLY | os.O_CLOEXEC)
        (box / "holders" / str(os.getpid())).write_text(f"{index} {memory}\n", encoding="utf-8")
    except FileNotFoundError:
        return False
    return True
