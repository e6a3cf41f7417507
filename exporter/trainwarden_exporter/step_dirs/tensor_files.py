"""Tells whether a file of tensors is whole, by what its format has at its end. Loads none.

`torch.save` writes a ZIP archive, whose directory is written last; the header of a safetensors file
has the length of its data. Sources: torch/serialization.py, caffe2/serialize/inline_container.cc,
the format description in the README of safetensors. A checkpoint that is one file of JSON, which
may be rewritten in place, is whole if it can be parsed.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping

from trainwarden_exporter.frameworks.completeness_rules import FileInfo
from trainwarden_exporter.step_dirs.filesystem import FileSystem

MAX_CHECKED_FILES = 64
"""Maximum number of checked files of one entry."""

_ZIP_SUFFIXES = (".pt", ".pth", ".ckpt", ".bin")
_SAFETENSORS = ".safetensors"
_JSON = ".json"
_ZIP_START, _ZIP_END = b"PK\x03\x04", b"PK\x05\x06"
_ZIP_END_BYTES = 22
_LENGTH_BYTES = 8
_MAX_HEADER_BYTES = 16 << 20
_MAX_JSON_BYTES = 4 << 20
"""A larger file is not parsed, which would stop all other threads."""


def check_tensor_files(
    filesystem: FileSystem, path: str, files: Mapping[str, FileInfo]
) -> dict[str, bool]:
    """Returns whether each file of tensors of the entry at `path` is whole.

    Files whose format does not show it are absent. Raises OSError.
    """
    found: dict[str, bool] = {}
    for inner, file in files.items():
        full_path = f"{path}/{inner}" if inner else path
        formats = (*_ZIP_SUFFIXES, _SAFETENSORS, *((_JSON,) if not inner else ()))
        if len(found) < MAX_CHECKED_FILES and full_path.endswith(formats):
            whole = _is_whole(filesystem, full_path, file.size)
            if whole is not None:
                found[inner] = whole
    return found


def _is_whole(filesystem: FileSystem, path: str, size: int) -> bool | None:
    if size == 0:
        return False
    if path.endswith(_JSON):
        return _is_whole_json(filesystem, path, size)
    if path.endswith(_SAFETENSORS):
        return _is_whole_safetensors(filesystem, path, size)
    if filesystem.part(path, 0, len(_ZIP_START)) != _ZIP_START:
        return None  # the format before torch 1.6, or no file of torch
    end = filesystem.part(path, max(0, size - _ZIP_END_BYTES), _ZIP_END_BYTES)
    return end.startswith(_ZIP_END)


def _is_whole_safetensors(filesystem: FileSystem, path: str, size: int) -> bool | None:
    length = filesystem.part(path, 0, _LENGTH_BYTES)
    if len(length) < _LENGTH_BYTES:
        return None
    (header_bytes,) = struct.unpack("<Q", length)
    if header_bytes > _MAX_HEADER_BYTES:
        return None
    if size < _LENGTH_BYTES + header_bytes:
        return False
    try:
        header = json.loads(filesystem.part(path, _LENGTH_BYTES, header_bytes))
        ends = [one["data_offsets"][1] for name, one in header.items() if name != "__metadata__"]
        return bool(size >= _LENGTH_BYTES + header_bytes + max(ends, default=0))
    except (ValueError, RecursionError, AttributeError, KeyError, TypeError, IndexError):
        return None


def _is_whole_json(filesystem: FileSystem, path: str, size: int) -> bool | None:
    if size > _MAX_JSON_BYTES:
        return None
    try:
        # part of an object is never JSON; part of a number is a number
        return isinstance(json.loads(filesystem.part(path, 0, size)), dict | list)
    except (ValueError, RecursionError):
        return False
