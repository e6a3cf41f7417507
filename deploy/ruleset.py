"""The shipped rules as trees, and how trees are written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

RULES = Path(__file__).resolve().parent.parent / "rules"
FOLDERS = ("alerts", "recording")
Ruleset = Mapping[str, Sequence[Mapping[str, Any]]]
"""The rule groups of each file, by its path below the folder of rules, like `alerts/gpu.yml`."""


def read_shipped(folder: Path = RULES) -> dict[str, list[dict[str, Any]]]:
    """All files of rules in `folder`, in the order of their names."""
    return {
        f"{kind}/{file.name}": yaml.load(file.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)[
            "groups"
        ]
        for kind in FOLDERS
        for file in sorted((folder / kind).glob("*.yml"))
    }


class _Dumper(yaml.SafeDumper):
    """Writes multi-line text as a block."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    style = "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def dumped(*documents: Any) -> str:
    """YAML of one document, or several."""
    return yaml.dump_all(
        documents, Dumper=_Dumper, sort_keys=False, width=2**31, allow_unicode=True
    )
