"""Parses responses of Alertmanager's API: alerts, their states, and silences."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

import yaml
from pydantic import AwareDatetime, BaseModel, Field, TypeAdapter, ValidationError

from trainwarden_exporter.config_file.yaml_nodes import compose
from trainwarden_exporter.exceptions import ConfigError
from trainwarden_remediator.alertmanager.regex import matches_whole
from trainwarden_remediator.alertmanager.webhook_payload import Alert, SentAlert
from trainwarden_remediator.exceptions import ObservationError

T = TypeVar("T")


class AlertState(StrEnum):
    """The state of an alert at Alertmanager."""

    ACTIVE = "active"
    SILENCED = "silenced"
    INHIBITED = "inhibited"


@dataclass(frozen=True, slots=True)
class SilenceMatcher:
    name: str
    value: str
    is_regex: Annotated[bool, Field(validation_alias="isRegex")] = False
    is_equal: Annotated[bool, Field(validation_alias="isEqual")] = True

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the matcher matches `labels`; an invalid expression matches everything."""
        value = labels.get(self.name, "")
        if not self.is_regex:
            return (value == self.value) is self.is_equal
        try:
            return matches_whole(self.value, value) is self.is_equal
        except ValueError:
            return True


@dataclass(frozen=True, slots=True)
class Silence:
    """A silence: matches the alerts that match all of its matchers."""

    matchers: tuple[SilenceMatcher, ...]

    def covers(self, labels: Mapping[str, str]) -> bool:
        """Whether the silence applies to an alert with these labels."""
        return all(matcher.matches(labels) for matcher in self.matchers)


def is_silenced(labels: Mapping[str, str], silences: Iterable[Silence]) -> bool:
    """Whether a silence applies to an alert with these labels, firing or not."""
    return any(silence.covers(labels) for silence in silences)


@dataclass(frozen=True, slots=True)
class ListedAlert:
    """An alert in a listing. `updated_at`: when it was last sent, in Unix seconds."""

    alert: Alert
    active: bool
    """Whether it is neither silenced nor inhibited."""
    updated_at: float
    receivers: frozenset[str] = frozenset()
    """The names of the receivers that its routes lead to."""


class _Status(BaseModel):
    state: str
    silencedBy: list[str] = []  # noqa: N815 - Alertmanager's spelling
    inhibitedBy: list[str] = []  # noqa: N815 - Alertmanager's spelling


class _ListedAlert(BaseModel):
    fingerprint: str
    status: _Status


class _Receiver(BaseModel):
    name: str


class _FullAlert(SentAlert):
    status: _Status
    receivers: tuple[_Receiver, ...] = ()
    updatedAt: AwareDatetime  # noqa: N815 - Alertmanager's spelling


class _ListedSilence(BaseModel):
    status: _Status
    matchers: tuple[SilenceMatcher, ...]


_ALERTS = TypeAdapter(list[_ListedAlert])
_FULL_ALERTS = TypeAdapter(list[_FullAlert])
_SILENCES = TypeAdapter(list[_ListedSilence])


def parse_alert_states(body: bytes) -> Mapping[str, AlertState]:
    """Returns the state of each alert in a response of `/api/v2/alerts`, by fingerprint.

    Alerts that are not processed yet are left out. Raises ObservationError on an invalid response.
    """
    return {
        alert.fingerprint: _alert_state(alert.status)
        for alert in _parse(_ALERTS, body, "alerts")
        if alert.status.state != "unprocessed"
    }


def parse_listed_alerts(body: bytes) -> tuple[ListedAlert, ...]:
    """Returns the alerts in a response of `/api/v2/alerts`. Raises ObservationError."""
    return tuple(
        ListedAlert(
            alert.as_alert(firing=True),
            active=_alert_state(alert.status) is AlertState.ACTIVE,
            updated_at=alert.updatedAt.timestamp(),
            receivers=frozenset(receiver.name for receiver in alert.receivers),
        )
        for alert in _parse(_FULL_ALERTS, body, "alerts")
        if alert.status.state != "unprocessed"
    )


class _Configuration(BaseModel):
    original: str


class _ServerStatus(BaseModel):
    config: _Configuration


_SERVER_STATUS = TypeAdapter(_ServerStatus)


def parse_destinations(body: bytes, own: Collection[str] = ()) -> frozenset[str]:
    """Returns the receivers that notify somebody, in a response of `/api/v2/status`.

    `own`: receivers that send to this remediator; those with another destination count, too. A
    webhook with the settings of the own one is that of another remediator, and counts for nothing;
    in another receiver only if it has a token, because the URL is not shown. Raises
    ObservationError on an invalid response.
    """
    text = _parse(_SERVER_STATUS, body, "its status").config.original
    try:
        compose(text, Path("alertmanager.yml"))  # with its bounds
        content = yaml.safe_load(text)
        receivers = content["receivers"]
        webhooks = {str(one["name"]): _webhook_settings(one) for one in receivers}
        others = {str(one["name"]) for one in receivers if _has_other_destination(one)}
        single = [webhooks[name] for name in own if len(webhooks.get(name, ())) == 1]
        remediators = {one for settings in single for one in settings if one.has_token}
        return frozenset(others) | {
            name
            for name, settings in webhooks.items()
            if (len(settings) > 1 if name in own else settings - remediators)
        }
    except (ConfigError, yaml.YAMLError, LookupError, TypeError, AttributeError):
        raise ObservationError("Alertmanager shows no configuration that can be read") from None


class _WebhookSettings(NamedTuple):
    """How a receiver sends a webhook, without what differs between two remediators."""

    has_token: bool
    text: str


def _has_other_destination(receiver: Mapping[str, Any]) -> bool:
    kinds = (kind for kind in receiver if kind.endswith("_configs") and kind != "webhook_configs")
    return any(receiver[kind] for kind in kinds)


def _webhook_settings(receiver: Mapping[str, Any]) -> frozenset[_WebhookSettings]:
    return frozenset(map(_settings, receiver.get("webhook_configs") or ()))


def _settings(webhook: Mapping[str, Any]) -> _WebhookSettings:
    authorization = (webhook.get("http_config") or {}).get("authorization") or {}
    settings = {**webhook, **(webhook.get("http_config") or {})}
    settings["authorization"] = authorization.get("type")
    for differs in ("url", "url_file", "http_config", "tls_config"):
        settings.pop(differs, None)
    return _WebhookSettings(bool(authorization), json.dumps(settings, sort_keys=True, default=str))


def parse_silences(body: bytes) -> tuple[Silence, ...]:
    """Returns the active silences in a response of `/api/v2/silences`. Raises ObservationError."""
    listed = _parse(_SILENCES, body, "silences")
    return tuple(Silence(one.matchers) for one in listed if one.status.state == "active")


def _parse(adapter: TypeAdapter[T], body: bytes, what: str) -> T:
    try:
        return adapter.validate_json(body)
    except ValidationError:
        message = f"Alertmanager responded with something other than {what}"
        raise ObservationError(message) from None


def _alert_state(status: _Status) -> AlertState:
    if status.inhibitedBy and not status.silencedBy:
        return AlertState.INHIBITED
    # Newer versions also mute by time interval, and list that elsewhere; it counts as silenced.
    return AlertState.ACTIVE if status.state == "active" else AlertState.SILENCED
