"""A run whose steps are counted by bars."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from trainwarden_exporter.frameworks.base import LinePattern, Phase
from trainwarden_exporter.logs.events import LineEvent
from trainwarden_exporter.progress.specs import ProgressSpec
from trainwarden_exporter.progress.state import RunProgress
from trainwarden_exporter.progress.tracker import ProgressTracker


class Bars:
    """A run whose steps are counted by bars, ten seconds apart."""

    def __init__(
        self,
        counts: Literal["bar", "epoch", "line"],
        total: int | None = None,
        *,
        trainers: tuple[str, ...] = (),
        state_folder: Path | None = None,
    ) -> None:
        lines = (
            LinePattern("bar", "…", phase=Phase.TRAINING, total_of=counts),
            LinePattern("finished", "…", phase=Phase.FINISHED),
            LinePattern("epoch", "…", advances=True),
            LinePattern("step", "…", phase=Phase.TRAINING),
            LinePattern("other", "…", total_of="other"),
            LinePattern("error", "…", error=True),
        )
        self.now = 1_000_000.0
        self.spec = ProgressSpec(
            "run", lines={("log", one.name): one for one in lines}, total=total, trainers=trainers
        )
        self.state_folder = state_folder
        self.begin()

    def begin(self) -> None:
        """Starts the exporter, on the state that an earlier one has saved."""
        self.tracker = ProgressTracker(
            [self.spec],
            state_folder=self.state_folder,
            now=lambda: self.now,
            elapsed=lambda: self.now,
        )

    def miss(self, seconds: float) -> None:
        """Ends the exporter and starts it again."""
        self.tracker.save()
        self.now += seconds
        self.begin()

    def trainer(self, started: float | None) -> None:
        self.tracker.record_trainer("run", started, finished=False)

    def draw(self, *steps: int, total: int) -> None:
        for step in steps:
            self.now += 10
            self.line("bar", step=str(step), total=str(total))

    def line(self, pattern: str, *, fresh: bool = True, **groups: str) -> None:
        self.tracker.record_line(
            LineEvent("run", "log", "trainer", pattern, groups, self.now, fresh=fresh)
        )

    @property
    def state(self) -> RunProgress:
        ((_, state),) = self.tracker.states()
        return state
