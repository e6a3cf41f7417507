from __future__ import annotations

import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from trainwarden_exporter.rollouts.write_access import (
    Account,
    FolderPermissions,
    WriteTarget,
    parse_account,
    read_account,
    read_write_target,
)

if TYPE_CHECKING:
    from collections.abc import Callable

STATUS = """\
Name:\tpython3
Uid:\t1000\t1000\t1000\t1001
Gid:\t100\t100\t100\t101
Groups:\t27 44
CapEff:\t{capabilities}
"""
TRAINER = Account(1000, frozenset({100, 27}))
ROOT = Account(0, frozenset({0}), bypasses_modes=True)
OPEN = FolderPermissions(0o755, 0, 0)


def folder(mode: int, uid: int = 1000, gid: int = 100, *, read_only: bool = False) -> WriteTarget:
    return WriteTarget((OPEN, OPEN), FolderPermissions(mode, uid, gid), read_only)


class TestAccount:
    def test_is_that_for_files(self) -> None:
        account = parse_account(STATUS.format(capabilities="0000000000000000"))
        assert account == Account(1001, frozenset({101, 27, 44}))

    def test_may_override_modes(self) -> None:
        account = parse_account(STATUS.format(capabilities="000001ffffffffff"))
        assert account is not None
        assert account.bypasses_modes

    def test_is_not_known_from_half_a_file(self) -> None:
        assert parse_account("Name:\tx\nUid:\t1\n") is None
        assert parse_account("") is None

    def test_of_this_very_process_can_be_read(self) -> None:
        account = read_account(os.getpid())
        assert account is not None
        assert account.uid == os.geteuid()
        assert os.getegid() in account.groups

    def test_of_a_process_that_is_gone_is_not_known(self, tmp_path: Path) -> None:
        assert read_account(1, tmp_path) is None


@pytest.mark.parametrize(
    ("mode", "uid", "gid", "admitted"),
    [
        (0o755, 1000, 100, True),
        (0o555, 1000, 100, False),
        (0o077, 1000, 100, False),  # the owner has the owner's rights and no others
        (0o775, 0, 27, True),
        (0o755, 0, 27, False),
        (0o777, 0, 0, True),
        (0o775, 0, 0, False),
        (0o666, 1000, 100, False),
    ],
)
def test_modes_admit_as_the_kernel_reads_them(
    mode: int, uid: int, gid: int, *, admitted: bool
) -> None:
    assert folder(mode, uid, gid).is_writable_by(TRAINER) is admitted
    assert folder(mode, uid, gid).is_writable_by(ROOT) is True


def test_the_way_to_it_must_be_open_too() -> None:
    closed = WriteTarget((OPEN, FolderPermissions(0o700, 0, 0)), FolderPermissions(0o777, 0, 0))
    assert closed.is_writable_by(TRAINER) is False
    assert closed.is_writable_by(ROOT) is True


def test_a_mount_that_cannot_be_written_to_admits_nobody() -> None:
    assert folder(0o777, read_only=True).is_writable_by(ROOT) is False


def test_where_an_access_list_decides_access_is_unknown() -> None:
    has_acl = WriteTarget((), FolderPermissions(0o750, 0, 0, has_acl=True))
    assert has_acl.is_writable_by(TRAINER) is None
    assert (
        WriteTarget((), FolderPermissions(0o555, 1000, 0, has_acl=True)).is_writable_by(TRAINER)
        is False
    )
    assert (
        WriteTarget((), FolderPermissions(0o777, 0, 0, has_acl=True)).is_writable_by(TRAINER)
        is True
    )


def test_the_last_writer_stands_for_an_unknown_writer(tmp_path: Path) -> None:
    (tmp_path / "step_1").mkdir()
    found = read_write_target(tmp_path, "step_1")
    assert found is not None
    assert found.last_writer is not None
    assert found.last_writer.uid == os.geteuid()
    assert found.is_writable_by(None) is True


class TestOnDisk:
    def test_what_is_not_there_yet_is_made_in_the_nearest_above(self, tmp_path: Path) -> None:
        found = read_write_target(tmp_path / "a/b/rollouts")
        assert found == read_write_target(tmp_path)
        assert found is not None
        assert len(found.ancestors) == len(tmp_path.resolve().parents)

    def test_a_file_in_its_place_admits_nobody(self, tmp_path: Path) -> None:
        (tmp_path / "rollouts").touch()
        for path in (tmp_path / "rollouts", tmp_path / "rollouts/step_1"):
            found = read_write_target(path)
            assert found is not None
            assert found.is_writable_by(ROOT) is False

    def test_links_are_followed(self, tmp_path: Path) -> None:
        (tmp_path / "real").mkdir(mode=0o700)
        (tmp_path / "link").symlink_to("real")
        assert read_write_target(tmp_path / "link") == read_write_target(tmp_path / "real")

    def test_a_circle_of_links_is_an_error(self, tmp_path: Path) -> None:
        (tmp_path / "circle").symlink_to("circle")
        with pytest.raises(OSError, match="symbolic links"):
            read_write_target(tmp_path / "circle")

    def test_what_another_may_write_is_reported_as_the_kernel_decides_it(
        self, tmp_path: Path, as_nobody: Callable[[], AbstractContextManager[None]]
    ) -> None:
        for location in (tmp_path, *list(tmp_path.parents)[:2]):
            location.chmod(0o755)
        nobody = Account(65534, frozenset(os.getgroups()) | {os.getegid()})
        for mode in (0o755, 0o757, 0o775, 0o777, 0o700):
            rollouts = tmp_path / f"{mode:o}"
            rollouts.mkdir()
            rollouts.chmod(mode)
            found = read_write_target(rollouts)
            assert found is not None
            with as_nobody():
                allowed = os.access(rollouts, os.W_OK | os.X_OK, effective_ids=True)
            assert found.is_writable_by(nobody) is allowed, f"{mode:o}"

    def test_access_to_an_unreadable_folder_is_unknown(
        self, tmp_path: Path, as_nobody: Callable[[], AbstractContextManager[None]]
    ) -> None:
        (tmp_path / "closed/rollouts").mkdir(parents=True)
        (tmp_path / "closed").chmod(0o700)
        with as_nobody():
            assert read_write_target(tmp_path / "closed/rollouts") is None
