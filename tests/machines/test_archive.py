from __future__ import annotations

from pathlib import Path

import pytest

from archive import fetch_root, newest_sources
from stack import StackError

OURS = "http://archive.example/debian"


def test_the_newest_suite_is_where_the_systems_own_is() -> None:
    own = f"http://other.example/apt \n{OURS} /usr/share/keyrings/debian.gpg\n"
    assert (
        newest_sources(own) == f"deb [signed-by=/usr/share/keyrings/debian.gpg] {OURS} sid main\n"
    )


def test_a_key_that_is_not_a_file_is_left_to_apt() -> None:
    assert (
        newest_sources("http://a.example/ubuntu/ ") == "deb http://a.example/ubuntu/ devel main\n"
    )


def test_an_unknown_distribution_is_not_guessed() -> None:
    with pytest.raises(StackError, match="neither Debian's archive nor Ubuntu's"):
        newest_sources("http://archive.example/other \n")


def test_what_was_fetched_is_used_again(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    message: list[str] = []
    assert fetch_root(tmp_path / "root", ["nothing"], message.append) == tmp_path / "root"
    assert message == []


def test_a_failed_download_is_reported_and_leaves_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("apt-get", "dpkg-deb"):
        (programs / name).write_text("#!/bin/sh\necho 'E: no such thing' >&2; exit 100\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(programs))
    with pytest.raises(StackError, match=r"cannot be fetched \(E: no such thing\): let this"):
        fetch_root(tmp_path / "kept" / "root", ["python3"], lambda _: None)
    assert [path.name for path in (tmp_path / "kept").iterdir()] == [".root.lock"]
