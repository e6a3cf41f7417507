"""A loop that takes its samples from an inference server. Arguments: steps, seconds, address."""

from __future__ import annotations

import http.client
import json
import sys
import time
import urllib.request
from pathlib import Path

import torch
from checkpoints import load_newest
from truth import record, step_done

RETRY_SECONDS = 1.0
BATCH = 5
"""Steps of one answer: vLLM's worker spins for a second after each one."""
steps, seconds, address = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]


def completion_tokens(prompt: str) -> int:
    """Asks until the server answers, as the clients of the frameworks do."""
    body = json.dumps({"model": "tiny", "prompt": prompt, "max_tokens": 4})
    request = urllib.request.Request(
        f"{address}/v1/completions", body.encode(), {"Content-Type": "application/json"}
    )
    while True:
        try:
            with urllib.request.urlopen(request, timeout=5) as answer:
                return int(json.load(answer)["usage"]["completion_tokens"])
        except (OSError, http.client.HTTPException) as error:
            print(f"no sample: {error}", flush=True)
            time.sleep(RETRY_SECONDS)


Path("out").mkdir(exist_ok=True)
model = torch.nn.Linear(8, 1)
first = load_newest(model) + 1
for step in range(first, steps + 1):
    if (step - first) % BATCH == 0:
        record("tokens", count=completion_tokens(f"what is {step}?"))
    loss = model(torch.randn(2, 8)).pow(2).mean().item()
    print(f"step {step}/{steps} loss {loss:.4f}", flush=True)
    step_done(step, seconds)
    if step % 10 == 0:
        torch.save(model.state_dict(), f"out/step_{step}.pt")
