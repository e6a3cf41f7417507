"""Credentials for requests to the exporter and Alertmanager: certificates, tokens, passwords.

Error messages never contain a secret.
"""

from __future__ import annotations

import asyncio
import base64
import errno
import os
import ssl
import stat
from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

from trainwarden_exporter.webserver.tls_config import Stamp, read_stamp
from trainwarden_remediator.config.endpoints import Endpoint
from trainwarden_remediator.exceptions import ObservationError, SecretError

T = TypeVar("T")

MAX_SECRET_BYTES = 16 * 1024
"""Bytes of the longest secret; a longer file was configured by mistake."""

_running: dict[Hashable, asyncio.Task[Any]] = {}


class RequestCredentials:
    """The credentials for one endpoint; their files are read again when they change."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._stamps: Mapping[Path, Stamp] | None = None
        self._options: Mapping[str, Any] = {}

    async def options(self) -> Mapping[str, Any]:
        """Returns the keyword arguments of aiohttp's request, with the files as they are now.

        Raises ObservationError with the path of a file that cannot be used. Callers must set a
        timeout: the files may be on a mount that does not respond.
        """
        return await run_once(self._endpoint, self._current) if self._files() else {}

    @property
    def user(self) -> str | None:
        """The further account whose answers count, if the endpoint is on this host."""
        return self._endpoint.user

    def _current(self) -> Mapping[str, Any]:
        for path in self._files():
            if path.exists() and not path.is_file():  # OpenSSL would wait for the writer of a pipe
                raise ObservationError(f"{path}: not a regular file")
        stamps = {path: read_stamp(path) for path in self._files()}
        if self._stamps is None or stamps != self._stamps:
            self._options, self._stamps = self._read(), stamps
        return self._options

    def _files(self) -> list[Path]:
        endpoint, tls = self._endpoint, self._endpoint.tls
        basic = endpoint.basic_auth.password_file if endpoint.basic_auth else None
        files = (tls.ca_file, tls.cert_file, tls.key_file, endpoint.token_file, basic)
        return [file for file in files if file is not None]

    def _read(self) -> Mapping[str, Any]:
        endpoint = self._endpoint
        options: dict[str, Any] = {}
        try:
            credential = self._credential()
        except SecretError as error:
            raise ObservationError(str(error)) from None
        if credential is not None:
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
            pair = f"{basic.username}:{read_secret(basic.password_file, encoding='utf-8')}"
            return f"Basic {base64.b64encode(pair.encode()).decode()}"
        return None

    def _context(self) -> ssl.SSLContext:
        tls = self._endpoint.tls
        try:
            context = ssl.create_default_context(cafile=tls.ca_file)
        except (OSError, ValueError) as error:
            raise ObservationError(f"no certificates in {tls.ca_file}: {_reason(error)}") from None
        if tls.cert_file is not None:
            try:
                # A password keeps OpenSSL from asking for one on the terminal.
                context.load_cert_chain(tls.cert_file, tls.key_file, password="")
            except (OSError, ValueError) as error:
                raise ObservationError(
                    f"{tls.cert_file} and {tls.key_file} cannot be used: {_reason(error)}"
                ) from None
        return context


def _reason(error: OSError | ValueError) -> str:
    return getattr(error, "reason", None) or getattr(error, "strerror", None) or "not PEM"


async def run_once(key: Hashable, read: Callable[[], T]) -> T:
    """Runs `read` in a thread; callers with an equal key share one run.

    A read from a dead mount never returns. It then occupies one thread for each key, not one for
    each attempt, so that the program does not run out of threads.
    """
    task = _running.get(key)
    if task is None:
        task = _running[key] = asyncio.create_task(asyncio.to_thread(read))
        task.add_done_callback(lambda _: _running.pop(key, None))
    result: T = await asyncio.shield(task)
    return result


def read_regular_file(path: Path, limit: int = -1) -> bytes:
    """Returns the first `limit` bytes of a regular file, never waiting for the writer of a pipe.

    Raises OSError.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(limit)
    finally:
        os.close(descriptor)


def read_secret(path: Path, *, encoding: Literal["ascii", "utf-8"] = "ascii") -> str:
    """Returns the one line in the file at `path`, without the space around it.

    Raises SecretError, whose message never contains the content.
    """
    try:
        content = read_regular_file(path, MAX_SECRET_BYTES + 1)
    except OSError as error:
        raise SecretError(f"{path}: {error.strerror}") from error
    try:
        text = content.decode(encoding).strip()
    except UnicodeDecodeError:
        text = "\0"
    if not text:
        raise SecretError(f"{path}: empty")
    if len(content) > MAX_SECRET_BYTES or not text.isprintable():
        characters = "ASCII" if encoding == "ascii" else "UTF-8"
        raise SecretError(f"{path}: not one line of printable {characters}")
    return text
