"""The section `notify` of remediator.yml: receivers, events, delivery."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr, StringConstraints, model_validator

from trainwarden_exporter.config_file.loader import LocatedError, Section, unique_by
from trainwarden_exporter.config_file.types import LocalPath, Name, Seconds

NotificationEvent = Literal[
    "gave_up",
    "held_by_alert",
    "breaker_opened",
    "paged",
    "alerts_stale",
    "blocked",
    "unhandled",
    "unhandled_ended",
    "stalled",
    "action_started",
    "healed",
    "recurring",
    "resumed_elsewhere",
    "not_healed",
    "finished",
]
"""The events that a receiver can subscribe to."""

URGENT: tuple[NotificationEvent, ...] = (
    "gave_up",
    "held_by_alert",
    "breaker_opened",
    "paged",
    "alerts_stale",
    "blocked",
    "unhandled",
    "recurring",
    "resumed_elsewhere",
)
"""Events that need an operator; the others are informational."""

DEFAULT: tuple[NotificationEvent, ...] = (
    *URGENT,
    "unhandled_ended",
    "stalled",
    "healed",
    "finished",
)
"""The events of a receiver that names none."""

LASTING: tuple[NotificationEvent, ...] = (
    "gave_up",
    "held_by_alert",
    "paged",
    "blocked",
    "unhandled",
    "unhandled_ended",
    "stalled",
    "finished",
)
"""Events that are not repeated when the same alert only resolves and fires again."""

ReceiverKind = Literal["slack", "discord", "mattermost", "ntfy", "json"]


def check_url(text: str) -> str:
    """Returns `text` if it is a valid webhook URL.

    Raises ValueError with a message that never contains the URL: it may be a secret.
    """
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise ValueError("not a URL: write https://host/path") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise ValueError("not a URL: write https://host/path")
    if parts.username is not None or parts.password is not None or parts.fragment:
        raise ValueError("no user, password or #fragment here; a token goes into token_file")
    return text


def _check_secret_url(url: SecretStr) -> SecretStr:
    check_url(url.get_secret_value())
    return url


class Receiver(Section):
    """A destination of notifications: a chat, a phone, a program of your own."""

    renamed_keys: ClassVar[Mapping[str, str]] = {"about": "events"}

    name: Name
    """The name of the receiver in the journal, the metrics and `notify-test`."""
    kind: ReceiverKind
    """The message format: `slack`, `discord` and `mattermost` for their incoming webhooks, `ntfy`
    for an ntfy topic, `json` (Trainwarden's own format) for a program of your own."""
    url: Annotated[SecretStr, AfterValidator(_check_secret_url)] | None = None
    """The URL that messages are posted to. A webhook URL is a secret: prefer `url_file`."""
    url_file: LocalPath | None = None
    """The file with the URL; read again for each message."""
    token_file: LocalPath | None = None
    """The file with a bearer token, for a receiver that requires one; read again for each
    message."""
    events: Annotated[tuple[NotificationEvent, ...], Field(min_length=1)] = DEFAULT
    """The events to send: the remediator has abandoned an incident (`gave_up`); an alert blocks
    restarts (`held_by_alert`); the circuit breaker is open (`breaker_opened`); a playbook calls an
    operator (`paged`); no alerts arrive (`alerts_stale`); an alert has waited for its action for
    two minutes, and the wait does not soon end automatically (`blocked`); a critical alert began
    (`unhandled`) on which the remediator does not act and which Alertmanager reports to nobody, or
    has ended (`unhandled_ended`); a run has stood still for two minutes, and is restarted once it
    is proved to be stuck, or goes on without an action (`stalled`); an action has started
    (`action_started`), and has `healed` or `not_healed` the condition; the same fault was healed
    for the fourth, the eighth, the sixteenth time within twelve hours (`recurring`, in place of
    `healed`); a restarted run makes steps again that a proved checkpoint has, and may overwrite it
    (`resumed_elsewhere`, in place of `healed`); a run has `finished`.
    Default: all but `action_started` and `not_healed`."""

    @model_validator(mode="after")
    def _has_one_address(self) -> Self:
        if self.url is None and self.url_file is None:
            raise LocatedError("missing: set `url` or `url_file`", "url_file")
        if self.url is not None and self.url_file is not None:
            raise LocatedError("set either `url` or `url_file`, not both", "url_file")
        return self

    @model_validator(mode="after")
    def _events_are_distinct(self) -> Self:
        for index, notification_event in enumerate(self.events):
            if notification_event in self.events[:index]:
                raise LocatedError("duplicate event", "events", index)
        return self


class NotifySettings(Section):
    """Notifications that the remediator sends directly.

    They also arrive when Alertmanager is down.
    """

    renamed_keys: ClassVar[Mapping[str, str]] = {
        "box": "instance",
        "quiet": "repeat_interval",
        "patience": "delivery_timeout",
    }

    receivers: tuple[Receiver, ...] = ()
    """Where notifications are sent."""
    instance: Annotated[str, StringConstraints(min_length=1, max_length=100)] | None = None
    """The name of this host in messages; default: its host name."""
    repeat_interval: Seconds = 3600
    """Minimum time between two messages about the same event, worker and alert, also when the alert
    has resolved and fired again in between, except after `unhandled_ended`, `healed`
    or a start by an operator."""
    delivery_timeout: Annotated[Seconds, Field(gt=0)] = 86400
    """How long delivery of a message is retried; then the message is dropped and counted."""

    @model_validator(mode="after")
    def _receivers_are_distinct(self) -> Self:
        unique_by(self.receivers, "name", "receiver", "receivers")
        return self
