"""Reads what Alertmanager's webhook sends: version 4 of its payload, alert by alert.

The payload is described in Alertmanager's `notify/webhook/webhook.go` and `template/template.go`.
Keys are added there without a new version, so unknown ones are ignored. A group says nothing that
its alerts do not: it is re-sent whole on every change, and may be cut short by `max_alerts`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from trainwarden_exporter.yamlfile import dotted
from trainwarden_remediator.exceptions import MalformedError

WATCHDOG = "TrainingWatchdog"
"""The alert that always fires: its arrival is the heartbeat of the alert pipeline."""

LABEL_LENGTH = 1024
"""Characters kept of a label's value; what selects anything is far shorter."""

ANNOTATION_LENGTH = 2048
MOST_ANNOTATIONS = 16


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert of a notification.

    `fingerprint` stands for its label set: when the same alert fires anew it has the same
    fingerprint and a later `starts_at` (Unix seconds). The labels are for the record; only `run`,
    `worker` and `remediation` select anything, and only among what the operator configured.
    """

    fingerprint: str
    starts_at: float
    firing: bool
    labels: Mapping[str, str]
    annotations: Mapping[str, str] = field(default_factory=dict)
    """What it says to a person; nothing is ever decided by it."""

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


class _SentAlert(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)

    status: Literal["firing", "resolved"]
    labels: dict[str, str]
    annotations: dict[str, str] = {}
    startsAt: AwareDatetime  # noqa: N815 - Alertmanager's spelling
    fingerprint: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{16}$")]


class _SentNotification(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)

    version: Literal["4"]
    alerts: list[_SentAlert]
    truncatedAlerts: Annotated[int, Field(ge=0)] = 0  # noqa: N815 - Alertmanager's spelling


def parse_notification(body: bytes) -> Notification:
    """The alerts in a webhook body.

    Raises MalformedError, whose message names places but never repeats what was sent: Alertmanager
    copies an error's text into its log.
    """
    try:
        sent = _SentNotification.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = dotted(
            tuple(part for part in first["loc"] if isinstance(part, int) or part in _KNOWN)
        )
        raise MalformedError(f"{place or 'body'}: {first['type']}") from None
    return Notification(
        alerts=tuple(
            Alert(
                fingerprint=alert.fingerprint,
                starts_at=alert.startsAt.timestamp(),
                firing=alert.status == "firing",
                labels={name: value[:LABEL_LENGTH] for name, value in alert.labels.items()},
                annotations=kept(alert.annotations),
            )
            for alert in sent.alerts
        ),
        truncated=sent.truncatedAlerts,
    )


def kept(annotations: Mapping[str, str]) -> Mapping[str, str]:
    """As much of what an alert says to a person as is kept for the report."""
    return {
        name[:LABEL_LENGTH]: value[:ANNOTATION_LENGTH]
        for name, value in list(annotations.items())[:MOST_ANNOTATIONS]
    }


_KNOWN = frozenset(_SentNotification.model_fields) | frozenset(_SentAlert.model_fields)
