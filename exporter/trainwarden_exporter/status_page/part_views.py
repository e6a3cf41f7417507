"""Status page: view models of what belongs to a run, as its checkpoints and its servers."""

from __future__ import annotations

import math
from dataclasses import dataclass

from trainwarden_exporter.status_page.series import Tone

OVERDUE_INTERVALS = 2.0
"""Multiple of its interval after which a checkpoint is overdue, as in the shipped rules."""

LATE_INTERVALS = 2.0
"""Multiple of its interval after which a heartbeat is missing, as in the shipped rules."""

BRAKE = "brake"
"""Part of the names of patterns whose streak is a problem, as in the shipped rules."""

BRAKE_LIMIT = 10.0
"""The streak from which on TrainingBrakeFiring fires."""

BRAKE_RECENT_SECONDS = 300.0
"""For how long after its last line a streak counts."""

FEW_CHECKPOINTS = 3.0
"""Number of checkpoints below which the free space for them counts as little."""


SETTLING = "settling"
"""What a checkpoint is that was just written, while nothing can show that its save is over."""


@dataclass(frozen=True, slots=True)
class CheckpointView:
    """Checkpoints of one kind. Times in seconds; None where unknown."""

    name: str
    step: float | None = None
    age: float | None = None
    interval: float | None = None
    """At least the time for which it must be unchanged: saves may come more often."""
    saving: bool = False
    settling: bool = False
    incomplete_step: float | None = None
    left: float | None = None
    """How many more checkpoints fit."""
    finished: bool = False
    """Whether the run has made its last step, or finished: no save is due."""
    others: str = ""
    """What the folders hold, if no checkpoint: the first names."""
    missing_folder: str = ""
    """Its folder, if that does not exist."""
    resume_problem: str = ""
    """What is wrong with the checkpoint that a resume takes; "" if none is known."""
    finite_until: float | None = None
    """The last step with a finite loss, if the last loss is not finite."""
    trainer_age: float | None = None
    """Time since the start of the trainer, before which it could save none."""
    trainer_gone: bool = False
    """Whether no process of the trainer runs: until it does, none can be saved."""
    unit: str = "step"  # or epoch, by its name

    def number(self, value: float | None) -> str:
        return "" if value is None else f"{self.unit} {value:,.0f}"

    @property
    def is_late(self) -> bool:
        """Whether it was saved after the loss became NaN or infinite."""
        until = math.inf if self.finite_until is None else self.finite_until
        return self.unit == "step" and (self.step or 0.0) > until

    @property
    def unsettled(self) -> str:
        """The newest checkpoint, as `step 60`, while it is settling; else ""."""
        return (self.number(self.incomplete_step) or "one") if self.settling else ""

    @property
    def overdue_after(self) -> float | None:
        return None if self.interval is None else OVERDUE_INTERVALS * self.interval

    @property
    def overdue(self) -> bool:
        limit = self.overdue_after
        if self.age is None or limit is None or self.finished or self.trainer_gone:
            return False
        if self.saving or self.settling:
            return False
        return min(self.age, self.age if self.trainer_age is None else self.trainer_age) > limit

    @property
    def tone(self) -> Tone:
        if self.resume_problem:
            return "bad"
        if self.is_late:
            return "warn"
        if self.finished:
            return "good"
        if self.overdue:
            return "warn"
        return "warn" if self.left is not None and self.left < FEW_CHECKPOINTS else "good"


@dataclass(frozen=True, slots=True)
class RolloutView:
    """Rollouts of one kind."""

    name: str
    step: float | None = None
    age: float | None = None
    lag: float | None = None
    lag_limit: float | None = None

    @property
    def tone(self) -> Tone:
        over = self.lag is not None and self.lag_limit is not None and self.lag > self.lag_limit
        return "bad" if over else "good"


@dataclass(frozen=True, slots=True)
class ServerView:
    """An inference server."""

    name: str
    engine: str
    up: bool = True
    reason: str = ""
    since: float | None = None
    """Seconds in the current state."""
    running: float | None = None
    waiting: float | None = None
    cache: float | None = None
    """KV cache usage, 0 to 1."""
    version: float | None = None
    worker: str = ""
    """The worker that runs it; empty if that is not known."""

    @property
    def tone(self) -> Tone:
        if not self.up:
            return "warn" if self.reason == "starting" else "bad"
        return "good" if self.reason in ("ok", "") else "quiet"


@dataclass(frozen=True, slots=True)
class ContainerView:
    """A container of the run."""

    name: str
    state: str = ""
    health: str = ""
    recent_starts: float | None = None
    exit_code: float | None = None
    last_line: str = ""

    @property
    def tone(self) -> Tone:
        if self.state in ("exited", "dead", "absent", "restarting") or self.health == "unhealthy":
            return "bad"
        return "warn" if (self.recent_starts or 0) > 1 else "good"


@dataclass(frozen=True, slots=True)
class HeartbeatView:
    """A heartbeat; `age` is the time since the last beat."""

    name: str
    age: float | None = None
    interval: float | None = None
    silence: float | None = None
    """Time without a beat during which the exporter could have received one."""
    step: float | None = None

    @property
    def missed(self) -> bool:
        return self._intervals > LATE_INTERVALS

    @property
    def tone(self) -> Tone:
        if self._intervals > 1:
            return "bad" if self.missed else "warn"
        return "quiet" if self.age is None else "good"

    @property
    def state(self) -> str:
        if self._intervals > 1:
            return "missed" if self.missed else "late"
        return "awaited" if self.age is None else "beats"

    @property
    def _intervals(self) -> float:
        """Silence as a multiple of the interval."""
        return 0 if self.silence is None or not self.interval else self.silence / self.interval


@dataclass(frozen=True, slots=True)
class BrakeView:
    """The emergency brake of a worker: consecutive activations, as logged."""

    pattern: str
    log: str
    streak: float
    age: float | None = None
    """Seconds since the last activation."""

    @property
    def tone(self) -> Tone:
        if self.streak < 2 or (self.age or 0) > BRAKE_RECENT_SECONDS:  # noqa: PLR2004 - a streak
            return "quiet"
        return "bad" if self.streak >= BRAKE_LIMIT else "warn"
