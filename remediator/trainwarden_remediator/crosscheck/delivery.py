"""Whether an alertmanager.yml brings to the remediator what it is to hear, as it is to hear it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from trainwarden_exporter.exceptions import ConfigError, Problem
from trainwarden_exporter.yamlfile import problem_at, read_text
from trainwarden_exporter.yamlnodes import compose
from trainwarden_remediator.alerts import WATCHDOG
from trainwarden_remediator.config import Config
from trainwarden_remediator.crosscheck.routing import stops
from trainwarden_remediator.crosscheck.rulefiles import AlertRule
from trainwarden_remediator.tokens import Tokens

_PORTS = {"http": 80, "https": 443}
Place = tuple[int | str, ...]


@dataclass(frozen=True, slots=True)
class Webhook:
    """A webhook of a receiver that leads to us, and where it stands."""

    receiver: str
    place: Place
    content: Mapping[str, Any]


class Delivery:
    """An alertmanager.yml, asked what it does with alerts. Raises ConfigError for what is none.

    `port` is where the remediator listens.
    """

    def __init__(self, path: Path, config: Config, *, port: int) -> None:
        self._path = path
        self._config = config
        self._port = port
        text = read_text(path)
        compose(text, path)  # says in which line it is no YAML
        content = yaml.safe_load(text)
        if not isinstance(content, Mapping) or not isinstance(content.get("route"), Mapping):
            raise ConfigError(Problem(path, None, "route", "required, but not there"))
        self._route: Mapping[str, Any] = content["route"]
        receivers = content.get("receivers")
        self._receivers = receivers if isinstance(receivers, Sequence) else ()

    def problems(self, rules: Iterable[AlertRule]) -> Iterator[Problem]:
        """What keeps alerts from being heard, or from being understood."""
        ours = list(self._webhooks())
        if not ours:
            said = f"no receiver has a webhook to port {self._port}, path /webhook"
            yield self._problem(said, "receivers")
            return
        for webhook in ours:
            yield from self._of_webhook(webhook)
        names = {webhook.receiver for webhook in ours}
        watchdog = {"alertname": WATCHDOG, "severity": "none"}
        if not any(stop.receiver in names for stop in stops(self._route, watchdog)):
            yield self._problem(f"{WATCHDOG} does not come to the remediator", "route")
        told: set[str] = set()
        for rule in rules:
            if not rule.remediation or rule.name in told:
                continue
            labels = {**rule.labels, "alertname": rule.name}
            found = stops(self._route, labels)
            if not any(stop.receiver in names and not stop.doubtful for stop in found):
                told.add(rule.name)
                place = found[0].place if found else ("route",)
                yield self._problem(f"{rule.name} does not come to the remediator", *place)

    def notes(self, rules: Iterable[AlertRule]) -> Iterator[str]:
        """What is allowed, and perhaps not meant."""
        names = {webhook.receiver for webhook in self._webhooks()}
        alone = []
        for rule in rules:
            labels = {**rule.labels, "alertname": rule.name}
            found = {stop.receiver for stop in stops(self._route, labels)}
            if rule.remediation and found and found <= names:
                alone.append(rule.name)
        if alone:
            yield (
                f"{self._path}: nobody but the remediator hears of {', '.join(sorted(set(alone)))}"
                " (`continue: true` on its route lets routes below hear, too)"
            )
        for webhook in self._webhooks():
            http = webhook.content.get("http_config") or {}
            if http.get("follow_redirects", True):
                yield (
                    f"{self._path}: receiver {webhook.receiver} follows redirects, which would "
                    "carry the token elsewhere (`follow_redirects: false`)"
                )

    def _webhooks(self) -> Iterator[Webhook]:
        for index, receiver in enumerate(self._receivers):
            if not isinstance(receiver, Mapping):
                continue
            for number, webhook in enumerate(receiver.get("webhook_configs") or ()):
                if isinstance(webhook, Mapping) and self._leads_here(str(webhook.get("url", ""))):
                    place = ("receivers", index, "webhook_configs", number)
                    yield Webhook(str(receiver.get("name", "")), place, webhook)

    def _leads_here(self, url: str) -> bool:
        parts = urlsplit(url)
        try:
            port = parts.port or _PORTS.get(parts.scheme)
        except ValueError:
            return False
        return port == self._port and parts.path.rstrip("/") == "/webhook"

    def _of_webhook(self, webhook: Webhook) -> Iterator[Problem]:
        content, place = webhook.content, webhook.place
        if content.get("send_resolved", True) is False:
            said = "the remediator must hear when an alert is over: send_resolved: true"
            yield self._problem(said, *place, "send_resolved")
        if content.get("max_alerts"):
            said = "cuts groups short, and says `resolved` of what still fires: max_alerts: 0"
            yield self._problem(said, *place, "max_alerts")
        if self._config.token_file is None:
            return
        http = content.get("http_config") or {}
        sent = http.get("authorization") or {}
        given = sent.get("credentials") or http.get("bearer_token")
        file = sent.get("credentials_file") or http.get("bearer_token_file")
        if not given and not file:
            said = "carries no token, and would be answered 401 (http_config.authorization)"
            yield self._problem(said, *place)
        elif str(sent.get("type", "Bearer")).lower() != "bearer":
            yield self._problem("must be Bearer", *place, "http_config", "authorization", "type")
        elif problem := self._token_problem(given, file):
            yield self._problem(problem, *place, "http_config")

    def _token_problem(self, given: Any, file: Any) -> str:
        """Why the token that is sent would not be taken; nothing where that cannot be told."""
        tokens = Tokens(self._config.token_file) if self._config.token_file else None
        try:
            if tokens is not None:
                tokens.read()
            sent = given or (self._path.parent / str(file)).read_text(encoding="utf-8")
        except (ConfigError, OSError, ValueError):
            return ""  # another file's trouble, or one that is not ours to read
        if tokens is None or tokens.accept(f"Bearer {str(sent).strip()}"):
            return ""
        return f"its token is none of those in {self._config.token_file}"

    def _problem(self, message: str, *place: int | str) -> Problem:
        return problem_at(self._path, message, *place)
