"""Each byte of an archive's headers and directory is compared with what it repeats."""

from __future__ import annotations

import io
import pickle
import re
import zipfile
from pathlib import Path
from typing import Any

import pytest

from trainwarden_exporter.checkpoints.damages import Damage
from trainwarden_exporter.checkpoints.paced_reader import open_paced
from trainwarden_exporter.checkpoints.zip_archives import plan_zip

CONTENT = {"data.pkl": pickle.dumps({"a": 1}, 2), "byteorder": b"little", "data/0": b"\1" * 40}


class Stream(io.RawIOBase):
    """Takes what is written and cannot seek, so that sizes follow the data, as torch has it."""

    def __init__(self) -> None:
        self.content = b""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.content += bytes(data)
        return len(data)


def archive(*, filled: bool = False) -> bytes:
    stream = Stream()
    with zipfile.ZipFile(stream, "w") as file:
        for name, content in CONTENT.items():
            record = zipfile.ZipInfo(f"model/{name}")
            record.extra = b"FB\x03\0ZZZ" if filled else b""
            file.writestr(record, content)
    return stream.content


def damages(path: Path, content: bytes) -> tuple[Damage, ...]:
    path.write_bytes(content)
    with open_paced(str(path)) as file:
        return plan_zip(file, path.name).damages


@pytest.mark.parametrize("filled", [False, True])
def test_a_sound_archive_is_not_accused(tmp_path: Path, *, filled: bool) -> None:
    assert damages(tmp_path / "model.pt", archive(filled=filled)) == ()


def test_no_byte_of_the_headers_changes_unseen(tmp_path: Path) -> None:
    """But for those of the data, which have checksums, and numbers of unknown extra fields."""
    sound = archive(filled=True)
    numbers = {one.start() + place for one in re.finditer(b"FB\x03", sound) for place in (0, 1)}
    data = {
        position
        for content in CONTENT.values()
        for position, _ in enumerate(content, sound.index(content))
    }
    unseen = [
        position
        for position in range(len(sound))
        if position not in data | numbers
        and not damages(
            tmp_path / "model.pt",
            sound[:position] + bytes([sound[position] ^ 0x41]) + sound[position + 1 :],
        )
    ]
    assert unseen == []


def test_other_archives_may_have_gaps(tmp_path: Path) -> None:
    """Only what torch writes is known byte for byte."""
    stream = Stream()
    with zipfile.ZipFile(stream, "w") as file:
        file.writestr("weights.npy", b"1234")
    assert damages(tmp_path / "weights.npz", b"#!" + stream.content) == ()
