"""Status page: view models of a run."""

from __future__ import annotations

import math
from dataclasses import dataclass

from trainwarden_exporter.logs.counters import ErrorLine
from trainwarden_exporter.progress.run_time_history import Part
from trainwarden_exporter.status_page.series import Tone

OVERDUE_INTERVALS = 2.0
"""Multiple of its interval after which a checkpoint is overdue, as in the shipped rules."""

LATE_INTERVALS = 2.0
"""Multiple of its interval after which a heartbeat is missing, as in the shipped rules."""

LATE_STEP_SECONDS = 40.0
"""A step is late when it takes longer than the usual one by this, or by the usual one if that is
longer; the shipped rules judge a waiting trainer by the same."""

PAUSES = frozenset({"starting", "saving", "evaluating", "updating_weights", "finished"})
"""Phases in which a long time without a step is usual."""

QUIET_STEPS = 5.0
QUIET_SECONDS = 10.0
"""Usual steps, and at least seconds, without a step: then no page states that a run trains."""

STEPLESS_SECONDS = 90.0
"""Age of a trainer from which on a page says that no step of it was seen."""

NO_STEP_SEEN = (
    "no hang can be seen until it prints `step 12`, with PYTHONUNBUFFERED=1, or calls "
    "trainwarden.beat"
)

UNREAD_STEP = (
    "its lines look like a step and cannot be read (`{line}`): no hang can be seen until it prints "
    "`step 12` at the start of a line, or calls trainwarden.beat"
)

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
        return (self.step or 0.0) > (math.inf if self.finite_until is None else self.finite_until)

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
        none_due = self.finished or self.trainer_gone or self.saving or self.settling
        if self.age is None or limit is None or none_due:
            return False
        return min(self.age, self.age if self.trainer_age is None else self.trainer_age) > limit

    @property
    def tone(self) -> Tone:
        if self.resume_problem:
            return "bad"
        if self.is_late or self.overdue:
            return "warn"
        if self.finished:
            return "good"
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


@dataclass(frozen=True, slots=True)
class RunView:
    """One run. Times in seconds; None where unknown."""

    name: str
    framework: str = ""
    phase: str = ""
    step: float | None = None
    total: float | None = None
    step_seconds: float | None = None
    usual_seconds: float | None = None
    step_age: float | None = None
    silence: float | None = None
    """Time since the last sign of progress."""
    stall_limit: float | None = None
    restart_limit: float | None = None
    """Time without progress after which it is restarted even if nothing proves a hang."""
    counted: str = ""
    """What counts on since its last step, as `120 of 300`: the bar of an evaluation, mostly."""
    waits: str = ""
    """Which of its processes waits for what, if their stacks show whether it is stuck;"""
    stuck: bool = False
    """and whether they show that."""
    halted: str = ""
    """How you have halted it, as a clause: the remediator leaves it alone."""
    resumes: float = 0
    resume_step: float | None = None
    last_step_made: bool = False
    finished: bool = False
    outlived: str = ""
    """Which other commands of it run, since when, and what ends them, as a clause."""
    failure: str = ""
    """How its announced trainer failed, which then does not run."""
    trainer_processes: float | None = None
    trainer_age: float | None = None
    """Time since the start of the trainer."""
    watched: float | None = None
    """Time for which the exporter has read its log."""
    report_seconds: float | None = None
    """Usual time between its reports, each of several steps, if that is far longer than a step."""
    unread_step: str = ""
    """A line of its log with a step that is not read."""
    checkpoints: tuple[CheckpointView, ...] = ()
    rollouts: tuple[RolloutView, ...] = ()
    servers: tuple[ServerView, ...] = ()
    containers: tuple[ContainerView, ...] = ()
    heartbeats: tuple[HeartbeatView, ...] = ()
    brakes: tuple[BrakeView, ...] = ()
    error_lines: tuple[ErrorLine, ...] = ()
    """Last error lines, newest first."""
    day: tuple[Part, ...] = ()
    """How the last 24 hours were spent."""
    attempts: str = ""
    """How the last attempts ended, if alike."""
    finite_until: float | None = None
    """The last step with a finite loss, if the last loss is not finite;"""
    sound_checkpoint: str | None = ""
    """and the path of the newest proved checkpoint, if it is from before; None without any."""

    @property
    def down(self) -> bool:
        """Whether its trainer is gone, though it has not finished."""
        return not self.finished and (bool(self.failure) or self.trainer_processes == 0)

    @property
    def ends(self) -> bool:
        """Whether it has made its last step, and its stacks do not show that it hangs."""
        return self.last_step_made and not self.stuck

    @property
    def unnamed(self) -> str:
        """Returns why there is no checkpoint: other names, or no folder; "" if not known."""
        makes_steps = self.step is not None and not self.finished and not self.down
        if self.checkpoints and all(one.missing_folder for one in self.checkpoints):
            is_late = makes_steps and (self.trainer_age or 0) >= STEPLESS_SECONDS
            why = "does not exist: a hang is not healed without a checkpoint"
            return f"{self.checkpoints[0].missing_folder} {why}" if is_late else ""
        if not self.checkpoints or not all(one.others for one in self.checkpoints):
            return ""
        own = self.framework not in ("", "generic")
        usual = f"of {self.framework}" if own else "such as checkpoint-500 or ckpt.pt"
        return f"not named as a checkpoint, {usual}: {self.checkpoints[0].others}"

    @property
    def stalled(self) -> bool:
        if self.finished or self.ends or self.down:
            return False
        limit = math.inf if self.stall_limit is None else self.stall_limit
        return self.silence is not None and self.silence > limit

    @property
    def late(self) -> bool:
        """Whether the present step takes longer than usual, although no pause explains it."""
        usual = self.usual_report
        if self.finished or self.ends or self.down:
            return False
        if self.step_age is None or not usual:
            return self.stuck
        return self.phase not in PAUSES and self._is_late(self.step_age) and not self.moves

    @property
    def stands(self) -> bool:
        """Whether it stands still for no other reason than a fault."""
        return (self.stalled or self.late) and not self.halted

    @property
    def moves(self) -> bool:
        """Whether another count than that of its steps goes on."""
        return bool(self.counted) and not self._is_late(self.silence or 0)

    def _is_late(self, seconds: float) -> bool:
        usual = self.usual_report or 0
        return seconds > usual + max(usual, LATE_STEP_SECONDS)

    @property
    def quiet(self) -> bool:
        """Whether it makes no step for many usual ones, which is no problem yet."""
        if self.finished or self.ends or self.down or self.stalled or self.late or self.moves:
            return False
        if self.step_age is None or not self.usual_report or self.phase in PAUSES:
            return False
        return self.step_age > max(QUIET_STEPS * self.usual_report, QUIET_SECONDS)

    @property
    def stepless(self) -> bool:
        """Whether it has run for a while without a sign of progress by which a hang can be seen."""
        if self.finished or self.down or not self.trainer_processes or self.heartbeats:
            return False
        if self.step is not None or self.stall_limit is not None:
            return False
        return self.without_step >= STEPLESS_SECONDS

    @property
    def without_step(self) -> float:
        """Time for which a step would have been seen: an exporter that has just begun saw none."""
        age = self.trainer_age or 0
        return age if self.watched is None else min(age, self.watched)

    @property
    def usual_report(self) -> float | None:
        """Usual time after which it shows its next step."""
        return self.report_seconds or self.usual_seconds

    @property
    def advice(self) -> str:
        """Returns what shows the steps of a run that has shown none."""
        return UNREAD_STEP.format(line=self.unread_step) if self.unread_step else NO_STEP_SEEN

    @property
    def tone(self) -> Tone:
        if self.stalled or self.down:
            return "bad"
        if self.late:
            return "warn"
        return "quiet" if self.finished or not self.phase else "good"

    @property
    def state(self) -> str:
        if self.finished:
            return "finished"
        if self.failure:
            return f"failed: {self.failure}"
        if self.down:
            return "not running"
        if self.last_step_made:
            return "last step made"
        doing = self.phase.replace("_", " ")
        return f"stalled, {doing}" if self.stalled and doing else doing or "not known"
