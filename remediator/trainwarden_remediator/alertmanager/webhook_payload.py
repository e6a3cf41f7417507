"""Parses the payload of Alertmanager's webhook, version 4.

Source: Alertmanager's `notify/webhook/webhook.go` and `template/template.go`. Keys are added there
without a new version, so unknown keys are ignored. Only the alerts of a group are used: the group
is sent again completely on every change, and may be truncated by `max_alerts`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from trainwarden_exporter.config_file.loader import dotted
from trainwarden_remediator.exceptions import MalformedWebhookError

WATCHDOG = "TrainingWatchdog"
"""The watchdog alert, which always fires: its arrival is the heartbeat of the alert pipeline."""

MAX_LABEL_LENGTH = 1024
"""Characters that are kept of a label's value; values that select anything are far shorter."""

MAX_ANNOTATION_LENGTH = 2048
MAX_ANNOTATIONS = 16


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert of a notification.

    `fingerprint` identifies the label set: an alert that fires again has the same fingerprint and a
    later `starts_at` (Unix seconds). Only the labels `run`, `worker` and `remediation` select
    anything, and only within the configuration; the others are recorded.
    """

    fingerprint: str
    starts_at: float
    firing: bool
    labels: Mapping[str, str]
    annotations: Mapping[str, str] = field(default_factory=dict)
    """Texts for the on-call; decisions never use them."""

    @property
    def name(self) -> str:
        return self.labels.get("alertname", "")

    @property
    def run(self) -> str:
        return self.labels.get("run", "")

    @property
    def worker(self) -> str:
        return self.labels.get("worker", "")

    @property
    def remediation(self) -> str:
        return self.labels.get("remediation", "")


@dataclass(frozen=True, slots=True)
class Notification:
    """One delivery. `truncated` counts alerts of the group that Alertmanager left out."""

    alerts: tuple[Alert, ...]
    truncated: int
    receiver: str = ""
    """The name of the receiver at Alertmanager, which is this remediator."""


class SentAlert(BaseModel):
    """The fields of an alert that Alertmanager sends in webhooks and in its API."""

    labels: dict[str, str]
    annotations: dict[str, str] = {}
    startsAt: AwareDatetime  # noqa: N815 - Alertmanager's spelling
    fingerprint: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{16}$")]

    def as_alert(self, *, firing: bool) -> Alert:
        """Returns the alert, with its texts truncated to the length that is kept."""
        return Alert(
            self.fingerprint,
            self.startsAt.timestamp(),
            firing=firing,
            labels={name: value[:MAX_LABEL_LENGTH] for name, value in self.labels.items()},
            annotations={
                name[:MAX_LABEL_LENGTH]: value[:MAX_ANNOTATION_LENGTH]
                for name, value in list(self.annotations.items())[:MAX_ANNOTATIONS]
            },
        )


class _DeliveredAlert(SentAlert):
    model_config = ConfigDict(extra="ignore", strict=True)

    status: Literal["firing", "resolved"]


class _SentNotification(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)

    version: Literal["4"]
    receiver: str = ""
    alerts: list[_DeliveredAlert]
    truncatedAlerts: Annotated[int, Field(ge=0)] = 0  # noqa: N815 - Alertmanager's spelling


def parse_notification(body: bytes) -> Notification:
    """Returns the alerts in a webhook body.

    Raises MalformedWebhookError. Its message contains field names and never values, because
    Alertmanager writes the message to its log.
    """
    try:
        sent = _SentNotification.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        known = tuple(part for part in first["loc"] if isinstance(part, int) or part in _KNOWN)
        raise MalformedWebhookError(f"{dotted(known) or 'body'}: {first['type']}") from None
    return Notification(
        alerts=tuple(alert.as_alert(firing=alert.status == "firing") for alert in sent.alerts),
        truncated=sent.truncatedAlerts,
        receiver=re.sub(r"\\(.)", r"\1", sent.receiver),  # it is sent as a regular expression
    )


_KNOWN = frozenset(_SentNotification.model_fields) | frozenset(_DeliveredAlert.model_fields)
