"""Status page: view model of a run, and whether it stands still, is late or only quiet."""

from __future__ import annotations

import math
from dataclasses import dataclass

from trainwarden_exporter.logs.counters import ErrorLine
from trainwarden_exporter.progress.run_time_history import Part
from trainwarden_exporter.runtime.formatting import format_duration
from trainwarden_exporter.status_page.part_views import (
    BrakeView,
    CheckpointView,
    ContainerView,
    HeartbeatView,
    RolloutView,
    ServerView,
)
from trainwarden_exporter.status_page.series import Tone

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
PRINTING_SECONDS = 20.0
"""The same of a trainer that trains already, as it prints losses or what looks like steps."""

NO_STEP_SEEN = (
    "no hang can be seen until it prints `step 12`, with PYTHONUNBUFFERED=1, or calls "
    "trainwarden.beat"
)

UNREAD_STEP = (
    "its lines look like a step and cannot be read (`{line}`): no hang can be seen until it prints "
    "`step 12` at the start of a line, or calls trainwarden.beat"
)


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
    prints_loss: bool = False
    """Whether its trainer has printed a loss since its start."""
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
        trains = self.prints_loss or self.unread_step
        return self.without_step >= (PRINTING_SECONDS if trains else STEPLESS_SECONDS)

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
    def usual_pace(self) -> str:
        """Returns `2 s`, or `1 s, reported every 15 s` of a run that reports many steps at once."""
        known = [format_duration(one) for one in (self.usual_seconds, self.report_seconds) if one]
        return ", reported every ".join(known)

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
