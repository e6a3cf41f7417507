from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.remediator.conftest import TOKEN

from trainwarden_exporter.exceptions import ConfigError
from trainwarden_remediator.tokens import LOOK_SECONDS, SETTLED_NS, SHORTEST, Tokens, parse_tokens

OTHER = "another-token-entirely"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "webhook-token"
    file.write_text(f"{TOKEN}\n")
    return file


def read(file: Path) -> Tokens:
    tokens = Tokens(file)
    tokens.read()
    return tokens


@pytest.mark.parametrize(
    "header", [f"Bearer {TOKEN}", f"bearer {TOKEN}", f"BEARER   {TOKEN} ", f"Bearer {TOKEN}\t"]
)
def test_accepts_the_token(file: Path, header: str) -> None:
    assert read(file).accept(header)


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
    assert not read(file).accept(header)


def test_nothing_is_accepted_before_the_file_was_read(file: Path) -> None:
    assert not Tokens(file).accept(f"Bearer {TOKEN}")
    assert not Tokens(file).accept("Bearer ")


def test_two_tokens_serve_while_they_are_exchanged(file: Path) -> None:
    file.write_text(f"\n  {TOKEN}  \r\n\n{OTHER}")
    tokens = read(file)
    assert tokens.accept(f"Bearer {TOKEN}")
    assert tokens.accept(f"Bearer {OTHER}")


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
    assert not tokens.accept(f"Bearer {TOKEN}")
    assert tokens.accept(f"Bearer {OTHER}") == in_place


def test_a_file_that_cannot_be_used_leaves_no_token_valid_until_it_can(file: Path) -> None:
    tokens = read(file)
    for spoil in (lambda: file.write_text(""), lambda: file.write_text("short"), file.unlink):
        spoil()
        for _ in range(2):
            with pytest.raises(ConfigError):
                tokens.read()
        assert not tokens.accept(f"Bearer {TOKEN}")
        assert not tokens.accept("Bearer ")
    file.write_text(TOKEN)
    tokens.read()
    assert tokens.accept(f"Bearer {TOKEN}")


LONG_AGO = 10**9


def settled(file: Path) -> None:
    """As of a time long before the clock of `late`."""
    os.utime(file, ns=(LONG_AGO, LONG_AGO))


def late() -> int:
    return time.time_ns() + 10 * SETTLED_NS


def test_a_file_that_has_not_changed_is_not_read_again(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = Tokens(file, now_ns=late)
    assert not tokens.is_current()
    tokens.read()
    assert tokens.is_current()

    def never(_: Path) -> bytes:
        raise AssertionError

    monkeypatch.setattr(Path, "read_bytes", never)
    tokens.read()


def test_a_file_of_the_same_size_and_times_is_seen_to_be_another(file: Path) -> None:
    settled(file)
    tokens = Tokens(file, now_ns=late)
    tokens.read()
    new = file.with_suffix(".new")
    new.write_text(f"{TOKEN[::-1]}\n")
    settled(new)
    new.replace(file)
    assert not tokens.is_current()
    tokens.read()
    assert tokens.accept(f"Bearer {TOKEN[::-1]}")
    assert not tokens.accept(f"Bearer {TOKEN}")


def test_also_one_that_was_written_in_place(file: Path) -> None:
    settled(file)
    tokens = Tokens(file, now_ns=late)
    tokens.read()
    file.write_text(f"{TOKEN[::-1]}\n")
    settled(file)  # as `rsync --times --inplace` leaves it
    assert not tokens.is_current()


def test_a_file_just_changed_is_read_each_time_for_its_times_may_not_tell_the_next(
    file: Path,
) -> None:
    tokens = read(file)
    assert not tokens.is_current()
    tokens.read()
    assert tokens.accept(f"Bearer {TOKEN}")


def test_a_file_that_is_gone_or_cannot_be_used_is_not_current(file: Path) -> None:
    tokens = Tokens(file, now_ns=late)
    tokens.read()
    file.unlink()
    assert not tokens.is_current()


def test_a_request_meanwhile_goes_by_the_old_token_or_the_new(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = read(file)
    reading, go_on = threading.Event(), threading.Event()
    read_bytes = Path.read_bytes

    def slow(path: Path) -> bytes:
        reading.set()
        assert go_on.wait(10)
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", slow)
    file.write_text(f"{TOKEN}\n{OTHER}")
    reader = threading.Thread(target=tokens.read)
    reader.start()
    assert reading.wait(10)
    assert tokens.accept(f"Bearer {TOKEN}")
    go_on.set()
    reader.join()
    assert tokens.accept(f"Bearer {OTHER}")


@pytest.mark.parametrize("content", [b"", b"\n \n\t\r\n"])
def test_a_file_without_a_token_is_refused(content: bytes) -> None:
    with pytest.raises(ConfigError, match="token-file: holds no token"):
        parse_tokens(content, Path("token-file"))


def test_a_token_easily_guessed_is_refused_with_its_line_and_not_repeated() -> None:
    assert parse_tokens(b"x" * SHORTEST, Path("f")) == (b"x" * SHORTEST,)
    with pytest.raises(ConfigError, match=r"token-file:2: ") as caught:
        parse_tokens(f"{TOKEN}\nhunter2".encode(), Path("token-file"))
    assert "hunter2" not in str(caught.value)


def test_a_folder_is_no_token_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Is a directory"):
        Tokens(tmp_path).read()


# while requests come


class Disk:
    """That of the token file: `hung` holds up whoever looks; `looks` counts them."""

    def __init__(self, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.looks = 0
        self._answers = threading.Event()
        self._answers.set()
        real = Path.stat

        def stat(path: Path, **options: bool) -> os.stat_result:
            if path == file:
                self.looks += 1
                assert self._answers.wait(30)
            return real(path, **options)

        monkeypatch.setattr(Path, "stat", stat)

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
def disk(file: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(file, monkeypatch)


async def test_a_change_counts_for_the_very_next_request(file: Path) -> None:
    tokens = read(file)
    for token, other in ((OTHER, TOKEN), (TOKEN, OTHER)) * 5:
        write(file, token)
        await tokens.refresh()
        assert tokens.accept(f"Bearer {token}")
        assert not tokens.accept(f"Bearer {other}")


async def test_all_that_come_at_once_share_one_look(file: Path, disk: Disk) -> None:
    settled(file)
    tokens = Tokens(file, now_ns=late)
    tokens.read()
    disk.looks = 0
    await asyncio.gather(*(tokens.refresh() for _ in range(1000)))
    assert disk.looks == 1


async def test_who_comes_during_a_look_is_answered_by_a_later_one(file: Path, disk: Disk) -> None:
    """What was revoked when that look had passed it must not be good for them."""
    settled(file)
    tokens = Tokens(file, now_ns=late)
    tokens.read()
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
    file: Path, disk: Disk
) -> None:
    tokens = read(file)
    loop = asyncio.get_running_loop()
    with disk.hung():
        began = loop.time()
        waiting = asyncio.create_task(tokens.refresh())
        await asyncio.sleep(0.01)
        assert loop.time() - began < LOOK_SECONDS
        await waiting
        assert LOOK_SECONDS <= loop.time() - began < LOOK_SECONDS + 5
        looks, began = disk.looks, loop.time()
        await asyncio.gather(*(tokens.refresh() for _ in range(1000)))
        assert loop.time() - began < LOOK_SECONDS  # it is known to hang
        assert disk.looks == looks
        assert tokens.accept(f"Bearer {TOKEN}")
        write(file, OTHER)
    async with asyncio.timeout(10):
        while not tokens.accept(f"Bearer {OTHER}"):  # as soon as the look that hung is over
            await asyncio.sleep(0.001)
            await tokens.refresh()
    assert not tokens.accept(f"Bearer {TOKEN}")


async def test_what_cannot_be_used_is_told_of_and_lets_nobody_in_until_it_can(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tokens = read(file)
    write(file, "short")
    await asyncio.gather(*(tokens.refresh() for _ in range(10)))
    assert not tokens.accept(f"Bearer {TOKEN}")
    (record,) = caplog.records
    assert record.msg == "nobody is let in"
    write(file, TOKEN)
    await tokens.refresh()
    assert tokens.accept(f"Bearer {TOKEN}")


async def test_want_of_memory_leaves_what_was_read(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def starve(_: Path) -> bytes:
        raise MemoryError

    tokens = read(file)
    write(file, OTHER)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", starve)
        await tokens.refresh()
        assert tokens.accept(f"Bearer {TOKEN}")
    await tokens.refresh()
    assert not tokens.accept(f"Bearer {TOKEN}")
