from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import frameworks_page
import pytest
import yaml

from trainwarden_exporter.config import load_config
from trainwarden_exporter.layouts import LAYOUTS
from trainwarden_exporter.layouts.base import Layout
from trainwarden_exporter.layouts.places import Place
from trainwarden_exporter.layouts.proofs import EntrySeen, FolderSeen, Proof, Settled
from trainwarden_exporter.layouts.troubles import SHARED


def section(layout: Layout) -> str:
    page = frameworks_page.frameworks_page()
    return page.split(f"\n## {layout.title}\n")[1].split("\n## ")[0]


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda one: one.name)
def test_a_section_says_what_is_watched_and_what_to_know(layout: Layout) -> None:
    text = section(layout)
    assert f"`framework: {layout.name}`" in text
    for place in layout.checkpoints:
        assert f"- `{place.name}`: in `{place.folder}`" in text
    assert all(f"- {note}\n" in text for note in layout.notes)


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda one: one.name)
def test_the_configuration_of_a_section_is_accepted(layout: Layout, tmp_path: Path) -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", section(layout), re.DOTALL)
    assert len(block.splitlines()) <= 5
    (tmp_path / "exporter.yml").write_text(block)
    (run,) = load_config(tmp_path / "exporter.yml").runs
    assert run.framework == layout.name
    assert _variables(block).keys() <= {
        name for template in layout.templates for name in Place(template).names
    }


def _variables(block: str) -> Mapping[str, Any]:
    (run,) = yaml.safe_load(block)["runs"]
    variables: Mapping[str, Any] = run.get("variables", {})
    return variables


def test_every_trouble_is_on_the_page() -> None:
    page = frameworks_page.frameworks_page()
    assert all(f"| `{one.name}` | `" in page for one in SHARED)


def test_settling_is_told_in_words() -> None:
    assert frameworks_page.proven(Settled(("", "*"), seconds=10)) == (
        "when nothing has changed for 10 s"
    )
    assert frameworks_page.proven(Settled(("a", "b"), seconds=90)) == (
        "with `a` and `b`, when nothing has changed for 1 min 30 s"
    )


class Hunch(Proof):
    def holds(self, entry: EntrySeen, folder: FolderSeen) -> bool:
        return True


def test_a_proof_without_words_is_noticed() -> None:
    with pytest.raises(TypeError, match="no words for a Hunch"):
        frameworks_page.proven(Hunch())
