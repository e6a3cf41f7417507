"""How a unit of systemd stands, by its properties, and whether it may be acted upon. Pure.

Sources: systemd.service(5), systemctl(1), and org.freedesktop.systemd1(5) of systemd 252.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainwarden_remediator.actions.managed import Kept

PROPERTIES = (
    *("Names", "LoadState", "ActiveState", "SubState", "Result", "InvocationID", "MainPID", "Job"),
    *("ExecMainStartTimestampMonotonic", "ExecMainExitTimestampMonotonic"),
    "ActiveExitTimestampMonotonic",
)
"""What is asked of a unit."""

_ITSELF = frozenset({"oom-kill", "watchdog", "resources", "protocol", "start-limit-hit"})
"""Results of a unit that was not told to stop, though systemd may have begun to stop it."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit as its manager shows it. Moments are microseconds of the monotonic clock, 0 for never.

    `active_exit` is when it last began to stop, or was found ended.
    """

    names: tuple[str, ...]
    load: str
    active: str
    sub: str
    result: str
    invocation: str
    main_pid: int
    job: bool
    main_start: int
    main_exit: int
    active_exit: int

    @property
    def ran(self) -> bool:
        """Whether it has run at all, as far as the manager remembers."""
        return bool(self.invocation and self.main_start)

    @property
    def ended(self) -> bool:
        return self.active in ("inactive", "failed")

    @property
    def was_told_to_stop(self) -> bool:
        """Whether its last run ended because a person, or another unit, told it to stop.

        A unit that is told to stop first leaves the state active, and then its process ends; one
        whose process ends by itself leaves it after that. It may fail all the same, for many a
        program ends with an error when it is told to.
        """
        if not self.ended or self.result in _ITSELF:
            return False
        if not self.ran:
            return self.active == "inactive"
        if self.active_exit < self.main_start:  # it never became active
            return self.result == "success"
        return self.main_exit > self.active_exit


def parse_unit(text: str) -> Unit:
    """What `systemctl show --property …` prints. Raises ValueError for anything else."""
    found = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    if missing := {"LoadState", "ActiveState", "InvocationID"} - found.keys():
        raise ValueError(f"no description of a unit: no {', '.join(sorted(missing))}")

    def number(name: str) -> int:
        return int(found.get(name) or 0)

    return Unit(
        names=tuple(found.get("Names", "").split()),
        load=found["LoadState"],
        active=found["ActiveState"],
        sub=found.get("SubState", ""),
        result=found.get("Result", ""),
        invocation=found["InvocationID"],
        main_pid=number("MainPID"),
        job=bool(found.get("Job", "")),
        main_start=number("ExecMainStartTimestampMonotonic"),
        main_exit=number("ExecMainExitTimestampMonotonic"),
        active_exit=number("ActiveExitTimestampMonotonic"),
    )


def kept(name: str, unit: Unit) -> Kept:
    """What may be done about the unit of that `name`."""
    return Kept(
        identity=f"{name} {unit.invocation or 'never started'}",
        running=not unit.ended,
        stopped=unit.was_told_to_stop,
        hands_off=_hands_off(name, unit),
        pid=unit.main_pid or None,
    )


def _hands_off(name: str, unit: Unit) -> str:
    if unit.load == "masked":
        return f"{name} is masked"
    if unit.job:
        return f"a job for {name} is queued already"
    if unit.sub.startswith("auto-restart"):
        return f"systemd is about to start {name} again by itself (its Restart=)"
    if unit.active in ("activating", "deactivating"):
        return f"{name} is {unit.active} ({unit.sub})"
    if unit.was_told_to_stop:
        if unit.ran:
            return f"{name} was told to stop"
        # Also after a boot that did not start it: whoever wants it started enables it.
        return f"{name} is inactive, and systemd knows of no run of it"
    return ""
