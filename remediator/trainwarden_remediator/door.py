"""What a request to the exporter or to Alertmanager carries: certificates, a token or a password.

Nothing of a secret gets into an error's text.
"""

from __future__ import annotations

import base64
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainwarden_exporter.serving.tlsconfig import Stamp, read_stamp
from trainwarden_remediator.endpoints import Endpoint
from trainwarden_remediator.exceptions import UnknownError

LARGEST_SECRET = 64 * 1024


class Door:
    """Opens one program to be asked. Its files are read again when they change."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._seen: Mapping[Path, Stamp] | None = None
        self._options: Mapping[str, Any] = {}

    def options(self) -> Mapping[str, Any]:
        """What aiohttp's request is given beside the URL; blocks.

        Raises UnknownError naming the file that cannot be used.
        """
        stamps = {path: read_stamp(path) for path in self._files()}
        if self._seen is None or stamps != self._seen:
            self._options, self._seen = self._read(), stamps
        return self._options

    def _files(self) -> list[Path]:
        endpoint, tls = self._endpoint, self._endpoint.tls
        basic = endpoint.basic_auth.password_file if endpoint.basic_auth else None
        files = (tls.ca_file, tls.cert_file, tls.key_file, endpoint.token_file, basic)
        return [file for file in files if file is not None]

    def _read(self) -> Mapping[str, Any]:
        endpoint = self._endpoint
        options: dict[str, Any] = {}
        if (credential := self._credential()) is not None:
            options["headers"] = {"Authorization": credential}
        if endpoint.tls.given:
            options["ssl"] = self._context()
            if endpoint.tls.server_name is not None:
                options["server_hostname"] = endpoint.tls.server_name
        return options

    def _credential(self) -> str | None:
        endpoint = self._endpoint
        if endpoint.token_file is not None:
            return f"Bearer {read_secret(endpoint.token_file)}"
        if (basic := endpoint.basic_auth) is not None:
            pair = f"{basic.username}:{read_secret(basic.password_file)}"
            return f"Basic {base64.b64encode(pair.encode()).decode()}"
        return None

    def _context(self) -> ssl.SSLContext:
        tls = self._endpoint.tls
        try:
            context = ssl.create_default_context(cafile=tls.ca_file)
        except (OSError, ValueError) as error:
            raise UnknownError(f"no certificates in {tls.ca_file}: {_said(error)}") from None
        if tls.cert_file is not None:
            try:
                # A password keeps OpenSSL from asking for one on the terminal.
                context.load_cert_chain(tls.cert_file, tls.key_file, password="")
            except (OSError, ValueError) as error:
                said = f"{tls.cert_file} and {tls.key_file} cannot be used: {_said(error)}"
                raise UnknownError(said) from None
        return context


def read_secret(path: Path) -> str:
    """The one line of a file that holds a secret. Raises UnknownError, which does not repeat it."""
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_SECRET)
    except OSError as error:
        raise UnknownError(f"cannot read {path}: {error.strerror}") from None
    try:
        secret = content.decode().strip()
    except UnicodeDecodeError:
        raise UnknownError(f"{path} holds no text") from None
    if not secret or not secret.isprintable():
        raise UnknownError(f"{path} holds no single line of text")
    return secret


def _said(error: OSError | ValueError) -> str:
    return getattr(error, "reason", None) or getattr(error, "strerror", None) or "not PEM"
