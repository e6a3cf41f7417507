"""The bearer tokens that a webhook must carry one of."""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

from trainwarden_exporter.exceptions import ConfigError, Problem

log = logging.getLogger(__name__)

SHORTEST = 16
"""Characters a token must have; a shorter one is guessed too easily."""


SETTLED_NS = 2_000_000_000
"""A file that was changed less than two seconds before it was read may be changed again without its
times telling: the coarsest file systems count in these."""

LOOK_SECONDS = 0.5
"""How long the disk of the file is waited for; then what was last read goes on to count."""

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
        self._look: asyncio.Task[None] | None = None
        self._look_began = 0.0
        self._next_look: asyncio.Task[None] | None = None

    async def refresh(self) -> None:
        """Go by the file as it stands now; by what was last read where its disk does not answer.

        Each look is in a thread, one at a time. All who come during one share the next: what
        was begun before they came may have missed a change.
        """
        now = asyncio.get_running_loop().time()
        if self._next_look is None:
            self._next_look = asyncio.create_task(
                self._look_after(self._look), name="look at the tokens"
            )
        hangs = self._look is not None and now - self._look_began >= LOOK_SECONDS
        if not hangs:
            await asyncio.wait([self._next_look], timeout=LOOK_SECONDS)

    async def _look_after(self, earlier: asyncio.Task[None] | None) -> None:
        if earlier is not None:
            await asyncio.wait([earlier])
        self._look, self._next_look = self._next_look, None
        self._look_began = asyncio.get_running_loop().time()
        try:
            await asyncio.to_thread(self.read)
        except ConfigError as error:
            log.error("nobody is let in", extra={"problem": str(error)})
        except MemoryError:
            log.error("tokens not looked at", extra={"error": "no memory"})
        finally:
            self._look = None

    def is_current(self) -> bool:
        """Whether the file is known to be as it was read: a look that takes microseconds."""
        try:
            return self._seen is not None and _signature(self._path.stat()) == self._seen
        except OSError:
            return False

    def read(self) -> None:
        """Read the file unless it is current. Raises ConfigError; then no token is valid."""
        if self.is_current():
            return
        try:
            stat = self._path.stat()
            settled = self._now_ns() - max(stat.st_mtime_ns, stat.st_ctime_ns) >= SETTLED_NS
            tokens = parse_tokens(self._path.read_bytes(), self._path)
            # In one step: requests that are answered meanwhile go by the old tokens or the new.
            self._tokens, self._seen = tokens, _signature(stat) if settled else None
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
