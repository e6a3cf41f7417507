"""Until when a loss that is NaN or infinite was finite."""

from __future__ import annotations

from typing import NamedTuple


class LastFinite(NamedTuple):
    """Until when it was finite, as far as the log shows."""

    step: int | None = None
    """The last step with a finite loss; None if unknown."""
    time: float = 0.0
    """A time at which the last line had a finite loss (Unix seconds); 0 if none is known."""

    def covers(self, step: int | None, changed_at: float) -> bool | None:
        """Whether a checkpoint of `step`, last written at `changed_at`, is from before its end.

        None if unknown. Where the log or the checkpoint has no step, their times decide.
        """
        if self.step is not None and step is not None:
            return step <= self.step
        return changed_at <= self.time if self.time and changed_at else None
