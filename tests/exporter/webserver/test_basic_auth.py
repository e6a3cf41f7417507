from __future__ import annotations

import asyncio
import base64
import threading

import bcrypt
import pytest

from trainwarden_exporter.webserver.basic_auth import BasicAuthenticator, parse_credentials


def hashed(password: str) -> str:
    return bcrypt.hashpw(password.encode(), bcrypt.gensalt(4)).decode()


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


USERS = {"alice": hashed("wonderland"), "bob": hashed("builder")}


class Checker:
    """bcrypt, counted; holds its answer back while `gate` is closed."""

    def __init__(self) -> None:
        self.calls: list[tuple[bytes, bytes]] = []
        self.threads: set[threading.Thread] = set()
        self.gate = threading.Event()
        self.gate.set()
        self.running = 0
        self.most_running = 0

    def __call__(self, password: bytes, hashed: bytes) -> bool:
        self.calls.append((password, hashed))
        self.threads.add(threading.current_thread())
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        self.gate.wait(5)
        self.running -= 1
        return bcrypt.checkpw(password, hashed)


@pytest.fixture
def checker() -> Checker:
    return Checker()


@pytest.fixture
def authenticator(checker: Checker) -> BasicAuthenticator:
    return BasicAuthenticator(checker)


@pytest.mark.parametrize(
    ("header", "credentials"),
    [
        ("Basic YTpi", ("a", b"b")),
        ("basic YTpi", ("a", b"b")),
        ("Basic YTpiOmM=", ("a", b"b:c")),
        ("Basic Og==", ("", b"")),
        ("Basic w6k6/w==", ("é", b"\xff")),
        ("Basic YWI=", None),
        ("Basic /zpi", None),
        ("Basic !", None),
        ("Basic", None),
        ("Bearer YTpi", None),
        ("", None),
        (None, None),
    ],
)
def test_credentials_are_read_from_a_header(
    header: str | None, credentials: tuple[str, bytes] | None
) -> None:
    assert parse_credentials(header) == credentials


async def test_a_user_with_the_right_password_is_known(authenticator: BasicAuthenticator) -> None:
    assert await authenticator.authenticate(USERS, basic("alice", "wonderland")) == "known"


@pytest.mark.parametrize(
    ("user", "password"),
    [("alice", "builder"), ("alice", ""), ("eve", "x"), ("alice", "a" * 73), ("bob", "b\0")],
)
async def test_anybody_else_is_unknown(
    authenticator: BasicAuthenticator, user: str, password: str
) -> None:
    assert await authenticator.authenticate(USERS, basic(user, password)) == "unknown"


async def test_an_unknown_user_is_compared_all_the_same_with_the_costliest_hash(
    authenticator: BasicAuthenticator, checker: Checker
) -> None:
    costly = bcrypt.hashpw(b"guess", bcrypt.gensalt(5)).decode()
    users = {"alice": hashed("x"), "bob": costly}
    assert await authenticator.authenticate(users, basic("eve", "guess")) == "unknown"
    assert checker.calls == [(b"guess", costly.encode())]


async def test_an_answer_is_remembered_right_or_wrong(
    authenticator: BasicAuthenticator, checker: Checker
) -> None:
    for _ in range(3):
        assert await authenticator.authenticate(USERS, basic("alice", "wonderland")) == "known"
        assert await authenticator.authenticate(USERS, basic("alice", "wrong")) == "unknown"
    assert len(checker.calls) == 2


async def test_a_new_hash_is_a_new_question(authenticator: BasicAuthenticator) -> None:
    header = basic("alice", "wonderland")
    assert await authenticator.authenticate(USERS, header) == "known"
    assert await authenticator.authenticate({"alice": hashed("new")}, header) == "unknown"


async def test_what_is_remembered_is_bounded_and_holds_no_password(
    monkeypatch: pytest.MonkeyPatch, authenticator: BasicAuthenticator, checker: Checker
) -> None:
    monkeypatch.setattr("trainwarden_exporter.webserver.basic_auth._CACHE_SIZE", 2)
    for guess in ("one", "wonderland", "two", "wonderland", "three", "wonderland"):
        await authenticator.authenticate(USERS, basic("alice", guess))
    assert len(checker.calls) == 4, "what is asked often stays"
    assert len(authenticator._cache) == 2
    assert b"wonderland" not in b"".join(authenticator._cache)


async def test_bcrypt_runs_beside_the_loop_once_at_a_time(
    authenticator: BasicAuthenticator, checker: Checker
) -> None:
    headers = [basic("alice", str(number)) for number in range(5)]
    await asyncio.gather(*(authenticator.authenticate(USERS, header) for header in headers))
    assert checker.most_running == 1
    assert threading.main_thread() not in checker.threads


async def test_the_same_question_asked_at_once_is_computed_once(
    authenticator: BasicAuthenticator, checker: Checker
) -> None:
    header = basic("alice", "wonderland")
    verdicts = await asyncio.gather(*(authenticator.authenticate(USERS, header) for _ in range(5)))
    assert verdicts == ["known"] * 5
    assert len(checker.calls) == 1


async def test_guesses_do_not_pile_up_and_do_not_delay_the_known(
    monkeypatch: pytest.MonkeyPatch, authenticator: BasicAuthenticator, checker: Checker
) -> None:
    monkeypatch.setattr("trainwarden_exporter.webserver.basic_auth._MAX_WAITING", 2)
    await authenticator.authenticate(USERS, basic("alice", "wonderland"))
    checker.gate.clear()
    try:
        guesses = [
            asyncio.create_task(authenticator.authenticate(USERS, basic("alice", guess)))
            for guess in ("one", "two")
        ]
        await asyncio.sleep(0)
        assert await authenticator.authenticate(USERS, basic("alice", "three")) == "busy"
        assert await authenticator.authenticate(USERS, basic("alice", "wonderland")) == "known"
    finally:
        checker.gate.set()
    assert await asyncio.gather(*guesses) == ["unknown", "unknown"]
    assert await authenticator.authenticate(USERS, basic("alice", "three")) == "unknown"
