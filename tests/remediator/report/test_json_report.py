"""The report as JSON has what the Markdown has."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.remediator.report.test_report import Story, reported
from tests.remediator.samples import NOW

from trainwarden_remediator.__main__ import main
from trainwarden_remediator.report.json_report import incident_json, nights_json
from trainwarden_remediator.report.nightly import read_nights, read_present

__all__ = ["reported"]


def test_an_incident_has_its_state_its_causes_and_each_action(reported: Story) -> None:
    incident = reported.hear()
    reported.restart(incident, healed=False)
    reported.restart(incident)
    reported.resolve(incident)
    now = reported.clock.now()
    found = json.loads(json.dumps(incident_json(read_present(reported.path, incident.id, now))))
    assert (found["id"], found["run"], found["worker"]) == (1, "demo", "rollout-0")
    assert (found["state"], found["started_at"]) == ("healed", NOW - 20)
    assert found["summary"].startswith("Healed automatically by 2 actions")
    assert found["likely_causes"]
    assert "**" not in str(found)
    assert [one["outcome"] for one in found["actions"]] == ["not_healed", "healed"]
    (alert,) = found["alerts"]
    assert alert["alert"] == "TrainingWorkerMemoryOverLimit"
    assert found["ended_at"] == alert["resolved_at"]


def test_a_night_has_all_incidents_and_its_period(reported: Story) -> None:
    for _ in range(2):
        incident = reported.hear()
        reported.restart(incident)
        reported.resolve(incident)
    now = reported.clock.now()
    found = nights_json(read_nights(reported.path, NOW - 3600, now))
    assert [one["id"] for one in found["incidents"]] == [1, 2]
    assert found["until"] == now
    # without the state of the host nobody can be named
    assert "who_acts" not in found


@pytest.mark.parametrize("number", [[], ["1"]])
def test_the_command_prints_it(
    tmp_path: Path,
    reported: Story,
    capsys: pytest.CaptureFixture[str],
    number: list[str],
) -> None:
    reported.hear(starts_at=NOW)
    config = tmp_path / "remediator.yml"
    config.write_text(
        "{insecure: true, journal: journal.db, exporter: {url: 'http://127.0.0.1:9'}}"
    )
    (tmp_path / "exporter.yml").write_text("runs: []\n")
    arguments = ["report", f"--config.file={config}", "--json", "--since=300d", *number]
    assert main(arguments) == 0
    found = json.loads(capsys.readouterr().out)
    (incident,) = [found] if number else found["incidents"]
    assert (incident["id"], incident["state"]) == (1, "open")
    if not number:
        assert found["who_acts"] == "You, now"
