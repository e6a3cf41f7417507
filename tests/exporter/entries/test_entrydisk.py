from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from trainwarden_exporter.entries.disk import Disk, Named, is_denied, is_gone


def test_names_are_told_with_their_kinds_without_a_look_at_each(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("nowhere")
    assert sorted(Disk().names(str(tmp_path))) == [
        Named("file", "file"),
        Named("folder", "folder"),
        Named("link", "link"),
    ]


def test_the_status_is_that_of_what_a_link_leads_to(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("four")
    (tmp_path / "link").symlink_to("file")
    assert Disk().status(str(tmp_path / "link")).st_size == 4


def test_text_may_be_any_bytes(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.write_bytes(b"12\xff")
    assert Disk().text(str(path)) == "12\ufffd"


def test_a_pipe_that_nobody_writes_to_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert Disk().text(str(tmp_path / "pipe")) == ""


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
def test_what_is_gone_is_told_from_what_is_closed_and_what_is_ill(
    number: int, *, gone: bool, denied: bool
) -> None:
    error = OSError(number, os.strerror(number))
    assert (is_gone(error), is_denied(error)) == (gone, denied)
