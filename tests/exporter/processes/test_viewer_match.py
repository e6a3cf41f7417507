from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from trainwarden_exporter.processes.selector import Selector
from trainwarden_exporter.processes.viewer_match import find_matching_viewer

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ({"command": r"train\.py"}, "tail -f train.py"),
        ({"command": r"\btrain\.py\b"}, "tail -f train.py"),
        ({"command": r"examples/(?:x/)?run_\w+\.py$"}, ""),
        ({"command": r"\brun_\w+\.py$"}, "tail -f run_x.py"),
        ({"command": r"(?:^|/)python[\d.]* (?:.*[ /])?train\.py(?: |$)"}, ""),
        ({"command": r"-m my\.trainer"}, ""),
        ({"command": r"train\.py", "executable": "python3.11"}, ""),
        ({"command": r"train\.py", "systemd_unit": "trainer"}, ""),
        ({"executable": "python3.11"}, ""),
    ],
)
def test_a_selector_that_matches_an_editor_is_found(
    conditions: dict[str, Any], expected: str
) -> None:
    assert find_matching_viewer(Selector.model_validate(conditions)) == expected


@pytest.mark.parametrize("viewer", ["tail -f", "less", "vim", "nano +12"])
@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*/exporter.yml")), ids=lambda p: p.parent)
def test_no_example_matches_an_editor_of_its_script(file: Path, viewer: str) -> None:
    scripts = (
        "train.py", "search.py --worker 0", "examples/run_grpo.py", "torchtitan/train.py",
        "train_async.py", "trainer.py",
    )  # fmt: skip
    for run in yaml.safe_load(file.read_text())["runs"]:
        for worker in run.get("workers", ()):
            command = worker["match"]["command"].replace("${folder_pattern}", "x")
            selector = Selector.model_validate({"command": command})
            assert selector.command is not None
            for script in scripts:
                line = f"{viewer} {script}"
                assert selector.command.search(line) is None, (worker["name"], line)
