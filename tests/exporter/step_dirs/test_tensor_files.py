"""Files of tensors as torch and safetensors write them, whole and cut off."""

from __future__ import annotations

import io
import json
import struct
import zipfile
from pathlib import Path

import pytest

from trainwarden_exporter.frameworks.completeness_rules import FileInfo
from trainwarden_exporter.step_dirs.filesystem import FileSystem
from trainwarden_exporter.step_dirs.tensor_files import check_tensor_files


def saved_by_torch() -> bytes:
    """An archive as `torch.save` writes it: stored without compression."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("model/data.pkl", b"\x80\x02}q\x00.")
        archive.writestr("model/data/0", bytes(4000))
    return content.getvalue()


def saved_by_safetensors() -> bytes:
    header = json.dumps(
        {
            "__metadata__": {"format": "pt"},
            "a": {"dtype": "F32", "shape": [10], "data_offsets": [0, 40]},
        }
    ).encode()
    return struct.pack("<Q", len(header)) + header + bytes(40)


def checked(folder: Path, name: str, content: bytes) -> bool | None:
    (folder / name).write_bytes(content)
    files = {name: FileInfo(len(content), 0.0)}
    return check_tensor_files(FileSystem(), str(folder), files).get(name)


@pytest.mark.parametrize("name", ["model.pt", "model.pth", "last.ckpt", "pytorch_model.bin"])
def test_an_archive_is_whole_with_its_directory(tmp_path: Path, name: str) -> None:
    content = saved_by_torch()
    assert checked(tmp_path, name, content) is True
    for length in (0, 1587, len(content) - 1):
        assert checked(tmp_path, name, content[:length]) is False


def test_a_checkpoint_of_json_is_whole_if_it_can_be_parsed(tmp_path: Path) -> None:
    content = json.dumps({"step": 10, "weights": [0.5] * 100}).encode()
    path = tmp_path / "checkpoint.json"
    for length in (0, 1, 50, len(content) - 1, len(content)):
        path.write_bytes(content[:length])
        found = check_tensor_files(FileSystem(), str(path), {"": FileInfo(length, 0.0)})
        assert found == {"": length == len(content)}
    assert checked(tmp_path, "config.json", b"{") is None  # beside tensors it proves nothing


def test_safetensors_are_whole_with_their_last_byte(tmp_path: Path) -> None:
    content = saved_by_safetensors()
    assert checked(tmp_path, "model.safetensors", content) is True
    for length in (0, 30, len(content) - 1):
        assert checked(tmp_path, "model.safetensors", content[:length]) is False


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("model.pt", b"\x80\x02\x8a\nl\xfc"),  # the format before torch 1.6
        ("model.bin", bytes(100)),
        ("model.safetensors", bytes(100)),
        ("model.safetensors", struct.pack("<Q", 1 << 60) + bytes(100)),
        ("model.safetensors", struct.pack("<Q", 34) + b'{"a": {"data_offsets": [0, "x"]} }'),
        ("config.json", b""),
    ],
)
def test_other_files_have_no_known_size(tmp_path: Path, name: str, content: bytes) -> None:
    assert checked(tmp_path, name, content) is None
