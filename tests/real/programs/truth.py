"""Writes what the program itself knows to truth.jsonl, beside its log."""

from __future__ import annotations

import json
import time
from pathlib import Path


def record(kind: str, **values: float) -> None:
    """Appends one event with its time."""
    with Path("truth.jsonl").open("a") as file:
        file.write(json.dumps({"kind": kind, "time": time.time()} | values) + "\n")
