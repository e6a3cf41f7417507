"""The account of a run puts links to files of root in the places of its checkpoints and state."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.hostile.accounts import OPERATOR, needs_root, open_folder
from tests.hostile.test_log_links import link

from trainwarden_exporter.checkpoints.paced_reader import open_paced
from trainwarden_exporter.frameworks.base import ProgressFile
from trainwarden_exporter.progress.progress_files import read_step
from trainwarden_exporter.step_dirs.filesystem import FileSystem

pytestmark = needs_root


@pytest.fixture
def folder() -> Iterator[Path]:
    """The checkpoint folder of a run, which its account owns."""
    with open_folder(OPERATOR) as folder:
        yield folder


@pytest.fixture
def secret() -> Iterator[Path]:
    """A file in a folder of root."""
    with open_folder() as folder:
        file = folder / "secret.json"
        file.write_text('{"global_step": 7}')
        file.chmod(0o600)
        yield file


def test_a_linked_shard_or_index_of_root_is_not_read(folder: Path, secret: Path) -> None:
    path = link(folder / "model.safetensors.index.json", secret)
    with pytest.raises(OSError, match="another account"), open_paced(path):
        pass
    assert FileSystem().part(path, 0, 10) == b""


def test_a_linked_state_of_root_is_not_read(folder: Path, secret: Path) -> None:
    path = link(folder / "trainer_state.json", secret)
    assert not FileSystem().text(path)
    with pytest.raises(OSError, match="another account"):
        read_step(Path(path), ProgressFile("state", file="*.json", kind="json", step="global_step"))


def test_a_file_below_a_linked_folder_of_root_is_not_read(folder: Path, secret: Path) -> None:
    link(folder / "checkpoint-7", secret.parent)
    path = str(folder / "checkpoint-7" / secret.name)
    with pytest.raises(OSError, match="another account"), open_paced(path):
        pass
    assert not FileSystem().text(path)


def test_linked_files_of_the_run_are_read(folder: Path, secret: Path) -> None:
    file = folder / "blob"
    file.write_text("step 1\n")
    os.chown(file, OPERATOR, OPERATOR)
    path = link(folder / "latest", file)
    assert FileSystem().text(path) == "step 1\n"
    assert FileSystem().part(path, 0, 4) == b"step"
    with open_paced(path) as opened:
        assert opened.read(0, 4) == b"step"
    assert FileSystem().text(link(folder / "of-root", secret, owner=0)) == secret.read_text()
