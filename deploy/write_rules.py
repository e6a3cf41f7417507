"""Writes the shipped rules with changes of yours: docs/rules.md describes the file of changes.

`write_rules.py --overrides overrides.yml --output FOLDER` writes files for Prometheus, and with
`--format prometheusrule` manifests for the Prometheus Operator.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from overriding import Overrides, overridden, read_overrides
from packaging_rules import manifests
from ruleset import FOLDERS, RULES, Ruleset, dumped, read_shipped
from trainwarden_exporter.exceptions import ConfigError

HEAD = "# Written from Trainwarden's shipped rules and a file of changes; edit neither here.\n"


def write_files(rules: Ruleset, folder: Path) -> None:
    """Write them as Prometheus reads them; of files there, only those written so are removed."""
    for kind in FOLDERS:
        (folder / kind).mkdir(parents=True, exist_ok=True)
        for left in (folder / kind).glob("*.yml"):
            if left.read_text(encoding="utf-8").startswith(HEAD):
                left.unlink()
    for (
        name,
        groups,
    ) in rules.items():  # also without a rule: it may take the place of a shipped one
        (folder / name).write_text(HEAD + dumped({"groups": groups}), encoding="utf-8")


def own_rules(file: Path, folder: Path) -> Path:
    """Where the rules lie: the shipped ones, or those in `folder`, if there is a `file` of changes.

    Raises ConfigError.
    """
    if not file.exists():
        return RULES
    write_files(overridden(read_shipped(), read_overrides(file)), folder)
    return folder


def labels(words: Sequence[str]) -> dict[str, str]:
    """`{"release": "monitoring"}` of `release=monitoring`. Raises ValueError."""
    found = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not (name and equals):
            raise ValueError(f"not a label, NAME=VALUE: {word!r}")
        found[name] = value
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Write what is asked for; 0 when all is well."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--overrides", type=Path, metavar="FILE", help="changes; none without it")
    parser.add_argument("--output", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--format", choices=("prometheus", "prometheusrule"), default="prometheus")
    parser.add_argument(
        "--label", action="append", default=[], metavar="NAME=VALUE", help="on each PrometheusRule"
    )
    chosen = parser.parse_args(arguments)
    try:
        overrides = read_overrides(chosen.overrides) if chosen.overrides else Overrides()
        rules = overridden(read_shipped(), overrides)
        if chosen.format == "prometheus":
            write_files(rules, chosen.output)
        else:
            chosen.output.mkdir(parents=True, exist_ok=True)
            text = manifests(rules, labels(chosen.label))
            (chosen.output / "prometheusrules.yaml").write_text(text, encoding="utf-8")
    except (ConfigError, ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
