"""HTTP basic authentication against bcrypt hashes, kept cheap and free of timing differences."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import re
import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator

Verdict = Literal["known", "unknown", "busy"]

_HASH = re.compile(r"\$2[aby]\$(?P<cost>\d\d)\$(?P<salt>[./A-Za-z0-9]{22})[./A-Za-z0-9]{31}")
_COSTS = range(4, 32)
_REMEMBERED = 1000
_WAITING = 50


def parse_hash(text: str) -> str:
    """`text` when it is a bcrypt hash as htpasswd writes them, else ValueError (without it)."""
    match = _HASH.fullmatch(text)
    if match is None or int(match["cost"]) not in _COSTS:
        raise ValueError(
            "not a bcrypt hash: make one with `htpasswd -nBC 10 USER`, it follows the colon"
        )
    import bcrypt  # noqa: PLC0415 - 0.3 MiB, and few have users

    # The library refuses some salts by their last bits; the lowest cost asks it quickly.
    try:
        bcrypt.hashpw(b"", f"$2b$04${match['salt']}".encode())
    except ValueError as error:
        raise ValueError(f"not a bcrypt hash: {error}") from error
    return text


BcryptHash = Annotated[str, AfterValidator(parse_hash)]


def _matches(password: bytes, hashed: bytes) -> bool:
    import bcrypt  # noqa: PLC0415 - as above

    return bcrypt.checkpw(password, hashed)


def parse_credentials(header: str | None) -> tuple[str, bytes] | None:
    """User and password of an `Authorization` header; None where there are none (RFC 7617)."""
    scheme, _, encoded = (header or "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
        return (user.decode(), password) if colon else None
    except (binascii.Error, UnicodeDecodeError):
        return None


class BasicAuthenticator:
    """Says whether a request comes from one of the users.

    bcrypt is slow by design, so it runs in a thread, one computation at a time, and its answer is
    remembered (under a digest with a key of this process, never with the password). An unknown user
    costs as much as a known one. When too many answers are waited for, new questions are "busy":
    guesses cannot pile up, and users already known are not delayed by them.
    """

    def __init__(self, check: Callable[[bytes, bytes], bool] = _matches) -> None:
        self._check = check
        self._secret = secrets.token_bytes(32)
        self._answers: OrderedDict[bytes, bool] = OrderedDict()
        self._turn = asyncio.Lock()
        self._waiting = 0

    async def verdict(self, users: Mapping[str, str], header: str | None) -> Verdict:
        """Whether `header` (Authorization) names one of `users` (name: bcrypt hash) rightly."""
        credentials = parse_credentials(header)
        if credentials is None or not users:
            return "unknown"
        user, password = credentials
        hashed = users.get(user)
        # The costliest hash stands in for a user there is none of; its answer is not used.
        compared = (hashed or max(users.values(), key=lambda text: text[4:6])).encode()
        question = self._digest(user.encode(), compared, password)
        right = self._answers.get(question)
        if right is None:
            if self._waiting >= _WAITING:
                return "busy"
            self._waiting += 1
            try:
                right = await self._ask(question, password, compared)
            finally:
                self._waiting -= 1
        self._answers.move_to_end(question)
        return "known" if right and hashed is not None else "unknown"

    async def _ask(self, question: bytes, password: bytes, hashed: bytes) -> bool:
        async with self._turn:
            right = self._answers.get(question)
            if right is None:
                right = await asyncio.to_thread(self._compare, password, hashed)
                self._answers[question] = right
                if len(self._answers) > _REMEMBERED:
                    self._answers.popitem(last=False)
            return right

    def _compare(self, password: bytes, hashed: bytes) -> bool:
        try:
            return self._check(password, hashed)
        except ValueError:
            # bcrypt 5 refuses passwords over 72 bytes; no hash was made from one.
            return False

    def _digest(self, *parts: bytes) -> bytes:
        digest = hashlib.blake2b(key=self._secret, digest_size=32)
        for part in parts:
            digest.update(len(part).to_bytes(8, "big") + part)
        return digest.digest()
