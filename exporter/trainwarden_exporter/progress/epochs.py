"""Tells whether the total that a run logs is its own, where it reports epochs, too. Pure.

`step 500/500` beside `epoch 1` may be the end of the run, or of its first epoch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Epochs:
    """The epochs that a run reports, as it numbers them."""

    first: int | None = None
    """The lowest one."""
    last: int | None = None
    count: int | None = None
    """How many it makes, as in `Epoch 2/5`."""
    begun: tuple[int, int] | None = None
    """The total that it counts up to, and the epoch of its first step."""
    spanned: int | None = None
    """A total below which it has made steps of several epochs: that of the run."""

    @property
    def seen(self) -> bool:
        """Whether the run has ever reported an epoch."""
        return self.last is not None

    @property
    def more_follow(self) -> bool:
        """Whether it has reported how many it makes, and is in one before the last."""
        if self.last is None or self.first is None or self.count is None:
            return False
        return self.last - min(self.first, 1) + 1 < self.count

    def reported(self, epoch: int, count: int | None) -> Epochs:
        """Returns this after a line with the number of an epoch, or of how many."""
        first = epoch if self.first is None else min(self.first, epoch)
        return replace(self, first=first, last=epoch, count=count or self.count)

    def with_step(self, step: int, total: int | None, *, is_first: bool) -> Epochs:
        """Returns this after a step of `total`, maybe the first; they are added up over epochs."""
        if total is None or step >= total or self.last is None:
            return self
        if is_first or self.begun is None or self.begun[0] != total:
            return replace(self, begun=(total, self.last))
        return replace(self, spanned=total) if self.last > self.begun[1] else self

    def may_divide(self, total: int) -> bool:
        """Whether `total` may be that of an epoch."""
        return self.seen and self.count != 1 and self.spanned != total
