"""Sections of remediator.yml for HTTP endpoints: address, TLS, credentials, polling."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from trainwarden_exporter.config_file.loader import LocatedError, Section
from trainwarden_exporter.config_file.types import LocalPath, Seconds
from trainwarden_remediator.alertmanager.api import SilenceMatcher
from trainwarden_remediator.alertmanager.regex import check_regex


def _base_url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("not a URL: write http://host:port")
    if parts.query or parts.fragment or parts.username:
        raise ValueError("write only scheme, host, port and path; credentials go into a file")
    return text.rstrip("/")


BaseUrl = Annotated[str, AfterValidator(_base_url)]

_Text = Annotated[str, StringConstraints(min_length=1, max_length=200)]


def _user(text: str) -> str:
    if ":" in text:
        raise ValueError("a user name must not contain a colon (RFC 7617)")
    return text


class ClientTls(Section):
    """TLS settings of an outgoing connection. The files are read again when they change."""

    ca_file: LocalPath | None = None
    """The PEM file of the CA certificates that verify the server; default: the CA certificates of
    the system."""
    cert_file: LocalPath | None = None
    """The PEM file of the client certificate, for a server that requires one."""
    key_file: LocalPath | None = None
    """The PEM file of the client certificate's private key, not encrypted."""
    server_name: _Text | None = None
    """The host name to expect in the server's certificate; default: the host of `url`."""

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        if (self.cert_file is None) != (self.key_file is None):
            missing = "key_file" if self.key_file is None else "cert_file"
            raise LocatedError("cert_file and key_file must be set together", missing)
        return self

    @property
    def given(self) -> bool:
        return bool(self.model_fields_set)


class BasicAuth(Section):
    """Credentials for HTTP basic authentication."""

    username: Annotated[_Text, AfterValidator(_user)]
    """The user name."""
    password_file: LocalPath
    """The file with the password; read again when it changes."""


class Endpoint(Section):
    """An HTTP server that the remediator queries."""

    url: BaseUrl
    """The base URL."""
    tls: ClientTls = ClientTls()
    """TLS settings; only for an `https` URL."""
    token_file: LocalPath | None = None
    """The file with the bearer token to send; read again when it changes."""
    basic_auth: BasicAuth | None = None
    """User name and password to send, instead of a token."""
    user: _Text | None = None
    """The account that listens at an `http` URL of this host, by name or uid, beside root, system
    accounts (also of `DynamicUser=`, and `nobody`) and the account of the remediator. What other
    accounts answer there does not count."""

    @model_validator(mode="after")
    def _one_credential(self) -> Self:
        if self.token_file is not None and self.basic_auth is not None:
            raise LocatedError("set either token_file or basic_auth, not both", "token_file")
        if self.tls.given and not self.url.startswith("https:"):
            raise LocatedError("only allowed with an https URL", "tls")
        return self


_MATCHER = re.compile(
    r'\s*(?P<name>[a-zA-Z_][a-zA-Z0-9_]*)\s*(?P<sign>=~|!~|!=|=)\s*"(?P<value>[^"\\\n]*)"\s*'
)


def parse_matcher(text: str) -> SilenceMatcher:
    """Parses a matcher such as `instance="node1"`, also with `!=`, `=~` or `!~`.

    Raises ValueError for any other text.
    """
    match = _MATCHER.fullmatch(text)
    if match is None:
        raise ValueError('not a matcher: write instance="node1", or with !=, =~ or !~')
    sign = match["sign"]
    if "~" in sign:
        check_regex(match["value"])
    return SilenceMatcher(match["name"], match["value"], "~" in sign, not sign.startswith("!"))


def _check_matcher(text: str) -> str:
    parse_matcher(text)
    return text.strip()


class PullSettings(Section):
    """Polls Alertmanager for alerts, so that it needs no webhook to the remediator."""

    match: Annotated[
        tuple[Annotated[str, AfterValidator(_check_matcher)], ...], Field(min_length=1)
    ]
    """Alertmanager matchers that select the alerts of this host, such as `instance="node1"`. An
    alert must meet all of them; `remediation!=""` is added. The remediator never acts on any other
    alert."""
    interval: Annotated[Seconds, Field(ge=1)] = 5
    """Time between two polls."""
    resolve_after: Annotated[Seconds, Field(gt=0)] = 90
    """How long an alert must be absent, while the always-firing alert is listed, before it counts
    as resolved. Must exceed Prometheus's `--rules.alert.resend-delay` (default: 1 minute): until
    then an Alertmanager that has just started does not list all firing alerts."""

    @property
    def matchers(self) -> Sequence[SilenceMatcher]:
        return [parse_matcher(text) for text in self.match]
