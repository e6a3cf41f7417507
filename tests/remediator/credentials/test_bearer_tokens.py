from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.remediator.samples import TOKEN

from trainwarden_exporter.exceptions import ConfigError
from trainwarden_remediator.credentials import bearer_tokens, outgoing
from trainwarden_remediator.credentials.bearer_tokens import (
    MIN_TOKEN_LENGTH,
    READ_TIMEOUT_SECONDS,
    BearerTokens,
    parse_tokens,
)


def test_a_renewed_token_is_the_only_valid_one(file: Path) -> None:
    tokens = read(file)
    tokens.renew()
    tokens.read()
    assert not tokens.accepts(f"Bearer {TOKEN}")
    assert tokens.accepts(f"Bearer {file.read_text().strip()}")
    assert file.stat().st_mode & 0o777 == 0o600
    assert list(file.parent.iterdir()) == [file]


def test_a_token_that_cannot_be_renewed_stays_valid(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    tokens = read(file)
    with pytest.raises(OSError, match="No space"):
        tokens.renew()
    tokens.read()
    assert tokens.accepts(f"Bearer {TOKEN}")


OTHER = "another-token-entirely"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "webhook-token"
    file.write_text(f"{TOKEN}\n")
    return file


def read(file: Path) -> BearerTokens:
    tokens = BearerTokens(file)
    tokens.read()
    return tokens


@pytest.mark.parametrize(
    "header", [f"Bearer {TOKEN}", f"bearer {TOKEN}", f"BEARER   {TOKEN} ", f"Bearer {TOKEN}\t"]
)
def test_accepts_the_token(file: Path, header: str) -> None:
    assert read(file).accepts(header)


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer",
        "Bearer ",
        TOKEN,
        f"Basic {TOKEN}",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        f"Bearer {TOKEN.upper()}",
        f"Bearer {TOKEN} {TOKEN}",
        f"Bearer {TOKEN}\n{OTHER}",
        "Bearer \udcff\udcfe",
        "Bearer \u00e9\u00e9",
    ],
)
def test_accepts_nothing_else(file: Path, header: str) -> None:
    assert not read(file).accepts(header)


def test_no_token_is_accepted_before_the_file_was_read(file: Path) -> None:
    assert not BearerTokens(file).accepts(f"Bearer {TOKEN}")
    assert not BearerTokens(file).accepts("Bearer ")


def test_two_tokens_serve_while_they_are_exchanged(file: Path) -> None:
    file.write_text(f"\n  {TOKEN}  \r\n\n{OTHER}")
    tokens = read(file)
    assert tokens.accepts(f"Bearer {TOKEN}")
    assert tokens.accepts(f"Bearer {OTHER}")


@pytest.mark.parametrize("in_place", [True, False])
def test_a_changed_file_is_read_again(file: Path, *, in_place: bool) -> None:
    tokens = read(file)
    if in_place:
        file.write_text(OTHER)
    else:
        new = file.with_suffix(".new")
        new.write_text("x" * len(f"{TOKEN}\n"))
        os.utime(new, ns=(0, file.stat().st_mtime_ns))
        new.replace(file)
    tokens.read()
    assert not tokens.accepts(f"Bearer {TOKEN}")
    assert tokens.accepts(f"Bearer {OTHER}") == in_place


def test_a_file_that_cannot_be_used_leaves_no_token_valid_until_it_can(file: Path) -> None:
    tokens = read(file)
    for spoil in (lambda: file.write_text(""), lambda: file.write_text("short"), file.unlink):
        spoil()
        for _ in range(2):
            with pytest.raises(ConfigError):
                tokens.read()
        assert not tokens.accepts(f"Bearer {TOKEN}")
        assert not tokens.accepts("Bearer ")
    file.write_text(TOKEN)
    tokens.read()
    assert tokens.accepts(f"Bearer {TOKEN}")


def test_a_file_of_the_same_size_and_times_is_seen_to_be_another(file: Path) -> None:
    tokens = read(file)
    before = file.stat()
    file.write_text(f"{TOKEN[::-1]}\n")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))  # as `rsync --times` leaves it
    tokens.read()
    assert tokens.accepts(f"Bearer {TOKEN[::-1]}")
    assert not tokens.accepts(f"Bearer {TOKEN}")


def test_a_request_meanwhile_goes_by_the_old_token_or_the_new(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = read(file)
    reading, go_on = threading.Event(), threading.Event()
    read_bytes = Path.read_bytes

    def slow(path: Path) -> bytes:
        reading.set()
        assert go_on.wait(60)
        return read_bytes(path)

    monkeypatch.setattr(bearer_tokens, "read_regular_file", slow)
    file.write_text(f"{TOKEN}\n{OTHER}")
    reader = threading.Thread(target=tokens.read)
    reader.start()
    assert reading.wait(60)
    assert tokens.accepts(f"Bearer {TOKEN}")
    go_on.set()
    reader.join()
    assert tokens.accepts(f"Bearer {OTHER}")


@pytest.mark.parametrize("content", [b"", b"\n \n\t\r\n"])
def test_a_file_without_a_token_is_refused(content: bytes) -> None:
    with pytest.raises(ConfigError, match="token-file: contains no token"):
        parse_tokens(content, Path("token-file"))


def test_a_token_easily_guessed_is_refused_with_its_line_and_not_repeated() -> None:
    assert parse_tokens(b"x" * MIN_TOKEN_LENGTH, Path("f")) == (b"x" * MIN_TOKEN_LENGTH,)
    with pytest.raises(ConfigError, match=r"token-file:2: ") as caught:
        parse_tokens(f"{TOKEN}\nhunter2".encode(), Path("token-file"))
    assert "hunter2" not in str(caught.value)


def test_a_pipe_is_no_token_file(tmp_path: Path) -> None:
    os.mkfifo(pipe := tmp_path / "pipe")
    with pytest.raises(ConfigError, match="not a regular file"):
        BearerTokens(pipe).read()


def test_a_folder_is_no_token_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not a regular file"):
        BearerTokens(tmp_path).read()


# while requests come


class Disk:
    """The disk of the token file: while `hung`, reads of it wait; `looks` counts the reads."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.looks = 0
        self.waited_out = False
        self._answers = threading.Event()
        self._answers.set()
        real = outgoing.read_regular_file

        def slow(path: Path) -> bytes:
            self.looks += 1
            self.waited_out = not self._answers.wait(60)
            return real(path)

        monkeypatch.setattr(bearer_tokens, "read_regular_file", slow)

    @contextmanager
    def hung(self) -> Iterator[None]:
        self._answers.clear()
        try:
            yield
        finally:
            self._answers.set()


def write(file: Path, content: str) -> None:
    file.write_text(content)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


async def test_a_change_counts_for_the_very_next_request(file: Path) -> None:
    tokens = read(file)
    for token, other in ((OTHER, TOKEN), (TOKEN, OTHER)) * 5:
        write(file, token)
        await tokens.refresh()
        assert tokens.accepts(f"Bearer {token}")
        assert not tokens.accepts(f"Bearer {other}")


async def test_all_that_come_at_once_share_one_look(file: Path, disk: Disk) -> None:
    tokens = read(file)
    disk.looks = 0
    await asyncio.gather(*(tokens.refresh() for _ in range(1000)))
    assert disk.looks == 1


async def test_who_comes_during_a_look_is_answered_by_a_later_one(file: Path, disk: Disk) -> None:
    """What was revoked when that look had passed it must not be good for them."""
    tokens = read(file)
    with disk.hung():
        first = asyncio.create_task(tokens.refresh())
        while disk.looks < 2:  # noqa: ASYNC110 - a thread sets no event
            await asyncio.sleep(0.001)
        others = [asyncio.create_task(tokens.refresh()) for _ in range(100)]
        await asyncio.sleep(0.01)
        assert disk.looks == 2
    await asyncio.gather(first, *others)
    assert disk.looks == 3


async def test_a_disk_that_hangs_holds_up_each_for_a_moment_and_the_loop_not_at_all(
    file: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = read(file)
    timeouts: list[float | None] = []
    wait = asyncio.wait

    async def noted(tasks: Any, *, timeout: float | None = None) -> Any:  # noqa: ASYNC109 - as there
        timeouts.append(timeout)
        return await wait(tasks, timeout=timeout)

    monkeypatch.setattr(asyncio, "wait", noted)
    with disk.hung():
        looks = disk.looks
        waiting = asyncio.create_task(tokens.refresh())
        while disk.looks == looks:  # noqa: ASYNC110 - a thread sets no event
            await asyncio.sleep(0.001)  # the loop goes on although the disk hangs
        await waiting
        assert timeouts == [READ_TIMEOUT_SECONDS]
        await asyncio.sleep(READ_TIMEOUT_SECONDS)
        looks = disk.looks
        await asyncio.gather(*(tokens.refresh() for _ in range(1000)))
        assert timeouts == [
            READ_TIMEOUT_SECONDS,
            None,
        ]  # it is known to hang: the next look alone waits
        assert disk.looks == looks
        assert tokens.accepts(f"Bearer {TOKEN}")
        assert not disk.waited_out
        write(file, OTHER)
    async with asyncio.timeout(60):
        while not tokens.accepts(f"Bearer {OTHER}"):  # as soon as the look that hung is over
            await asyncio.sleep(0.001)
            await tokens.refresh()
    assert not tokens.accepts(f"Bearer {TOKEN}")


async def test_what_cannot_be_used_is_reported_and_lets_nobody_in_until_it_can(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tokens = read(file)
    write(file, "short")
    await asyncio.gather(*(tokens.refresh() for _ in range(10)))
    assert not tokens.accepts(f"Bearer {TOKEN}")
    (record,) = caplog.records
    assert record.msg == "webhook tokens cannot be read; rejecting all webhooks"
    write(file, TOKEN)
    await tokens.refresh()
    assert tokens.accepts(f"Bearer {TOKEN}")


async def test_want_of_memory_leaves_what_was_read(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def starve(_: Path) -> bytes:
        raise MemoryError

    tokens = read(file)
    write(file, OTHER)
    with monkeypatch.context() as patch:
        patch.setattr(bearer_tokens, "read_regular_file", starve)
        await tokens.refresh()
        assert tokens.accepts(f"Bearer {TOKEN}")
    await tokens.refresh()
    assert not tokens.accepts(f"Bearer {TOKEN}")
