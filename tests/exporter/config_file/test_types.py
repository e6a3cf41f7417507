"""Durations, sizes and paths in configuration files."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from trainwarden_exporter.config_file.types import (
    Bytes,
    LocalPath,
    Seconds,
    parse_duration,
    parse_size,
    parse_space,
    parse_typed_duration,
)

SECONDS: TypeAdapter[float] = TypeAdapter(Seconds)
BYTES: TypeAdapter[int] = TypeAdapter(Bytes)
LOCAL_PATH: TypeAdapter[Path] = TypeAdapter(LocalPath)


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        (0, 0.0),
        (90, 90.0),
        (1.5, 1.5),
        ("90", 90.0),
        ("1.5", 1.5),
        ("90s", 90.0),
        ("1.5s", 1.5),
        ("0s", 0.0),
        ("5m", 300.0),
        ("1h30m", 5400.0),
        ("1d2h3m4s5ms", 93784.005),
        ("5ms", 0.005),
        ("5 min", 300.0),
        ("1 h 30 min", 5400.0),
        ("90 s", 90.0),
        ("5 ms", 0.005),
        ("2w", 1_209_600.0),
        ("1y", 31_536_000.0),
    ],
)
def test_a_duration_is_read_as_seconds(written: object, seconds: float) -> None:
    assert parse_duration(written) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "written",
    [
        "",
        " ",
        "s",
        "5  m",
        " 5m",
        "5 mi",
        "1m1h",
        "90sec",
        "-5s",
        "1,5s",
        "1:30",
        "\u0665s",
        True,
        None,
        [],
    ],
)
def test_the_error_for_an_invalid_duration_shows_the_syntax(written: object) -> None:
    with pytest.raises(ValueError, match="not a duration: write seconds"):
        parse_duration(written)


def test_a_duration_that_is_typed_needs_a_unit() -> None:
    assert parse_typed_duration("2h") == 7200
    for written in ("10", "0", "1.5"):
        meant = re.escape(f"{written} has no unit: {written}s, {written}m or {written}h")
        with pytest.raises(ValueError, match=f"^{meant}$"):
            parse_typed_duration(written)


@pytest.mark.parametrize("written", [-1, "-1", float("nan"), float("inf"), 10**400, "9" * 400])
def test_a_duration_is_never_negative_or_infinite(written: object) -> None:
    with pytest.raises(ValidationError):
        SECONDS.validate_python(written)


@pytest.mark.parametrize(
    ("written", "size"),
    [
        (0, 0),
        (1024, 1024),
        ("1024", 1024),
        ("7B", 7),
        ("8GiB", 8 * 1024**3),
        ("8Gi", 8 * 1024**3),
        ("8gib", 8 * 1024**3),
        ("8 GiB", 8 * 1024**3),
        ("1.5KiB", 1536),
        ("500MB", 500_000_000),
        ("500M", 500_000_000),
        ("2TB", 2 * 10**12),
        (" 1k ", 1000),
    ],
)
def test_a_size_is_read_as_bytes(written: object, size: int) -> None:
    assert parse_size(written) == size


@pytest.mark.parametrize(
    "written", ["", "GiB", "8 G i B", "-1", -1, "8GiBB", "8XB", "1e3", 1.5, True, None, "inf"]
)
def test_the_error_for_an_invalid_size_shows_the_syntax(written: object) -> None:
    with pytest.raises(ValueError, match="not a size: write bytes"):
        parse_size(written)


def test_a_small_number_of_bytes_lacks_a_unit() -> None:
    for written in (5, "24", " 5 ", 2**20 - 1):
        with pytest.raises(ValueError, match=r"bytes: is a unit missing, such as GiB\? If not, w"):
            parse_space(written)
    spaces = (0, "5B", "1KiB", 2**20, "2000000")
    assert [parse_space(one) for one in spaces] == [0, 5, 1024, 2**20, 2_000_000]


@pytest.mark.parametrize("written", [2**63, "16EiB", "9" * 29 + "EiB"])
def test_a_size_fits_in_64_bits(written: object) -> None:
    with pytest.raises(ValueError, match="too large"):
        parse_size(written)


@given(st.one_of(st.text(), st.integers(), st.floats(), st.from_regex(r"[0-9.kMGis]{1,12}")))
def test_any_scalar_is_a_quantity_or_a_plain_error(written: object) -> None:
    for adapter in (SECONDS, BYTES):
        with contextlib.suppress(ValidationError):
            assert adapter.validate_python(written) >= 0


def test_a_path_is_relative_to_the_folder_of_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    context = {"folder": tmp_path}

    assert LOCAL_PATH.validate_python("a/b", context=context) == tmp_path / "a/b"
    assert LOCAL_PATH.validate_python("/a/b", context=context) == Path("/a/b")
    assert LOCAL_PATH.validate_python("~/b", context=context) == Path("/home/ada/b")
    assert LOCAL_PATH.validate_python("~/b") == Path("/home/ada/b")
    assert LOCAL_PATH.validate_python("a/b") == Path("a/b")


@pytest.mark.parametrize("written", ["", "a\0b", "~nobody-of-this-name/x", 7])
def test_an_invalid_path_is_an_error(written: object) -> None:
    with pytest.raises(ValidationError):
        LOCAL_PATH.validate_python(written)
