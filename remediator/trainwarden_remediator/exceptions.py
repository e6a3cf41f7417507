"""Errors of the remediator, below those it shares with the exporter.

TrainwardenError
├── MalformedError   a webhook body is not what Alertmanager sends
├── JournalError     the journal cannot be read or written
├── LostError        what was meant has nobody to carry it out; the next start settles it
├── HoldError        the hold file cannot be written
├── UnknownError     the world could not be asked; whoever asks must not act
├── SecretError      a file with a secret cannot be used; never says what stands in it
├── NotDeliveredError  a message has not reached a person; never says where it was sent
└── ActionError      an action could not be carried out; says what stands now
    ├── LeftAloneError   it is not ours to act upon as it stands now: a person, or its own
    │   │                    manager, has it in hand
    │   └── NotNowError      whoever was asked to act says so, and has done nothing
    └── AmbiguousError   whether it was done is not known: it is looked at, never repeated
"""

from __future__ import annotations

from trainwarden_exporter.exceptions import TrainwardenError


class MalformedError(TrainwardenError):
    """A webhook body is not what Alertmanager sends."""


class JournalError(TrainwardenError):
    """The journal cannot be read or written; nothing may be done that it would not record."""


class LostError(TrainwardenError):
    """What was meant has nobody to carry it out: the program ends; its next start settles it."""


class HoldError(TrainwardenError):
    """The hold file cannot be written: what a person asked for is not in force."""


class UnknownError(TrainwardenError):
    """A question to the world went unanswered."""


class SecretError(TrainwardenError):
    """A file with a secret cannot be used; the message never repeats what stands in it."""


class NotDeliveredError(TrainwardenError):
    """A message has not reached its receiver; the message never says where that is.

    `refused`: it was reached, and did not take this one. `after`: for so many seconds it wants to
    be left alone.
    """

    def __init__(self, message: str, *, refused: bool = False, after: float = 0.0) -> None:
        super().__init__(message)
        self.refused = refused
        self.after = after


class ActionError(TrainwardenError):
    """An action could not be carried out; the message says what stands now."""


class LeftAloneError(ActionError):
    """A person has stopped it, or its own manager is about to start it: whoever acts must not."""


class NotNowError(LeftAloneError):
    """Whoever was asked to act says that it must not be now, and has done nothing."""


class AmbiguousError(ActionError):
    """Whether it was done is not known: what has become of it must be looked at."""
