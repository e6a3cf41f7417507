"""The exporter knows nothing of the remediator."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import trainwarden_exporter

FORBIDDEN = "trainwarden_remediator"
SOURCES = Path(trainwarden_exporter.__file__).parent


def imports_of_the_remediator(source: str) -> Iterator[int]:
    """Lines on which `source` imports the remediator, or names it as a module to import."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names) if any(_forbidden(alias.name) for alias in names):
                yield node.lineno
            case ast.ImportFrom(module=str(module), level=0) if _forbidden(module):
                yield node.lineno
            case ast.Call(args=[ast.Constant(value=str(text)), *_]) if _forbidden(text):
                yield node.lineno


def _forbidden(module: str) -> bool:
    return module == FORBIDDEN or module.startswith(FORBIDDEN + ".")


def test_no_file_of_the_exporter_imports_the_remediator() -> None:
    files = sorted(SOURCES.rglob("*.py"))
    assert SOURCES / "core.py" in files

    assert [
        f"{path}:{line}"
        for path in files
        for line in imports_of_the_remediator(path.read_text(encoding="utf-8"))
    ] == []


@pytest.mark.parametrize(
    "source",
    [
        "import trainwarden_remediator",
        "import os, trainwarden_remediator.journal as j",
        "from trainwarden_remediator import app",
        "def f():\n    from trainwarden_remediator.app import x",
        "import importlib\nimportlib.import_module('trainwarden_remediator.app')",
        "__import__('trainwarden_remediator')",
    ],
)
def test_an_import_of_the_remediator_is_found(source: str) -> None:
    assert list(imports_of_the_remediator(source))


def test_other_imports_are_not_taken_for_it() -> None:
    assert not list(imports_of_the_remediator("import trainwarden_remediators\nfrom . import x"))
