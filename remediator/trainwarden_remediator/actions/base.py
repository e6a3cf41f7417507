"""What an action is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from enum import StrEnum
from typing import Any, ClassVar, Protocol

from trainwarden_remediator.sight import Sight
from trainwarden_remediator.subjects import Subject


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


Saving = Callable[[], bool]
"""Whether what is to be ended is writing a checkpoint now; may block for some seconds."""


def never() -> bool:
    return False


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
    def processes(self) -> Collection[Subject]:
        """What it would end now.

        Raises LeftAloneError where it would do nothing, and ActionError when that cannot be told.
        """

    @abstractmethod
    def perform(
        self,
        mark: str,
        announce: Announce,
        meant: Collection[Subject] | None = None,
        saving: Saving = never,
    ) -> Mapping[str, Any]:
        """Do it; what it starts by itself bears `mark`, and nothing else ever does.

        Nothing is ended that is not among `meant`: what was there when this was decided. None
        stands for whatever there is now. Nothing is killed while it is `saving`, for some time.
        Returns facts for the journal. Raises ActionError when it could not be done.
        """

    @abstractmethod
    def standing(self, mark: str, before: Collection[Subject]) -> Standing:
        """How things stand, given what the action of that `mark` was to end.

        Raises ActionError when that cannot be told now.
        """

    @abstractmethod
    def finish(self, mark: str, announce: Announce) -> Mapping[str, Any]:
        """Do what is left of an action that was cut short after it had ended what it was to end.

        Returns and raises as `perform`.
        """

    @abstractmethod
    def illness(self, sight: Sight, began: float) -> str:
        """What keeps an action begun at `began` (Unix seconds) from having helped, or nothing."""

    def adopt(self, predecessor: Action) -> None:  # noqa: B027 - most have nothing to take over
        """Take over what a predecessor, of an earlier configuration, has left behind."""

    def finished(self) -> bool | None:
        """Whether what it started last has ended by itself with status 0; None if not known."""
        return None

    def tidy(self) -> bool:
        """Collect what ended children leave behind. Returns whether there may be more to come."""
        return False
