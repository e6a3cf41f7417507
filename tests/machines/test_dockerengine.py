from __future__ import annotations

import os
from pathlib import Path

import pytest

from dockerengine import DockerEngine, Programs, find_programs
from stack import StackError


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with nothing on it but what a test adds."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def add(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def unpacked(folder: Path) -> Path:
    """What an earlier run has fetched."""
    home = folder / "docker"
    for place in ("bin", "usr/bin", "usr/sbin", "usr/lib/x86_64-linux-gnu"):
        (home / place).mkdir(parents=True)
    (home / "bin/busybox").touch()
    return home


def test_what_was_fetched_is_used_again(tmp_path: Path, programs: Path) -> None:
    home = unpacked(tmp_path)
    found = find_programs(tmp_path)
    first, second, *rest = found.environment["PATH"].split(os.pathsep)
    assert (first, second, rest) == (f"{home}/usr/bin", f"{home}/usr/sbin", [str(programs)])
    assert found.environment["LD_LIBRARY_PATH"] == f"{home}/usr/lib/x86_64-linux-gnu"
    assert found.busybox == home / "bin/busybox"


def test_an_engine_on_path_is_used_as_it_is(tmp_path: Path, programs: Path) -> None:
    unpacked(tmp_path)
    add(programs, "dockerd", "true")
    assert find_programs(tmp_path).environment["PATH"] == str(programs)


def test_a_failed_download_is_reported_and_leaves_no_files(tmp_path: Path, programs: Path) -> None:
    add(programs, "apt-get", "echo 'E: no such thing' >&2; exit 100")
    with pytest.raises(StackError, match=r"no Docker engine can be fetched \(.*\): let this"):
        find_programs(tmp_path, say=lambda _: None)
    assert [path.name for path in tmp_path.iterdir() if path != programs] == ["lock"]


def test_it_needs_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(StackError, match="needs root"):
        DockerEngine(Programs({}, tmp_path))


@pytest.mark.skipif(os.geteuid() != 0, reason="an engine needs root")
def test_an_engine_that_does_not_start_says_why(tmp_path: Path, programs: Path) -> None:
    add(programs, "dockerd", "echo 'no cgroups here' >&2; exit 1")
    add(programs, "docker", "exit 1")
    engine = DockerEngine(Programs({"PATH": f"{programs}:{os.defpath}"}, tmp_path))
    try:
        with pytest.raises(StackError, match="no cgroups here"):
            engine.start()
    finally:
        engine.close()
    assert not engine.folder.exists()
