"""The bearer tokens that authenticate incoming requests."""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
import secrets
from pathlib import Path

from trainwarden_exporter.exceptions import ConfigError, Problem
from trainwarden_remediator.credentials.outgoing import read_regular_file

log = logging.getLogger(__name__)

MIN_TOKEN_LENGTH = 16
"""Characters of the shortest accepted token; a shorter one could be guessed."""

READ_TIMEOUT_SECONDS = 0.5
"""Seconds to wait for the disk of the file; after that the tokens last read are used."""


class BearerTokens:
    """The tokens in a file, one per line; several allow for rotation.

    The file is read again for each request. A file that cannot be used leaves no token valid.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._tokens: tuple[bytes, ...] = ()
        self._read_task: asyncio.Task[None] | None = None
        self._read_began_at = 0.0
        self._next_read_task: asyncio.Task[None] | None = None

    async def refresh(self) -> None:
        """Reads the file; keeps the last tokens if its disk does not respond.

        One read runs at a time, in a thread. Callers that arrive during a read share the next one,
        because the current read may have missed a change.
        """
        now = asyncio.get_running_loop().time()
        if self._next_read_task is None:
            self._next_read_task = asyncio.create_task(
                self._read_after(self._read_task), name="read the tokens"
            )
        hangs = self._read_task is not None and now - self._read_began_at >= READ_TIMEOUT_SECONDS
        if not hangs:
            await asyncio.wait([self._next_read_task], timeout=READ_TIMEOUT_SECONDS)

    async def _read_after(self, earlier: asyncio.Task[None] | None) -> None:
        if earlier is not None:
            await asyncio.wait([earlier])
        self._read_task, self._next_read_task = self._next_read_task, None
        self._read_began_at = asyncio.get_running_loop().time()
        try:
            await asyncio.to_thread(self.read)
        except ConfigError as error:
            facts = {"problem": str(error)}
            log.error("webhook tokens cannot be read; rejecting all webhooks", extra=facts)
        except MemoryError:
            log.error("webhook tokens not checked", extra={"error": "out of memory"})
        finally:
            self._read_task = None

    def read(self) -> None:
        """Reads the file; blocks. Raises ConfigError; then no token is valid."""
        try:
            # One assignment: concurrent requests use either the old tokens or the new ones.
            self._tokens = parse_tokens(read_regular_file(self._path), self._path)
        except ConfigError:
            self._tokens = ()
            raise
        except OSError as error:
            self._tokens = ()
            raise ConfigError(Problem(self._path, None, "", error.strerror or "")) from error

    def renew(self) -> None:
        """Replaces the file by one with a new token, the only valid one from then on; blocks.

        Raises OSError; then the file is as it was.
        """
        new, token = self._path.with_name(f".{self._path.name}.new"), secrets.token_hex(32)
        new.unlink(missing_ok=True)
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(f"{token}\n")
        new.replace(self._path)
        self._tokens = (token.encode(),)

    def accepts(self, authorization: str) -> bool:
        """Whether the value of an Authorization header contains a valid token."""
        return self.token_number(authorization) is not None

    def token_number(self, authorization: str) -> int | None:
        """Returns the number of the token in the file, from 1; None if it is not valid.

        Takes the same time for a wrong token as for a valid one.
        """
        scheme, _, given = authorization.partition(" ")
        offered = given.strip().encode(errors="surrogateescape")
        matches = [hmac.compare_digest(offered, token) for token in self._tokens]
        if scheme.lower() != "bearer" or not any(matches):
            return None
        return matches.index(True) + 1


def parse_tokens(content: bytes, path: Path) -> tuple[bytes, ...]:
    """Returns the tokens in `content`. Raises ConfigError if there is none or one is too short."""
    tokens = []
    for number, line in enumerate(content.splitlines(), start=1):
        if token := line.strip():
            if len(token) < MIN_TOKEN_LENGTH:
                message = f"a token must have at least {MIN_TOKEN_LENGTH} characters"
                raise ConfigError(Problem(path, number, "", message))
            tokens.append(token)
    if not tokens:
        raise ConfigError(Problem(path, None, "", "contains no token"))
    return tuple(tokens)
