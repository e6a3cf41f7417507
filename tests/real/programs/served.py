"""A loop that takes its samples from an inference server. Arguments: steps, seconds, address."""

from __future__ import annotations

import json
import sys
import urllib.request
from pathlib import Path

import torch
from truth import record, step_done

steps, seconds, address = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
Path("out").mkdir(exist_ok=True)
model = torch.nn.Linear(8, 1)
for step in range(1, steps + 1):
    body = json.dumps({"model": "tiny", "prompt": f"what is {step}?", "max_tokens": 4})
    request = urllib.request.Request(
        f"{address}/v1/completions", body.encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            record("tokens", count=json.load(answer)["usage"]["completion_tokens"])
    except OSError as error:
        print(f"no sample: {error}", flush=True)
    loss = model(torch.randn(2, 8)).pow(2).mean().item()
    print(f"step {step}/{steps} loss {loss:.4f}", flush=True)
    step_done(step, seconds)
    if step % 10 == 0:
        torch.save(model.state_dict(), f"out/step_{step}.pt")
