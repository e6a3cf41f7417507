"""The bearer tokens that a webhook must carry one of."""

from __future__ import annotations

import hmac
import os
import time
from collections.abc import Callable
from pathlib import Path

from trainwarden_exporter.exceptions import ConfigError, Problem

SHORTEST = 16
"""Characters a token must have; a shorter one is guessed too easily."""


SETTLED_NS = 2_000_000_000
"""A file that was changed less than two seconds before it was read may be changed again without its
times telling: the coarsest file systems count in these."""

Signature = tuple[int, ...]


class Tokens:
    """The tokens in a file, one per line; several serve while they are being exchanged.

    The file is read again when it changes. One that cannot be used leaves no token valid.
    """

    def __init__(self, path: Path, *, now_ns: Callable[[], int] = time.time_ns) -> None:
        self._path = path
        self._now_ns = now_ns
        self._seen: Signature | None = None
        self._tokens: tuple[bytes, ...] = ()

    def is_current(self) -> bool:
        """Whether the file is known to be as it was read: a look that takes microseconds."""
        try:
            return self._seen is not None and _signature(self._path.stat()) == self._seen
        except OSError:
            return False

    def read(self) -> None:
        """Read the file unless it is current. Raises ConfigError; then no token is valid."""
        try:
            stat = self._path.stat()
            seen = _signature(stat)
            if seen == self._seen:
                return
            settled = self._now_ns() - max(stat.st_mtime_ns, stat.st_ctime_ns) >= SETTLED_NS
            tokens = parse_tokens(self._path.read_bytes(), self._path)
            # In one step: requests that are answered meanwhile go by the old tokens or the new.
            self._tokens, self._seen = tokens, seen if settled else None
        except ConfigError:
            self._seen, self._tokens = None, ()
            raise
        except OSError as error:
            self._seen, self._tokens = None, ()
            raise ConfigError(Problem(self._path, None, "", error.strerror or "")) from error

    def accept(self, authorization: str) -> bool:
        """Whether the value of an Authorization header carries a valid token."""
        return self.number_of(authorization) is not None

    def number_of(self, authorization: str) -> int | None:
        """Which token it carries, in the order of the file from 1; None for no valid one.

        Takes as long for a wrong token as for a right one.
        """
        scheme, _, given = authorization.partition(" ")
        offered = given.strip().encode(errors="surrogateescape")
        matches = [hmac.compare_digest(offered, token) for token in self._tokens]
        if scheme.lower() != "bearer" or not any(matches):
            return None
        return matches.index(True) + 1


def _signature(stat: os.stat_result) -> Signature:
    return (stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size, stat.st_ino, stat.st_dev)


def parse_tokens(content: bytes, path: Path) -> tuple[bytes, ...]:
    """The tokens in `content`. Raises ConfigError when there is none, or one is too short."""
    tokens = []
    for number, line in enumerate(content.splitlines(), start=1):
        if token := line.strip():
            if len(token) < SHORTEST:
                message = f"a token needs at least {SHORTEST} characters"
                raise ConfigError(Problem(path, number, "", message))
            tokens.append(token)
    if not tokens:
        raise ConfigError(Problem(path, None, "", "holds no token"))
    return tuple(tokens)
