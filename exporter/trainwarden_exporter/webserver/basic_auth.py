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

import bcrypt
from pydantic import AfterValidator

AuthResult = Literal["known", "unknown", "busy"]

_HASH = re.compile(r"\$2[aby]\$(?P<cost>\d\d)\$(?P<salt>[./A-Za-z0-9]{22})[./A-Za-z0-9]{31}")
_COSTS = range(4, 32)
_CACHE_SIZE = 1000
_MAX_WAITING = 50


def parse_hash(text: str) -> str:
    """Returns `text` if it is a bcrypt hash as written by htpasswd, else raises ValueError."""
    match = _HASH.fullmatch(text)
    if match is None or int(match["cost"]) not in _COSTS:
        raise ValueError(
            "not a bcrypt hash: create it with `htpasswd -nBC 10 USER`, it follows the colon"
        )
    # The library rejects some salts by their last bits; the lowest cost finds out quickly.
    try:
        bcrypt.hashpw(b"", f"$2b$04${match['salt']}".encode())
    except ValueError as error:
        raise ValueError(f"not a bcrypt hash: {error}") from error
    return text


BcryptHash = Annotated[str, AfterValidator(parse_hash)]


def _matches(password: bytes, hashed: bytes) -> bool:
    return bcrypt.checkpw(password, hashed)


def parse_credentials(header: str | None) -> tuple[str, bytes] | None:
    """Returns user and password of an `Authorization` header (RFC 7617); None without them."""
    scheme, _, encoded = (header or "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
        return (user.decode(), password) if colon else None
    except (binascii.Error, UnicodeDecodeError):
        return None


class BasicAuthenticator:
    """Authenticates requests of users.

    bcrypt is slow by design, so it runs in a thread, one computation at a time, and its results are
    cached (under a digest with a key of this process, never with the password). An unknown user
    costs as much as a known user. When too many requests wait for a result, further ones are
    "busy": guesses cannot accumulate, and do not delay users whose result is cached.
    """

    def __init__(self, check: Callable[[bytes, bytes], bool] = _matches) -> None:
        self._check = check
        self._secret = secrets.token_bytes(32)
        self._cache: OrderedDict[bytes, bool] = OrderedDict()
        self._lock = asyncio.Lock()
        self._waiting_count = 0

    async def authenticate(self, users: Mapping[str, str], header: str | None) -> AuthResult:
        """Whether `header` (Authorization) authenticates one of `users` (name: bcrypt hash)."""
        credentials = parse_credentials(header)
        if credentials is None or not users:
            return "unknown"
        user, password = credentials
        hashed = users.get(user)
        # The costliest hash replaces that of an unknown user; its result is not used.
        compared = (hashed or max(users.values(), key=lambda text: text[4:6])).encode()
        cache_key = self._digest(user.encode(), compared, password)
        right = self._cache.get(cache_key)
        if right is None:
            if self._waiting_count >= _MAX_WAITING:
                return "busy"
            self._waiting_count += 1
            try:
                right = await self._check_cached(cache_key, password, compared)
            finally:
                self._waiting_count -= 1
        self._cache.move_to_end(cache_key)
        return "known" if right and hashed is not None else "unknown"

    async def _check_cached(self, cache_key: bytes, password: bytes, hashed: bytes) -> bool:
        async with self._lock:
            right = self._cache.get(cache_key)
            if right is None:
                right = await asyncio.to_thread(self._compare_in_thread, password, hashed)
                self._cache[cache_key] = right
                if len(self._cache) > _CACHE_SIZE:
                    self._cache.popitem(last=False)
            return right

    def _compare_in_thread(self, password: bytes, hashed: bytes) -> bool:
        try:
            return self._check(password, hashed)
        except ValueError:
            # bcrypt 5 rejects passwords over 72 bytes; no hash was made from such a password.
            return False

    def _digest(self, *parts: bytes) -> bytes:
        digest = hashlib.blake2b(key=self._secret, digest_size=32)
        for part in parts:
            digest.update(len(part).to_bytes(8, "big") + part)
        return digest.digest()
