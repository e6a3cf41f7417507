"""A PyTorch loop as people write it. Arguments: steps, seconds per step."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch
from truth import record

steps, seconds = int(sys.argv[1]), float(sys.argv[2])
Path("out").mkdir(exist_ok=True)
model = torch.nn.Linear(1000, 1000)
for step in range(1, steps + 1):
    loss = model(torch.randn(2, 1000)).pow(2).mean()
    time.sleep(seconds)
    record("step", step=step, loss=loss.item())
    print(f"step {step}/{steps} loss {loss.item():.4f}", flush=True)
    if step % 10 == 0:
        record("save_begin", step=step)
        torch.save(model.state_dict(), f"out/step_{step}.pt")
        record("save_end", step=step)
print("training finished", flush=True)
