"""Where the exporter and Alertmanager are asked, and what they are shown: sections of the file."""

from __future__ import annotations

from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, StringConstraints, model_validator

from trainwarden_exporter.units import LocalPath
from trainwarden_exporter.yamlfile import MisplacedError, Section


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
        raise ValueError("a user's name holds no colon (RFC 7617)")
    return text


class ClientTls(Section):
    """How the server is known by its certificate, and this program by its own.

    The files are read again when they change.
    """

    ca_file: LocalPath | None = None
    """The authorities that the server's certificate may come from, PEM; those of the system when
    not given."""
    cert_file: LocalPath | None = None
    """The certificate shown to a server that asks for one, PEM."""
    key_file: LocalPath | None = None
    """Its private key, PEM, not encrypted."""
    server_name: _Text | None = None
    """The name that the server's certificate must bear; that of the URL when not given."""

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        if (self.cert_file is None) != (self.key_file is None):
            missing = "key_file" if self.key_file is None else "cert_file"
            raise MisplacedError("a certificate and its key go together", missing)
        return self

    @property
    def given(self) -> bool:
        return bool(self.model_fields_set)


class BasicAuth(Section):
    """A user and where the password is."""

    username: Annotated[_Text, AfterValidator(_user)]
    """The user."""
    password_file: LocalPath
    """The file with the password; read again when it changes."""


class Endpoint(Section):
    """A program that is asked over HTTP."""

    url: BaseUrl
    """Where it listens."""
    tls: ClientTls = ClientTls()
    """How a connection to an https address is secured."""
    token_file: LocalPath | None = None
    """The file with the bearer token it asks for; read again when it changes."""
    basic_auth: BasicAuth | None = None
    """The user and password it asks for, in place of a token."""

    @model_validator(mode="after")
    def _one_credential(self) -> Self:
        if self.token_file is not None and self.basic_auth is not None:
            raise MisplacedError(
                "a request can carry a token or a password, not both", "token_file"
            )
        if self.tls.given and not self.url.startswith("https:"):
            raise MisplacedError("means something only for a URL with https", "tls")
        return self
