"""The cost of `trainwarden run` is measured on its own processes, and its memory is bounded."""

from __future__ import annotations

import psutil
import pytest

import wrapped


@pytest.mark.parametrize("name", [wrapped.OURS, "supervisord"])
def test_the_processes_of_a_wrapper_are_measured_without_its_command(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wrapped, "SETTLE_SECONDS", 0.0)
    before = set(psutil.Process().children(recursive=True))
    cost = wrapped.measure(wrapped.WRAPPERS[name], rest_seconds=0.1, outputs=False)
    assert cost.at_rest >= 0
    assert cost.shared > 0
    assert cost.largest > 4 * wrapped.MIB  # more than `sleep`
    assert cost.processes == (2 if name == wrapped.OURS else 1)
    if name == wrapped.OURS:
        assert cost.largest < 15 * wrapped.MIB
        assert cost.shared < 15 * wrapped.MIB
    assert set(psutil.Process().children(recursive=True)) <= before
