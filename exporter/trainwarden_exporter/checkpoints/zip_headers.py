"""Compares the headers of a ZIP archive that `torch.save` wrote with the directory at its end.

The directory repeats what the headers say. torch writes record after record without a gap, each
followed by its checksum and sizes. Sources: caffe2/serialize/inline_container.cc, miniz.c of
torch, APPNOTE of ZIP.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from zipfile import ZipInfo

from trainwarden_exporter.checkpoints.paced_reader import PacedFile

HEADER_START, DESCRIPTOR_START = b"PK\x03\x04", b"PK\x07\x08"
HEADER = struct.Struct("<4sHHHHHIIIHH")
DIRECTORY_END_BYTES = 22
_DIRECTORY_ENTRY_BYTES = 46
_DIRECTORY_END = struct.Struct("<4s4H2IH")
_DIRECTORY_END_64 = struct.Struct("<4sQ2H2I4Q")
_LOCATOR_64 = struct.Struct("<4sIQI")
_SIZES_FOLLOW, _UTF8 = 0x8, 0x800
"""Flags of a record: checksum and sizes follow its data; its name is UTF-8."""
_FILLER = 0x4246
"""The extra field that aligns the data of a record: "FB", then as many "Z" as needed."""


def header_problem(
    file: PacedFile, start: int, record: ZipInfo, header: bytes
) -> tuple[str, int, int]:
    """Returns what is wrong with a record, or "", and where its data and the record end.

    `start` is the offset of the archive in `file`, `header` the fixed part of the record's header;
    the ends are offsets in the archive. Raises OSError.
    """
    fields = HEADER.unpack(header)
    name_bytes, extra_bytes = fields[-2:]
    rest = file.read(start + record.header_offset + HEADER.size, name_bytes + extra_bytes)
    data_end = record.header_offset + HEADER.size + len(rest) + record.compress_size
    if fields[1:6] != _same_fields(record) or rest[:name_bytes] != _name(record):
        return "its header is not that of the directory", data_end, data_end
    if not _is_extra(rest[name_bytes:]) or not _is_extra(record.extra):
        return "an extra field is damaged", data_end, data_end
    sizes = record.CRC, record.compress_size, record.file_size
    if not record.flag_bits & _SIZES_FOLLOW:
        problem = "" if fields[6:9] == sizes else "its header has other sizes"
        return problem, data_end, data_end
    if fields[6:9] != (0, 0, 0):
        return "its header has other sizes", data_end, data_end
    found = file.read(start + data_end, 24)
    for layout in ("<4s3I", "<4sI2Q"):
        if layout.endswith("Q") or max(sizes) < 1 << 32:
            expected = struct.pack(layout, DESCRIPTOR_START, *sizes)
            if found.startswith(expected):
                return "", data_end, data_end + len(expected)
    return "the sizes after its data are damaged", data_end, data_end


def _same_fields(record: ZipInfo) -> tuple[int, int, int, int, int]:
    """Version, flags, method, time and date, as a header has them."""
    year, month, day, hour, minute, second = record.date_time
    return (
        record.extract_version | record.reserved << 8,
        record.flag_bits,
        record.compress_type,
        hour << 11 | minute << 5 | second // 2,
        (year - 1980) << 9 | month << 5 | day,
    )


def _name(record: ZipInfo) -> bytes:
    return record.orig_filename.encode("utf-8" if record.flag_bits & _UTF8 else "cp437")


def _is_extra(extra: bytes) -> bool:
    """Whether these are whole extra fields, and a filler has nothing but Z."""
    while extra:
        if len(extra) < 4:  # noqa: PLR2004 - the number of a field and its size
            return False
        number, size = struct.unpack_from("<HH", extra)
        content, extra = extra[4 : 4 + size], extra[4 + size :]
        if len(content) < size or (number == _FILLER and content.strip(b"Z")):
            return False
    return True


def directory_problems(
    records: Sequence[ZipInfo], ends: Sequence[int], start: int, tail: bytes
) -> Iterator[str]:
    """Yields what is wrong with the directory of these records.

    `ends` are the offsets in the archive where the records end, `start` that of the directory,
    `tail` the last entry of the directory and what follows it.
    """
    last = records[-1]
    entry, tail = tail[: directory_bytes([last])], tail[directory_bytes([last]) :]
    starts = [record.header_offset for record in records]
    if [0, *ends] != [*starts, start]:
        yield "its records do not follow each other"
    if len({_constants(record) for record in records}) > 1 or any(one.comment for one in records):
        yield "its entries differ in what one writer writes alike"
    # zipfile cuts the parts of the last entry where the directory ends
    lengths = len(_name(last)), len(last.extra), len(last.comment)
    if entry[28:34] != struct.pack("<3H", *lengths):
        yield "its last entry is damaged"
    if not _is_end(tail, len(records), start, directory_bytes(records)):
        yield "its end is damaged"


def directory_bytes(records: Sequence[ZipInfo]) -> int:
    """Returns the size of the directory without its end."""
    return sum(
        _DIRECTORY_ENTRY_BYTES + len(_name(one)) + len(one.extra) + len(one.comment)
        for one in records
    )


def _constants(record: ZipInfo) -> tuple[int, ...]:
    made_by = record.create_version, record.create_system
    return (*made_by, record.volume, record.internal_attr, record.external_attr)


def _is_end(tail: bytes, count: int, start: int, size: int) -> bool:
    plain = _DIRECTORY_END.pack(
        *(b"PK\x05\x06", 0, 0, min(count, 0xFFFF), min(count, 0xFFFF)),
        *(min(size, 0xFFFFFFFF), min(start, 0xFFFFFFFF), 0),
    )
    if len(tail) == len(plain):
        return tail == plain
    if len(tail) != _DIRECTORY_END_64.size + _LOCATOR_64.size + len(plain):
        return False
    versions = _DIRECTORY_END_64.unpack_from(tail)[2:4]
    whole = _DIRECTORY_END_64.pack(
        *(b"PK\x06\x06", _DIRECTORY_END_64.size - 12, *versions, 0, 0, count, count, size, start)
    )
    return tail == whole + _LOCATOR_64.pack(b"PK\x06\x07", 0, start + size, 1) + plain
