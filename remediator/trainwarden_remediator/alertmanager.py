"""What Alertmanager's API says: how each alert stands, and what a person has silenced."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from pydantic import AwareDatetime, BaseModel, StringConstraints, TypeAdapter, ValidationError

from trainwarden_remediator.alerts import LABEL_LENGTH, Alert, kept
from trainwarden_remediator.exceptions import UnknownError


class AlertState(StrEnum):
    """How an alert stands."""

    ACTIVE = "active"
    SILENCED = "silenced"
    INHIBITED = "inhibited"


@dataclass(frozen=True, slots=True)
class Matcher:
    """One condition of a silence, as Alertmanager writes it."""

    name: str
    value: str
    is_regex: bool = False
    is_equal: bool = True

    def meets(self, labels: Mapping[str, str]) -> bool:
        """Whether labels meet it; an expression that cannot be understood is met by all."""
        value = labels.get(self.name, "")
        if not self.is_regex:
            return (value == self.value) is self.is_equal
        try:
            return (re.fullmatch(self.value, value) is not None) is self.is_equal
        except (re.error, RecursionError):
            return True


@dataclass(frozen=True, slots=True)
class Silence:
    """What a person wants to hear nothing of."""

    matchers: tuple[Matcher, ...]

    def covers(self, labels: Mapping[str, str]) -> bool:
        """Whether it is about an alert of these labels."""
        return all(matcher.meets(labels) for matcher in self.matchers)


def silenced(labels: Mapping[str, str], silences: Iterable[Silence]) -> bool:
    """Whether a silence is about an alert of these labels, also one that does not fire."""
    return any(silence.covers(labels) for silence in silences)


@dataclass(frozen=True, slots=True)
class ListedAlert:
    """An alert as the API lists it. `updated_at`: when it was last sent, in Unix seconds."""

    alert: Alert
    active: bool
    """Whether nothing mutes it."""
    updated_at: float


class _Status(BaseModel):
    state: str
    silencedBy: list[str] = []  # noqa: N815 - Alertmanager's spelling
    inhibitedBy: list[str] = []  # noqa: N815 - Alertmanager's spelling


class _ListedAlert(BaseModel):
    fingerprint: str
    status: _Status


class _FullAlert(_ListedAlert):
    labels: dict[str, str]
    annotations: dict[str, str] = {}
    startsAt: AwareDatetime  # noqa: N815 - Alertmanager's spelling
    updatedAt: AwareDatetime  # noqa: N815 - Alertmanager's spelling
    fingerprint: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{16}$")]


class _SilenceStatus(BaseModel):
    state: str


class _ListedMatcher(BaseModel):
    name: str
    value: str
    isRegex: bool = False  # noqa: N815 - Alertmanager's spelling
    isEqual: bool = True  # noqa: N815 - Alertmanager's spelling


class _ListedSilence(BaseModel):
    status: _SilenceStatus
    matchers: list[_ListedMatcher]


_ALERTS = TypeAdapter(list[_ListedAlert])
_FULL_ALERTS = TypeAdapter(list[_FullAlert])
_SILENCES = TypeAdapter(list[_ListedSilence])


def parse_alerts(body: bytes) -> Mapping[str, AlertState]:
    """How each alert stands in an answer of `/api/v2/alerts`, by fingerprint.

    Raises UnknownError for anything else. An alert not processed yet is left out.
    """
    try:
        listed = _ALERTS.validate_json(body)
    except ValidationError as error:
        raise UnknownError("Alertmanager answered with something else than alerts") from error
    return {
        alert.fingerprint: _alert_state(alert.status)
        for alert in listed
        if alert.status.state != "unprocessed"
    }


def parse_listed(body: bytes) -> tuple[ListedAlert, ...]:
    """The alerts in an answer of `/api/v2/alerts`. Raises UnknownError for anything else."""
    try:
        listed = _FULL_ALERTS.validate_json(body)
    except ValidationError:
        raise UnknownError("Alertmanager answered with something else than alerts") from None
    return tuple(
        ListedAlert(
            Alert(
                alert.fingerprint,
                alert.startsAt.timestamp(),
                firing=True,
                labels={name: value[:LABEL_LENGTH] for name, value in alert.labels.items()},
                annotations=kept(alert.annotations),
            ),
            active=_alert_state(alert.status) is AlertState.ACTIVE,
            updated_at=alert.updatedAt.timestamp(),
        )
        for alert in listed
        if alert.status.state != "unprocessed"
    )


def parse_silences(body: bytes) -> tuple[Silence, ...]:
    """The silences in force in an answer of `/api/v2/silences`. Raises UnknownError."""
    try:
        listed = _SILENCES.validate_json(body)
    except ValidationError as error:
        raise UnknownError("Alertmanager answered with something else than silences") from error
    return tuple(
        Silence(tuple(Matcher(m.name, m.value, m.isRegex, m.isEqual) for m in silence.matchers))
        for silence in listed
        if silence.status.state == "active"
    )


def _alert_state(status: _Status) -> AlertState:
    if status.inhibitedBy and not status.silencedBy:
        return AlertState.INHIBITED
    # Newer versions also mute by time of day, and list that elsewhere: somebody wants it quiet.
    return AlertState.ACTIVE if status.state == "active" else AlertState.SILENCED
