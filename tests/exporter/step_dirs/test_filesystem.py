from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from trainwarden_exporter.step_dirs.filesystem import FileSystem, FolderItem, is_denied, is_gone


def test_names_are_reported_with_their_kinds_without_a_look_at_each(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("nowhere")
    assert sorted(FileSystem().list_folder(str(tmp_path))) == [
        FolderItem("file", "file"),
        FolderItem("folder", "folder"),
        FolderItem("link", "link"),
    ]


def test_the_status_is_that_of_what_a_link_leads_to(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("four")
    (tmp_path / "link").symlink_to("file")
    assert FileSystem().status(str(tmp_path / "link")).st_size == 4


def test_text_may_be_any_bytes(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.write_bytes(b"12\xff")
    assert FileSystem().text(str(path)) == "12\ufffd"


def test_a_pipe_that_nobody_writes_to_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert FileSystem().text(str(tmp_path / "pipe")) == ""


@pytest.mark.parametrize(
    ("number", "gone", "denied"),
    [
        (errno.ENOENT, True, False),
        (errno.ENOTDIR, True, False),
        (errno.ESTALE, True, False),
        (errno.EACCES, False, True),
        (errno.EIO, False, False),
    ],
)
def test_missing_unreadable_and_failing_files_are_distinguished(
    number: int, *, gone: bool, denied: bool
) -> None:
    error = OSError(number, os.strerror(number))
    assert (is_gone(error), is_denied(error)) == (gone, denied)
