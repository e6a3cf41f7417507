from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import frameworks_page
import pytest
import yaml

from trainwarden_exporter.config import load_config
from trainwarden_exporter.frameworks import FRAMEWORKS
from trainwarden_exporter.frameworks.base import Framework
from trainwarden_exporter.frameworks.completeness_rules import (
    CompletenessRule,
    FolderContent,
    SettledRule,
    StepDirContent,
)
from trainwarden_exporter.frameworks.error_lines import COMMON_ERROR_PATTERNS
from trainwarden_exporter.frameworks.path_resolution import PathTemplate


def section(framework: Framework) -> str:
    page = frameworks_page.frameworks_page()
    return page.split(f"\n## {framework.title}\n")[1].split("\n## ")[0]


@pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda one: one.name)
def test_a_section_says_what_is_watched_and_what_to_know(framework: Framework) -> None:
    text = section(framework)
    assert f"`framework: {framework.name}`" in text
    for place in framework.checkpoints:
        assert f"- `{place.name}`: in `{place.folder}`" in text
    assert all(f"- {note}\n" in text for note in framework.notes)


@pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda one: one.name)
def test_the_configuration_of_a_section_is_accepted(framework: Framework, tmp_path: Path) -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", section(framework), re.DOTALL)
    assert len(block.splitlines()) <= 5
    (tmp_path / "exporter.yml").write_text(block)
    (run,) = load_config(tmp_path / "exporter.yml").runs
    assert run.framework == framework.name
    assert _variables(block).keys() <= {
        name for template in framework.templates for name in PathTemplate(template).names
    }


def _variables(block: str) -> Mapping[str, Any]:
    (run,) = yaml.safe_load(block)["runs"]
    variables: Mapping[str, Any] = run.get("variables", {})
    return variables


def test_every_trouble_is_on_the_page() -> None:
    page = frameworks_page.frameworks_page()
    assert all(f"| `{one.name}` | `" in page for one in COMMON_ERROR_PATTERNS)


def test_settling_is_described() -> None:
    assert frameworks_page.proven(SettledRule(("", "*"), seconds=10)) == ("when unchanged for 10 s")
    assert frameworks_page.proven(SettledRule(("a", "b"), seconds=90)) == (
        "with `a` and `b`, when unchanged for 1 min 30 s"
    )


class Hunch(CompletenessRule):
    def is_complete(self, entry: StepDirContent, folder: FolderContent) -> bool:
        return True


def test_a_proof_without_words_is_noticed() -> None:
    with pytest.raises(TypeError, match="no words for a Hunch"):
        frameworks_page.proven(Hunch())
