"""The report of an incident, and of a night."""

from __future__ import annotations

import json
import re
import sqlite3
import sys
from dataclasses import replace
from datetime import UTC, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from tests.remediator.fake_clock import FakeClock
from tests.remediator.samples import LATER, NOW, ROLLOUT, make_alert

import runfolder
from trainwarden_remediator.__main__ import main
from trainwarden_remediator.config.playbooks import PLAYBOOKS, Condition
from trainwarden_remediator.exceptions import JournalError, NoIncidentError
from trainwarden_remediator.journal.journal import Journal
from trainwarden_remediator.model import Decision, Incident, Reason, Verdict
from trainwarden_remediator.observation.active_alerts import ActiveAlertLister
from trainwarden_remediator.observation.model import ExporterState, RunState
from trainwarden_remediator.report.causes import usual_cause
from trainwarden_remediator.report.current_state import CurrentState
from trainwarden_remediator.report.incident import ReportStyle, named_config
from trainwarden_remediator.report.markdown import TimeFormat, format_offset
from trainwarden_remediator.report.nightly import report_incident, report_nights

CET = timezone(timedelta(hours=1), "CET")
STYLE = ReportStyle(TimeFormat(CET), config_file="remediator.yml")
SUMMARY = {
    "summary": "A worker holds more memory than its limit.",
    "description": "Worker rollout-0 holds 9 GiB; its limit is 8 GiB.",
    "runbook_url": "https://example.org/runbooks/TrainingWorkerMemoryOverLimit.md",
}
EVIDENCE: dict[str, Any] = {
    "missing": {"gpus": "no answer within 1.5 s"},
    "memory": {"total": 32 << 30, "available": 1 << 30, "floor": 2 << 30},
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
    "stacks": {"of_run": 2, "stacks": ["trainer, pid 4242: ```rank 1 sleeps", "    nap (t.py:7)"]},
    "mappings": {
        "pid": 4242,
        "sums": {"rss": 9 << 30, "swap": 0},
        "largest": [{"bytes": 8 << 30, "what": "[heap]"}],
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
                "memory_bytes": 9 << 30,
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
        self.journal.record_alerts([replace(alert, annotations=annotations)])
        return self.journal.open_incidents()[-1]

    def decide(
        self, incident: Incident, reason: Reason, verdict: Verdict, detail: str = ""
    ) -> None:
        self.journal.record_decisions([(incident, Decision(verdict, reason, detail=detail))])

    def restart(
        self,
        incident: Incident,
        *,
        healed: bool = True,
        by: str = "trainwarden",
        runs: bool = True,
        **facts: Any,
    ) -> None:
        """Restarts the worker, or starts it if it no longer `runs`."""
        self.decide(incident, "restart", Verdict.ACT)
        number = self.journal.record_intent(
            incident.id, ROLLOUT, "restart", [], step=1874, checkpoint=1869
        )
        self.journal.keep_evidence(incident.id, number, "act", json.dumps(EVIDENCE))
        self.clock.pass_by(1)
        if runs:
            self.journal.record_step(number, "stop", processes=[4242])
            self.clock.pass_by(4)
        self.journal.record_step(number, "start", command=["python", "--api-key", "s3cr3t-Value"])
        self.journal.record_result(number, "done", started_by=by, processes=[4343], killed=[])
        self.clock.pass_by(10)
        outcome = "healed" if healed else "not_healed"
        facts = {"seconds": 15.0, **facts} if healed else {"seen": "still too large", **facts}
        self.journal.record_outcome(number, outcome, **facts)  # type: ignore[arg-type]

    def resolve(self, incident: Incident) -> None:
        self.clock.pass_by(30)
        firing = make_alert(starts_at=incident.starts_at, firing=False)
        self.journal.record_alerts([replace(firing, fingerprint=incident.fingerprint)])
        self.decide(incident, "resolved", Verdict.REFUSE)

    def tell(self, incident: Incident) -> str:
        return report_incident(self.path, incident.id, STYLE, self.clock.now())


@pytest.fixture
def reported(tmp_path: Path, clock: FakeClock) -> Any:
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


def test_a_worker_is_down_until_the_last_of_several_attempts(reported: Story) -> None:
    incident = reported.hear()
    reported.restart(incident, healed=False)
    reported.clock.pass_by(105)
    reported.restart(incident, runs=False)
    reported.resolve(incident)
    report = reported.tell(incident)
    assert report.count("did not run for") == 1
    assert "`demo/rollout-0` did not run for 2 min, from its end to its start." in report


def test_a_worker_that_leaks_after_a_restart_has_run_until_the_next(reported: Story) -> None:
    incident = reported.hear()
    reported.restart(incident, healed=False)
    reported.clock.pass_by(105)
    reported.restart(incident)
    reported.resolve(incident)
    report = reported.tell(incident)
    assert "`demo/rollout-0` did not run for 4.0 s, from its end to its start." in report


def test_a_stop_that_was_held_back_is_no_downtime(reported: Story) -> None:
    incident = reported.hear()
    held = reported.journal.record_intent(incident.id, ROLLOUT, "restart", [])
    reported.journal.record_step(held, "stop", processes=[4242])
    reported.journal.record_not_attempted(held, "held by root")
    reported.clock.pass_by(600)
    reported.restart(incident)
    reported.resolve(incident)
    report = reported.tell(incident)
    assert "`demo/rollout-0` did not run for 4.0 s, from its end to its start." in report


@pytest.mark.parametrize("moves", [False, True])
def test_a_run_that_makes_lost_steps_again_has_not_stopped(reported: Story, *, moves: bool) -> None:
    incident = reported.hear()
    reported.restart(incident)
    shown = {"step": 1872, "last_step_at": reported.clock.now() if moves else NOW - 60}
    end = json.dumps({"seen": {"runs": {"demo": shown}}})
    reported.journal.keep_evidence(incident.id, None, "end", end)
    reported.resolve(incident)
    report = reported.tell(incident)
    assert "the run was at step 1872." in report
    assert ("**No step since the action** (it was at step 1874)." in report) is not moves


def test_the_report_has_what_the_run_does_now(reported: Story) -> None:
    incident = reported.hear()
    reported.restart(incident)
    now = reported.clock.now()
    run = RunState(step=1875, interruption_start=now - 40, interruption_end=now - 1)
    state = CurrentState(ExporterState({}, 2e10, 2e9, runs={"demo": run}), ())
    shown = state.exporter
    assert isinstance(shown, ExporterState)
    one = report_incident(reported.path, incident.id, STYLE, now, shown)
    night = report_nights(reported.path, now - 3600, STYLE, now, state)
    for report in (one, night):
        assert "Downtime: 39 s from the last step to the next new one" in report
    assert "1 fault cost 39 s; it is healed and still watched." in night
    assert "- 1 healed, still watched." in night
    assert "Downtime" not in report_incident(reported.path, incident.id, STYLE, now)
    unknown = CurrentState("refused", ())
    assert "Downtime" not in report_nights(reported.path, now - 3600, STYLE, now, unknown)


@pytest.mark.parametrize(
    ("verdict", "reason", "sentence", "total"),
    [
        (
            *(Verdict.REFUSE, "processes_differ"),
            *("**An operator is needed** after 1 action: ", "1 **need an operator**."),
        ),
        (
            *(Verdict.WAIT, "breaker_open"),
            *("The alert **still fires**. Last decision: ", "1 still open."),
        ),
        (
            *(Verdict.WAIT, "alert_lingers"),
            *("Healed; its progress is still watched.", "1 healed, still watched."),
        ),
    ],
)
def test_an_alert_that_fires_on_is_not_healed_with_another_of_its_outage(
    reported: Story, verdict: Verdict, reason: Reason, sentence: str, total: str
) -> None:
    hung = reported.hear()
    reported.decide(hung, "restart", Verdict.ACT)
    number = reported.journal.record_intent(hung.id, ROLLOUT, "restart", [])
    reported.clock.pass_by(5)
    begins = reported.clock.now()
    down = reported.hear(fingerprint="1" * 16, alertname="TrainingInferenceDown", starts_at=begins)
    reported.journal.record_result(number, "done", started_by="trainwarden", processes=[7])
    reported.journal.record_outcome(number, "healed", seconds=5.0)
    reported.decide(down, reason, verdict)
    reported.resolve(hung)
    assert down.part_of == hung.id
    report = reported.tell(hung)
    assert sentence in report
    assert "Last decision: the alert has resolved" not in report
    now = reported.clock.now()
    night = report_nights(reported.path, NOW - 3600, STYLE, now, CurrentState("refused", ()))
    assert f"- {total}" in night
    assert ("Incident 1, " in night) is (reason == "processes_differ")
    assert f"- #{down.id} is a further alert of incident #{hung.id}." in night


@pytest.mark.parametrize(
    ("facts", "end"),
    [
        ({"resume_step": 1869, "first_step": 1870, "steps_repeated": 9}, ": 9 steps made again."),
        ({"resume_step": 1869, "first_step": 1870, "steps_repeated": 0}, ": no step lost."),
        # It was at step 1874 at the intent, and may have made more before it was stopped.
        ({"resume_step": 1874, "first_step": 1875}, "."),
        (
            {"resume_step": 1869, "first_step": 1879, "steps_repeated": 9, "step_spacing": 10},
            ": at least 9 steps made again.",
        ),
        (
            {"resume_step": 1869, "first_step": 1879, "steps_repeated": 0, "step_spacing": 10},
            ".",
        ),
    ],
)
def test_the_report_claims_of_lost_steps_what_is_known(
    reported: Story, facts: dict[str, Any], end: str
) -> None:
    incident = reported.hear()
    reported.restart(incident, step=1880, **facts)
    reported.resolve(incident)
    (line,) = (one for one in reported.tell(incident).splitlines() if "It resumed from" in one)
    named = "first logged step" if "step_spacing" in facts else "first step"
    shown = f"It resumed from step {facts['resume_step']}; its {named} then was"
    assert line == f"- {shown} {facts['first_step']}{end}"


@pytest.mark.parametrize(
    ("facts", "who"),
    [
        ({"healed": False, "taken_over": "started_by_operator"}, "an operator"),
        ({"by": "another"}, "somebody else"),
    ],
)
def test_what_somebody_else_has_started_is_not_healed_by_the_remediator(
    reported: Story, facts: dict[str, Any], who: str
) -> None:
    incident = reported.hear()
    reported.restart(incident, **facts)
    reported.resolve(incident)
    report = reported.tell(incident)
    assert f"The alert has ended: **{who}** had started a new process." in report
    assert "Healed" not in report


def test_all_that_had_to_be_collected_by_hand_is_in_it(reported: Story) -> None:
    incident = reported.hear()
    reported.restart(incident, step=1872, resume_step=1869, first_step=1870)
    reported.resolve(incident)
    report = reported.tell(incident)
    for message in (
        "**Healed** automatically by 1 action, 35 s after the alert.",
        "Fri 15 Jan 2027, 08:59:40 CET",  # local time
        "Worker rollout-0 holds 9 GiB; its limit is 8 GiB.",
        "Inference server `demo/s`: **not up** (refused) since 08:59:00",
        "newest complete checkpoint: step 1869, saved Fri 15 Jan 2027, 08:55:00 CET",
        "recovery record matches",
        "**1.0 GiB of 32.0 GiB available**.",
        "**connection refused** (2 times in its last 4 lines)",
        "Process 4242 was blocked in the kernel (state D",
        "1. **Restart of `demo/rollout-0`** at 09:00:00 (+20 s), rung 1 of playbook",
        "`restart_leaking_worker`: **healed**",
        "`demo/rollout-0` did not run for 4.0 s, from its end to its start.",
        "It resumed from step 1869; its first step then was 1870: at least 5 steps made again.",
        "<https://example.org/runbooks/TrainingWorkerMemoryOverLimit.md>",
        "tail -n 100 /runs/demo/trainer.log",
        "hold --config.file remediator.yml --run demo --worker rollout-0 --for 2h",
        "*Missing:* gpus: no answer within 1.5 s",
        "**Stacks** of the run, 2 processes, rare ones first",
        "nap (t.py:7)",
        "**Memory of process 4242**: rss 9.0 GiB, swap 0 B; its largest mappings:",
        "8.0 GiB  [heap]",
        "<summary>Evidence before action 1, 09:00:00 (+20 s)</summary>",
    ):
        assert message in report, message
    assert "s3cr3t" not in report


def test_a_checkpoint_that_is_named_by_epoch_has_an_epoch(
    reported: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(EVIDENCE["seen"]["runs"]["demo"], "proved_checkpoint", "/r/epoch-1869.pt")
    incident = reported.hear()
    reported.restart(incident, step=1872)
    reported.resolve(incident)
    report = reported.tell(incident)
    assert "newest complete checkpoint: epoch 1869, saved" in report
    assert "its newest complete checkpoint was epoch 1869, saved" in report
    assert "step 1869" not in report


def test_what_an_operator_had_to_end_was_not_healed(reported: Story) -> None:
    leak = reported.hear()
    reported.decide(leak, "restart", Verdict.ACT)
    number = reported.journal.record_intent(leak.id, ROLLOUT, "restart", [])
    reported.clock.pass_by(5)
    loop = reported.hear(alertname="TrainingWorkerRestartLoop", fingerprint=LATER)
    reported.decide(loop, "hold", Verdict.ACT)
    reported.journal.record_result(number, "done", started_by="us", processes=[], killed=[])
    reported.journal.record_outcome(number, "healed", seconds=9)
    reported.resolve(loop)
    reported.resolve(leak)
    assert "**Healed**" not in reported.tell(leak)
    assert "ended, but not by an action of the remediator" in reported.tell(leak)


def test_a_restart_whose_alert_has_ended_is_being_verified_until_its_outcome(
    reported: Story,
) -> None:
    leak = reported.hear()
    reported.decide(leak, "restart", Verdict.ACT)
    number = reported.journal.record_intent(leak.id, ROLLOUT, "restart", [])
    reported.clock.pass_by(4)
    reported.journal.record_result(number, "done", started_by="us", processes=[], killed=[])
    reported.clock.pass_by(20)
    firing = make_alert(starts_at=leak.starts_at, firing=False)
    reported.journal.record_alerts([replace(firing, fingerprint=leak.fingerprint)])
    now = reported.clock.now()
    assert "The restart is done; its effect **is being verified**." in reported.tell(leak)
    night = report_nights(
        reported.path, now - 3600, STYLE, now, CurrentState(ExporterState({}, 2e10, 2e9), ())
    )
    assert "1 fault; it is still open." in night
    assert "not by" not in night
    reported.journal.record_outcome(number, "healed", seconds=24)
    assert "**Healed** automatically by 1 action" in reported.tell(leak)


@pytest.mark.parametrize("known", ["outcome", "decision"])
@pytest.mark.parametrize("acted", [False, True])
def test_what_ended_because_an_operator_stopped_it_says_so(
    reported: Story, known: str, *, acted: bool
) -> None:
    incident = reported.hear(alertname="TrainingStepStalled")
    if acted:
        facts: dict[str, Any] = {"taken_over": "stopped"} if known == "outcome" else {}
        reported.restart(incident, healed=False, **facts)
    else:
        reported.decide(incident, "held", Verdict.WAIT)
        reported.clock.pass_by(300)
    if not acted or known == "decision":
        reported.decide(incident, "stopped", Verdict.REFUSE)
    reported.resolve(incident)
    now = reported.clock.now()
    assert "The alert has ended: **an operator has stopped it**." in reported.tell(incident)
    night = report_nights(
        reported.path, now - 3600, STYLE, now, CurrentState(ExporterState({}, 2e10, 2e9), ())
    )
    assert "1 fault; it ended as an operator stopped it." in night
    assert "- 1 ended as an operator stopped it." in night
    assert "without an action of the remediator" not in night


@pytest.mark.parametrize(
    ("alert", "state"),
    [
        ("TrainingStepStalled", "it ended as an operator stopped it."),
        ("TrainingDiskFilling", "it ended as an operator stopped it."),
        ("TrainingDiskReadOnly", "it is still open."),
    ],
)
def test_what_an_operator_has_stopped_is_not_open_though_its_alert_is(
    reported: Story, alert: str, state: str
) -> None:
    incident = reported.hear(alertname=alert)
    reported.decide(incident, "stopped", Verdict.REFUSE)
    now = reported.clock.now()
    night = report_nights(
        reported.path, now - 3600, STYLE, now, CurrentState(ExporterState({}, 2e10, 2e9), ())
    )
    assert f"1 fault; {state}" in night
    is_open = alert == "TrainingDiskReadOnly"
    assert ("**still firing**" in night) is is_open
    not_yet = "The alert has not ended yet; **an operator has stopped it**."
    assert (not_yet in reported.tell(incident)) is not is_open


def test_an_alert_that_another_one_inhibits_has_not_ended(reported: Story) -> None:
    leak = reported.hear()
    reported.decide(leak, "held_by_alert", Verdict.WAIT, "TrainingWorkerRestartLoop")
    reported.clock.pass_by(700)
    reported.decide(leak, "alert_stale", Verdict.REFUSE, "TrainingWorkerRestartLoop")
    report = reported.tell(leak)
    sentence = "Its alert does not arrive while TrainingWorkerRestartLoop fires: it is"
    assert f"{sentence} **not known to be over**." in report
    assert "has ended" not in report


@pytest.mark.parametrize(
    ("shown", "taken_over", "lasts"),
    [
        ({"interruption_start": NOW - 60}, None, True),
        ({"interruption_start": NOW - 60, "interruption_end": NOW + 20}, None, False),
        ({"interruption_start": NOW + 20}, None, False),  # of another fault
        ({"interruption_start": NOW - 60, "finished": True}, None, False),
        ({"interruption_start": NOW - 60}, "stopped", False),
        ({}, None, False),
    ],
)
def test_what_no_action_has_healed_is_open_until_the_run_makes_a_new_step(
    reported: Story, shown: dict[str, Any], taken_over: str | None, *, lasts: bool
) -> None:
    """The alert of a stall ends with each restart, for as long as its limit."""
    incident = reported.hear(alertname="TrainingStepStalled")
    facts: dict[str, Any] = {"taken_over": taken_over} if taken_over else {}
    reported.restart(incident, healed=False, **facts)
    reported.resolve(incident)
    exporter = ExporterState({}, 2e10, 2e9, runs={"demo": RunState(step=1874, **shown)})
    now = reported.clock.now()
    report = report_incident(reported.path, incident.id, STYLE, now, exporter)
    night = report_nights(reported.path, now - 3600, STYLE, now, CurrentState(exporter, ()))
    sentence = "The alert has ended; the run has made **no new step** since the action."
    assert (sentence in report) == lasts
    ended = "**an operator has stopped it**" if taken_over else "not by"
    for text in (report, night):
        assert (ended in text) is not lasts
    assert ("it is still open" in night) == lasts


def test_no_action_is_promised_where_the_remediator_may_not_act(reported: Story) -> None:
    promise = "It holds 9 GiB, so the remediator restarts it. The remediator gave up 3. Oct."
    incident = reported.hear(annotations={"description": promise})
    reported.decide(incident, "unknown_target", Verdict.REFUSE, "started with `--restart never`")
    reported.resolve(incident)
    observed = reported.tell(incident).split("# Observations")[1].split("# Likely")[0]
    refused, _, general = observed.partition("What follows says what it does where it may:\n\n")
    assert "**The remediator may not restart it (started with " in refused
    assert general.startswith(promise)


def test_what_comes_from_outside_cannot_break_out_of_its_place(reported: Story) -> None:
    hostile = "x\n# Forged\n```\n</details><script>alert(1)</script> `a` | b"
    incident = reported.hear(
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
    reported.restart(incident)
    report = reported.tell(incident)
    assert [line.lstrip("#").split(":")[0].strip() for line in headings(report)] == [
        "Incident 1", "Observations", "Likely cause", "Actions", "Outcome",
        "Next steps", "Timeline", "Evidence",
    ]  # fmt: skip
    outside = report.split("# Evidence")[0]
    spans = r"(?<!`)(`+)(?!`).+?(?<!`)\1(?!`)"
    assert "<script" not in re.sub(spans, "", report.replace("\\`", ""))  # nowhere but as code
    assert "reboot" not in outside.split("```sh")[1].split("```")[0]
    assert "<javascript" not in report


def test_incidents_that_need_an_operator_come_first(reported: Story) -> None:
    over = reported.hear()
    reported.restart(over)
    reported.resolve(over)
    reported.clock.pass_by(600)
    lost = reported.hear(fingerprint="1" * 16, alertname="TrainingInferenceDown")
    reported.restart(lost, healed=False)
    reported.decide(lost, "attempts_exhausted", Verdict.REFUSE, "3 actions already")
    report = report_nights(reported.path, NOW - 3600, STYLE, reported.clock.now())
    first, second = (line for line in headings(report) if line.startswith("## "))
    assert "Incident 2: TrainingInferenceDown" in first
    assert "Incident 1:" in second
    assert "- 2 incidents, 2 actions." in report
    assert "- 1 **need an operator**." in report
    assert "**An operator is needed** after 1 action" in report
    assert "**not healed**" in report
    assert "not healed: still too large" in report
    assert "trainwarden report 2 --config.file remediator.yml" in report


def test_nights_go_from_noon_to_noon_and_the_newest_comes_first(reported: Story) -> None:
    reported.resolve(reported.hear())
    reported.clock.pass_by(20 * 3600)
    reported.resolve(reported.hear(fingerprint="1" * 16))
    report = report_nights(reported.path, 0.0 + NOW - 3600, STYLE, reported.clock.now())
    nights = [line for line in headings(report) if line.startswith("# ")]
    assert nights == [
        "# From Friday, 15 January 2027, noon, to Saturday",
        "# From Thursday, 14 January 2027, noon, to Friday",
    ]


def test_a_healed_incident_takes_five_lines_in_a_night_and_all_of_it_on_request(
    reported: Story,
) -> None:
    incident = reported.hear()
    reported.restart(incident)
    reported.resolve(incident)
    now = reported.clock.now()
    _, _, brief = report_nights(reported.path, NOW - 3600, STYLE, now).partition("## Incident 1")
    heading, blank, *lines = brief.strip().splitlines()
    assert (heading[:2], blank, len(lines)) == (": ", "", 5)
    assert lines[0].startswith("- **Healed** automatically by 1 action, ")
    assert "restart of `demo/rollout-0`" in lines[1]
    assert lines[2].startswith("- Likely cause: ")
    assert "`demo/rollout-0` did not run for" in lines[3]
    assert "trainwarden report 1 --config.file remediator.yml" in lines[4]

    full = report_nights(reported.path, NOW - 3600, replace(STYLE, full=True), now)
    assert "### Observations" in full
    assert "### Actions" in full


def test_commands_name_the_file_unless_the_command_up_has_made_it(
    tmp_path: Path, reported: Story
) -> None:
    number = reported.hear().id
    for content, named in ((runfolder.OBSERVE, False), ("mode: act\n", True)):
        path = tmp_path / "remediator.yml"
        path.write_text(content)
        style = replace(STYLE, config_file=named_config(path))
        text = report_incident(reported.path, number, style, NOW)
        assert ("--config.file" in text) is named
        assert f"trainwarden journal{f' --config.file {path}' if named else ''} --inc" in text


def test_a_board_is_linked_only_where_grafana_is_known(reported: Story) -> None:
    board = "/d/trainwarden-run?var-run=demo"
    number = reported.hear(annotations={"dashboard_url": board}).id
    for grafana, shown in (("", False), ("http://grafana.example:3000", True)):
        style = replace(STYLE, grafana_url=grafana)
        report = report_incident(reported.path, number, style, NOW)
        assert ("Dashboard:" in report) is shown
        assert (f"<{grafana}{board}>" in report) is shown


def test_a_quiet_night_says_so(reported: Story) -> None:
    report = report_nights(reported.path, NOW - 3600, STYLE, NOW)
    assert report.startswith("# No incident\n\nNone since")


def test_why_nothing_was_done_is_reported(reported: Story) -> None:
    incident = reported.hear()
    reported.decide(incident, "disk_unusable", Verdict.WAIT, "the disk of /runs is full")
    report = reported.tell(incident)
    assert (
        "The alert **still fires**. Last decision: the disk is not usable for a restart." in report
    )
    assert "A disk was unusable: the disk of /runs is full." in report
    assert "No action was taken." in report


def test_an_alert_that_ended_otherwise_is_not_the_work_of_the_remediator(reported: Story) -> None:
    incident = reported.hear()
    reported.restart(incident, healed=False)
    reported.decide(incident, "attempts_exhausted", Verdict.REFUSE, "3 actions already")
    reported.clock.pass_by(30)
    reported.journal.record_alerts([make_alert(starts_at=incident.starts_at, firing=False)])
    assert "**gave up**; the alert ended later, without an action of it." in reported.tell(incident)
    other = reported.hear(fingerprint="1" * 16)
    reported.resolve(other)
    ended = "The alert has ended without an action of the remediator"
    assert ended in reported.tell(other)
    started = reported.hear(fingerprint="2" * 16)
    reported.decide(started, "already_restarted", Verdict.WAIT)
    reported.resolve(started)
    assert "**somebody else** had started a new process" in reported.tell(started)
    report = report_nights(reported.path, NOW - 3600, STYLE, reported.clock.now())
    for word in (
        "gave up, ended since",
        "ended without the remediator",
        "started by somebody else",
    ):
        assert f"| {word} |" in report


@pytest.mark.parametrize("last", ["held", "cooldown"])
def test_the_reason_that_lasted_is_why_nothing_was_done(reported: Story, last: Reason) -> None:
    incident = reported.hear()
    reported.decide(incident, "busy", Verdict.WAIT)
    reported.clock.pass_by(5)
    reported.decide(incident, "no_checkpoint", Verdict.REFUSE)
    reported.clock.pass_by(300)
    reported.decide(incident, last, Verdict.WAIT)
    reported.resolve(incident)
    why = "without an action of the remediator: no complete checkpoint to resume from"
    assert why in reported.tell(incident)


def test_why_it_was_not_acted_upon_at_once_is_reported(reported: Story) -> None:
    incident = reported.hear()
    reported.decide(incident, "held", Verdict.WAIT, "by ann: measuring")
    reported.clock.pass_by(60)
    reported.restart(incident)
    report = reported.tell(incident)
    assert (
        "Waiting since 09:00:00: held by an operator (by ann: measuring).\n\n1. **Restart" in report
    )


def test_that_the_on_call_was_paged_is_reported_and_is_no_attempt_to_mend_it(
    reported: Story,
) -> None:
    incident = reported.hear()
    reported.journal.record_page(incident.id, ROLLOUT, 0)
    report = reported.tell(incident)
    assert "**Notification of `on-call`** at 09:00:00" in report
    assert "queued for delivery" in report
    assert "not healed" not in report


def test_what_was_cut_short_is_not_reported_as_failed(reported: Story) -> None:
    incident = reported.hear()
    reported.decide(incident, "restart", Verdict.ACT)
    number = reported.journal.record_intent(incident.id, ROLLOUT, "restart", [])
    reported.journal.record_step(number, "stop", processes=[4242])
    reported.journal.record_result(number, "interrupted", found="untouched")
    reported.resolve(incident)
    report = reported.tell(incident)
    assert "The action was **interrupted**." in report
    assert "rung 1 of playbook `restart_leaking_worker`: **interrupted**" in report
    assert "interrupted: untouched" in report
    assert "failed" not in report


def test_what_else_went_wrong_then_is_reported_with_what_came_first(reported: Story) -> None:
    loop = reported.hear(fingerprint="2" * 16, alertname="TrainingContainerRestartLoop", worker="")
    reported.clock.pass_by(40)
    incident = reported.hear()
    report = reported.tell(incident)
    assert "Possible cause: TrainingContainerRestartLoop (`demo`), incident 1, began 40" in report
    assert "Meanwhile: TrainingWorkerMemoryOverLimit" in reported.tell(loop)


def test_a_journal_is_read_while_it_is_written_and_when_nobody_does(reported: Story) -> None:
    incident = reported.hear()
    assert "Incident 1" in reported.tell(incident)
    for number in (99, 1 << 70):
        with pytest.raises(NoIncidentError, match=rf"no incident {number} \(the last is 1\)"):
            report_incident(reported.path, number, STYLE, NOW)
    reported.journal.close()
    try:
        assert "Incident 1" in report_incident(reported.path, 1, STYLE, NOW)
    finally:
        reported.journal = Journal(reported.path, clock=reported.clock)


def test_an_older_journal_is_one_clear_sentence(tmp_path: Path) -> None:
    old = sqlite3.connect(tmp_path / "journal.db")
    old.executescript("CREATE TABLE incident (id); PRAGMA user_version = 1;")
    old.close()
    with pytest.raises(JournalError, match="start the remediator once"):
        report_incident(tmp_path / "journal.db", 1, STYLE, NOW)
    with pytest.raises(JournalError, match="no journal yet"):
        report_incident(tmp_path / "nothing.db", 1, STYLE, NOW)


def test_every_trouble_of_a_shipped_playbook_has_a_usual_cause() -> None:
    for name, playbook in PLAYBOOKS.items():
        assert bool(usual_cause(name)) is (playbook.condition is not Condition.ANY)
    assert usual_cause("of my own") == ""


@pytest.mark.parametrize(("at", "message"), [(5.0, "+5 s"), (0.2, "+0 ms"), (-3.0, "3 s")])
def test_moments_are_counted_from_the_start(at: float, message: str) -> None:
    assert message.strip("+") in format_offset(100 + at, 100).replace("+0 s", "+0 ms")


def test_the_command_tells_one_and_the_night(
    tmp_path: Path,
    clock: FakeClock,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
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
    with monkeypatch.context() as patch:  # the report of one incident asks the exporter alone
        patch.setattr(ActiveAlertLister, "list", None)
        assert main(["report", "#1", file]) == 0
    piped = capsys.readouterr().out
    assert piped.startswith("# Incident 1: TrainingWorkerMemoryOverLimit")
    with monkeypatch.context() as patch:
        patch.setattr(sys.stdout, "isatty", lambda: True)
        patch.setattr(
            "trainwarden_remediator.commands.report.for_terminal", lambda text: f"shown: {text}"
        )
        assert main(["report", "1", file]) == 0
    assert capsys.readouterr().out.startswith("shown: # Incident 1")
    assert main(["report", "2", file]) == 1
    assert "no incident 2 (the last is 1)" in capsys.readouterr().err
    assert main(["report", file, "--since", "99y"]) == 1
    assert "at most a year" in capsys.readouterr().err
    assert main(["report", file, "--since", "300d"]) == 0
    assert "# " in capsys.readouterr().out
    with pytest.raises(SystemExit, match="2"):
        main(["report", file, "--since", "yesterday"])


def test_times_are_those_of_their_zone() -> None:
    assert TimeFormat(UTC).clock(NOW) == "08:00:00"
    assert TimeFormat(CET).clock(NOW) == "09:00:00"


def test_an_incident_healed_after_a_hold_was_not_healed_automatically(reported: Story) -> None:
    incident = reported.hear()
    reported.decide(incident, "held", Verdict.WAIT, "by ann: measuring")
    reported.restart(incident)
    reported.resolve(incident)
    report = reported.tell(incident)
    assert "**Healed** after a hold by an operator" in report
    assert "automatically" not in report


@pytest.mark.parametrize("name", ["memory_bytes", "resident_bytes"])
def test_the_memory_of_a_worker_is_shown_also_from_evidence_with_its_older_name(
    reported: Story, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    worker = EVIDENCE["seen"]["workers"]["demo/rollout-0"]
    monkeypatch.delitem(worker, "memory_bytes")
    monkeypatch.setitem(worker, name, 9 << 30)
    incident = reported.hear()
    reported.restart(incident)
    report = reported.tell(incident)
    assert "Worker `demo/rollout-0`: 1 of 1 up, 9.0 GiB of 8.0 GiB" in report
    assert "Worker `demo/rollout-0` used 9.0 GiB, above its limit of 8.0 GiB" in report
