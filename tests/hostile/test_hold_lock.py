"""Another account keeps the lock of the hold file."""

from __future__ import annotations

import fcntl
import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest
from tests.hostile.accounts import STRANGER, needs_root, open_folder
from tests.remediator.samples import is_held
from tests.waiting import DEADLINE_SECONDS, until

from trainwarden_remediator.holds.hold_file import EVERYTHING, Hold, add_hold, read_holds

NOW = 1_800_000_000.0


@pytest.fixture
def folder() -> Iterator[Path]:
    with open_folder() as folder:
        yield folder


def lock_mode(hold_file: Path) -> int:
    return stat.S_IMODE(Path(f"{hold_file}.lock").stat().st_mode)


def add_in_time(hold_file: Path, hold: Hold) -> None:
    """Adds a hold; fails the test if that hangs."""
    thread = Thread(target=add_hold, args=(hold_file, hold, NOW), daemon=True)
    thread.start()
    thread.join(DEADLINE_SECONDS)
    assert not thread.is_alive(), "the hold hangs"


def test_the_lock_is_closed_to_other_accounts(folder: Path) -> None:
    hold_file = folder / "hold"
    Path(f"{hold_file}.lock").touch(0o644)
    add_hold(hold_file, EVERYTHING, NOW)
    assert lock_mode(hold_file) == 0o600


@needs_root
def test_a_lock_that_another_account_holds_does_not_delay_a_hold(folder: Path) -> None:
    hold_file = folder / "hold"
    lock = Path(f"{hold_file}.lock")
    lock.touch()
    lock.chmod(0o644)  # as earlier versions created it
    attacker = subprocess.Popen(
        ["flock", str(lock), "sleep", "600"],
        user=STRANGER,
        group=STRANGER,
        extra_groups=[],
        start_new_session=True,
    )
    try:
        until(lambda: is_locked(lock))
        add_in_time(hold_file, EVERYTHING)
        assert is_held(hold_file, NOW)
    finally:
        os.killpg(attacker.pid, 9)
        attacker.wait()


def test_a_hold_is_written_while_another_process_keeps_the_lock(folder: Path) -> None:
    hold_file = folder / "hold"
    with Path(f"{hold_file}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        add_in_time(hold_file, Hold("demo"))
        assert read_holds(hold_file, NOW) == (Hold("demo"),)


@needs_root
def test_a_link_in_the_place_of_the_new_hold_file_is_not_followed(folder: Path) -> None:
    hold_file, target = folder / "hold", folder / "target"
    target.write_text("content")
    for name in ("hold.new", "hold.lock"):
        (folder / name).symlink_to(target)
        os.chown(folder / name, STRANGER, STRANGER, follow_symlinks=False)
    add_hold(hold_file, EVERYTHING, NOW)
    assert is_held(hold_file, NOW)
    assert target.read_text() == "content"


def is_locked(lock: Path) -> bool:
    with lock.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
