"""The checkpoints of a run, as the exporter's eye sees them every ten seconds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from trainwarden_exporter.checkpoints.damages import DamageKind
from trainwarden_exporter.checkpoints.scanner import INTERVAL
from trainwarden_exporter.checkpoints.specs import SAVING_SECONDS
from verdicts.page import Page
from verdicts.parts import GIB, Disk

FEWEST = 2
COUNTED = 10


@dataclass
class Saves:
    """Checkpoints of one kind. Times are of the host's clock."""

    run: str
    name: str
    interval: float | None
    """As configured."""
    size: float = 12 * GIB
    seen: float = 0.0
    blind: bool = False
    """Whether the folder can no longer be looked at."""
    complete: list[tuple[int, float]] = field(default_factory=list)
    """Step and moment, the newest last."""
    begun: tuple[int, float, float] | None = None
    """Step, since when, and when it was last written to."""
    save_seconds: float | None = None
    recovery: bool | None = None
    """Whether the recovery record fits; None where the framework has none."""
    damaged: dict[str, int] = field(default_factory=dict)
    """Damaged checkpoints by kind of damage."""
    resume_damaged: bool = False
    """Whether a resume would take a damaged one."""
    uncopied: float | None = None
    """The time of the first checkpoint without a copy in the second place."""

    def look(self, now: float) -> None:
        """What the eye sees it sees at its own pace; what it says is as old as that."""
        if not self.blind and now - self.seen >= INTERVAL:
            self.seen = now

    def newest(self) -> Iterator[tuple[str, str, int, float, float | None]]:
        if self.complete:
            step, moment = self.complete[-1]
            took = self.save_seconds
            yield self.run, self.name, step, moment, None if took is None else moment - took

    @property
    def proved(self) -> list[tuple[int, float]]:
        """Step and moment of those from which a resume is sound."""
        return self.complete[:-1] if self.resume_damaged else self.complete

    def saving(self, now: float) -> Iterator[tuple[str, float | None]]:
        saves = self.begun is not None and now - self.begun[2] < SAVING_SECONDS
        yield self.run, self.begun[1] if self.begun is not None and saves else None

    def put(self, page: Page, disk: Disk, now: float) -> None:
        self.look(now)
        labels = (self.run, self.name)
        page.put("trainwarden_checkpoint_seen_timestamp_seconds", self.seen, *labels)
        moments = [moment for _, moment in self.complete]
        between = [later - one for one, later in pairwise(moments)]
        learned = median(between[-COUNTED:]) if len(between) >= FEWEST else None
        page.put("trainwarden_checkpoint_interval_seconds", self.interval or learned, *labels)
        if self.complete:
            page.put("trainwarden_checkpoint_timestamp_seconds", moments[-1], *labels)
            page.put("trainwarden_checkpoint_save_seconds", self.save_seconds, *labels)
            left = max(0.0, disk.free) / self.size
            if disk.up:
                page.put("trainwarden_disk_checkpoints_left", round(left, 2), *labels, disk.path)
            page.put("trainwarden_checkpoint_recovery_matches", self.recovery, *labels)
            for kind in DamageKind:
                damaged = self.damaged.get(kind, 0)
                page.put("trainwarden_checkpoint_damaged", damaged, *labels, kind)
            page.put("trainwarden_checkpoint_resume_damaged", self.resume_damaged, *labels)
            page.put("trainwarden_checkpoint_uncopied_timestamp_seconds", self.uncopied, *labels)
        saving = self.begun is not None and now - self.begun[2] < SAVING_SECONDS
        page.put("trainwarden_checkpoint_saving", saving, *labels)
        if self.begun is not None:
            page.put("trainwarden_checkpoint_incomplete_timestamp_seconds", self.begun[1], *labels)
