"""The authorities of the system are read once, and again when they are others."""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from types import SimpleNamespace

import pytest

from trainwarden_exporter.runtime.ca_bundle import system_context


@pytest.fixture
def bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The system's file of authorities, last changed long ago."""
    bundle = tmp_path / "ca.pem"
    write(bundle, "x")
    paths = SimpleNamespace(cafile=str(bundle), capath=None)
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: paths)
    return bundle


def write(file: Path, content: str) -> None:
    file.write_text(content)
    os.utime(file, (1, 1))


def test_they_are_read_once(bundle: Path) -> None:
    assert bundle.exists()
    assert system_context() is system_context()


def test_another_file_with_the_time_of_the_first_is_read(bundle: Path) -> None:
    before = system_context()
    other = bundle.with_suffix(".new")
    write(other, "y")
    other.replace(bundle)
    assert system_context() is not before


def test_so_is_one_of_another_size_written_in_its_place(bundle: Path) -> None:
    before = system_context()
    write(bundle, "xx")
    assert system_context() is not before


def test_and_a_bundle_that_is_removed_or_comes_back(bundle: Path) -> None:
    before = system_context()
    bundle.unlink()
    without = system_context()
    assert without is not before
    write(bundle, "x")
    assert system_context() is not without
