"""Finds numbers that are not finite in raw tensor data, without a numeric library.

A number is infinite or NaN if all bits of its exponent are set (IEEE 754; bfloat16 is the upper
half of a float32). The search looks at the bytes that hold the exponent; data is little-endian.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

ITEM_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
"""The types that are searched, by their names in safetensors."""

MIN_ITEMS = 1024
"""Tensors with fewer items are not searched: they hold the state of metrics and of early stopping,
in which infinity and NaN are usual."""


@dataclass(frozen=True, slots=True)
class _Format:
    size: int
    top: re.Pattern[bytes]
    """Values of the highest byte with the upper bits of the exponent set."""
    rest_mask: int
    """The bits of the exponent in the second highest byte."""
    top_mantissa: int = 0
    """The bits of the mantissa in the highest byte."""


_FORMATS = {
    "F64": _Format(8, re.compile(rb"[\x7f\xff]"), 0xF0),
    "F32": _Format(4, re.compile(rb"[\x7f\xff]"), 0x80),
    "BF16": _Format(2, re.compile(rb"[\x7f\xff]"), 0x80),
    "F16": _Format(2, re.compile(rb"[\x7c-\x7f\xfc-\xff]"), 0x00, 0x03),
}
_SIGN = 0x80


def find_not_finite(data: bytes, kind: str) -> int | None:
    """Returns the index of the first NaN or +infinity in `data`, or None.

    `-infinity` is usual in masks, which some models save.
    """
    form = _FORMATS[kind]
    top = data[form.size - 1 :: form.size]
    second = data[form.size - 2 :: form.size]
    for match in form.top.finditer(top):
        index = match.start()
        high, low = top[index], second[index]
        if low & form.rest_mask != form.rest_mask:
            continue
        item = data[index * form.size : index * form.size + form.size - 2]
        mantissa = (high & form.top_mantissa) or (low & (0xFF ^ form.rest_mask)) or any(item)
        if mantissa or not high & _SIGN:
            return index
    return None
