"""The pinned dependencies are those of pyproject.toml, with hashes and without addresses."""

from __future__ import annotations

import re
import tomllib

from stack import PROJECT

FILE = PROJECT / "deploy" / "requirements.txt"


def pinned() -> dict[str, str]:
    """The entry of each dependency, with its hashes."""
    text = re.sub(r"#.*", "", FILE.read_text())
    entries = re.split(r"\n(?=[a-z])", text.strip())
    return {entry.partition("==")[0]: entry for entry in entries}


def test_each_entry_has_a_version_and_hashes() -> None:
    for entry in pinned().values():
        assert re.match(r"[a-z0-9-]+==[0-9][0-9a-z.]*", entry)
        assert re.search(r"--hash=sha256:[0-9a-f]{64}\b", entry)


def test_each_dependency_is_pinned() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    names = {re.match(r"[a-z0-9-]+", text.lower()) for text in project["dependencies"]}
    assert {name[0] for name in names if name} <= pinned().keys()


def test_no_address_is_recorded() -> None:
    assert "://" not in FILE.read_text()
