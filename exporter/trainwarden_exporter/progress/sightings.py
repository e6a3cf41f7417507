"""A run and its parts, as a person thinks of them."""

from __future__ import annotations

from dataclasses import dataclass

from trainwarden_exporter.logs.tally import TroubleLine
from trainwarden_exporter.sightings import Tone
from trainwarden_exporter.wording import plural, span

OVERDUE = 2.0
"""Times its interval after which a checkpoint is overdue; the shipped rules say so, too."""

LATE = 2.0
"""Times its interval after which a heartbeat is missed, by the shipped rules too."""

FEW_LEFT = 3.0
"""Checkpoints for which there is room, below which that is little."""


@dataclass(frozen=True, slots=True)
class CheckpointSighting:
    """Checkpoints of one kind. Times in seconds; None where it is not known."""

    name: str
    step: float | None = None
    age: float | None = None
    interval: float | None = None
    saving: bool = False
    incomplete_step: float | None = None
    left: float | None = None
    """How many more there is room for."""

    @property
    def tone(self) -> Tone:
        late = self.age is not None and self.interval is not None
        if late and (self.age or 0) > OVERDUE * (self.interval or 0) and not self.saving:
            return "warn"
        return "warn" if self.left is not None and self.left < FEW_LEFT else "good"


@dataclass(frozen=True, slots=True)
class RolloutSighting:
    """Batches, or weights, of one kind."""

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
class ServerSighting:
    """An inference server."""

    name: str
    engine: str
    up: bool = True
    reason: str = ""
    since: float | None = None
    """Seconds in that state."""
    running: float | None = None
    waiting: float | None = None
    cache: float | None = None
    """Share of the KV cache that is used."""
    version: float | None = None

    @property
    def tone(self) -> Tone:
        if not self.up:
            return "warn" if self.reason == "starting" else "bad"
        return "good" if self.reason in ("ok", "") else "quiet"


@dataclass(frozen=True, slots=True)
class ContainerSighting:
    """A container that the run is in."""

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
class HeartbeatSighting:
    """A heartbeat; `age` is the time since the last beat."""

    name: str
    age: float | None = None
    interval: float | None = None
    silence: float | None = None
    """Since the last beat that could have come: not while nobody was there to take it."""
    step: float | None = None

    @property
    def missed(self) -> bool:
        return self._intervals > LATE

    @property
    def tone(self) -> Tone:
        if self._intervals > 1:
            return "bad" if self.missed else "warn"
        return "quiet" if self.age is None else "good"

    @property
    def state(self) -> str:
        """How it is, in a word."""
        if self._intervals > 1:
            return "missed" if self.missed else "late"
        return "awaited" if self.age is None else "beats"

    @property
    def _intervals(self) -> float:
        """How many times its interval it has been silent for."""
        return 0 if self.silence is None or not self.interval else self.silence / self.interval


@dataclass(frozen=True, slots=True)
class RunSighting:
    """One run at a glance. Times in seconds; None where it is not known."""

    name: str
    framework: str = ""
    phase: str = ""
    phase_age: float | None = None
    step: float | None = None
    total: float | None = None
    step_seconds: float | None = None
    usual_seconds: float | None = None
    step_age: float | None = None
    silence: float | None = None
    """Since the last sign of progress."""
    stall_limit: float | None = None
    resumes: float = 0
    resume_step: float | None = None
    finished: bool = False
    checkpoints: tuple[CheckpointSighting, ...] = ()
    rollouts: tuple[RolloutSighting, ...] = ()
    servers: tuple[ServerSighting, ...] = ()
    containers: tuple[ContainerSighting, ...] = ()
    heartbeats: tuple[HeartbeatSighting, ...] = ()
    troubles: tuple[TroubleLine, ...] = ()
    """The last lines of trouble, newest first."""

    @property
    def stalled(self) -> bool:
        return (
            not self.finished
            and self.silence is not None
            and self.stall_limit is not None
            and self.silence > self.stall_limit
        )

    @property
    def tone(self) -> Tone:
        if self.stalled:
            return "bad"
        return "quiet" if self.finished or not self.phase else "good"

    @property
    def state(self) -> str:
        """How it is, in a word or two."""
        if self.finished:
            return "finished"
        doing = self.phase.replace("_", " ")
        return f"stalled, {doing}" if self.stalled and doing else doing or "not known"

    @property
    def wrong(self) -> tuple[str, ...]:
        """What is wrong, each in a few words."""
        said = []
        if self.stalled and self.silence is not None:
            said.append(f"run {self.name} makes no progress for {span(round(self.silence))}")
        down = [server.name for server in self.servers if server.tone == "bad"]
        if down:
            said.append(f"{plural(len(down), 'inference server')} of {self.name} down")
        if any(one.tone == "bad" for one in self.rollouts):
            said.append(f"the rollouts of {self.name} lag")
        broken = [one.name for one in self.containers if one.tone == "bad"]
        said += [f"container {name} is not well" for name in broken]
        said += [f"heartbeat {one.name} is missed" for one in self.heartbeats if one.tone == "bad"]
        return tuple(said)

    @property
    def doubtful(self) -> bool:
        """Whether there is something to keep an eye on."""
        tones = [
            *(one.tone for one in self.checkpoints),
            *(one.tone for one in self.servers),
            *(one.tone for one in self.containers),
            *(one.tone for one in self.heartbeats),
        ]
        return "warn" in tones
