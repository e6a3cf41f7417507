"""Writes what other ways to install take of the shipped rules and boards (`make packaging`).

For the Prometheus Operator its own manifests; for a mixin the list of files that it imports.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from ruleset import FOLDERS, RULES, Ruleset, dumped, read_shipped

DEPLOY = Path(__file__).parent
BOARDS = RULES.parent / "grafana" / "dashboards"
HEAD = """\
# Written by `make packaging` from rules/: one PrometheusRule for each file of rules. An operator
# loads the objects that its ruleSelector picks. To give them the labels that it asks for, or to
# change alerts, write them with deploy/write_rules.py (docs/rules.md).
"""
LABELS: Mapping[str, str] = {
    "app.kubernetes.io/name": "trainwarden",
    "app.kubernetes.io/part-of": "trainwarden",
}


def manifests(rules: Ruleset, labels: Mapping[str, str]) -> str:
    """The rules as documents of kind PrometheusRule, all with `labels` beside our own."""
    return HEAD + dumped(
        *(
            {
                "apiVersion": "monitoring.coreos.com/v1",
                "kind": "PrometheusRule",
                "metadata": {"name": _name(file), "labels": {**LABELS, **labels}},
                "spec": {"groups": groups},
            }
            for file, groups in rules.items()
            if groups
        )
    )


def _name(file: str) -> str:
    """`trainwarden-alerts-gpu` of `alerts/gpu.yml`: a name that Kubernetes takes."""
    return f"trainwarden-{file.removesuffix('.yml').replace('/', '-')}"


def imports() -> str:
    """What the mixin is made of, in Jsonnet, which imports only what is named literally."""
    lines = ["// Written by `make packaging`.", "{"]
    for kind in FOLDERS:
        lines += [f"  {kind}: ["]
        lines += [
            f"    importstr '../../rules/{kind}/{file.name}',"
            for file in sorted((RULES / kind).glob("*.yml"))
        ]
        lines += ["  ],"]
    lines += ["  dashboards: {"]
    lines += [
        f"    '{file.name}': import '../../grafana/dashboards/{file.name}',"
        for file in sorted(BOARDS.glob("*.json"))
    ]
    return "\n".join([*lines, "  },", "}", ""])


FILES: Mapping[Path, Callable[[], str]] = {
    DEPLOY / "kubernetes" / "prometheusrules.yaml": lambda: manifests(read_shipped(), {}),
    DEPLOY / "mixin" / "shipped.libsonnet": imports,
}


def main() -> int:
    for path, text in FILES.items():
        path.write_text(text(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
