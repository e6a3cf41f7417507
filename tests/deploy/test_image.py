"""The image is built from everything that the wheel includes."""

from __future__ import annotations

import re
import tomllib

import pytest

from stack import PROJECT

BUILD = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
INCLUDED = sorted(BUILD["targets"]["wheel"]["force-include"])


@pytest.mark.parametrize("included", INCLUDED)
def test_what_the_wheel_includes_reaches_the_build(included: str) -> None:
    copied = re.findall(r"^COPY (\S+) /source/", (PROJECT / "Dockerfile").read_text(), re.MULTILINE)
    sent = re.findall(r"^!(\S+)$", (PROJECT / ".dockerignore").read_text(), re.MULTILINE)
    for paths in (copied, sent):
        assert any(included == path or included.startswith(f"{path}/") for path in paths), paths
