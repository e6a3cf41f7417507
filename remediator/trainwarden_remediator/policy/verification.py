"""Concludes from what is observed, one look after another, whether an action has helped. Pure.

All times are seconds of a monotonic clock.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainwarden_remediator.config.playbooks import Verify
from trainwarden_remediator.model import TakenOver

DEAD_SECONDS = 3.0
"""How long a started worker must have no process before its start counts as failed: a launcher may
replace its process."""

SECOND_LOOK_SECONDS = 1.0
"""How long a run must make new steps at least: the next look must show them, too."""

RELAPSE_SECONDS = 15.0
"""How long such a condition is back before it counts: as long as for its alert."""

STUCK_SECONDS = 120.0
"""How long stacks must show it stuck: the exporter has read them twice by then, a minute apart."""


@dataclass(slots=True)
class Relapse:
    """Whether what was well is ill again, so that a process that leaks need not grow meanwhile."""

    was_well: bool = False
    ill_since: float | None = None

    def update(self, now: float, ill: str, *, is_back: bool) -> str:
        """Returns why it is not healed, or "".

        `is_back`: whether its condition is seen to hold; it may be ill for another reason.
        """
        self.was_well = self.was_well or not ill
        if not (ill and is_back and self.was_well):
            self.ill_since = None
        elif self.ill_since is None:
            self.ill_since = now
        lasts = self.ill_since is not None and now - self.ill_since >= RELAPSE_SECONDS
        return f"{ill}, again" if lasts else ""


@dataclass(slots=True)
class StartedProcess:
    """Whether what an action has started is dead, so that no time is lost waiting for it."""

    lived: bool = False
    dead_since: float | None = None

    def update(self, now: float, *, lives: bool, failure: str) -> str:
        """Returns why the start has failed, or "".

        `lives`: whether the worker has a process. `failure`: how the started process has failed, if
        that is known. A worker that was never seen and is not known to have failed may still
        appear.
        """
        self.lived = self.lived or lives
        if lives or not (self.lived or failure):
            self.dead_since = None
            return ""
        if self.dead_since is None:
            self.dead_since = now
        if now - self.dead_since < DEAD_SECONDS:
            return ""
        return failure or "it ended soon after its start"


@dataclass(frozen=True, slots=True)
class Look:
    """What one observation shows of the effect of an action."""

    problem: str = ""
    """Why it has not helped yet, or ""."""
    hopeless: str = ""
    """Why it cannot help any more, or ""."""
    remark: str = ""
    """What the report mentions though it has helped, or ""."""
    taken_over: TakenOver | None = None
    makes_new_steps: bool = False
    is_back: bool = False
    """Whether a condition that comes back after a start is seen to hold."""
    has_processes: bool = False
    stuck: bool = False
    """Whether the stacks of what was started show it stuck."""
    start_failure: str = ""
    """How the started process has failed, if that is known."""
    extra_seconds: float | None = None
    """Seconds that the start may take beyond those of `verify`; None without an observation."""


@dataclass(frozen=True, slots=True)
class Conclusion:
    """The end of a verification. `text`: a remark about what has healed, else why it has not."""

    healed: bool
    text: str
    taken_over: TakenOver | None


class Verification:
    """Concludes from one look after another whether an action has helped."""

    def __init__(self, verify: Verify, began: float) -> None:
        self._stable_for = verify.stable_for
        self._patient_until = began + verify.timeout + verify.stable_for
        self._extra_seconds = self._proof_ends = 0.0
        self._well_since: float | None = None
        self._new_since: float | None = None
        self._stuck_since: float | None = None
        self._process, self._relapse = StartedProcess(), Relapse()

    def update(self, now: float, look: Look) -> Conclusion | None:
        """Returns whether the action has helped, or None while that is open."""
        early = self._early_end(now, look)
        if not look.problem:
            proved = self._is_proved(now, is_new=look.makes_new_steps)
            return Conclusion(True, look.remark, look.taken_over) if proved else None
        self._well_since = self._new_since = None
        late = now >= max(self._patient_until + self._extra_seconds, self._proof_ends)
        if not (early or late):
            return None
        return Conclusion(False, early or look.problem, look.taken_over)

    def _early_end(self, now: float, look: Look) -> str:
        """Returns why it does not help, before the time for that is over, or ""."""
        if look.extra_seconds is None:  # nothing was observed
            return ""
        # What is not granted by then is not granted any more, so that each verification ends.
        granted = self._extra_seconds if now >= self._patient_until else look.extra_seconds
        self._extra_seconds = min(granted, look.extra_seconds)
        self._stuck_since = (self._stuck_since or now) if look.stuck else None
        lasts = self._stuck_since is not None and now - self._stuck_since > STUCK_SECONDS
        return (
            look.hopeless
            or ("its stacks show that it is stuck" if lasts else "")
            or self._process.update(now, lives=look.has_processes, failure=look.start_failure)
            or self._relapse.update(now, look.problem, is_back=look.is_back)
        )

    def _is_proved(self, now: float, *, is_new: bool) -> bool:
        """Whether what is well at `now` has been so for long enough."""
        # What is well for the first time has the time to prove that it stays so.
        self._proof_ends = self._proof_ends or now + 2 * self._stable_for
        self._well_since = now if self._well_since is None else self._well_since
        if not is_new:
            self._new_since = None
            return now - self._well_since >= self._stable_for
        # Also after looks at steps that it had made before.
        self._new_since = now if self._new_since is None else self._new_since
        return now - self._new_since >= SECOND_LOOK_SECONDS
