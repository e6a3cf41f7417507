"""The autopsy shows what a remediator did to the run, by its journal."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.remediator.fake_clock import FakeClock
from tests.remediator.samples import NOW, make_alert

from autopsying import announce
from trainwarden import cli
from trainwarden.stack import load_script
from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_remediator.journal.journal import Journal
from trainwarden_remediator.journal.rows import Outcome

RESTARTS = [
    "the remediator: restart of r/w for TrainingStepStalled: not healed, attempt 1 of 2",
    "the remediator: restart of r/w for TrainingStepStalled: healed, attempt 2 of 2",
]


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRAINWARDEN_FOLDER", str(tmp_path / "state"))
    monkeypatch.setenv("TRAINWARDEN_STACK_DIR", str(tmp_path / "stacks"))
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "train.log").write_text("step 1/9 loss 1\nstep 2/9 loss 1\n")
    return tmp_path / "work"


def record(path: Path) -> None:
    """Two restarts of the run, one of another run, and one of an earlier run of that name."""
    clock = FakeClock(NOW - 3600)
    journal = Journal(path, clock=clock)
    starts: list[tuple[str, Outcome]] = [
        *(("r", "not_healed"), ("other", "healed")),
        *(("r", "not_healed"), ("r", "healed")),
    ]
    for number, (run, outcome) in enumerate(starts):
        alert = make_alert(
            fingerprint=f"{number:016x}",
            starts_at=clock.now(),
            alertname="TrainingStepStalled",
            run=run,
            worker="w",
        )
        journal.record_alerts([alert])
        incident = max(one.id for one in journal.open_incidents())
        nth = (max(number - 1, 1), 2)
        action = journal.record_intent(incident, WorkerKey(run, "w"), "restart", [], attempt=nth)
        journal.record_result(action, "done", processes=[])
        journal.record_outcome(action, outcome, seconds=30.0)
        clock = FakeClock(NOW + number)
        journal.close()
        journal = Journal(path, clock=clock)
    journal.close()


def timeline(capsys: pytest.CaptureFixture[str], named: str) -> list[str]:
    cli.main(["autopsy", named, "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["unread"] == []
    return [one["text"] for one in found["timeline"] if one["text"].startswith("the remediator")]


def test_the_restarts_by_the_remediator_of_a_stack_are_in_the_timeline(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = work.parent / "stacks" / "run-announced"
    with load_script("claims").claimed(folder):
        record(folder / "state" / "journal.db")
    (folder / "remediator.yml").write_text(
        "token_file: token\njournal: state/journal.db\nexporter: {config: none.yml}\n"
    )
    (folder / load_script("runfolder").REMEDIATOR_LINK).write_text(f"{folder}/remediator.yml")
    more = {"log": str(work / "train.log"), "announced_at": NOW - 60}
    announce(work.parent / "state", "r", cwd=str(work), **more)
    assert timeline(capsys, "r") == RESTARTS
    assert timeline(capsys, str(work)) == RESTARTS
    cli.main(["autopsy", "r"])
    assert "| 2027-01-15 08:00:01 | the remediator: restart of r/w" in capsys.readouterr().out


def test_a_journal_in_the_folder_is_read_and_left_as_it_is(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record(work / "state" / "journal.db")
    files = sorted((work / "state").iterdir())
    assert len(timeline(capsys, str(work))) == 4
    assert sorted((work / "state").iterdir()) == files


def test_what_is_no_journal_is_not_read(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = work / "journal.db"
    file.write_text("my thesis\n" * 500)
    (work / "state").mkdir()
    os.mkfifo(work / "state" / "journal.db")
    assert cli.main(["autopsy", str(work), "--json"]) == 0
    unread = json.loads(capsys.readouterr().out)["unread"]
    assert unread == [f"{file}: file is not a database"]
