"""Types of configuration values: durations, sizes, paths, names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, ValidationInfo

_DURATION = re.compile(
    r"(?:(\d+) ?y)? ?(?:(\d+) ?w)? ?(?:(\d+) ?d)? ?(?:(\d+) ?h)? ?(?:(\d+) ?m(?:in)?)?"
    r" ?(?:(\d+(?:\.\d+)?) ?s)? ?(?:(\d+) ?ms)?",
    re.ASCII,
)
_SECONDS = (31_536_000.0, 604_800.0, 86_400.0, 3_600.0, 60.0, 1.0, 0.001)
_NUMBER = re.compile(r"\d{1,300}(?:\.\d+)?", re.ASCII)

_SIZE = re.compile(r"(\d{1,30}(?:\.\d+)?)\s*(?:([kmgtpe])(i?))?b?", re.ASCII | re.IGNORECASE)
_LARGEST = 2**63 - 1
_LEAST_SPACE = 1 << 20


def parse_duration(value: object) -> float:
    """Returns the seconds in `value`: a number, or units as in Prometheus, such as `1h30m`.

    Also as the documentation prints them, such as `5 min`. Raises ValueError for anything else.
    """
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        return float(value)  # a number from an environment variable is text
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            raise ValueError("duration too large") from None
    written = isinstance(value, str) and value and value == value.strip()
    match = _DURATION.fullmatch(value) if written and isinstance(value, str) else None
    if match is None:
        raise ValueError(
            "not a duration: write seconds as a number, or units such as 90s, 5m, 1h30m"
        )
    parts = zip(match.groups(), _SECONDS, strict=True)
    return sum(float(part) * seconds for part, seconds in parts if part is not None)


def parse_typed_duration(text: str) -> float:
    """Returns the seconds in a duration that an operator types. Raises ValueError without a unit.

    `hold --for 10` would be over before the ten minutes or hours that are meant.
    """
    if _NUMBER.fullmatch(text):
        raise ValueError(f"{text} has no unit: {text}s, {text}m or {text}h")
    return parse_duration(text)


def parse_size(value: object) -> int:
    """Returns the bytes in `value`: a whole number, or units of 1000 (`MB`) or 1024 (`MiB`).

    Raises ValueError for anything else, and for more than a signed 64-bit integer holds.
    """
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    match = _SIZE.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None:
        raise ValueError("not a size: write bytes as a whole number, or units such as 512MiB, 8GiB")
    number, letter, binary = match.groups()
    power = "kmgtpe".index(letter.lower()) + 1 if letter else 0
    factor = (1024 if binary else 1000) ** power
    size = int(number) * factor if number.isdigit() else int(float(number) * factor)
    if size > _LARGEST:
        raise ValueError("not a size: too large")
    return size


def parse_space(value: object) -> int:
    """Returns the bytes in `value`, as `parse_size`, of memory or of a disk.

    Raises ValueError also for a number of bytes below 1 MiB, which lacks a unit: a worker would be
    over a `memory_limit: 5` at once.
    """
    size = parse_size(value)
    if 0 < size < _LEAST_SPACE and str(value).strip().isdigit():
        raise ValueError(f"{size} bytes: is a unit missing, such as GiB? If not, write {size}B")
    return size


def _path_text(value: object) -> object:
    if isinstance(value, str) and (not value or "\0" in value):
        raise ValueError("not a path: it is empty or contains a NUL character")
    return value


def _resolve(path: Path, info: ValidationInfo) -> Path:
    try:
        path = path.expanduser()
    except RuntimeError as error:
        raise ValueError(f"unknown home folder: {path.parts[0]}") from error
    folder = (info.context or {}).get("folder")
    return path if folder is None else Path(folder) / path


Seconds = Annotated[float, BeforeValidator(parse_duration), Field(ge=0, allow_inf_nan=False)]
"""A duration in seconds, written `90`, `90s` or `1h30m`."""

Bytes = Annotated[int, BeforeValidator(parse_size)]
"""A size in bytes, written `8GiB`, `500MB` or as a number."""

Space = Annotated[int, BeforeValidator(parse_space)]
"""As Bytes, of memory or of a disk: less than 1 MiB only with a unit."""

LocalPath = Annotated[Path, BeforeValidator(_path_text), AfterValidator(_resolve)]
"""A path; relative paths are relative to the folder of the configuration file."""

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.:-]*$"
NAME_RULE = "a name has at most 100 letters, digits and _ . : -; it begins with a letter or digit"

Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN, max_length=100)]
"""A name used as a label value and in commands: no spaces, no slashes."""
