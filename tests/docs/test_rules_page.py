"""The examples of docs/rules.md work as written."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from overriding import Override, overridden, read_overrides
from ruleset import read_shipped

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "rules.md").read_text(encoding="utf-8")


def test_the_changes_it_shows_are_good_and_change_three_alerts(tmp_path: Path) -> None:
    (text,) = (
        block for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL) if "alert:" in block
    )
    file = tmp_path / "overrides.yml"
    file.write_text(text)
    shipped = read_shipped()
    rules = overridden(shipped, read_overrides(file))
    shown = {entry["alert"] for entry in yaml.safe_load(text)["alerts"]}
    differ = {
        rule["alert"]
        for name, groups in shipped.items()
        for group in groups
        for rule in group["rules"]
        if not any(rule in changed["rules"] for changed in rules[name])
    }
    assert differ == shown


def test_every_key_is_documented() -> None:
    documented = re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)
    assert documented == [field.alias or name for name, field in Override.model_fields.items()]
