"""Since when checkpoints have no copy in a second place. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from trainwarden_exporter.checkpoints.proofs import ProofSnapshot

MAX_REMEMBERED = 1000
"""Number of checkpoints without a copy that are remembered; the first ones count."""


def copied_step(copies: ProofSnapshot) -> int | None:
    """Returns the highest step of a complete copy; None if there is none.

    A copy that was not read yet, or cannot be read, counts: only a known damage makes it worthless.
    """
    steps = [one.step for one in copies.checkpoints if one.state not in ("damaged", "incomplete")]
    return max((step for step in steps if step is not None), default=None)


class Uncopied:
    """The checkpoints of one kind that have no copy, also after the run has deleted them.

    A run that deletes old checkpoints keeps none that is older than a few saves.
    """

    def __init__(self) -> None:
        self._completed: dict[int, float] = {}

    def update(self, points: Iterable[tuple[int, float]], copied: int | None) -> float | None:
        """Returns when the first proved checkpoint after the step `copied` was completed.

        `points` are step and time (Unix seconds) of the present ones. None if there is none.
        """
        for step, at in points:
            if len(self._completed) < MAX_REMEMBERED:
                self._completed.setdefault(step, at)
        self._completed = {
            step: at for step, at in self._completed.items() if copied is None or step > copied
        }
        return min(self._completed.values(), default=None)
