"""What of a framework's metrics can be reported."""

from __future__ import annotations

from collections.abc import Mapping

PARAMETERS = frozenset({"step", "total", "phase"})
"""Parameters of `beat` that no metric may stand for."""


def plain_numbers(metrics: Mapping[str, object] | None) -> dict[str, float]:
    """Returns the ints and floats, without tensors, for which one would wait for the GPU."""
    return {
        name: number
        for name, number in (metrics or {}).items()
        if isinstance(number, int | float) and name not in PARAMETERS
    }
