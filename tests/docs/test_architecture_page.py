"""docs/architecture.md tells the truth about the tree."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
PAGE = (PROJECT / "docs" / "architecture.md").read_text(encoding="utf-8")
PACKAGES = ("exporter/trainwarden_exporter", "remediator/trainwarden_remediator")


def tables() -> Iterator[str]:
    """Every folder the page names, from the top: a table of the tree, and one of each package."""
    folders = PAGE.partition("## The folders")[2]
    parts = re.split(r"^In the package of the .+:$", folders, flags=re.MULTILINE)
    for part, below in zip(parts, ("", *(f"{package}/" for package in PACKAGES)), strict=True):
        yield from (below + name for name in re.findall(r"^\| `(.+/)` \|", part, re.MULTILINE))


MAP = list(tables())


def folders(below: str, *, ending: str = "") -> Iterator[str]:
    """Folders right below one, if they hold a file with that ending; not what tools have left."""
    for folder in sorted((PROJECT / below).iterdir()):
        hidden = folder.name.startswith((".", "__"))
        if folder.is_dir() and not hidden and any(folder.rglob(f"*{ending}")):
            yield f"{folder.relative_to(PROJECT)}/"


def test_every_folder_it_names_is_there_and_named_once() -> None:
    assert MAP
    assert [name for name in MAP if not (PROJECT / name).is_dir()] == []
    assert sorted(set(MAP)) == sorted(MAP)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_folder_of_a_package_is_named(package: str) -> None:
    found = set(folders(package, ending=".py"))
    assert f"{package}/collectors/" in found or f"{package}/actions/" in found
    assert found <= set(MAP)


@pytest.mark.parametrize("place", ["deploy", "grafana", "docs"])
def test_every_folder_of_what_belongs_to_it_is_named(place: str) -> None:
    assert set(folders(place)) <= set(MAP)


def test_every_folder_at_the_top_is_named() -> None:
    tops = {name.partition("/")[0] for name in MAP}
    assert {name.removesuffix("/") for name in folders("")} <= tops


def test_every_file_it_points_at_is_there() -> None:
    """Modules may be named as they are within a package."""
    roots = [PROJECT, *(PROJECT / package for package in PACKAGES)]
    named = re.findall(r"`((?:[\w-]+/)*[\w-]+\.(?:py|yml|md))`", PAGE)
    assert {"engine.py", "glance.py", "rules/alertmanager.yml"} <= set(named)
    places = ("deploy/", "rules/", "")
    missing = [
        name
        for name in named
        if not any((root / place / name).exists() for root in roots for place in places)
    ]
    assert missing == ["remediator.yml"]  # that is the user's own
    for link in re.findall(r"\]\(([^)#]+)", PAGE):
        assert (PROJECT / "docs" / link).exists(), link
