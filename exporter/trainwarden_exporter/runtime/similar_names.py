"""The question "did you mean"."""

from __future__ import annotations

from collections.abc import Iterable


def similar(name: str, known: Iterable[str]) -> str | None:
    """Returns the one of `known` that `name` resembles, for the question "did you mean"."""
    from difflib import get_close_matches  # noqa: PLC0415 - its memory would stay with a run

    names = sorted(known)
    swapped = [one for one in names if sorted(one) == sorted(name)]  # `ulr`, too short for a ratio
    return next(iter(swapped or get_close_matches(name, names, n=1, cutoff=0.75)), None)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Returns that question as the end of an error message; "" if `name` resembles none."""
    meant = similar(name, known)
    return f"; did you mean {meant}?" if meant else ""
