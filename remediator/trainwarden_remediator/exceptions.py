"""Errors of the remediator, below those it shares with the exporter.

TrainwardenError
├── MalformedError   a webhook body is not what Alertmanager sends
├── JournalError     the journal cannot be read or written
├── UnknownError     the world could not be asked; whoever asks must not act
└── ActionError      an action could not be carried out; says what stands now
"""

from __future__ import annotations

from trainwarden_exporter.exceptions import TrainwardenError


class MalformedError(TrainwardenError):
    """A webhook body is not what Alertmanager sends."""


class JournalError(TrainwardenError):
    """The journal cannot be read or written; nothing may be done that it would not record."""


class UnknownError(TrainwardenError):
    """A question to the world went unanswered."""


class ActionError(TrainwardenError):
    """An action could not be carried out; the message says what stands now."""
