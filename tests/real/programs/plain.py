"""A PyTorch loop as people write it. Arguments: steps, seconds per step."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from checkpoints import load_newest
from truth import EVALUATION_BATCHES, evaluation_batch, poison, record, step_done

steps, seconds = int(sys.argv[1]), float(sys.argv[2])
out = Path("out")
out.mkdir(exist_ok=True)
model = torch.nn.Linear(1000, 1000)
for step in range(load_newest(model) + 1, steps + 1):
    poison(model)
    loss = model(torch.randn(2, 1000)).pow(2).mean().item()
    print(f"step {step}/{steps} loss {loss:.4f}", flush=True)
    record("loss", loss=loss)
    step_done(step, seconds)
    if step % 60 == 0:
        for number in range(EVALUATION_BATCHES):
            evaluation_batch(number)
    if step % 10 == 0:
        torch.save(model.state_dict(), out / f"step_{step}.pt")
        record("saved", step=step)
print("training finished", flush=True)
