"""Errors of the remediator, below those it shares with the exporter.

TrainwardenError
├── MalformedWebhookError      a webhook body is not a valid delivery
├── JournalError               the journal cannot be read or written
├── IntentLostError            an intent cannot be executed; the next start recovers it
├── HoldError                  the hold file cannot be written
├── ApprovalError              an action cannot be approved: none is proposed any more
├── ObservationError           an observation failed; the caller must not act
├── SecretError                a secret file cannot be used; never contains the secret
├── NotDeliveredError          a notification was not delivered; never contains its URL
└── ActionError                an action failed; describes the state that it left
    ├── NotEligibleError       the target must not be acted upon in its present state
    │   └── ActionDeferredError  the action did nothing, and may be tried again
    │       └── ProcessesDifferError  other processes were found than the action is for
    └── OutcomeUnknownError    it is unknown whether the action was performed
"""

from __future__ import annotations

from trainwarden_exporter.exceptions import TrainwardenError


class MalformedWebhookError(TrainwardenError):
    """A webhook body is not a valid delivery from Alertmanager."""


class JournalError(TrainwardenError):
    """The journal cannot be read or written; no action may start, since none can be recorded."""


class NoIncidentError(TrainwardenError):
    """The journal has no incident of that number."""


class IntentLostError(TrainwardenError):
    """A recorded intent cannot be executed: the program exits, and its next start recovers it."""


class HoldError(TrainwardenError):
    """The hold file cannot be written: the hold or resume is not in force."""


class ApprovalError(TrainwardenError):
    """An action cannot be approved: none is proposed, or the proposal has changed."""


class ObservationError(TrainwardenError):
    """The exporter, Alertmanager or this host could not be observed."""


class SecretError(TrainwardenError):
    """A file with a secret cannot be used; the message never contains the secret."""


class NotDeliveredError(TrainwardenError):
    """A notification was not delivered; the error message never contains the receiver's URL.

    `rejected`: the receiver responded, and refused this notification. `retry_after`: seconds for
    which the receiver asks not to be contacted.
    """

    def __init__(self, message: str, *, rejected: bool = False, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.rejected = rejected
        self.retry_after = retry_after


class ActionError(TrainwardenError):
    """An action failed; the message describes the state that it left."""


class NotEligibleError(ActionError):
    """The target must not be acted upon: an operator stopped it, or its manager will start it."""


class ActionDeferredError(NotEligibleError):
    """The action did nothing: the manager of the target declined it, or its target has changed."""


class ProcessesDifferError(ActionDeferredError):
    """The processes found are not the ones that the action is for; none was signalled."""


class OutcomeUnknownError(ActionError):
    """It is unknown whether the action was performed; it is inspected, never repeated."""
