"""Checks the structure of one file by its format, and names the parts to read.

Sources: the format description in the README of safetensors; torch/serialization.py;
torch/distributed/checkpoint/{metadata,filesystem}.py.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from typing import Any

import yaml

from trainwarden_exporter.checkpoints.damages import Damage, DamageKind
from trainwarden_exporter.checkpoints.paced_reader import PacedFile
from trainwarden_exporter.checkpoints.segments import FilePlan, Segment, number_type
from trainwarden_exporter.checkpoints.zip_archives import MAX_PICKLE_BYTES, has_directory, plan_zip
from trainwarden_exporter.checkpoints.zip_headers import HEADER_START
from trainwarden_exporter.runtime.inert_pickle import Made, read_pickle

TENSOR_SUFFIXES = (".safetensors", ".pt", ".pth", ".bin", ".ckpt", ".distcp", ".npz")
METADATA = ".metadata"
"""The file of torch.distributed.checkpoint that says where in which file each item is stored."""

MAX_HEADER_BYTES = 100_000_000
"""The limit of the safetensors library."""
MAX_TEXT_BYTES = 4 << 20
"""Larger JSON files are only checked for their end: parsing stops all other threads."""
MAX_YAML_BYTES = 64 << 10
_LENGTH_BYTES = 8
_END_BYTES = 64
_TYPE_BYTES = {
    **dict.fromkeys(("F64", "I64", "U64"), 8),
    **dict.fromkeys(("F32", "I32", "U32"), 4),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 2),
    **dict.fromkeys(("I8", "U8", "BOOL", "F8_E4M3", "F8_E5M2"), 1),
}


def plan_file(
    file: PacedFile, name: str, pause: Callable[[], None] = lambda: None, *, entry: str = ""
) -> FilePlan:
    """Checks the structure of `file`, whose path in its checkpoint is `name`. Raises OSError.

    `name` is empty where the file is the checkpoint, whose name is `entry` then.
    """
    path = name or (entry if entry.endswith(".safetensors") else "checkpoint.ckpt")
    if path.endswith(".safetensors"):
        return plan_safetensors(file, name)
    if path.endswith(TENSOR_SUFFIXES):
        return _plan_tensors(file, name, path, pause)
    if path.endswith(".json"):
        return _plan_json(file, name)
    if path.endswith((".yaml", ".yml")):
        return _plan_yaml(file, name)
    if path.endswith((".pkl", ".pickle")) or path.rpartition("/")[2] == METADATA:
        return _plan_pickle(file, name, pause)
    return _of_unknown_format(file)


def _plan_tensors(file: PacedFile, name: str, path: str, pause: Callable[[], None]) -> FilePlan:
    if not file.size:
        return _damaged(DamageKind.TRUNCATED, name, "is empty")
    start = file.read(0, len(HEADER_START))
    if start == HEADER_START:
        return plan_zip(file, name, pause=pause)
    if HEADER_START.startswith(start):
        return _damaged(DamageKind.TRUNCATED, name, "ends in its header")
    if path.endswith(".distcp"):  # has archives of single items, also at its end
        return _of_unknown_format(file)
    if has_directory(file):
        return _damaged(DamageKind.CORRUPT, name, "the header of its first record is damaged")
    if path.endswith(".npz"):
        return _of_unknown_format(file)
    return _plan_pickle(file, name, pause)


_HEADER_ERRORS = (
    *(ValueError, RecursionError, AttributeError, KeyError, TypeError, OverflowError),
)


def _tensors_of(header: bytes) -> dict[str, tuple[str, int, int, int]]:
    """Returns type, number of items, start and end of each tensor of a safetensors header."""
    tensors = {}
    for name, one in json.loads(header).items():
        if name != "__metadata__":
            first, last = map(int, one["data_offsets"])
            tensors[name] = (str(one["dtype"]), math.prod(one["shape"]), first, last)
    return tensors


def plan_safetensors(file: PacedFile, name: str) -> FilePlan:
    """Checks header, offsets and size of a safetensors file."""
    length = file.read(0, _LENGTH_BYTES)
    if len(length) < _LENGTH_BYTES:
        return _damaged(DamageKind.TRUNCATED, name, "ends in its header")
    (header_bytes,) = struct.unpack("<Q", length)
    if header_bytes > MAX_HEADER_BYTES:
        return _damaged(DamageKind.CORRUPT, name, "the length of its header is impossible")
    data_start = _LENGTH_BYTES + header_bytes
    if file.size < data_start:
        return _damaged(DamageKind.TRUNCATED, name, "ends in its header")
    header = file.read(_LENGTH_BYTES, header_bytes)
    try:
        tensors = _tensors_of(header)
    except _HEADER_ERRORS as error:
        return _damaged(DamageKind.CORRUPT, name, f"its header is damaged ({error})")
    end = 0
    segments = [Segment(0, data_start, "its header")]
    for tensor, (kind, items, first, last) in sorted(tensors.items(), key=lambda item: item[1][2:]):
        item_bytes = _TYPE_BYTES.get(kind)
        if first != end or (item_bytes is not None and last - first != items * item_bytes):
            return _damaged(DamageKind.CORRUPT, name, f"the offsets of {tensor} do not fit")
        end = last
        numbers = number_type(kind, items)
        segments.append(Segment(data_start + first, last - first, tensor, numbers))
    if file.size < data_start + end:
        missing = data_start + end - file.size
        return _damaged(DamageKind.TRUNCATED, name, f"{missing} bytes are missing at its end")
    if file.size > data_start + end:
        extra = file.size - data_start - end
        return _damaged(DamageKind.CORRUPT, name, f"has {extra} bytes too many")
    return FilePlan(tuple(segments), tensors=frozenset(tensors), counts_zeros=True)


_TORCH_MAGIC = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
"""The magic number of torch before 1.6."""
_PICKLE_STARTS = (
    _TORCH_MAGIC,
    *(b"\x80%c%cq\0" % start for start in product((2, 3), b"}]")),  # a dict or list, memoised
    *(b"\x80%c\x95" % protocol for protocol in (4, 5)),  # a frame
)
_PICKLED_OBJECT = re.compile(rb"\x80[\x02\x03]c[\w.]+\n[\w.]+\n")
_FRAME_LENGTH_END = slice(7, 11)
"""The upper half of the length of a frame, which is zero below 4 GiB."""
_JOBLIB = b"NumpyArrayWrapper"
"""joblib writes the bytes of an array between the opcodes of its pickle."""


def _begins_as_pickle(data: bytes) -> bool:
    """Whether `data` begins as only a pickle does, or is the begin of such a begin.

    A first byte proves nothing, and neither does a protocol: a file of any other format may have
    them. Pickles of protocol 0 and 1, which Python 3 no longer writes unasked, have no such begin.
    """
    if _PICKLED_OBJECT.match(data):
        return True
    is_known = any(data.startswith(one) or one.startswith(data) for one in _PICKLE_STARTS)
    return is_known and (data[2:3] != b"\x95" or not data[_FRAME_LENGTH_END].strip(b"\0"))


def _plan_pickle(file: PacedFile, name: str, pause: Callable[[], None]) -> FilePlan:
    """Checks a plain pickle: a file of torch before 1.6 begins with one, too."""
    if not file.size:
        return _damaged(DamageKind.TRUNCATED, name, "is empty")
    if file.size > MAX_PICKLE_BYTES:
        return _of_unknown_format(file)
    data = file.read(0, file.size)
    if not _begins_as_pickle(data) or _JOBLIB in data:
        return _of_unknown_format(file)
    try:
        read_pickle(data, pause=pause)
    except ValueError as error:
        return _damaged(DamageKind.TRUNCATED, name, f"is no complete pickle ({error})")
    # the numbers come after several pickles
    return _whole(file, shows_end=not data.startswith(_TORCH_MAGIC))


def _plan_json(file: PacedFile, name: str) -> FilePlan:
    if file.size > MAX_TEXT_BYTES:
        end = file.read(file.size - _END_BYTES, _END_BYTES).rstrip()
        if not end.endswith((b"}", b"]")):
            return _damaged(DamageKind.TRUNCATED, name, "the end of the JSON is missing")
        return _whole(file)
    try:
        json.loads(file.read(0, file.size))
    except (ValueError, RecursionError) as error:
        if not str(error).startswith("Extra data"):  # a value per line
            return _damaged(DamageKind.CORRUPT, name, f"is no JSON ({error})")
    return _whole(file)


def _plan_yaml(file: PacedFile, name: str) -> FilePlan:
    if file.size <= MAX_YAML_BYTES:
        try:
            for _ in yaml.parse(file.read(0, file.size)):
                pass
        except (yaml.YAMLError, ValueError, RecursionError):
            return _damaged(DamageKind.CORRUPT, name, "is no YAML")
    return _whole(file)


@dataclass(frozen=True, slots=True)
class StoredItem:
    """An item of a file of torch.distributed.checkpoint."""

    file: str
    start: int
    size: int


def read_metadata(data: bytes, pause: Callable[[], None]) -> tuple[StoredItem, ...]:
    """Returns what a `.metadata` file says of the files beside it. Raises ValueError."""
    root = read_pickle(data, pause=pause).root
    state = root.state if isinstance(root, Made) else None
    stored = state.get("storage_data") if isinstance(state, Mapping) else None
    items = stored.values() if isinstance(stored, Mapping) else ()
    return tuple(one for item in items if (one := _stored_item(item)) is not None)


def _stored_item(item: Any) -> StoredItem | None:
    facts = item.state if isinstance(item, Made) else None
    if not isinstance(facts, Mapping):
        return None
    given = (facts.get("relative_path"), facts.get("offset"), facts.get("length"))
    match given:
        case (str() as file, int() as start, int() as size):
            return StoredItem(file, start, size)
    return None


def plan_stored_items(
    file: PacedFile, name: str, items: list[StoredItem], pause: Callable[[], None]
) -> FilePlan:
    """Checks the items of a file of torch.distributed.checkpoint: each is a ZIP archive."""
    end = max(item.start + item.size for item in items)
    if file.size < end:
        missing = end - file.size
        return _damaged(DamageKind.TRUNCATED, name, f"{missing} bytes are missing at its end")
    segments: list[Segment] = []
    damages: list[Damage] = []
    for item in sorted(items, key=lambda one: one.start):
        if file.read(item.start, len(HEADER_START)) != HEADER_START:
            segments.append(Segment(item.start, item.size, f"the item at {item.start}"))
            continue
        plan = plan_zip(file, name, item.start, item.size, pause=pause)
        segments += plan.segments
        damages += plan.damages
    zips = sum(segment.crc is not None for segment in segments)
    if zips and any(one.crc is None and one.label.startswith("the item at") for one in segments):
        damages.append(Damage(DamageKind.CORRUPT, name, "an item does not begin where it should"))
    return FilePlan(tuple(segments), tuple(damages))


def read_weight_map(data: bytes) -> Iterator[tuple[str, str]]:
    """Yields tensor and file of an index of shards. Raises ValueError if it has no such form."""
    index = json.loads(data)
    weight_map = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(weight_map, dict):
        raise ValueError("no weight_map")  # noqa: TRY004 - wrong content, no misuse
    for tensor, file in weight_map.items():
        if isinstance(file, str):
            yield str(tensor), file


INDEX = re.compile(r".*\.(?:safetensors|bin)\.index(?:\..+)?\.json")
"""Name of an index of shards, as transformers and diffusers write it."""


def _whole(file: PacedFile, *, shows_end: bool = True) -> FilePlan:
    return FilePlan((Segment(0, file.size, "its data"),), shows_end=shows_end)


def _of_unknown_format(file: PacedFile) -> FilePlan:
    if file.size <= MAX_TEXT_BYTES and file.read(0, 1) in (b"{", b"["):
        with suppress(ValueError, RecursionError):
            json.loads(file.read(0, file.size))  # part of an object is no JSON
            return _whole(file)
    return _whole(file, shows_end=False)


def _damaged(kind: DamageKind, name: str, detail: str) -> FilePlan:
    return FilePlan(damages=(Damage(kind, name, detail),))
