from __future__ import annotations

import os
import socket
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from trainwarden_exporter.logs.file_access import (
    entries_with_inode,
    file_key,
    is_rotated_name,
    matches_bookmark,
    next_data_offset,
    open_file,
    read_status,
    rotated_copies,
)
from trainwarden_exporter.logs.state import Bookmark, FileKey, Fingerprint


@pytest.mark.parametrize(
    "name",
    [
        "a.log.1",
        "a.log-20261121",
        "a.log_old",
        "a.log.1.gz",
        "a-20261121.log",
        "a.1.log",
        "a_b.log",
    ],
)
def test_names_that_rotation_gives(name: str) -> None:
    assert is_rotated_name(name, "a.log")


@pytest.mark.parametrize(
    "name", ["a.log", "b.log.1", "a.logs", "a.txt", "a1.log", "a.err", "aa.log"]
)
def test_names_that_it_does_not_give(name: str) -> None:
    assert not is_rotated_name(name, "a.log")


def test_a_name_without_suffix_is_followed_by_another_one() -> None:
    assert is_rotated_name("output.1", "output")
    assert not is_rotated_name("output2", "output")


def test_only_regular_files_have_a_status_and_can_be_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "gone").symlink_to("nowhere")
    (tmp_path / "tty").symlink_to("/dev/null")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
    for name in ("pipe", "gone", "tty", "socket", ".", "nothing", "pipe/x"):
        assert read_status(str(tmp_path / name)) is None
        assert open_file(str(tmp_path / name)) is None
    with pytest.raises(OSError, match="symbolic links"):
        read_status(str(tmp_path / "loop"))


def test_a_link_to_a_file_is_that_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to("file")
    status = read_status(str(tmp_path / "link"))
    assert status is not None
    descriptor = open_file(str(tmp_path / "link"), file_key(status))
    assert descriptor is not None
    assert os.read(descriptor, 9) == b"x"
    os.close(descriptor)


def test_another_file_is_not_opened_for_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    assert open_file(str(tmp_path / "file"), FileKey(1, 2)) is None


def test_a_file_that_may_not_be_read_says_so(
    tmp_path: Path, as_nobody: Callable[[], AbstractContextManager[None]]
) -> None:
    tmp_path.chmod(0o755)
    for folder in tmp_path.parents[:2]:
        folder.chmod(0o755)
    (tmp_path / "file").write_text("x")
    (tmp_path / "file").chmod(0o600)
    with as_nobody(), pytest.raises(PermissionError):
        open_file(str(tmp_path / "file"))


def test_a_hole_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with path.open("wb") as file:
        file.seek(1 << 20)
        file.write(b"data")
    descriptor = os.open(path, os.O_RDONLY)
    found = next_data_offset(descriptor, 10)
    assert found is not None
    assert 10 <= found <= 1 << 20
    assert next_data_offset(descriptor, 1 << 21) is None
    os.close(descriptor)


def test_a_file_is_known_by_what_was_read_of_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    content = b"".join(b"line %d\n" % number for number in range(200))
    mark = Bookmark(
        FileKey(0, 0),
        str(path),
        str(path),
        "",
        offset=1000,
        head=Fingerprint.of(content[:256]),
        tail=Fingerprint.of(content[744:1000]),
    )

    def fits(now: bytes) -> bool:
        path.write_bytes(now)
        descriptor = os.open(path, os.O_RDONLY)
        try:
            return matches_bookmark(descriptor, mark)
        finally:
            os.close(descriptor)

    assert fits(content)
    assert fits(content[:1000])
    assert not fits(content[:999])
    assert not fits(b"L" + content[1:])
    assert not fits(content[:999] + b"." + content[1000:])


def test_what_lies_beside_a_file(tmp_path: Path) -> None:
    for name in ("a.log", "a.log.1", "a.log.2.gz", "b.log"):
        (tmp_path / name).write_text(name)
    path = str(tmp_path / "a.log")
    assert [entry.name for entry in rotated_copies(path)] == ["a.log.1"]
    inode = (tmp_path / "b.log").stat().st_ino
    assert [entry.name for entry in entries_with_inode(path, inode)] == ["b.log"]
