"""Generates docs/alerts.md from the shipped rules: each alert with its severity and playbook."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

ALERTS = Path(__file__).resolve().parent.parent / "rules" / "alerts"

HEAD = """\
# Alerts

Written by `make docs` from `rules/alerts`. Each name leads to its runbook.

A `critical` alert pages on-call, a `warning` is for today, and `info` notifies nobody: it explains
other alerts. An alert with a playbook is also routed to the remediator; `hold_restarts` blocks its
restarts, all other playbooks let it act if `remediator.yml` allows it.

*Waits* is the rule's `for`. A rule without one waits for its own window, or needs no wait; the
comment above each rule gives the reason.

To switch an alert off, or change its severity or its wait: [rules.md](rules.md). The thresholds of
alerts are limits in `exporter.yml`: [configuration.md](configuration.md).
"""


def alerts_page() -> str:
    """Returns docs/alerts.md."""
    return HEAD + "".join(_section(file) for file in sorted(ALERTS.glob("*.yml")))


def _section(file: Path) -> str:
    text = file.read_text(encoding="utf-8")
    rules = [
        rule
        for group in yaml.load(text, Loader=yaml.CSafeLoader)["groups"]
        for rule in group["rules"]
    ]
    rows = "".join(map(_row, rules))
    return (
        f"\n## {file.stem.capitalize().replace('Gpu', 'GPU')}\n\n{question(text)}\n\n"
        "| alert | severity | when | waits | playbook |\n|---|---|---|---|---|\n" + rows
    )


def question(text: str) -> str:
    """Returns the question in the first comment of a rule file, up to its question mark.

    Raises ValueError if there is none.
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
