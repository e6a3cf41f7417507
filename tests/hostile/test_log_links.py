"""The account of a run puts links and pipes in the places of its logs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.hostile.accounts import OPERATOR, needs_root, open_folder

from trainwarden_exporter.logs.file_access import open_file
from trainwarden_remediator.evidence.log_tail import read_tail

pytestmark = needs_root

SECRET = "content of a file of root"


@pytest.fixture
def folder() -> Iterator[Path]:
    """The folder of a run, which its account owns."""
    with open_folder(OPERATOR) as folder:
        yield folder


@pytest.fixture
def secret() -> Iterator[Path]:
    """A file in a folder that only root can read."""
    with open_folder() as folder:
        file = folder / "secret"
        file.write_text(f"{SECRET}\n")
        file.chmod(0o600)
        yield file


def link(path: Path, target: Path, owner: int = OPERATOR) -> str:
    path.symlink_to(target)
    os.chown(path, owner, owner, follow_symlinks=False)
    return str(path)


def test_evidence_follows_no_link_to_a_file_of_root(folder: Path, secret: Path) -> None:
    path = link(folder / "train.log", secret)
    with pytest.raises(OSError, match="another account"):
        read_tail("train", path)
    with pytest.raises(OSError, match="another account"):
        open_file(path)


def test_evidence_follows_no_link_in_a_folder_above_a_log(folder: Path, secret: Path) -> None:
    link(folder / "logs", secret.parent)
    with pytest.raises(OSError, match="another account"):
        read_tail("train", str(folder / "logs" / secret.name))


def test_links_to_own_files_are_followed(folder: Path, secret: Path) -> None:
    file = folder / "run-7" / "train.log"
    file.parent.mkdir()
    file.write_text("step 1\n")
    for path in (file.parent, file):
        os.chown(path, OPERATOR, OPERATOR)
    link(folder / "latest", Path("run-7"))
    link(folder / "run-7" / "newest.log", Path("..") / "latest" / "train.log")
    tail = read_tail("train", str(folder / "latest" / "newest.log"))
    assert tail is not None
    assert tail["lines"] == ["step 1"]
    tail = read_tail("secret", link(folder / "of-root", secret, owner=0))
    assert tail is not None
    assert tail["lines"] == [SECRET]
