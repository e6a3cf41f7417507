"""The report of an incident, and of a night."""

from __future__ import annotations

import json
import re
import sqlite3
from dataclasses import replace
from datetime import UTC, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from tests.remediator.conftest import NOW, ROLLOUT, FakeClock, make_alert

from trainwarden_remediator.__main__ import main
from trainwarden_remediator.decision import Decision, Incident, Reason, Verdict
from trainwarden_remediator.exceptions import JournalError
from trainwarden_remediator.journal import Journal
from trainwarden_remediator.playbooks import PLAYBOOKS, Trouble
from trainwarden_remediator.reporting.causes import usually
from trainwarden_remediator.reporting.incident import Style
from trainwarden_remediator.reporting.telling import tell_incident, tell_nights
from trainwarden_remediator.reporting.times import Times, after

CET = timezone(timedelta(hours=1), "CET")
STYLE = Style(Times(CET), config_file="remediator.yml")
SUMMARY = {
    "summary": "A worker holds more memory than its limit.",
    "description": "Worker rollout-0 holds 9 GiB; its limit is 8 GiB.",
    "runbook_url": "https://example.org/runbooks/TrainingWorkerMemoryOverLimit.md",
}
EVIDENCE: dict[str, Any] = {
    "missing": {"gpus": "no answer within 1.5 s"},
    "memory": {"total": 32 << 30, "available": 1 << 30, "floor": 2 << 30, "oom_kills": 0},
    "processes": {
        "of_target": 1,
        "on_box": 99,
        "tree": [
            {
                "pid": 4242,
                "parent": 1,
                "started": NOW - 3600,
                "state": "D",
                "bytes": 9 << 30,
                "command": "python rollout.py",
            }
        ],
        "largest": [],
    },
    "logs": [
        {
            "name": "trainer",
            "path": "/runs/demo/trainer.log",
            "size": 10,
            "modified": NOW - 1,
            "lines": [
                "```",
                "# not a heading",
                "ConnectionRefusedError(111, \"Connect call failed ('172.17.0.2', 13231)\")",
                "ConnectionRefusedError(111, \"Connect call failed ('172.17.0.2', 13231)\")",
            ],
        }
    ],
    "seen": {
        "runs": {
            "demo": {
                "step": 1874,
                "checkpoint": 1869,
                "checkpoint_at": NOW - 300,
                "recovery_matches": True,
                "phase": "waiting_for_rollouts",
            }
        },
        "workers": {
            "demo/rollout-0": {
                "processes": 1,
                "expected": 1,
                "resident_bytes": 9 << 30,
                "memory_limit_bytes": 8 << 30,
                "started_at": NOW - 3600,
            }
        },
        "servers": {"demo/s": {"up": False, "reason": "refused", "since": NOW - 60}},
    },
}


class Story:
    """A journal that is written line by line."""

    def __init__(self, folder: Path, clock: FakeClock) -> None:
        self.path = folder / "journal.db"
        self.clock = clock
        self.journal = Journal(self.path, clock=clock)

    def hear(self, **labels: Any) -> Incident:
        annotations = labels.pop("annotations", SUMMARY)
        alert = make_alert(**{"starts_at": self.clock.now() - 20, "severity": "critical", **labels})
        self.journal.hear([replace(alert, annotations=annotations)])
        return self.journal.open_incidents()[-1]

    def decide(
        self, incident: Incident, reason: Reason, verdict: Verdict, detail: str = ""
    ) -> None:
        self.journal.decided(incident, Decision(verdict, reason, detail=detail))

    def restart(self, incident: Incident, *, healed: bool = True, **facts: Any) -> None:
        self.decide(incident, "restart", Verdict.ACT)
        number = self.journal.intend(
            incident.id, ROLLOUT, "restart", [], step=1874, checkpoint=1869
        )
        self.journal.keep_evidence(incident.id, number, "act", json.dumps(EVIDENCE))
        self.clock.pass_by(1)
        self.journal.reached(number, "stop", processes=[4242])
        self.clock.pass_by(4)
        self.journal.reached(number, "start", command=["python", "--api-key", "s3cr3t-Value"])
        self.journal.finished(number, "done", started_by="trainwarden", processes=[4343], killed=[])
        self.clock.pass_by(10)
        outcome = "healed" if healed else "not_healed"
        facts = {"seconds": 15.0, **facts} if healed else {"seen": "still too large"}
        self.journal.verified(number, outcome, **facts)  # type: ignore[arg-type]

    def resolve(self, incident: Incident) -> None:
        self.clock.pass_by(30)
        firing = make_alert(starts_at=incident.starts_at, firing=False)
        self.journal.hear([replace(firing, fingerprint=incident.fingerprint)])
        self.decide(incident, "resolved", Verdict.REFUSE)

    def tell(self, incident: Incident) -> str:
        told = tell_incident(self.path, incident.id, STYLE, self.clock.now())
        assert told is not None
        return told


@pytest.fixture
def told(tmp_path: Path, clock: FakeClock) -> Any:
    story = Story(tmp_path, clock)
    yield story
    story.journal.close()


def headings(markdown: str) -> list[str]:
    """Headings outside of fences."""
    found, fence = [], ""
    for line in markdown.splitlines():
        ticks = line[: len(line) - len(line.lstrip("`"))]
        if len(ticks) > 2 and (not fence or line == fence):
            fence = "" if fence else ticks
        elif not fence and line.startswith("#"):
            found.append(line)
    return found


def test_all_that_had_to_be_collected_by_hand_is_in_it(told: Story) -> None:
    incident = told.hear()
    told.restart(incident, step=1872, resume_step=1869, first_step=1870)
    told.resolve(incident)
    report = told.tell(incident)
    for said in (
        "**Healed** without a person, 35 s after the alert began, by 1 action.",
        "Fri 15 Jan 2027, 08:59:40 CET",  # local time
        "**Heard** | 09:00:00, 20 s after it began",
        "Worker rollout-0 holds 9 GiB; its limit is 8 GiB.",
        "Inference server `demo/s`: **not up** (refused) since 08:59:00",
        "newest complete checkpoint: step 1869, saved Fri 15 Jan 2027, 08:55:00 CET",
        "recovery record fits it",
        "**1.0 GiB of 32.0 GiB available**; no OOM kills",
        "**connection refused** (2 times in its last 4 lines)",
        "Process 4242 waited in the kernel (state D)",
        "1. **Restart of `demo/rollout-0`** at 09:00:00 (+20 s), rung 1 of playbook",
        "`restart_leaking_worker`: **healed**",
        "`demo/rollout-0` was not running for 4.0 s.",
        "It resumed from step 1869; its first step then was 1870: 5 steps made again.",
        "<https://example.org/runbooks/TrainingWorkerMemoryOverLimit.md>",
        "tail -n 100 /runs/demo/trainer.log",
        "hold --config.file remediator.yml --run demo --worker rollout-0 --for 2h",
        "*Not to be had:* gpus: no answer within 1.5 s",
        "<summary>Evidence before action 1, 09:00:00 (+20 s)</summary>",
    ):
        assert said in report, said
    assert "s3cr3t" not in report


def test_what_comes_from_outside_cannot_break_out_of_its_place(told: Story) -> None:
    hostile = "x\n# Forged\n```\n</details><script>alert(1)</script> `a` | b"
    incident = told.hear(
        alertname=hostile,
        run=hostile,
        worker="$(reboot); --now",
        annotations={
            "summary": hostile,
            "description": hostile,
            "runbook_url": "javascript:alert(1)",
            "dashboard_url": hostile,
        },
    )
    told.restart(incident)
    report = told.tell(incident)
    assert [line.lstrip("#").split(":")[0].strip() for line in headings(report)] == [
        "Incident 1", "What was seen", "Likely cause", "What was done", "What followed",
        "What to look at", "Minute by minute", "Evidence",
    ]  # fmt: skip
    outside = report.split("# Evidence")[0]
    spans = r"(?<!`)(`+)(?!`).+?(?<!`)\1(?!`)"
    assert "<script" not in re.sub(spans, "", report.replace("\\`", ""))  # nowhere but as code
    assert "reboot" not in outside.split("```sh")[1].split("```")[0]
    assert "<javascript" not in report


def test_what_a_person_is_needed_for_is_said_first(told: Story) -> None:
    over = told.hear()
    told.restart(over)
    told.resolve(over)
    told.clock.pass_by(600)
    lost = told.hear(fingerprint="1" * 16, alertname="TrainingInferenceDown")
    told.restart(lost, healed=False)
    told.decide(lost, "attempts_exhausted", Verdict.REFUSE, "3 actions already")
    report = tell_nights(told.path, NOW - 3600, STYLE, told.clock.now())
    first, second = (line for line in headings(report) if line.startswith("## "))
    assert "Incident 2: TrainingInferenceDown" in first
    assert "Incident 1:" in second
    assert "- 2 incidents, 2 actions." in report
    assert "- 1 **need a person**." in report
    assert "**A person is needed** after 1 action" in report
    assert "**did not help**" in report
    assert "not healed: still too large" in report
    assert "trainwarden-remediator report 2 --config.file remediator.yml" in report


def test_nights_go_from_noon_to_noon_and_the_newest_comes_first(told: Story) -> None:
    told.resolve(told.hear())
    told.clock.pass_by(20 * 3600)
    told.resolve(told.hear(fingerprint="1" * 16))
    report = tell_nights(told.path, 0.0 + NOW - 3600, STYLE, told.clock.now())
    nights = [line for line in headings(report) if line.startswith("# ")]
    assert nights == [
        "# The night of Friday, 15 January 2027 to Saturday",
        "# The night of Thursday, 14 January 2027 to Friday",
    ]


def test_a_quiet_night_says_so(told: Story) -> None:
    report = tell_nights(told.path, NOW - 3600, STYLE, NOW)
    assert report.startswith("# A quiet night\n\nNo incident since")


def test_why_nothing_was_done_is_told(told: Story) -> None:
    incident = told.hear()
    told.decide(incident, "disk_trouble", Verdict.WAIT, "the disk of /runs is full")
    report = told.tell(incident)
    assert "It **still stands**. Last decision: a restart could not write." in report
    assert "The disk stood in the way: the disk of /runs is full." in report
    assert "Nothing was done." in report


def test_why_it_was_not_acted_upon_at_once_is_told(told: Story) -> None:
    incident = told.hear()
    told.decide(incident, "held", Verdict.WAIT, "by ann: measuring")
    told.clock.pass_by(60)
    told.restart(incident)
    report = told.tell(incident)
    assert (
        "It waited from 09:00:00 on: held by a person (by ann: measuring).\n\n1. **Restart"
        in report
    )


def test_that_a_person_was_called_is_told_and_is_no_attempt_to_mend_it(told: Story) -> None:
    incident = told.hear()
    told.journal.asked(incident, 0)
    report = told.tell(incident)
    assert "**Call of `a person`** at 09:00:00" in report
    assert "the message was handed over" in report
    assert "did not help" not in report


def test_what_was_cut_short_is_not_said_to_have_failed(told: Story) -> None:
    incident = told.hear()
    told.decide(incident, "restart", Verdict.ACT)
    number = told.journal.intend(incident.id, ROLLOUT, "restart", [])
    told.journal.reached(number, "stop", processes=[4242])
    told.journal.finished(number, "interrupted", found="untouched")
    told.resolve(incident)
    report = told.tell(incident)
    assert "What was begun to mend it was **cut short**." in report
    assert "rung 1 of playbook `restart_leaking_worker`: **cut short**" in report
    assert "interrupted: untouched" in report
    assert "helped" not in report


def test_what_else_went_wrong_then_is_told_with_what_came_first(told: Story) -> None:
    loop = told.hear(fingerprint="2" * 16, alertname="TrainingContainerRestartLoop", worker="")
    told.clock.pass_by(40)
    incident = told.hear()
    report = told.tell(incident)
    assert "May be its cause: TrainingContainerRestartLoop (`demo`), incident 1, began 40" in report
    assert "Meanwhile: TrainingWorkerMemoryOverLimit" in told.tell(loop)


def test_a_journal_is_read_while_it_is_written_and_when_nobody_does(told: Story) -> None:
    incident = told.hear()
    assert "Incident 1" in told.tell(incident)
    assert tell_incident(told.path, 99, STYLE, NOW) is None
    assert tell_incident(told.path, 1 << 70, STYLE, NOW) is None
    told.journal.close()
    try:
        assert "Incident 1" in (tell_incident(told.path, 1, STYLE, NOW) or "")
    finally:
        told.journal = Journal(told.path, clock=told.clock)


def test_an_older_journal_is_one_clear_sentence(tmp_path: Path) -> None:
    old = sqlite3.connect(tmp_path / "journal.db")
    old.executescript("CREATE TABLE incident (id); PRAGMA user_version = 1;")
    old.close()
    with pytest.raises(JournalError, match="start the remediator once"):
        tell_incident(tmp_path / "journal.db", 1, STYLE, NOW)
    with pytest.raises(JournalError, match="no journal yet"):
        tell_incident(tmp_path / "nothing.db", 1, STYLE, NOW)


def test_every_trouble_of_a_shipped_playbook_has_a_usual_cause() -> None:
    for name, playbook in PLAYBOOKS.items():
        assert bool(usually(name)) is (playbook.trouble is not Trouble.ANY)
    assert usually("of my own") == ""


@pytest.mark.parametrize(("at", "said"), [(5.0, "+5 s"), (0.2, "+0 ms"), (-3.0, "3 s")])
def test_moments_are_counted_from_the_start(at: float, said: str) -> None:
    assert said.strip("+") in after(100 + at, 100).replace("+0 s", "+0 ms")


def test_the_command_tells_one_and_the_night(
    tmp_path: Path, clock: FakeClock, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "exporter.yml").write_text("runs: []\n")
    config = tmp_path / "remediator.yml"
    config.write_text("insecure: true\n")
    file = f"--config.file={config}"
    assert main(["report", file]) == 1
    assert "no journal yet" in capsys.readouterr().err
    story = Story(tmp_path, clock)
    story.hear()
    story.journal.close()
    assert main(["report", "#1", file]) == 0
    assert capsys.readouterr().out.startswith("# Incident 1: TrainingWorkerMemoryOverLimit")
    assert main(["report", "2", file]) == 1
    assert "there is no incident 2" in capsys.readouterr().err
    assert main(["report", file, "--since", "99y"]) == 1
    assert "at most a year" in capsys.readouterr().err
    assert main(["report", file, "--since", "300d"]) == 0
    assert "# " in capsys.readouterr().out
    with pytest.raises(SystemExit, match="2"):
        main(["report", file, "--since", "yesterday"])


def test_times_are_those_of_their_zone() -> None:
    assert Times(UTC).clock(NOW) == "08:00:00"
    assert Times(CET).clock(NOW) == "09:00:00"
