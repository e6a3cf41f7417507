"""What a call of `trainwarden.beat` costs the training loop, beside a write to a file."""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from results import Result

CALLS = 2_000
ROUNDS = 25
"""Batches. Their median is shown: a pause of the machine falls into one of them."""
OURS = "trainwarden.beat"
WRITE = "a line of JSON appended to an open file"


def seconds_per_call(call: Callable[[int], object]) -> tuple[float, float]:
    """The median over all batches, and the slowest batch."""
    found = []
    for each in range(ROUNDS):
        began = time.perf_counter()
        for step in range(each * CALLS, (each + 1) * CALLS):
            call(step)
        found.append((time.perf_counter() - began) / CALLS)
    return statistics.median(found), max(found)


def bench() -> Result:
    """Calls as often as the loop can, with the file written once a second meanwhile."""
    with tempfile.TemporaryDirectory() as name:
        os.environ["TRAINWARDEN_FOLDER"] = name
        from trainwarden import beat  # noqa: PLC0415 - the environment comes first

        with (Path(name) / "steps.jsonl").open("w", buffering=1, encoding="utf-8") as file:
            kinds: dict[str, Callable[[int], object]] = {
                OURS: lambda step: beat(step=step, total=10**6, loss=0.5),
                WRITE: lambda step: file.write(json.dumps({"step": step, "loss": 0.5}) + "\n"),
            }
            measured = {kind: seconds_per_call(call) for kind, call in kinds.items()}
    peer = measured[WRITE][0]
    rows = tuple(
        (kind, f"{median * 1e6:.1f} µs", f"{slowest * 1e6:.1f} µs", f"{median / peer:.2f}x")
        for kind, (median, slowest) in measured.items()
    )
    return Result(
        "A beat of a training",
        f"{CALLS * ROUNDS:,} steps reported one after the other from the training loop.",
        ("call", "median", "slowest batch", "beside a write"),
        rows,
    )
