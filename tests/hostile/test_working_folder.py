"""An account leaves a remediator.yml in a folder in which root types a command."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.hostile.accounts import STRANGER, needs_root, open_folder

pytestmark = needs_root

PRECIOUS = "a file of root"


@pytest.fixture
def trap(tmp_path: Path) -> Iterator[Path]:
    """A folder of STRANGER with a file that names a file of root as the hold file."""
    (tmp_path / "precious").write_text(PRECIOUS)
    with open_folder(STRANGER) as folder:
        (folder / "exporter.yml").write_text("runs: []\n")
        (folder / "remediator.yml").write_text(
            f"{{insecure: true, journal: journal.db, hold_file: {tmp_path}/precious}}"
        )
        for file in folder.iterdir():
            os.chown(file, STRANGER, STRANGER)
        yield folder


def hold(
    folder: Path, stacks: Path, *why: str, program: str = "trainwarden"
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", program, "hold", *(why or ["a driver is replaced"])],
        cwd=folder,
        env=os.environ | {"TRAINWARDEN_STACK_DIR": str(stacks)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_file_of_another_account_in_the_working_folder_is_not_used(
    trap: Path, tmp_path: Path
) -> None:
    held = hold(trap, tmp_path / "stacks")
    assert held.returncode == 1
    assert f"{trap} belongs to another account (uid {STRANGER})" in held.stderr
    assert (tmp_path / "precious").read_text() == PRECIOUS
    assert not (trap / "journal.db").exists()


def test_a_link_of_another_account_is_not_used_either(trap: Path, tmp_path: Path) -> None:
    os.chown(trap, 0, 0)
    trap.chmod(0o1777)
    own = tmp_path / "remediator.yml"
    own.write_text((trap / "remediator.yml").read_text())
    (trap / "remediator.yml").unlink()
    (trap / "remediator.yml").symlink_to(own)
    os.lchown(trap / "remediator.yml", STRANGER, STRANGER)
    held = hold(trap, tmp_path / "stacks")
    assert held.returncode == 1
    assert f"{trap}/remediator.yml belongs to another account" in held.stderr
    assert (tmp_path / "precious").read_text() == PRECIOUS


def test_the_remediator_itself_uses_no_file_of_the_working_folder(
    trap: Path, tmp_path: Path
) -> None:
    held = hold(trap, tmp_path / "stacks", program="trainwarden_remediator")
    assert held.returncode == 2
    assert "required: --config.file" in held.stderr
    assert (tmp_path / "precious").read_text() == PRECIOUS
    assert not (trap / "journal.db").exists()


def test_a_reason_that_looks_like_an_option_changes_nothing(trap: Path, tmp_path: Path) -> None:
    held = hold(trap, tmp_path / "stacks", "--", "-h")
    assert held.returncode == 1
    assert f"{trap} belongs to another account (uid {STRANGER})" in held.stderr
    assert not (trap / "journal.db").exists()
