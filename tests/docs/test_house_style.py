"""docs/house_style.py finds each kind of violation in a small tree, and none in this repository."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import house_style
import pytest
from house_style import Allowed, Violation

PROJECT = Path(__file__).parents[2]
EXPORTER, REMEDIATOR, COMMAND = house_style.ROOT_ENTRIES

CONTRACTS = """\
[tool.importlinter]
root_packages = ["trainwarden_exporter", "trainwarden_remediator"]

[[tool.importlinter.contracts]]
name = "Layers"
type = "layers"
containers = ["trainwarden_exporter"]
layers = ["app", "runtime"]
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository of three packages without a violation."""
    for package in (EXPORTER, REMEDIATOR, COMMAND):
        write(tmp_path, f"{package}/__init__.py", "")
    write(tmp_path, f"{EXPORTER}/app.py", "from trainwarden_exporter import runtime\n")
    write(tmp_path, f"{EXPORTER}/runtime.py", "")
    write(tmp_path, "pyproject.toml", CONTRACTS)
    return tmp_path


def write(root: Path, path: str, text: str) -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


def violations(tree: Path, *allowed: Allowed) -> list[str]:
    """What it finds, each as it is printed."""
    return [str(one) for one in house_style.check(tree, allowed, ())[1]]


def test_a_clean_tree_has_no_violation(tree: Path) -> None:
    rows, found = house_style.check(tree, (), ())
    assert found == []
    assert dict(rows)["upward imports"] == "0"


def test_too_many_files_and_folders_in_a_package(tree: Path) -> None:
    for number in range(24):
        write(tree, f"{REMEDIATOR}/module{number}.py", "")
    assert violations(tree) == [
        f"{REMEDIATOR}:1: 25 files and folders, more than 24: move some into a folder"
    ]


def test_an_upward_import(tree: Path) -> None:
    write(tree, f"{EXPORTER}/runtime.py", '"""Low."""\n\nfrom trainwarden_exporter import app\n')
    write(tree, f"{EXPORTER}/app.py", "")
    assert violations(tree) == [
        f"{EXPORTER}/runtime.py:3: import of trainwarden_exporter.app breaks a contract"
    ]


def test_contracts_that_cannot_be_read_are_an_error(tree: Path) -> None:
    write(tree, "pyproject.toml", "[tool.importlinter]\n")
    with pytest.raises(RuntimeError, match="lint-imports failed"):
        violations(tree)


def test_a_module_over_the_limit(tree: Path) -> None:
    write(tree, f"{EXPORTER}/runtime.py", "A = 1\n" * 401)
    assert violations(tree) == [
        f"{EXPORTER}/runtime.py:1: 401 lines, more than 400: split the module"
    ]


@pytest.mark.parametrize(
    ("path", "text", "line", "phrase"),
    [
        ("docs/page.md", "# Title\n\nIt was told so.\n", 3, "told"),
        ("docs/page.md", "Ask a\nperson.\n", 1, "a person"),
        ("rules/alerts/host.yml", "summary: The box is full.\n", 1, "the box"),
        ("deploy/up.sh", "# It begins\n# anew\n", 2, "anew"),
        (f"{REMEDIATOR}/x.py", "A = 1\n# one\n# that waits\n", 2, "one that"),
        (f"{REMEDIATOR}/x.py", 'A = (\n    "one "\n    "that waits"\n)\n', 2, "one that"),
        (f"{REMEDIATOR}/x.py", "def f() -> None:\n    said = 1\n", 2, "said"),
        ("tests/test_x.py", "def test_it_starts_by_itself() -> None: ...\n", 1, "by itself"),
        ("bench/x.py", "class WasTold: ...\n", 1, "told"),
    ],
)
def test_a_banned_word(tree: Path, path: str, text: str, line: int, phrase: str) -> None:
    write(tree, path, text)
    successor = house_style.WORDS[phrase]
    assert violations(tree) == [f"{path}:{line}: `{phrase}` is not used: {successor}"]


@pytest.mark.parametrize("text", ["untold", "retold", "the boxes", "no person", "saidiya"])
def test_a_part_of_another_word_is_no_violation(tree: Path, text: str) -> None:
    write(tree, "docs/page.md", text)
    assert violations(tree) == []


def test_an_exception_covers_its_file_and_its_line_only(tree: Path) -> None:
    write(tree, "docs/page.md", "the log line `he said`\nShe said.\n")
    write(tree, "docs/other.md", "the log line `he said`\n")
    allowed = Allowed("docs/page.md", "said", "log line", "a foreign log line")
    assert [found.split(" ")[0] for found in violations(tree, allowed)] == [
        "docs/other.md:1:",
        "docs/page.md:2:",
    ]


def test_an_exception_that_no_line_needs(tree: Path) -> None:
    allowed = Allowed("docs/page.md", "said", "", "a foreign log line")
    assert violations(tree, allowed) == [
        "docs/page.md:1: no line needs the exception for `said`: remove it"
    ]


def test_a_pending_folder_is_not_read(tree: Path) -> None:
    write(tree, "tests/slurm/test_x.py", "# said\n")
    write(tree, "tests/test_y.py", "# said\n")
    found = house_style.banned_words(tree, (), ("tests/slurm/",))
    assert [(one.path, one.line) for one in found] == [("tests/test_y.py", 1)]


def test_it_prints_each_violation_and_fails(tree: Path) -> None:
    write(tree, "docs/house_style.py", "")
    write(tree, "docs/page.md", "It was told so.\n")
    script = [sys.executable, str(PROJECT / "docs/house_style.py"), str(tree)]
    done = subprocess.run(script, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "docs/page.md:1: `told` is not used" in done.stdout


def test_this_repository_has_no_violation() -> None:
    assert house_style.check(PROJECT)[1] == list[Violation]()
