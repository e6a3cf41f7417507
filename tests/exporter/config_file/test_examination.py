"""Every mistake of a file is found at once, also mistakes behind others."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.exporter.config_file.test_loader import Farm

from trainwarden_exporter.config import Config
from trainwarden_exporter.config_file.examination import MAX_MENDED, Examined, examine
from trainwarden_exporter.config_file.loader import load
from trainwarden_exporter.exceptions import ConfigError


def examined(folder: Path, text: str) -> Examined[Farm]:
    file = folder / "farm.yml"
    file.write_text(text)
    return examine(file, Farm)


def texts(found: Examined[Farm]) -> list[str]:
    return [f"{one.line} {one.where}: {one.message}" for one in found.problems]


def test_a_valid_file_has_its_value_and_no_problem(tmp_path: Path) -> None:
    found = examined(tmp_path, "trees: [{name: a}, {name: b}]")
    assert (found.problems, found.mended) == ((), frozenset())
    assert found.value is not None
    assert [tree.name for tree in found.value.trees] == ["a", "b"]


def test_what_keys_say_together_is_checked_behind_a_wrong_value(tmp_path: Path) -> None:
    text = """\
trees:
  - {name: a, height: tall}
  - name: a
    ag: soon
"""
    assert texts(examined(tmp_path, text)) == [
        "2 trees[0].height: expected a whole number",
        "3 trees[1].name: a is used twice",
        "4 trees[1].ag: unknown key (did you mean age?)",
        "4 trees[1].age: expected an age",
    ]
    with pytest.raises(ConfigError) as error:
        load(tmp_path / "farm.yml", Farm)
    assert len(error.value.problems) == 2


def test_a_stand_in_makes_no_problem_and_its_place_is_not_known(tmp_path: Path) -> None:
    found = examined(tmp_path, "trees: [{height: -1}, {name: [b]}]\nmain: 3\n")
    assert [text.split(":")[0] for text in texts(found)] == [
        "1 trees[0].name",
        "1 trees[0].height",
        "1 trees[1].name",
        "2 main",
    ]
    assert not found.knows("trees", 1, "name")
    assert not found.knows("trees")
    assert found.knows("trees", 1, "height")


def test_a_file_full_of_mistakes_is_read_to_an_end(tmp_path: Path) -> None:
    count = 2 * MAX_MENDED
    found = examined(tmp_path, "\n".join(f"key{number}: 1" for number in range(count)))
    assert len(found.problems) == count


def test_a_file_that_is_no_mapping_has_one_problem(tmp_path: Path) -> None:
    assert texts(examined(tmp_path, "- a\n- b\n")) == ["1 : expected a mapping"]
    with pytest.raises(ConfigError, match="not YAML"):
        examined(tmp_path, "a: [")


def test_mistakes_of_the_real_file_are_found_at_once(tmp_path: Path) -> None:
    file = tmp_path / "exporter.yml"
    file.write_text(
        """\
runs:
  - name: demo
    framwork: trl
    workers:
      - {name: trainer, role: trainer, match: {command: train.py}}
      - {name: trainer, role: rollout, match: {command: "roll[out"}}
    inference: [{name: s, url: "localhost:8000", engine: vllm}]
"""
    )
    found = examine(file, Config)
    assert [one.where for one in found.problems] == [
        "runs[0].framwork",
        "runs[0].workers[1].match.command",
        "runs[0].workers[1].name",
        "runs[0].inference[0].url",
    ]
