"""What the programs have beside their training: they record the truth, and obey the tests.

The truth is one JSON event a line in truth.jsonl. An order of a test is a file `do.<order>`, in
force while it exists, for the process whose pid it holds, or for all if it is empty. Both are in
TRUTH_FOLDER, or else in the working folder.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import queue
import time
from pathlib import Path

import torch

FOLDER = Path(os.environ.get("TRUTH_FOLDER", ".")).absolute()
LEAK_BYTES = 32 << 20
"""What is leaked in each step."""
EVALUATION_BATCHES = 40
SLOW_BATCH = 20
"""A bar is drawn before it."""

_kept: list[bytes] = []
_save = torch.save


def record(kind: str, **values: float) -> None:
    """Appends one event with its time."""
    with (FOLDER / "truth.jsonl").open("a") as file:
        event = {"kind": kind, "time": time.time(), "pid": os.getpid()} | values
        file.write(json.dumps(event) + "\n")


def ordered(order: str) -> bool:
    try:
        pid = (FOLDER / f"do.{order}").read_text()
    except FileNotFoundError:
        return False
    return pid in ("", str(os.getpid()))


def beat_callbacks(framework):
    """The callback of trainwarden.callbacks for the framework, where the test asks for it."""
    if "BEAT_CALLBACKS" not in os.environ:
        return []
    return [importlib.import_module(f"trainwarden.callbacks.{framework}").BeatCallback()]


def wait_while(order: str) -> None:
    while ordered(order):
        time.sleep(0.1)


def step_done(step: int, seconds: float, **values: float) -> None:
    """Ends a step: here it leaks, or hangs as a rank that waits for another one."""
    time.sleep(seconds)
    record("step", step=step, **values)
    if ordered("leak"):
        _kept.append(os.urandom(LEAK_BYTES))
        record("leak", bytes=len(_kept) * LEAK_BYTES)
    if ordered("hang"):
        record("hang")
        wait_while("hang")
    if ordered("starve"):  # as of batches, when their loader has died
        record("hang")
        queue.Queue().get()


def evaluation_batch(number=SLOW_BATCH):
    """A batch of an evaluation: one of them lasts as long as a test orders it."""
    time.sleep(0.02)
    if number == SLOW_BATCH and ordered("evaluate"):
        record("slow_evaluation")
        wait_while("evaluate")


def poison(model: torch.nn.Module) -> None:
    """Makes everything that the model computes NaN, if a test orders it."""
    if ordered("nan"):
        with torch.no_grad():
            next(model.parameters()).fill_(float("nan"))


def _save_in_two_halves(content, file, *args, **kwargs):
    """As torch.save, but while a test orders it, only the first half is written."""
    if ordered("slow_save"):
        whole = io.BytesIO()
        _save(content, whole)
        data = whole.getvalue()
        if isinstance(file, (str, os.PathLike)):
            Path(file).write_bytes(data[: len(data) // 2])
        record("half_saved")
        wait_while("slow_save")
    _save(content, file, *args, **kwargs)


torch.save = _save_in_two_halves
