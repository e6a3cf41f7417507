"""docs/architecture.md names every folder and module where it is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
PAGE = (PROJECT / "docs" / "architecture.md").read_text(encoding="utf-8")
PACKAGES = (
    "exporter/trainwarden_exporter",
    "remediator/trainwarden_remediator",
    "command/trainwarden",
)
TABLES = {
    "The repository": "",
    "Layers of the exporter": f"{PACKAGES[0]}/",
    "Layers of the remediator": f"{PACKAGES[1]}/",
    "Layers of the command": f"{PACKAGES[2]}/",
}
"""The headings of the tables, and the folder that their rows are relative to."""


def first_cells(title: str) -> str:
    """The first cells of the table under a heading, one a line."""
    (section,) = re.findall(rf"^## {title}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    return "\n".join(re.findall(r"^\| (`[^|]+`) \|", section, re.MULTILINE))


def rows(ending: str) -> list[str]:
    """Every path of the tables that ends so, from the top of the repository."""
    return [
        below + name
        for title, below in TABLES.items()
        for name in re.findall(rf"`([^`]+{re.escape(ending)})`", first_cells(title))
    ]


MAP = rows("/")


def folders(below: str, *, ending: str = "") -> Iterator[str]:
    """The direct subfolders that hold a file with that ending; no caches of tools."""
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
    assert found & {f"{package}/{name}/" for name in ("collectors", "actions", "commands")}
    assert found <= set(MAP)


@pytest.mark.parametrize("place", ["deploy", "grafana", "docs"])
def test_every_folder_of_what_belongs_to_it_is_named(place: str) -> None:
    assert set(folders(place)) <= set(MAP)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_module_at_the_top_of_a_package_is_named(package: str) -> None:
    found = {str(file.relative_to(PROJECT)) for file in (PROJECT / package).glob("*.py")}
    assert found - set(rows(".py")) == {f"{package}/__init__.py"}


def test_every_folder_at_the_top_is_named() -> None:
    tops = {name.partition("/")[0] for name in MAP}
    assert {name.removesuffix("/") for name in folders("")} <= tops


def test_every_file_it_points_at_is_there() -> None:
    """Modules may be named as they are within a package."""
    roots = [PROJECT, *(PROJECT / package for package in PACKAGES)]
    named = re.findall(r"`((?:[\w-]+/)*[\w-]+\.(?:py|yml|md))`", PAGE)
    assert {"engine/control_loop.py", "status_page/overview.py", "rules/alertmanager.yml"} <= set(
        named
    )
    places = ("deploy/", "rules/", "")
    missing = [
        name
        for name in named
        if not any((root / place / name).exists() for root in roots for place in places)
    ]
    assert set(missing) == {"exporter.yml", "remediator.yml"}  # the user's own
    for link in re.findall(r"\]\(([^)#]+)", PAGE):
        assert (PROJECT / "docs" / link).exists(), link
