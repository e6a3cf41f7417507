"""Checks whether an alertmanager.yml routes the alerts to the remediator, in the required form."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from trainwarden_exporter.config_file.loader import problem_at, read_text
from trainwarden_exporter.config_file.yaml_nodes import compose
from trainwarden_exporter.exceptions import ConfigError, Problem
from trainwarden_remediator.alertmanager.regex import matches_whole
from trainwarden_remediator.alertmanager.webhook_payload import WATCHDOG
from trainwarden_remediator.config.schema import Config
from trainwarden_remediator.config_check.rule_files import AlertRule
from trainwarden_remediator.credentials.bearer_tokens import BearerTokens
from trainwarden_remediator.credentials.outgoing import read_secret
from trainwarden_remediator.exceptions import SecretError

_PORTS = {"http": 80, "https": 443}

YamlPath = tuple[int | str, ...]


@dataclass(frozen=True, slots=True)
class Webhook:
    """A receiver's webhook to the remediator, and its place in the file."""

    receiver: str
    yaml_path: YamlPath
    content: Mapping[str, Any]


class AlertRouting:
    """The routing of an alertmanager.yml. Raises ConfigError if the file is invalid.

    `port`: the port that the remediator listens on.
    """

    def __init__(self, path: Path, config: Config, *, port: int) -> None:
        self._path = path
        self._config = config
        self._port = port
        text = read_text(path)
        compose(text, path)  # reports the line of a YAML error
        content = yaml.safe_load(text)
        if not isinstance(content, Mapping) or not isinstance(content.get("route"), Mapping):
            raise ConfigError(Problem(path, None, "route", "missing"))
        self._route: Mapping[str, Any] = content["route"]
        receivers = content.get("receivers")
        self._receivers = receivers if isinstance(receivers, Sequence) else ()

    def problems(self, rules: Iterable[AlertRule]) -> Iterator[Problem]:
        """Yields the problems that keep alerts from the remediator or distort them."""
        ours = list(self._webhooks())
        if not ours:
            message = f"no receiver has a webhook to port {self._port}, path /webhook"
            yield self._problem(message, "receivers")
            return
        for webhook in ours:
            yield from self._webhook_problems(webhook)
        names = {webhook.receiver for webhook in ours}
        watchdog = {"alertname": WATCHDOG, "severity": "none"}
        if not any(route.receiver in names for route in matched_routes(self._route, watchdog)):
            yield self._problem(f"{WATCHDOG} is not routed to the remediator", "route")
        reported: set[str] = set()
        for rule in rules:
            if not rule.remediation or rule.name in reported:
                continue
            labels = {**rule.labels, "alertname": rule.name}
            found = list(matched_routes(self._route, labels))
            if not any(route.receiver in names and not route.uncertain for route in found):
                reported.add(rule.name)
                yaml_path = found[0].yaml_path if found else ("route",)
                yield self._problem(f"{rule.name} is not routed to the remediator", *yaml_path)

    def notes(self, rules: Iterable[AlertRule]) -> Iterator[str]:
        """Yields settings that are valid but may be unintended."""
        names = {webhook.receiver for webhook in self._webhooks()}
        alone = []
        for rule in rules:
            labels = {**rule.labels, "alertname": rule.name}
            found = {route.receiver for route in matched_routes(self._route, labels)}
            if rule.remediation and found and found <= names:
                alone.append(rule.name)
        if alone:
            yield (
                f"{self._path}: only the remediator receives {', '.join(sorted(set(alone)))}"
                " (`continue: true` on its route also delivers to later routes)"
            )
        for webhook in self._webhooks():
            http = webhook.content.get("http_config") or {}
            if http.get("follow_redirects", True):
                yield (
                    f"{self._path}: receiver {webhook.receiver} follows redirects, which can "
                    "send the token elsewhere (`follow_redirects: false`)"
                )

    def _webhooks(self) -> Iterator[Webhook]:
        for index, receiver in enumerate(self._receivers):
            if not isinstance(receiver, Mapping):
                continue
            for number, webhook in enumerate(receiver.get("webhook_configs") or ()):
                if not isinstance(webhook, Mapping):
                    continue
                if self._is_remediator_url(str(webhook.get("url", ""))):
                    yaml_path = ("receivers", index, "webhook_configs", number)
                    yield Webhook(str(receiver.get("name", "")), yaml_path, webhook)

    def _is_remediator_url(self, url: str) -> bool:
        parts = urlsplit(url)
        try:
            port = parts.port or _PORTS.get(parts.scheme)
        except ValueError:
            return False
        return port == self._port and parts.path.rstrip("/") == "/webhook"

    def _webhook_problems(self, webhook: Webhook) -> Iterator[Problem]:
        content, yaml_path = webhook.content, webhook.yaml_path
        if content.get("send_resolved", True) is False:
            message = "the remediator must receive resolved alerts: send_resolved: true"
            yield self._problem(message, *yaml_path, "send_resolved")
        if content.get("max_alerts"):
            message = "truncates groups, so that firing alerts appear resolved: max_alerts: 0"
            yield self._problem(message, *yaml_path, "max_alerts")
        if self._config.token_file is None:
            return
        http = content.get("http_config") or {}
        sent = http.get("authorization") or {}
        given = sent.get("credentials") or http.get("bearer_token")
        file = sent.get("credentials_file") or http.get("bearer_token_file")
        if not given and not file:
            message = "sends no token; the response would be 401 (http_config.authorization)"
            yield self._problem(message, *yaml_path)
        elif str(sent.get("type", "Bearer")).lower() != "bearer":
            place = (*yaml_path, "http_config", "authorization", "type")
            yield self._problem("must be Bearer", *place)
        elif problem := self._token_problem(given, file):
            yield self._problem(problem, *yaml_path, "http_config")

    def _token_problem(self, given: Any, file: Any) -> str:
        """Returns why the sent token would be rejected; "" if it is valid or unknown."""
        tokens = BearerTokens(self._config.token_file) if self._config.token_file else None
        try:
            if tokens is not None:
                tokens.read()
            sent = given or read_secret(self._path.parent / str(file))
        except (ConfigError, SecretError, ValueError):
            return ""  # reported elsewhere, or the file is not readable for this account
        if tokens is None or tokens.accepts(f"Bearer {str(sent).strip()}"):
            return ""
        return f"its token is none of those in {self._config.token_file}"

    def _problem(self, message: str, *yaml_path: int | str) -> Problem:
        return problem_at(self._path, message, *yaml_path)


SERIES_LABELS = frozenset({"run", "worker", "instance", "job", "role"})
"""Labels that an alert inherits from its series."""

_MATCHER = re.compile(
    r"""\s*"?(?P<name>[^"=!~\s]+)"?\s*(?P<how>=~|!~|!=|=)\s*(?P<value>"(?:[^"\\]|\\.)*"|[^,]*?)\s*$"""
)

_MATCHER_SEPARATOR = re.compile(r',(?=(?:[^"]*"[^"]*")*[^"]*$)')


class MatchResult(Enum):
    """Whether the known labels of an alert match."""

    YES = 1
    NO = 0
    MAYBE = 2


@dataclass(frozen=True, slots=True)
class MatchedRoute:
    """A route that matches an alert, and its place in the file.

    `uncertain`: an earlier route may match first, or this route may not match.
    """

    yaml_path: YamlPath
    receiver: str
    uncertain: bool = False


def matched_routes(
    route: Mapping[str, Any],
    labels: Mapping[str, str],
    yaml_path: YamlPath = ("route",),
    inherited: str = "",
    *,
    uncertain: bool = False,
) -> Iterator[MatchedRoute]:
    """Yields the routes that deliver an alert with these labels, in order.

    `inherited`: the receiver of a route that names none.
    """
    receiver = str(route.get("receiver") or inherited)
    taken = False
    for index, below in enumerate(route.get("routes") or ()):
        if not isinstance(below, Mapping):
            continue
        matched = match_route(below, labels)
        if matched is MatchResult.NO:
            continue
        unsure = uncertain or matched is MatchResult.MAYBE
        place = (*yaml_path, "routes", index)
        yield from matched_routes(below, labels, place, receiver, uncertain=unsure)
        if matched is MatchResult.YES:
            taken = True
            if not below.get("continue"):
                return
        elif not below.get("continue"):
            uncertain = True
    if not taken:
        yield MatchedRoute(yaml_path, receiver, uncertain=uncertain)


def match_route(route: Mapping[str, Any], labels: Mapping[str, str]) -> MatchResult:
    """Whether an alert with these labels matches a route."""
    answers = [_match_condition(*condition, labels) for condition in _conditions(route)]
    if MatchResult.NO in answers:
        return MatchResult.NO
    return MatchResult.MAYBE if MatchResult.MAYBE in answers else MatchResult.YES


def _conditions(route: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    given = route.get("matchers") or ()
    for entry in [given] if isinstance(given, str) else given:
        matchers = str(entry).strip().removeprefix("{").removesuffix("}")
        for part in _MATCHER_SEPARATOR.split(matchers):
            if part.strip():
                yield _parse_matcher(part)
    for key, how in (("match", "="), ("match_re", "=~")):
        for name, value in (route.get(key) or {}).items():
            yield str(name), how, str(value)


def _parse_matcher(matcher: str) -> tuple[str, str, str]:
    match = _MATCHER.match(matcher)
    if match is None:
        return matcher, "?", ""
    value = match["value"]
    if value.startswith('"') and value.endswith('"') and len(value) > 1:
        value = re.sub(r"\\(.)", r"\1", value[1:-1])
    return match["name"], match["how"], value


def _match_condition(name: str, how: str, value: str, labels: Mapping[str, str]) -> MatchResult:
    if name in SERIES_LABELS and name not in labels:
        # The label has a value, which is unknown but not empty.
        if how in ("=", "!=") and not value:
            return MatchResult.NO if how == "=" else MatchResult.YES
        return MatchResult.MAYBE
    actual = labels.get(name, "")
    if how in ("=", "!="):
        return MatchResult.YES if (actual == value) is (how == "=") else MatchResult.NO
    if how == "?":
        return MatchResult.MAYBE
    try:
        found = matches_whole(value, actual)
    except ValueError:
        return MatchResult.MAYBE
    return MatchResult.YES if found is (how == "=~") else MatchResult.NO
