"""The page of harms names tests that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "harms.md").read_text()
HARMS = re.findall(r"^## (\d+)\. [^\n]+\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
TEST = re.compile(r"^- `(\S+\.py)::(\w+)`$", re.MULTILINE)


def test_the_harms_are_numbered_and_each_is_held_by_a_test() -> None:
    assert [int(number) for number, _ in HARMS] == list(range(1, 32))
    for number, text in HARMS:
        assert TEST.findall(text), f"nothing holds harm {number}"


@pytest.mark.parametrize(("path", "name"), sorted(set(TEST.findall(PAGE))))
def test_each_test_that_is_named_exists(path: str, name: str) -> None:
    tree = ast.parse((ROOT / path).read_text())
    functions = ast.FunctionDef | ast.AsyncFunctionDef
    assert name in {node.name for node in ast.walk(tree) if isinstance(node, functions)}


def test_every_line_that_looks_like_one_names_a_test() -> None:
    assert PAGE.count("\n- ") == len(TEST.findall(PAGE))


def test_every_test_of_a_harm_is_named() -> None:
    folder = ROOT / "tests" / "remediator" / "harms"
    assert {Path(path).name for path, _ in TEST.findall(PAGE)} >= {
        path.name for path in folder.glob("test_*.py")
    }
