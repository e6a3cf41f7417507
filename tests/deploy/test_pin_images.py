"""Images are pinned by digest, by a command that says which it could not resolve."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import pin_images
from stack import PROJECT

OLD, NEW = "sha256:" + "0" * 64, "sha256:" + "a" * 64
BASE, SERVER = "docker.io/library/python:3.13.16-slim", "docker.io/prom/prometheus:v3.5.3"

STUB = f"""#!/bin/sh
[ "$1 $2 $3" = 'buildx imagetools inspect' ] || exit 9
[ "$5 $6" = '--format {{{{.Manifest.Digest}}}}' ] || exit 9
case $4 in
  {SERVER}) echo {NEW} ;;
  */odd:1) echo 'Name: odd' ;;
  *) echo 'pulling' >&2; echo 'ERROR: 404 Not Found' >&2; exit 1 ;;
esac
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project, with a `docker` that knows one image."""
    (tmp_path / "bin").mkdir()
    stub = tmp_path / "bin" / "docker"
    stub.write_text(STUB)
    stub.chmod(0o755)
    monkeypatch.setenv("PATH", f"{stub.parent}:/usr/bin:/bin")
    (tmp_path / "Dockerfile").write_text(f"ARG BASE={BASE}@{OLD}\nFROM ${{BASE}}\n")
    (tmp_path / "docker-compose.yml").write_text(
        f"a: {{image: {SERVER}@{OLD}}}\nb: {{image: {SERVER}}}\nc: {{BASE: '${{BASE:-{BASE}}}'}}\n"
    )
    return tmp_path


def test_a_digest_is_written_wherever_its_image_is_named_and_the_others_are_left(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert pin_images.main(project) == 1
    assert (project / "docker-compose.yml").read_text() == (
        f"a: {{image: {SERVER}@{NEW}}}\nb: {{image: {SERVER}@{NEW}}}\n"
        f"c: {{BASE: '${{BASE:-{BASE}}}'}}\n"
    )
    assert (project / "Dockerfile").read_text() == f"ARG BASE={BASE}@{OLD}\nFROM ${{BASE}}\n"
    printed = capsys.readouterr()
    assert printed.out == f"{SERVER}@{NEW}\n"
    assert printed.err == f"not resolved, left as it is: {BASE}: ERROR: 404 Not Found\n"


def test_when_all_are_resolved_the_command_succeeds(project: Path) -> None:
    assert pin_images.main(project, lambda _: NEW) == 0
    assert (project / "Dockerfile").read_text() == f"ARG BASE={BASE}@{NEW}\nFROM ${{BASE}}\n"


@pytest.mark.usefixtures("project")
def test_what_is_no_digest_is_not_written() -> None:
    with pytest.raises(pin_images.UnresolvedError, match="no digest: 'Name: odd'"):
        pin_images.resolve("docker.io/library/odd:1")


def test_without_docker_the_error_names_it_and_the_files_stay(tmp_path: Path) -> None:
    for name in pin_images.FILES:
        shutil.copy(PROJECT / name, tmp_path / name)
    code = "import pathlib, sys, pin_images; sys.exit(pin_images.main(pathlib.Path(sys.argv[1])))"
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path],
        env={"PATH": "/nowhere", "PYTHONPATH": str(PROJECT / "deploy")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.count("there is no docker on this machine") == 4
    for name in pin_images.FILES:
        assert (tmp_path / name).read_text() == (PROJECT / name).read_text()


def test_every_image_of_a_registry_is_found_and_pinned() -> None:
    texts = [(PROJECT / name).read_text() for name in pin_images.FILES]
    images = pin_images.find_images(texts)
    assert len(images) == 4
    for text in texts:
        named = re.findall(r"\b[\w.]+/[\w./-]+:[\w.-]+", text)
        assert {one for one in named if "docker.io" in one} <= set(images)
        assert re.findall(rf"(?:{'|'.join(images)})(?!@sha256:[0-9a-f]{{64}}\b)", text) == []
