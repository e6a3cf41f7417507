"""systemd services: their state as systemctl shows it, and whether an operator stopped them."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, BeforeValidator, Field, ValidationError

from trainwarden_exporter.processes.matching import ProcessTree, WorkerKey
from trainwarden_exporter.processes.procfs import PROC, Cgroup, Identity, read_cgroups

ANSWER_SECONDS = 2.0
"""Timeout of a request to systemd."""

SETTLE_SECONDS = 60.0
"""Seconds after the end of a process during which its unit may still be stopping."""

_SELF_CAUSED_RESULTS = frozenset(
    {"oom-kill", "watchdog", "resources", "protocol", "start-limit-hit"}
)
"""Results of a unit that nobody requested to stop, although systemd may have stopped it."""


_SPAN = re.compile(r"(\d+(?:\.\d+)?)(y|month|w|d|h|min|s|ms|us)")
_UNITS = {"y": 31_557_600e6, "month": 2_629_800e6, "w": 604_800e6, "d": 86_400e6, "h": 3600e6}
_UNITS |= {"min": 60e6, "s": 1e6, "ms": 1e3, "us": 1.0}
"""Microseconds of the units in which systemd writes a time span (systemd.time(7))."""


def _parse_time_span(text: str) -> float:
    """Parses a time span such as `1h 30min` into microseconds; infinity without a limit."""
    if text in ("", "infinity"):
        return float("inf")
    found = [_SPAN.fullmatch(part) for part in text.split()]
    return sum(float(one[1]) * _UNITS[one[2]] if one else float("inf") for one in found)


_Number = Annotated[int, BeforeValidator(lambda text: text or 0)]


class Unit(BaseModel):
    """A unit as systemd shows it. Times are microseconds of the monotonic clock, 0 for never.

    `active_enter`, `active_exit`: when the unit last entered and left the state active.
    `runtime_max`: how long it may be active.
    """

    names: str = Field("", alias="Names")
    load: str = Field(alias="LoadState")
    active: str = Field(alias="ActiveState")
    sub: str = Field("", alias="SubState")
    result: str = Field("", alias="Result")
    invocation: str = Field(alias="InvocationID")
    main_pid: _Number = Field(0, alias="MainPID")
    job: str = Field("", alias="Job")
    main_start: _Number = Field(0, alias="ExecMainStartTimestampMonotonic")
    main_exit: _Number = Field(0, alias="ExecMainExitTimestampMonotonic")
    active_enter: _Number = Field(0, alias="ActiveEnterTimestampMonotonic")
    active_exit: _Number = Field(0, alias="ActiveExitTimestampMonotonic")
    runtime_max: Annotated[float, BeforeValidator(_parse_time_span)] = Field(
        float("inf"), alias="RuntimeMaxUSec"
    )

    @property
    def has_run(self) -> bool:
        """Whether the unit has run, as far as systemd remembers."""
        return bool(self.invocation and self.main_start)

    @property
    def ended(self) -> bool:
        return self.active in ("inactive", "failed")

    @property
    def was_stop_requested(self) -> bool:
        """Whether the last run ended by a stop request of an operator or of another unit.

        On a stop request, the unit leaves the state active before its process ends; otherwise it
        leaves it afterwards. The result is no evidence: many programs fail on a stop request.
        """
        if not self.ended or self.result in _SELF_CAUSED_RESULTS:
            return False
        if not self.has_run:
            return self.active == "inactive"
        if self.active_exit < self.main_start:  # the unit never became active
            return self.result == "success"
        # systemd has stopped it at RuntimeMaxSec; after a request, that result means that the
        # process had to be killed
        if self.result == "timeout" and self.active_exit - self.active_enter >= self.runtime_max:
            return False
        return self.main_exit > self.active_exit


def parse_unit(text: str) -> Unit:
    """Parses the output of `systemctl show --property`. Raises ValueError if it is malformed."""
    found = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    try:
        return Unit.model_validate(found)
    except ValidationError as error:
        wrong = error.errors()[0]
        message = f"not a description of a unit: {wrong['loc'][0]}: {wrong['msg']}"
        raise ValueError(message) from error


PROPERTIES = tuple(str(field.alias) for field in Unit.model_fields.values())
"""The unit properties to query."""


def service_of(cgroups: tuple[Cgroup, ...]) -> str | None:
    """Returns the service of the system's systemd that a process runs in; None without one.

    Services of a user's own systemd are below `user@….service`, and that of the system does not
    know them.
    """
    for controllers, path in cgroups:
        if controllers in ("", "name=systemd"):
            parts = path.split("/")
            if not any(part.startswith("user@") for part in parts):
                return next((part for part in reversed(parts) if part.endswith(".service")), None)
    return None


def was_stop_requested(unit: str, *, systemctl: str = "systemctl") -> bool | None:
    """Whether `unit` was stopped on request; None while it has not ended or without an answer."""
    command = [systemctl, "--system", "--no-pager", "--no-ask-password", "show"]
    try:
        result = subprocess.run(  # noqa: S603 - a fixed list, the name from the kernel and after `--`
            [*command, f"--property={','.join(PROPERTIES)}", "--", unit],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8"},
            text=True,
            errors="replace",
            timeout=ANSWER_SECONDS,
            check=True,
        )
        found = parse_unit(result.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    # systemd forgets a transient unit that has ended: it then knows nothing of its run.
    known = found.load in ("loaded", "masked") and found.has_run
    return found.was_stop_requested if known and found.ended else None


class UnitStops:
    """Knows the services of the workers' processes, and asks systemd how they ended."""

    def __init__(self, root: Path = PROC, *, systemctl: str = "systemctl") -> None:
        self._root = root
        self._systemctl = systemctl
        self._units: dict[WorkerKey, str] = {}
        self._known: dict[Identity, str | None] = {}
        self._answers: dict[WorkerKey, tuple[float, bool | None]] = {}

    def take_over_from(self, predecessor: Self) -> None:
        self._units = {**predecessor._units, **self._units}

    def record(self, trees: Mapping[WorkerKey, ProcessTree]) -> None:
        """Records the services in which the workers run now."""
        known: dict[Identity, str | None] = {}
        for key, tree in trees.items():
            for root in tree.roots:
                if not root.alive:
                    continue
                if root.identity in self._known:
                    unit = self._known[root.identity]
                else:
                    cgroups = read_cgroups(root.pid, self._root)
                    unit = None if cgroups is None else service_of(cgroups)
                known[root.identity] = unit
                self._units.pop(key, None)
                if unit is not None:
                    self._units[key] = unit
        self._known = known

    def was_stopped(self, key: WorkerKey, ended_at: float | None, now: float) -> bool:
        """Whether the service of a worker that ended at `ended_at` was stopped on request."""
        unit = self._units.get(key)
        if unit is None or ended_at is None:
            return False
        at, answer = self._answers.get(key, (None, None))
        if at != ended_at or (answer is None and now - ended_at < SETTLE_SECONDS):
            answer = was_stop_requested(unit, systemctl=self._systemctl)
            self._answers[key] = ended_at, answer
        return answer is True
