from __future__ import annotations

import re

import alerts_page
import pytest

from trainwarden_remediator.config.playbooks import PLAYBOOKS


def rows() -> list[list[str]]:
    lines = alerts_page.alerts_page().splitlines()
    return [line.strip("| ").split(" | ") for line in lines if line.startswith("| [")]


def test_every_rule_has_a_row_that_leads_to_its_runbook() -> None:
    text = "".join(file.read_text() for file in alerts_page.ALERTS.glob("*.yml"))
    named = re.findall(r"- alert: (\w+)", text)
    linked = [re.fullmatch(r"\[(\w+)\]\(runbooks/(\w+)\.md\)", row[0]) for row in rows()]
    assert sorted(found[1] for found in linked if found) == sorted(named)
    assert all(found and found[1] == found[2] for found in linked)


def test_the_playbooks_that_are_named_are_those_there_are() -> None:
    text = alerts_page.alerts_page()
    named = set(re.findall(r"\| `(\w+)` \|$", text, re.MULTILINE))
    assert named == set(PLAYBOOKS)


def test_what_a_file_of_rules_asks_is_the_question_it_begins_with() -> None:
    text = "# Is it well? The details\n# are below.\n#\n# More.\ngroups: []\n"
    assert alerts_page.question(text) == "Is it well?"
    with pytest.raises(ValueError, match="substring not found"):
        alerts_page.question("# It is.\ngroups: []\n")
