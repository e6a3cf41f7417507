"""What an action is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Any, Protocol

from trainwarden_exporter.procfs import Identity


class Standing(StrEnum):
    """How a target stands after an action on it was cut short."""

    UNTOUCHED = "untouched"
    """What was to be replaced still runs."""
    ENDED = "ended"
    """Nothing of the target runs."""
    STARTED = "started"
    """What the action was to start runs."""
    REPLACED = "replaced"
    """Something runs that was there neither before the action nor because of it."""


class Announce(Protocol):
    """Writes the next step down before it is taken."""

    def __call__(self, step: str, **facts: Any) -> None: ...


class Action(ABC):
    """Restarts one target by one kind of means.

    All methods block; none is entered twice at once, but `tidy` beside any of the others.
    """

    @abstractmethod
    def processes(self) -> Collection[Identity]:
        """What the target consists of now. Raises ActionError when that cannot be seen."""

    @abstractmethod
    def restart(self, action: int, announce: Announce) -> Mapping[str, Any]:
        """End what runs and start it anew; `action` is the journal's number for this.

        Returns facts for the journal. Raises ActionError when it could not be done.
        """

    @abstractmethod
    def standing(self, action: int, before: Collection[Identity]) -> Standing:
        """How the target stands, given what it consisted of before action number `action`.

        Raises ActionError when that cannot be seen.
        """

    @abstractmethod
    def finish(self, action: int, announce: Announce) -> Mapping[str, Any]:
        """Start what a restart cut short has ended but not started; otherwise as `restart`."""

    def tidy(self) -> bool:
        """Collect what ended children leave behind. Returns whether there may be more to come."""
        return False
