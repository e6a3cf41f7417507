"""What a beat costs is bounded by the work that it does, which no load of the machine changes."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import beats
from trainwarden import beat

CALLS = 20
"""Calls of functions for a beat: some microseconds."""
BUILT_IN = {"acquire", "any", "append", "encode", "isinstance", "time", "values"}
"""Functions of the interpreter that a beat may call: none reads, writes or waits."""


def test_a_beat_calls_few_functions_and_none_that_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINWARDEN_FOLDER", str(tmp_path))
    monkeypatch.delenv("RANK", raising=False)
    beat(step=1, total=9, loss=0.5)  # starts the thread
    python, other = list[str](), list[str]()

    def profile(frame: FrameType, event: str, called: Any) -> None:
        if event == "call":
            python.append(frame.f_code.co_name)
        elif event == "c_call":
            other.append(called.__name__)

    sys.setprofile(profile)
    try:
        beat(step=2, total=9, loss=0.5)
    finally:
        sys.setprofile(None)
    assert "beat" in python
    assert len(python) + len(other) <= CALLS
    assert set(other) - {"setprofile"} <= BUILT_IN


def test_a_beat_is_measured_beside_a_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINWARDEN_FOLDER", str(tmp_path))  # the bench changes it
    monkeypatch.setattr(beats, "ROUNDS", 1)
    monkeypatch.setattr(beats, "CALLS", 10)
    assert [row[0] for row in beats.bench().rows] == [beats.OURS, beats.WRITE]
