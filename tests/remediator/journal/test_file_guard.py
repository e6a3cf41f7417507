"""The files of the journal are removed, cut, replaced or overwritten while it is open."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.remediator.fake_clock import FakeClock
from tests.remediator.samples import ROLLOUT, make_alert

from trainwarden_remediator.exceptions import JournalError
from trainwarden_remediator.journal.database import offline_transaction
from trainwarden_remediator.journal.journal import Journal

NAME = "journal.db"


@pytest.fixture
def journal(tmp_path: Path, clock: FakeClock) -> Iterator[Journal]:
    with closing(Journal(tmp_path / NAME, clock=clock)) as journal:
        journal.record_alerts([make_alert()])
        journal.record_intent(1, ROLLOUT, "restart", ())
        yield journal


def remove(path: Path) -> None:
    path.unlink()


def move(path: Path) -> None:
    path.rename(f"{path}.moved")


def replace(path: Path) -> None:
    shutil.copy(path, f"{path}.copy")
    Path(f"{path}.copy").replace(path)


def link_to_copy(path: Path) -> None:
    path.rename(f"{path}.moved")
    path.symlink_to(f"{path}.moved")


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def empty(path: Path) -> None:
    os.truncate(path, 0)


@pytest.mark.parametrize("change", [remove, move, replace, link_to_copy, cut, empty])
@pytest.mark.parametrize("suffix", ["", "-wal"])
def test_after_the_loss_of_a_file_each_transaction_fails(
    journal: Journal, tmp_path: Path, change: Callable[[Path], None], suffix: str
) -> None:
    change(tmp_path / f"{NAME}{suffix}")
    with pytest.raises(JournalError, match=f"journal.db: .*{NAME}|cut off"):
        journal.record_intent(1, ROLLOUT, "restart", ())
    with pytest.raises(JournalError, match="actions may be lost"):
        journal.open_incidents()
    assert journal.file.last_write_failed


def test_a_loss_counts_until_the_restart_even_if_the_file_comes_back(
    journal: Journal, tmp_path: Path
) -> None:
    (tmp_path / NAME).rename(tmp_path / "elsewhere")
    with pytest.raises(JournalError):
        journal.count_open()
    (tmp_path / "elsewhere").rename(tmp_path / NAME)
    with pytest.raises(JournalError):
        journal.count_open()


def test_a_file_that_cannot_be_read_for_a_moment_is_not_lost(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> bytes:
        raise OSError(errno.ESTALE, "Stale file handle")

    with monkeypatch.context() as moment:
        moment.setattr(os, "pread", fail)
        with pytest.raises(JournalError, match="Stale file handle"):
            journal.count_open()
    assert journal.count_open() == 1


def test_an_overwritten_file_is_found_before_the_next_transaction(
    journal: Journal, tmp_path: Path
) -> None:
    with (tmp_path / NAME).open("r+b") as file:
        file.write(bytes(file.seek(0, os.SEEK_END)))
        file.seek(0)
        file.write(bytes(100))
    with pytest.raises(JournalError, match="overwritten"):
        journal.count_open()


def test_an_overwritten_page_is_found_by_the_regular_check(
    tmp_path: Path, clock: FakeClock
) -> None:
    path = tmp_path / NAME
    with closing(Journal(path, clock=clock)) as journal:
        journal.record_alerts([make_alert(fingerprint=f"{index:016x}") for index in range(50)])
    with closing(Journal(path, clock=clock)) as journal:
        journal.file.verify()
        with path.open("r+b") as file:
            file.seek(2 * 4096)
            file.write(b"\xa5" * 4096)
        with pytest.raises(JournalError):
            journal.file.verify()
        with pytest.raises(JournalError, match="actions may be lost"):
            journal.record_event("checked")


def test_other_programs_may_write_and_compact_it(journal: Journal, tmp_path: Path) -> None:
    with offline_transaction(tmp_path / NAME) as db:
        db.execute("DELETE FROM event")
    with closing(sqlite3.connect(tmp_path / NAME)) as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        other.execute("VACUUM")
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert (tmp_path / f"{NAME}-wal").stat().st_size == 0
    journal.record_intent(1, ROLLOUT, "restart", ())
    journal.file.verify()
    assert len(journal.past_actions(0)) == 2
    assert not journal.file.last_write_failed


def test_a_removed_journal_is_not_started_again_with_a_fresh_budget(
    tmp_path: Path, clock: FakeClock
) -> None:
    Journal(tmp_path / NAME, clock=clock).close()
    (tmp_path / NAME).unlink()
    with pytest.raises(JournalError, match=r"missing.*remove journal\.db\.lock"):
        Journal(tmp_path / NAME, clock=clock)
    assert not (tmp_path / NAME).exists()
    (tmp_path / f"{NAME}.lock").unlink()
    Journal(tmp_path / NAME, clock=clock).close()


def test_another_journal_in_its_place_is_refused(tmp_path: Path, clock: FakeClock) -> None:
    Journal(tmp_path / NAME, clock=clock).close()
    Journal(tmp_path / "other.db", clock=clock).close()
    (tmp_path / "other.db").replace(tmp_path / NAME)
    with pytest.raises(JournalError, match="not the journal that was used before"):
        Journal(tmp_path / NAME, clock=clock)


def test_a_journal_without_its_last_actions_is_refused(tmp_path: Path, clock: FakeClock) -> None:
    path = tmp_path / NAME
    with closing(Journal(path, clock=clock)) as journal:
        journal.record_alerts([make_alert()])
    backup = path.read_bytes()
    with closing(Journal(path, clock=clock)) as journal:
        journal.record_intent(1, ROLLOUT, "restart", ())
        log = Path(f"{path}-wal").read_bytes()
    # Killed, and its log was removed.
    path.write_bytes(backup)
    with pytest.raises(JournalError, match="its last actions are lost: it ends at 0 of 1"):
        Journal(path, clock=clock)
    Path(f"{path}-wal").write_bytes(log)
    with closing(Journal(path, clock=clock)) as journal:
        assert len(journal.past_actions(0)) == 1


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_a_second_remediator_is_locked_out_under_any_name(
    journal: Journal, tmp_path: Path, clock: FakeClock, link: Callable[..., None]
) -> None:
    link(tmp_path / NAME, tmp_path / "other.db")
    with pytest.raises(JournalError, match="another remediator is using it"):
        Journal(tmp_path / "other.db", clock=clock)
    journal.record_event("checked")


def test_a_second_remediator_is_locked_out_without_the_lock_file(
    journal: Journal, tmp_path: Path, clock: FakeClock
) -> None:
    (tmp_path / f"{NAME}.lock").unlink()
    with pytest.raises(JournalError, match="another remediator is using it"):
        Journal(tmp_path / NAME, clock=clock)
    journal.record_event("checked")
