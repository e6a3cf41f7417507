"""API keys of servers, from an environment variable or a file; never displayed."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from trainwarden_exporter.runtime.background_poller import BackgroundPoller

log = logging.getLogger(__name__)

MAX_KEY_BYTES = 4096
INTERVAL = 10.0
"""Seconds after which a key file is read again."""


class ApiKey:
    """A key; only `authorization` reveals it."""

    def __init__(self, value: str) -> None:
        self._value = value

    @property
    def authorization(self) -> str:
        return f"Bearer {self._value}"

    def __repr__(self) -> str:
        return "ApiKey(…)"


KeySource = Callable[[], ApiKey | None]
"""Returns the current key; None without one, or if it cannot be read."""


def parse_key(text: str) -> ApiKey | None:
    """Returns the key in `text` without surrounding space; None if empty.

    Raises ValueError for characters that a header cannot contain.
    """
    value = text.strip()
    if not value:
        return None
    if not (value.isascii() and value.isprintable()) or len(value) > MAX_KEY_BYTES:
        raise ValueError("API key is not one line of printable ASCII")
    return ApiKey(value)


def no_key() -> None:
    """Returns None, for a server without a key."""
    return


def environment_key(name: str, environment: Mapping[str, str] | None = None) -> KeySource:
    """Returns the key in the variable `name`; none if unset or invalid."""
    try:
        key = parse_key((os.environ if environment is None else environment).get(name, ""))
    except ValueError as error:
        log.warning("invalid API key", extra={"variable": name, "error": str(error)})
        key = None
    return lambda: key


class KeyFile:
    """The key in a file, read periodically in a thread of its own, since any disk may block."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._poller = BackgroundPoller(f"API key {path}", self._read, interval=INTERVAL)

    def __call__(self) -> ApiKey | None:
        """Returns the key as last read; None if it has become unreadable."""
        seen = self._poller.result(timeout=0)
        return None if seen is None or self._poller.failure is not None else seen.value

    def wait(self) -> None:
        """Starts reading, and waits briefly for the first result."""
        self._poller.result()

    def close(self) -> None:
        """Stops reading."""
        self._poller.close()

    def _read(self) -> ApiKey | None:
        with self._path.open("rb") as file:
            return parse_key(file.read(MAX_KEY_BYTES + 2).decode("ascii", "replace"))
