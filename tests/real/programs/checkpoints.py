"""The checkpoints of a plain loop: one file each."""

from __future__ import annotations

from pathlib import Path

import torch


def load_newest(model: torch.nn.Module) -> int:
    """Loads the newest file that can be read; returns its step, 0 without any."""
    files = Path("out").glob("step_*.pt")
    for saved in sorted(files, key=lambda one: -int(one.stem.rpartition("_")[2])):
        try:
            model.load_state_dict(torch.load(saved, weights_only=True))
        except RuntimeError:  # a kill left half of it
            continue
        step = int(saved.stem.rpartition("_")[2])
        print(f"resumed from step {step}", flush=True)
        return step
    return 0
