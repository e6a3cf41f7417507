"""What an action is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Any, ClassVar, Protocol

from trainwarden_exporter.processes.procfs import Identity
from trainwarden_remediator.world import Sight


class Standing(StrEnum):
    """How things stand after an action on them was cut short."""

    UNTOUCHED = "untouched"
    """What was to be ended still runs."""
    ENDED = "ended"
    """It does not, and nothing was started in its place."""
    STARTED = "started"
    """What the action was to start runs."""
    REPLACED = "replaced"
    """Something runs that was there neither before the action nor because of it."""


class Announce(Protocol):
    """Writes the next step down before it is taken."""

    def __call__(self, step: str, **facts: Any) -> None: ...


class Action(ABC):
    """Changes one thing by one kind of means.

    All methods may block, except `illness`, which is pure. None is entered twice at once, but
    `tidy` may be called at any time.
    """

    kind: ClassVar[str]
    """What it is called in journal and metrics."""

    only_ends: ClassVar[bool] = False
    """Whether, with no processes to end, there is nothing to do."""

    @property
    @abstractmethod
    def grace(self) -> float:
        """Seconds that what is ended has to put its work away."""

    @abstractmethod
    def processes(self) -> Collection[Identity]:
        """What it would end now. Raises ActionError when that cannot be told."""

    @abstractmethod
    def perform(
        self, action: int, announce: Announce, meant: Collection[Identity] | None = None
    ) -> Mapping[str, Any]:
        """Do it; `action` is the journal's number for this.

        Nothing is ended that is not among `meant`: what was there when this was decided. None
        stands for whatever there is now. Returns facts for the journal. Raises ActionError when it
        could not be done.
        """

    @abstractmethod
    def standing(self, action: int, before: Collection[Identity]) -> Standing:
        """How things stand, given what action number `action` was to end.

        Raises ActionError when that cannot be told now.
        """

    @abstractmethod
    def finish(self, action: int, announce: Announce) -> Mapping[str, Any]:
        """Do what is left of an action that was cut short after it had ended what it was to end.

        Returns and raises as `perform`.
        """

    @abstractmethod
    def illness(self, sight: Sight, began: float) -> str:
        """What keeps an action begun at `began` (Unix seconds) from having helped, or nothing."""

    def adopt(self, predecessor: Action) -> None:  # noqa: B027 - most have nothing to take over
        """Take over what a predecessor, of an earlier configuration, has left behind."""

    def tidy(self) -> bool:
        """Collect what ended children leave behind. Returns whether there may be more to come."""
        return False
