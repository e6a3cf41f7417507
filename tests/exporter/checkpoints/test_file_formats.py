"""Which format a file has: proved by its begin, never guessed from a byte of it."""

from __future__ import annotations

import io
import json
import pickle
import struct
import zipfile
from array import array
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from trainwarden_exporter.checkpoints.damages import Damage, DamageKind
from trainwarden_exporter.checkpoints.file_formats import METADATA, TENSOR_SUFFIXES, plan_file
from trainwarden_exporter.checkpoints.paced_reader import open_paced

TENSOR_FILES = [f"step-10{end}" for end in TENSOR_SUFFIXES if end != ".safetensors"]
NAMES = [*TENSOR_FILES, "state.pkl", METADATA, "step-10"]
LEGACY_START = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
"""The magic number of torch, as torch.save with _use_new_zipfile_serialization=False writes it."""
STATE = {"model": {f"layer.{one}": [0.5] * 20 for one in range(40)}, "step": 10}


def damages(folder: Path, name: str, content: bytes) -> tuple[Damage, ...]:
    path = folder / "file"
    path.write_bytes(content)
    with open_paced(str(path)) as file:
        return plan_file(file, name).damages


def foreign() -> Iterator[bytes]:
    """Random files, with each first byte, and with each protocol of a pickle."""
    random = Random(2640)  # noqa: S311 - no secret
    starts = [*(bytes((one,)) for one in range(256)), *(bytes((0x80, one)) for one in range(6))]
    for start in starts:
        for size in (4, 11, 64, 5000):
            yield start + random.randbytes(size)


@pytest.mark.parametrize("name", NAMES)
def test_random_bytes_are_no_damaged_file(name: str, tmp_path: Path) -> None:
    accused = [(one[:4], found) for one in foreign() if (found := damages(tmp_path, name, one))]
    assert not accused


FOREIGN = {
    "zstandard": b"(\xb5/\xfd\x04X" + Random(1).randbytes(900),  # noqa: S311
    "gzip": b"\x1f\x8b\x08" + Random(2).randbytes(900),  # noqa: S311
    "HDF5": b"\x89HDF\r\n\x1a\n" + bytes(900),
    "text": b"checkpoint of step 10\nlearning rate 0.001\n",
    "one number": b"10",
    "JSON": json.dumps(STATE).encode(),
    "an array of numpy": b"\x93NUMPY\x01\x00" + bytes(900),
    "a table of TensorFlow": b"\x00\x0c\x01\x0a\x05c]}N(" + bytes(900),
}


@pytest.mark.parametrize("kind", FOREIGN)
@pytest.mark.parametrize("name", TENSOR_FILES)
def test_a_file_of_another_format_is_not_damaged(name: str, kind: str, tmp_path: Path) -> None:
    assert not damages(tmp_path, name, FOREIGN[kind])


def test_the_pickle_of_joblib_has_arrays_between_its_opcodes(tmp_path: Path) -> None:
    body = b"\x80\x03cjoblib.numpy_pickle\nNumpyArrayWrapper\nq\0)\x81q\1}q\2b"
    numbers = array("d", (Random(3).random() for _ in range(300)))  # noqa: S311
    assert not damages(tmp_path, "study.pkl", body + numbers.tobytes() + b".")


def zip_file() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("step-10/data.pkl", pickle.dumps(STATE, 2))
    return buffer.getvalue()


def safetensors() -> bytes:
    text = json.dumps({"w": {"dtype": "F32", "shape": [64], "data_offsets": [0, 256]}}).encode()
    return struct.pack("<Q", len(text)) + text + bytes(range(1, 256)) + b"\1"


WHOLE = {
    ("step-10.pt", "torch"): zip_file(),
    ("step-10.npz", "numpy"): zip_file(),
    ("step-10.safetensors", "safetensors"): safetensors(),
    ("state.json", "JSON"): json.dumps(STATE).encode(),
    **{
        (name, f"protocol {one}"): pickle.dumps(STATE, one)
        for one in range(2, 6)
        for name in ("step-10.ckpt", "step-10.pth", "state.pkl", METADATA)
    },
    ("state.pkl", "an object, protocol 2"): pickle.dumps(OrderedDict(STATE), 2),
    ("state.pkl", "an object, protocol 5"): pickle.dumps(OrderedDict(STATE), 5),
}


@pytest.mark.parametrize(("name", "kind"), WHOLE)
def test_a_file_is_whole_and_found_where_it_is_cut_off(
    name: str, kind: str, tmp_path: Path
) -> None:
    content = WHOLE[name, kind]
    assert not damages(tmp_path, name, content)
    for size in (0, 40, len(content) // 2, len(content) - 1):
        found = {one.kind for one in damages(tmp_path, name, content[:size])}
        assert found & {DamageKind.TRUNCATED, DamageKind.CORRUPT}, size


def test_the_begin_of_a_begin_is_found(tmp_path: Path) -> None:
    for content in (zip_file(), LEGACY_START, pickle.dumps(STATE, 2), pickle.dumps(STATE, 5)):
        for size in (1, 4, 8):
            assert damages(tmp_path, "step-10.pt", content[:size]), (content, size)


def test_a_file_of_torch_before_its_archives_is_whole(tmp_path: Path) -> None:
    numbers = Random(4).randbytes(4096)  # noqa: S311
    parts = [LEGACY_START, *(pickle.dumps(one, 2) for one in (1001, {}, STATE, ["0"])), numbers]
    assert not damages(tmp_path, "step-10.ckpt", b"".join(parts))
