"""Small bodies that expand to large ones."""

from __future__ import annotations

import zlib

_MIB = 1 << 20


def gzip_bomb(expanded: int) -> bytes:
    """Bytes of gzip, about a thousandth of what they expand to."""
    compressor = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    block = compressor.compress(bytes(_MIB)) + compressor.flush(zlib.Z_FULL_FLUSH)
    header = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03"
    # Blocks after a full flush do not depend on each other.
    return header + block * (expanded // _MIB)
