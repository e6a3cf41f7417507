"""The page docs/alerts.md, from the shipped rules: each alert, who hears of it, what answers it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

ALERTS = Path(__file__).resolve().parent.parent / "rules" / "alerts"

HEAD = """\
# Alerts

Written by `make docs` from `rules/alerts`. Each name leads to its runbook.

A `critical` alert wakes a person, a `warning` is for today, and `info` reaches nobody by itself: it
stands beside others and explains them. An alert with a playbook goes to the remediator as well;
`hold_restarts` stops it, all others let it act, if `remediator.yml` does.

*Waits* is the rule's `for`. Where there is none, what the rule looks back over is the wait, or the
fact needs none; the comment above each rule says which, and why.

How to switch one off, or change its severity or its wait: [rules.md](rules.md). The numbers that
alerts compare with are limits in `exporter.yml`: [configuration.md](configuration.md).
"""


def alerts_page() -> str:
    """docs/alerts.md."""
    return HEAD + "".join(_section(file) for file in sorted(ALERTS.glob("*.yml")))


def _section(file: Path) -> str:
    text = file.read_text(encoding="utf-8")
    rules = [rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"]]
    rows = "".join(map(_row, rules))
    return (
        f"\n## {file.stem.capitalize().replace('Gpu', 'GPU')}\n\n{question(text)}\n\n"
        "| alert | severity | when | waits | playbook |\n|---|---|---|---|---|\n" + rows
    )


def question(text: str) -> str:
    """What a file of rules asks: the sentences of its first comment up to a question mark.

    ValueError where it asks nothing.
    """
    lines = []
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.strip("# "))
    return " ".join(lines)[: " ".join(lines).index("?") + 1]


def _row(rule: dict[str, Any]) -> str:
    labels, name = rule["labels"], rule["alert"]
    playbook = f"`{labels['remediation']}`" if "remediation" in labels else ""
    cells = (
        f"[{name}](runbooks/{name}.md)",
        labels["severity"],
        rule["annotations"]["summary"],
        rule.get("for", ""),
        playbook,
    )
    return f"| {' | '.join(cells)} |\n"
