"""Alertmanager's configuration is valid, and every alert goes where it should."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from stack import Binaries

CONFIG = Path(__file__).resolve().parents[2] / "rules" / "alertmanager.yml"
REMEDIATOR = "trainwarden-remediator"
ON_CALL = "on-call"
LOOP = "remediation=hold_restarts"

ROUTES = [
    # what, labels, receivers in order
    ("heartbeat", "alertname=TrainingWatchdog severity=none", [REMEDIATOR]),
    ("over limit", "severity=critical remediation=restart_leaking_worker", [REMEDIATOR, ON_CALL]),
    ("over 90 %", "alertname=TrainingWorkerMemoryOverLimit severity=warning", [ON_CALL]),
    ("gone", "severity=critical remediation=start_missing_worker", [REMEDIATOR, ON_CALL]),
    (
        "gone by an XID",
        "severity=critical remediation=start_missing_worker explained_by=TrainingGpuXid",
        [REMEDIATOR, "nobody"],
    ),
    ("old and growing", "severity=warning remediation=recycle_aged_worker", [REMEDIATOR, ON_CALL]),
    ("floor", "severity=critical remediation=relieve_memory", [REMEDIATOR, ON_CALL]),
    ("loop", f"severity=critical {LOOP}", [REMEDIATOR, ON_CALL]),
    ("gave up", "alertname=TrainingRemediationGaveUp severity=critical", [ON_CALL]),
    ("exporter down", "alertname=TrainingExporterDown severity=critical", [ON_CALL]),
    ("reboot", "alertname=TrainingReboot severity=warning", [ON_CALL]),
    ("leftovers on a GPU", "severity=critical remediation=clean_gpu", [REMEDIATOR, ON_CALL]),
    ("server down", "severity=critical remediation=restart_inference", [REMEDIATOR, ON_CALL]),
    ("stalled", "severity=critical remediation=restart_stalled_run", [REMEDIATOR, ON_CALL]),
    ("stalled, dead", "alertname=TrainingStepStalled severity=critical", [ON_CALL]),
    ("long step", "alertname=TrainingStepStalled severity=warning", [ON_CALL]),
    ("brake", "severity=critical remediation=restart_braking_worker", [REMEDIATOR, ON_CALL]),
    ("container loop", f"run=demo container=pod severity=critical {LOOP}", [REMEDIATOR, ON_CALL]),
    ("disk full", f"path=/data severity=critical {LOOP}", [REMEDIATOR, ON_CALL]),
    ("disk filling", "alertname=TrainingDiskFilling path=/data severity=warning", [ON_CALL]),
    ("no batch", "alertname=TrainingWaitingForRollouts severity=critical", [ON_CALL]),
    ("late batch", "alertname=TrainingWaitingForRollouts severity=warning", [ON_CALL]),
    ("storm", "alertname=TrainingErrorStorm severity=warning", [ON_CALL]),
    ("long queue", "alertname=TrainingInferenceQueueFlooded severity=info", ["nobody"]),
    ("blind", "alertname=TrainingWatchBlind watch=disk severity=warning", [ON_CALL]),
    ("GPU lost", "alertname=TrainingGpuLost severity=critical", [ON_CALL]),
    ("GPU idle", "alertname=TrainingGpuIdle severity=warning", [ON_CALL]),
    ("GPU nearly full", "alertname=TrainingGpuMemoryNearlyFull severity=info", ["nobody"]),
    ("context", "severity=info", ["nobody"]),
    ("plumbing", "severity=none", ["nobody"]),
    ("plumbing with a playbook", "severity=info remediation=x", [REMEDIATOR, "nobody"]),
    ("an alert of one's own", "alertname=DiskFull", [ON_CALL]),
]


def amtool(binaries: Binaries, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [binaries.amtool, *arguments], capture_output=True, text=True, check=False, timeout=60
    )


def test_the_configuration_is_valid(binaries: Binaries) -> None:
    result = amtool(binaries, "check-config", CONFIG)
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_examples_for_reaching_an_operator_are_valid_once_uncommented(
    binaries: Binaries, tmp_path: Path
) -> None:
    text = CONFIG.read_text()
    start = text.index("- name: on-call\n")
    end = text.index("- name: nobody\n")
    person = re.sub(r"^( +)# ", r"\1", text[start:end], flags=re.MULTILINE)
    assert "slack_configs:" in person
    config = tmp_path / "alertmanager.yml"
    config.write_text(text[:start] + person + text[end:])
    result = amtool(binaries, "check-config", config)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("labels", "receivers"), [row[1:] for row in ROUTES], ids=[row[0] for row in ROUTES]
)
def test_an_alert_goes_to(labels: str, receivers: list[str], binaries: Binaries) -> None:
    config = f"--config.file={CONFIG}"
    result = amtool(binaries, "config", "routes", "test", config, *labels.split())
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == [",".join(receivers)]


def test_each_kind_of_shipped_alert_goes_where_its_severity_and_its_playbook_say(
    alerts: list[dict[str, Any]], binaries: Binaries
) -> None:
    """No info alert pages the on-call; every alert with a playbook reaches the remediator."""
    kinds = {
        (alert["labels"]["severity"], alert["labels"].get("remediation", ""))
        for alert in alerts
        if alert["alert"] != "TrainingWatchdog"
    }
    assert {severity for severity, _ in kinds} == {"critical", "warning", "info"}
    for severity, playbook in kinds:
        labels = [f"severity={severity}"] + [f"remediation={playbook}"] * bool(playbook)
        config = f"--config.file={CONFIG}"
        result = amtool(binaries, "config", "routes", "test", config, *labels)
        last = "nobody" if severity == "info" else ON_CALL
        expected = [REMEDIATOR, last] if playbook else [last]
        assert result.stdout.split() == [",".join(expected)], labels


def routes() -> list[dict[str, Any]]:
    """The child routes, in order."""
    return list(yaml.safe_load(CONFIG.read_text())["route"]["routes"])


def seconds(duration: str) -> int:
    return int(duration[:-1]) * {"s": 1, "m": 60, "h": 3600}[duration[-1]]


def test_the_heartbeat_is_sent_with_every_flush() -> None:
    heartbeat = routes()[0]
    assert heartbeat["matchers"] == ['alertname="TrainingWatchdog"']
    assert seconds(heartbeat["group_wait"]) == 0
    assert seconds(heartbeat["repeat_interval"]) < seconds(heartbeat["group_interval"])


def test_the_remediator_hears_within_seconds_and_the_person_hears_too() -> None:
    remediation = routes()[1]
    assert remediation["continue"] is True
    assert seconds(remediation["group_wait"]) <= 1
    assert set(remediation["group_by"]) == {"alertname", "run", "worker", "instance"}


def test_what_is_held_wakes_an_operator_at_once_though_a_playbook_answers_it(
    binaries: Binaries,
) -> None:
    """A loop and a full disk are not healed by holding."""
    arguments = ("config", "routes", "test", "--tree", f"--config.file={CONFIG}")
    result = amtool(binaries, *arguments, "severity=critical", LOOP)
    assert '{severity="critical"}  receiver: on-call' in result.stdout
    critical = routes()[5]
    assert critical["matchers"] == ['severity="critical"']
    assert seconds(critical["group_wait"]) <= 10


def test_the_on_call_is_paged_for_a_critical_alert_sooner_than_for_a_warning() -> None:
    handled, critical, warning = routes()[4:]
    assert 'remediation!="hold_restarts"' in handled["matchers"]
    assert seconds(handled["group_wait"]) == 120
    assert critical["matchers"] == ['severity="critical"']
    assert seconds(critical["group_wait"]) <= 30
    assert warning["matchers"] == ['severity="warning"']
    assert seconds(warning["group_wait"]) > seconds(handled["group_wait"])


def test_the_webhook_is_authenticated_whole_and_never_redirected() -> None:
    config = yaml.safe_load(CONFIG.read_text())
    receiver = next(r for r in config["receivers"] if r["name"] == REMEDIATOR)
    assert receiver["webhook_configs"] == [
        {
            "url": "http://127.0.0.1:10978/webhook",
            "send_resolved": True,
            "max_alerts": 0,
            "http_config": {
                "authorization": {"type": "Bearer", "credentials_file": "secrets/webhook-token"},
                "follow_redirects": False,
            },
        }
    ]


def test_every_alert_named_in_the_configuration_exists(alerts: list[dict[str, Any]]) -> None:
    known = {alert["alert"] for alert in alerts}
    config = yaml.safe_load(CONFIG.read_text())
    matchers = [
        matcher
        for rule in config["inhibit_rules"]
        for matcher in (*rule["source_matchers"], *rule["target_matchers"])
    ] + [matcher for route in routes() for matcher in route["matchers"]]
    named = 0
    for matcher in matchers:
        if (found := re.fullmatch(r'alertname[=!]~?"(.*)"', matcher)) is not None:
            for name in found[1].split("|"):
                assert any(re.fullmatch(name, alert) for alert in known), name
                named += 1
    assert named
