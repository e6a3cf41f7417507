"""API keys of servers: from an environment variable or a file, and never shown."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from trainwarden_exporter.watching import Watch

log = logging.getLogger(__name__)

LONGEST = 4096
INTERVAL = 10.0
"""Seconds after which a file is read again."""


class ApiKey:
    """A key; only `authorization` gives it away."""

    def __init__(self, value: str) -> None:
        self._value = value

    @property
    def authorization(self) -> str:
        """The value of the header `Authorization`."""
        return f"Bearer {self._value}"

    def __repr__(self) -> str:
        return "ApiKey(…)"


Keyring = Callable[[], ApiKey | None]
"""The key as it is now; None where there is none, or it cannot be read."""


def parse_key(text: str) -> ApiKey | None:
    """The key in `text`, without the space around it; None where none is left of it.

    Raises ValueError for what cannot stand in a header.
    """
    value = text.strip()
    if not value:
        return None
    if not (value.isascii() and value.isprintable()) or len(value) > LONGEST:
        raise ValueError("the API key is not one line of printable ASCII")
    return ApiKey(value)


def no_key() -> None:
    """Of a server without a key."""
    return


def environment_key(name: str, environment: Mapping[str, str] | None = None) -> Keyring:
    """The key in the variable `name`; none where it is not set, or cannot be one."""
    try:
        key = parse_key((os.environ if environment is None else environment).get(name, ""))
    except ValueError as error:
        log.warning("API key not usable", extra={"variable": name, "error": str(error)})
        key = None
    return lambda: key


class KeyFile:
    """The key in a file, read again and again in a thread of its own, for it may lie anywhere."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._watch = Watch(f"API key {path}", self._read, interval=INTERVAL)

    def __call__(self) -> ApiKey | None:
        """The key as last read; one that cannot be read any more is none."""
        seen = self._watch.seen(patience=0)
        return None if seen is None or self._watch.failure is not None else seen.value

    def wait(self) -> None:
        """Begin, and wait a little for the first reading."""
        self._watch.seen()

    def close(self) -> None:
        """Read no more."""
        self._watch.close()

    def _read(self) -> ApiKey | None:
        with self._path.open("rb") as file:
            return parse_key(file.read(LONGEST + 2).decode("ascii", "replace"))
