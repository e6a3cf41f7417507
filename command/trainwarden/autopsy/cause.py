"""What a cause is: what speaks for and against it, and what helps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trainwarden.autopsy.signs import Sign

LIKELY = 4
"""Points from which a cause is called likely."""
RESUME = "Resume from the last good checkpoint."
"""What to do, where there is one."""

Setting = Literal[
    "container", "inference", "memory", "watchdog", "rollouts", "disk", "progress", "workers"
]


@dataclass(frozen=True, slots=True)
class Cause:
    """A cause. Its score is the sum of the points of the signs that hold.

    It is considered only where a key sign holds.
    """

    name: str
    title: str
    signs: tuple[Sign, ...]
    next_steps: tuple[str, ...]
    settings: tuple[Setting, ...]
    """What to configure so that it is caught next time."""
    alerts: tuple[str, ...]
    """The alerts that then report it."""
    quotes: bool = False
    """Whether the headline quotes the line of its first evidence."""
