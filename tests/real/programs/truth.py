"""Writes what the program itself knows to truth.jsonl, beside its log."""

from __future__ import annotations

import importlib
import json
import os
import time
from pathlib import Path


def record(kind: str, **values: float) -> None:
    """Appends one event with its time."""
    with Path("truth.jsonl").open("a") as file:
        file.write(json.dumps({"kind": kind, "time": time.time()} | values) + "\n")


def beat_callbacks(framework):
    """The callback of trainwarden.callbacks for the framework, where the test asks for it."""
    if "BEAT_CALLBACKS" not in os.environ:
        return []
    return [importlib.import_module(f"trainwarden.callbacks.{framework}").BeatCallback()]
