"""A PyTorch loop as people write it. Arguments: steps, seconds per step."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from truth import EVALUATION_BATCHES, evaluation_batch, poison, record, step_done

steps, seconds = int(sys.argv[1]), float(sys.argv[2])
out = Path("out")
out.mkdir(exist_ok=True)
model = torch.nn.Linear(1000, 1000)
first = 0
for saved in sorted(out.glob("step_*.pt"), key=lambda one: -int(one.stem.rpartition("_")[2])):
    try:
        model.load_state_dict(torch.load(saved, weights_only=True))
    except RuntimeError:  # a kill left half of it
        continue
    first = int(saved.stem.rpartition("_")[2])
    print(f"resumed from step {first}", flush=True)
    break
for step in range(first + 1, steps + 1):
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
