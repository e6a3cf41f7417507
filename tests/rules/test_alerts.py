"""Every alert has what the on-call and the remediator need, and is tested."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from trainwarden_remediator.config.schema import PLAYBOOKS
from trainwarden_remediator.engine import failsafe

Alerts = list[dict[str, Any]]

DOCS = "https://github.com/trainwarden/trainwarden/blob/main/docs/runbooks/"
SEVERITIES = {"critical", "warning", "info", "none"}


def names(alerts: Alerts) -> set[str]:
    return {alert["alert"] for alert in alerts}


def test_names_share_the_prefix(alerts: Alerts) -> None:
    assert alerts
    assert all(re.fullmatch(r"Training[A-Z][A-Za-z]+", name) for name in names(alerts))


def test_alertmanager_routes_every_severity(alerts: Alerts) -> None:
    assert {alert["labels"]["severity"] for alert in alerts} <= SEVERITIES


def test_a_rule_adds_no_label_but_severity_remediation_and_cause(alerts: Alerts) -> None:
    labels = {label for alert in alerts for label in alert["labels"]}
    assert labels == {"severity", "remediation", "explained_by", "run_continues"}


def test_a_label_that_names_a_cause_names_an_alert_that_calls_the_on_call(alerts: Alerts) -> None:
    calling = {one["alert"] for one in alerts if one["labels"]["severity"] == "critical"}
    named = {one["labels"]["explained_by"] for one in alerts if "explained_by" in one["labels"]}
    assert named
    assert named <= calling


def test_every_remediation_is_a_playbook_and_every_playbook_has_an_alert(alerts: Alerts) -> None:
    named = {alert["labels"]["remediation"] for alert in alerts if "remediation" in alert["labels"]}
    assert named == {*PLAYBOOKS}


def test_what_drives_a_remediation_outlasts_a_lost_scrape(alerts: Alerts) -> None:
    for alert in alerts:
        if "remediation" in alert["labels"]:
            assert "keep_firing_for" in alert, alert["alert"]


def test_one_alert_has_one_severity_unless_the_worse_can_mute_the_milder(alerts: Alerts) -> None:
    for name in names(alerts):
        severities = {a["labels"]["severity"] for a in alerts if a["alert"] == name}
        # An `info` notifies nobody, so that nothing needs to mute it.
        pairs = ({"critical", "warning"}, {"info", "warning"})
        assert len(severities) == 1 or severities in pairs, name


def test_every_alert_says_what_was_seen_and_where_to_go_on(alerts: Alerts) -> None:
    for alert in alerts:
        annotations = alert["annotations"]
        wanted = {"summary", "description", "runbook_url", "dashboard_url"}
        severity = alert["labels"]["severity"]
        if (alert["alert"], severity) == ("TrainingCheckpointDamaged", "critical"):
            wanted |= {"damage"}  # by which the remediator chooses the first step
        assert set(annotations) == wanted
        assert annotations["runbook_url"] == f"{DOCS}{alert['alert']}.md"
        # What is about a remediator bears its instance, which is no exporter's.
        own = "remediator" in alert["expr"] and alert["alert"] != "TrainingRemediationGaveUp"
        board = "/d/trainwarden-health" if own else "/d/trainwarden-run"
        assert annotations["dashboard_url"].partition("?")[0] == board


def test_a_summary_is_one_sentence_that_grouped_alerts_share(alerts: Alerts) -> None:
    for alert in alerts:
        summary = alert["annotations"]["summary"]
        assert "{{" not in summary
        assert summary.endswith(".")
        assert len(summary) <= 90


def test_alerts_of_one_name_link_to_the_same_places(alerts: Alerts) -> None:
    for name in names(alerts):
        links = {a["annotations"]["dashboard_url"] for a in alerts if a["alert"] == name}
        assert len(links) == 1


def test_the_whole_series_of_an_alert_names_its_worker_or_its_box(alerts: Alerts) -> None:
    for alert in alerts:
        description = alert["annotations"]["description"]
        if alert["alert"].startswith("TrainingWorker"):
            assert "$labels.worker" in description, alert["alert"]
            assert "$labels.run" in description, alert["alert"]


def test_the_text_of_an_alert_about_a_gpu_names_the_gpu_and_its_box(alerts: Alerts) -> None:
    for alert in alerts:
        if alert["alert"].startswith("TrainingGpu"):
            description = alert["annotations"]["description"]
            assert "$labels.instance" in description, alert["alert"]
            if alert["alert"] != "TrainingGpuDriverFailing":
                assert "$labels.gpu" in description, alert["alert"]
                assert "$labels.uuid" in description, alert["alert"]


def test_every_alert_that_is_named_somewhere_exists(project: Path, alerts: Alerts) -> None:
    places = [project / "README.md", *(project / "docs").rglob("*.md")]
    places += [*(project / "rules").rglob("*.yml"), *(project / "grafana" / "boards").glob("*.py")]
    # An operator sends the first to test the receivers; the remediator raises the second itself.
    others = {"TrainingTest", failsafe.LABELS["alertname"]}
    for place in places:
        named = set(re.findall(r"\bTraining[A-Z][A-Za-z]+\b(?!\.\*)", place.read_text()))
        assert named <= names(alerts) | others, place.name


@pytest.fixture(scope="session")
def expectations(rule_tests: Alerts) -> list[tuple[str, list[dict[str, Any]]]]:
    """(alert name, expected alerts) of every `alert_rule_test`."""
    return [
        (expectation["alertname"], expectation["exp_alerts"])
        for test in rule_tests
        for expectation in test.get("alert_rule_test", ())
    ]


def test_every_alert_and_severity_fires_in_a_promtool_test(
    alerts: Alerts, expectations: list[tuple[str, list[dict[str, Any]]]]
) -> None:
    fired = {
        (name, alert["exp_labels"]["severity"])
        for name, expected in expectations
        for alert in expected
    }
    assert fired == {(alert["alert"], alert["labels"]["severity"]) for alert in alerts}


def test_every_alert_is_also_tested_not_to_fire(
    alerts: Alerts, expectations: list[tuple[str, list[dict[str, Any]]]]
) -> None:
    silent = {name for name, expected in expectations if not expected}
    assert silent == names(alerts) - {"TrainingWatchdog"}


def test_every_alert_has_a_runbook_page_and_every_page_an_alert(
    project: Path, alerts: Alerts
) -> None:
    pages = {path.stem for path in (project / "docs" / "runbooks").glob("*.md")}
    assert pages == names(alerts)
