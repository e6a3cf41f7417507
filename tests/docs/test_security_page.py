"""The page on security names a test for each attack and fault."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text()
TEST = re.compile(r"`(tests/[\w/]+/test_\w+\.py)`")
TABLES = re.findall(r"^\|[^\n]*\| test \|\n\|[-|]+\|\n((?:\|.*\n)+)", PAGE, re.MULTILINE)


def test_each_row_names_tests_that_exist() -> None:
    assert len(TABLES) == 3
    for row in "".join(TABLES).splitlines():
        tests = row.rstrip("|").rpartition("|")[2].split(",")
        for test in tests:
            named = TEST.fullmatch(test.strip())
            assert named, f"no test: {row}"
            assert (ROOT / named[1]).is_file(), test


def test_each_test_of_an_attack_is_named() -> None:
    attacks = {str(path.relative_to(ROOT)) for path in ROOT.glob("tests/hostile/test_*.py")}
    assert attacks <= set(TEST.findall(PAGE))
