"""A runbook page helps a tired person: always the same headings, and nothing left open."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import promql_parser as promql

from labelling import groups, names_of, selectors
from trainwarden_exporter.webserver.runbooks import first_step

HEADINGS = [
    "Meaning",
    "What the alert checks",
    "Verify what the rule saw",
    "What Trainwarden does automatically",
    "Diagnosis",
    "Mitigation",
    "False-positive causes",
    "Tuning",
]


def sections(page: Path) -> dict[str, str]:
    """The text under each heading of the second level."""
    parts = re.split(r"^## (.+)$", page.read_text(), flags=re.MULTILINE)
    return {name: text.strip() for name, text in zip(parts[1::2], parts[2::2], strict=True)}


def test_every_page_has_the_headings_in_order_and_something_under_each(project: Path) -> None:
    for page in (project / "docs" / "runbooks").glob("Training*.md"):
        assert page.read_text().startswith(f"# {page.stem}\n"), page.name
        assert list(sections(page)) == HEADINGS, page.name
        assert all(sections(page).values()), page.name


def test_every_page_shows_how_to_see_what_the_rule_saw(project: Path) -> None:
    for page in (project / "docs" / "runbooks").glob("Training*.md"):
        assert "```promql\n" in sections(page)["Verify what the rule saw"], page.name


def metrics_of(expression: str) -> set[str]:
    return {name for one in selectors(promql.parse(expression)) for name in names_of(one)}


def test_what_is_asked_there_is_what_the_rule_rests_on(
    project: Path, alerts: list[dict[str, Any]]
) -> None:
    recorded: dict[str, set[str]] = {}
    for group in groups("recording"):
        for rule in group["rules"]:
            named = metrics_of(rule["expr"])
            recorded[rule["record"]] = {o for name in named for o in recorded.get(name, {name})}
    for alert in alerts:
        page = project / "docs" / "runbooks" / f"{alert['alert']}.md"
        text = sections(page)["Verify what the rule saw"]
        (block,) = re.findall(r"^```promql\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
        asked = {name for query in block.strip().split("\n") for name in metrics_of(query)}
        rests_on = {o for n in metrics_of(alert["expr"]) for o in (n, *recorded.get(n, ()))}
        assert asked & rests_on or not rests_on, page.name


def test_what_the_remediator_does_is_named_and_can_be_stopped(
    project: Path, alerts: list[dict[str, Any]]
) -> None:
    for alert in alerts:
        page = project / "docs" / "runbooks" / f"{alert['alert']}.md"
        text = sections(page)["What Trainwarden does automatically"]
        if (playbook := alert["labels"].get("remediation")) is not None:
            assert f"`{playbook}`" in text, page.name
            if playbook != "hold_restarts":
                assert "\n    trainwarden hold " in text, page.name


def test_no_section_is_empty(project: Path) -> None:
    for page in (project / "docs" / "runbooks").glob("Training*.md"):
        assert not re.search(r"TODO|TBD|FIXME|…", page.read_text()), page.name


def test_no_first_step_needs_a_grafana(project: Path) -> None:
    """The pages show it, and `trainwarden up` starts none."""
    pages = [*(project / "docs" / "runbooks").glob("Training*.md")]
    assert pages
    for page in pages:
        step = first_step(page.stem, {})
        assert not re.search(r"\bthe boards?\b|Grafana", step), f"{page.name}: {step}"
