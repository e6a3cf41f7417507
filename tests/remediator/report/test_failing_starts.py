"""The report of a program that fails at each start: one outage, its error, and what to type."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest
from tests.remediator.fake_clock import FakeClock
from tests.remediator.samples import NOW, ROLLOUT, TRAINER, make_alert, make_worker

from trainwarden_exporter.processes.announcements import (
    AnnouncedRuns,
    AnnouncedWorker,
    Announcement,
)
from trainwarden_remediator.journal.journal import Journal
from trainwarden_remediator.journal.rows import Outcome
from trainwarden_remediator.model import Decision, Verdict
from trainwarden_remediator.observation.model import ExporterState
from trainwarden_remediator.policy.failing_starts import mending
from trainwarden_remediator.policy.situation import Situation
from trainwarden_remediator.report.current_state import CurrentState
from trainwarden_remediator.report.incident import ReportStyle
from trainwarden_remediator.report.markdown import TimeFormat
from trainwarden_remediator.report.nightly import report_incident, report_nights

STYLE = ReportStyle(TimeFormat(UTC), config_file="")
ERROR = "ValueError: learning rate must be positive"
START = "cd /srv/demo && trainwarden run --name demo --detach -- python train.py"
ONE = Announcement(
    run="demo",
    worker="trainer",
    role="trainer",
    pid=7,
    state="failed",
    restart="on-request",
    exits=((7, 70, 256),),
    last_lines=("Traceback (most recent call last):", ERROR),
    argv=("python", "train.py"),
    options=("--name", "demo"),
    cwd="/srv/demo",
)
GONE = make_alert(
    alertname="TrainingWorkerGone", remediation="start_missing_worker", worker="trainer"
)
FACTS = {"processes": 0, "expected": 1, "last_exit_code": 1}
"""What the exporter sees of the worker."""


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(NOW)


@pytest.fixture
def journal(tmp_path: Path, clock: FakeClock) -> Iterator[Journal]:
    opened = Journal(tmp_path / "journal.db", clock=clock)
    yield opened
    opened.close()


def evidence(now: float, began_at: float, *, lives: bool = False) -> str:
    """What is seen 2 s after an end that followed its start by 1 s; the run was stopped before."""
    announced = {
        "began_at": began_at,
        "started_at": now - 3,
        "ended_at": None if lives else now - 2,
        "exit_code": None if lives else 1,
        "start_command": START,
    }
    runs = {"demo": {"step": 20, "interruption_start": NOW - 40}}
    last_exit_at = now - 120 if lives else now + 3  # a look later
    seen = {"workers": {"demo/trainer": {**FACTS, "last_exit_at": last_exit_at}}, "runs": runs}
    log = {"name": "trainer", "path": "/logs/t.log", "size": 9, "modified": now}
    log["lines"] = ["Traceback (most recent call last):", ERROR]
    content = {"announced": {"demo/trainer": announced}, "seen": seen, "logs": [log]}
    return json.dumps(content)


def fail(journal: Journal, clock: FakeClock, attempts: int) -> None:
    """Receives that the trainer is gone, restarts it so often without effect."""
    journal.record_alerts([GONE])
    for attempt in range(1, attempts + 1):
        action = journal.record_intent(1, TRAINER, "restart", (), attempt=(attempt, 3))
        journal.keep_evidence(1, action, "act", evidence(clock.now(), NOW - 20))
        journal.record_step(action, "start", command=["python", "train.py"])
        journal.record_result(action, "done", started_by="trainwarden", processes=[attempt])
        clock.pass_by(5)
        journal.record_outcome(action, "not_healed", seen="it ended soon after its start")
        clock.pass_by(120)


@pytest.mark.parametrize(
    ("later", "again"),
    [
        ([ERROR], ". 2 attempts in a row failed with it."),
        (["KeyError: 'lr'"], ""),
        ([], ""),  # killed without a word, after the lines of the process before it
    ],
)
def test_the_second_attempt_with_the_same_error_is_known_before_the_third(
    tmp_path: Path, journal: Journal, clock: FakeClock, later: list[str], again: str
) -> None:
    fail(journal, clock, 1)
    assert f"Last error: `{ERROR}`\n" in report_incident(tmp_path / "journal.db", 1, STYLE, NOW)
    content = json.loads(evidence(clock.now(), NOW - 20))
    mark = "trainwarden: 2027-01-15T08:00:00.000Z process 7 ended with exit status 1; starts again"
    raised = ["Traceback (most recent call last):", *later] if later else []
    content["logs"][0]["lines"] += [mark, *raised]
    action = journal.record_intent(1, TRAINER, "restart", (), attempt=(2, 3))
    journal.keep_evidence(1, action, "act", json.dumps(content))
    error = later[0] if later else ERROR
    text = report_incident(tmp_path / "journal.db", 1, STYLE, NOW)
    assert f"Last error: `{error}`{again}\n" in text


def loop(journal: Journal, clock: FakeClock) -> Any:
    """Receives that these restarts are a loop while the last process lives, and holds them."""
    alert = make_alert(
        starts_at=clock.now(),
        fingerprint="2" * 16,
        alertname="TrainingWorkerRestartLoop",
        remediation="hold_restarts",
        severity="critical",
        worker="trainer",
    )
    journal.record_alerts([alert])
    gone, found = journal.open_incidents()
    held = Decision(Verdict.WAIT, "held_by_alert", detail=alert.name)
    journal.record_decisions([(found, Decision(Verdict.ACT, "hold")), (gone, held)])
    journal.keep_evidence(found.id, None, "hold", evidence(clock.now(), NOW - 20, lives=True))
    journal.keep_evidence(gone.id, None, "hold", evidence(clock.now(), NOW - 20))
    return alert


def report(
    folder: Path, clock: FakeClock, *alerts: Any, one: Announcement = ONE, stopped: bool = False
) -> str:
    gone = make_worker(processes=0, memory_bytes=0, last_exit_code=1)
    current = CurrentState(
        ExporterState({TRAINER: gone}, 2e10, 2e9),
        alerts,
        announced=AnnouncedRuns({TRAINER: AnnouncedWorker(one, Path("/runs.d/a.json"), 0)}),
        situation=Situation(NOW, may_restart={TRAINER}, is_stopped=lambda *_: stopped),
    )
    return report_nights(folder / "journal.db", NOW - 86400, STYLE, clock.now(), current)


def test_a_loop_of_the_remediators_own_restarts_is_one_incident(
    tmp_path: Path, journal: Journal, clock: FakeClock
) -> None:
    fail(journal, clock, 3)
    whole = report(tmp_path, clock, loop(journal, clock))
    assert "1 fault; it needs you." in whole
    assert "- 1 incident, 3 actions.\n- 1 **need an operator**." in whole
    assert whole.count("## Incident ") == 1
    assert "Possible cause" not in whole
    assert "Meanwhile" not in whole
    assert "Another alert blocked restarts" not in whole
    assert (
        "**An operator is needed** after 3 actions: it fails at each start.\n\n"
        f"Last error: `{ERROR}`"
    ) in whole
    assert "TrainingWorkerRestartLoop, since 08:06:15" in whole
    # both numbers lead to it
    assert report_incident(tmp_path / "journal.db", 2, STYLE, NOW).startswith("# Incident 1: ")


def test_the_report_says_who_restarted_it_its_error_and_what_to_type(
    tmp_path: Path, journal: Journal, clock: FakeClock
) -> None:
    fail(journal, clock, 3)
    whole = report(tmp_path, clock, loop(journal, clock))
    todo = whole.partition("## What to do\n\n")[2].partition("\n\n#")[0]
    assert todo == (
        "- `demo/trainer`: It failed after each restart by the remediator, 3 times of at most 3: "
        f"`{ERROR}`. Another restart alone does not help: mend the cause, then start it yourself: "
        f"`{START}` (in the background, so that a failure is restarted in the mode act)."
    )
    assert f"{START}    # once its cause is mended" in whole
    assert "trainwarden hold" not in whole


def test_what_an_operator_has_stopped_is_not_to_be_started(
    tmp_path: Path, journal: Journal, clock: FakeClock
) -> None:
    fail(journal, clock, 3)
    whole = report(tmp_path, clock, loop(journal, clock), stopped=True)
    assert "It failed after each restart" not in whole


def test_after_two_failures_there_is_something_to_do_though_the_remediator_tries_again(
    tmp_path: Path, journal: Journal, clock: FakeClock
) -> None:
    fail(journal, clock, 2)
    whole = report(tmp_path, clock, GONE)
    assert "**Who acts: The remediator.**" in whole
    assert (
        f"- `demo/trainer`: It failed after each restart by the remediator, 2 times of at most 3: "
        f"`{ERROR}`. The remediator tries again; once the cause is mended, you can start it "
        f"yourself: `{START}`"
    ) in whole
    assert "Another restart alone does not help" not in whole


def test_one_restart_is_not_each_restart(
    tmp_path: Path, journal: Journal, clock: FakeClock
) -> None:
    fail(journal, clock, 1)
    gave_up = make_alert(alertname="TrainingRemediationGaveUp", remediation="", worker="trainer")
    found = mending(
        gave_up,
        journal.last_actions(10),
        AnnouncedRuns({TRAINER: AnnouncedWorker(ONE, tmp_path / "a.json", 0)}),
    )
    start = "It failed after the one restart by the remediator of at most 3: "
    assert found.startswith(start)


def test_attempts_are_counted_as_in_the_journal(journal: Journal, clock: FakeClock) -> None:
    """The first restart helped for a while; the third is not judged yet."""
    known = AnnouncedRuns({TRAINER: AnnouncedWorker(ONE, Path("/runs.d/a.json"), 0)})
    journal.record_alerts([GONE])
    seen = []
    outcomes: tuple[Outcome | None, ...] = ("healed", "not_healed", None)
    for attempt, outcome in enumerate(outcomes, start=1):
        action = journal.record_intent(1, TRAINER, "restart", (), attempt=(attempt, 3))
        journal.record_step(action, "start", command=["python", "train.py"])
        journal.record_result(action, "done", started_by="trainwarden", processes=[attempt])
        clock.pass_by(5)
        if outcome:
            journal.record_outcome(action, outcome)
        seen.append(mending(GONE, journal.last_actions(10), known).partition(":")[0])
    start = "It failed after {} restart by the remediator, attempt 2 of 3"
    assert seen == ["", start.format("the last"), start.format("the") + ", and was restarted again"]


def test_after_a_start_by_an_operator_the_restarts_before_are_no_failures(
    tmp_path: Path, journal: Journal, clock: FakeClock
) -> None:
    fail(journal, clock, 3)
    again = ONE.model_copy(update={"state": "running", "announced_at": clock.now()})
    whole = report(tmp_path, clock, loop(journal, clock), one=again)
    assert "It failed after each restart" not in whole


def test_a_leak_that_the_remediator_restarts_again_and_again_is_named(
    tmp_path: Path, journal: Journal, clock: FakeClock
) -> None:
    leaks = make_alert(alertname="TrainingWorkerMemoryOverLimit", worker="trainer")
    journal.record_alerts([leaks])
    for attempt in range(1, 4):
        action = journal.record_intent(1, TRAINER, "restart", (), attempt=(attempt, 3))
        journal.record_result(action, "done", started_by="trainwarden", processes=[attempt])
        clock.pass_by(5)
        journal.record_outcome(action, "healed", seconds=5)
        clock.pass_by(120)
    looping = loop(journal, clock)
    mended = (
        "The remediator restarted it 3 times since 08:00 UTC as it exceeds its memory limit. It "
        "still runs and grows: `trainwarden stop demo` ends it. Each restart helps for a while: "
        "mend the leak, or raise its memory limit (`--memory-limit` of `trainwarden run`), "
        "then start it yourself"
    )
    runs = ONE.model_copy(update={"state": "running", "exits": ()})
    whole = report(tmp_path, clock, looping, one=runs)
    assert f"- `demo/trainer`: {mended}: `trainwarden stop demo; {START}`" in whole
    known = AnnouncedRuns({TRAINER: AnnouncedWorker(runs, Path("/runs.d/a.json"), 0)})
    assert mending(looping, journal.last_actions(10), known).startswith(mended)
    again = {
        TRAINER: AnnouncedWorker(runs.model_copy(update={"announced_at": clock.now()}), Path(), 0)
    }
    assert not mending(looping, journal.last_actions(10), AnnouncedRuns(again))


def test_the_number_of_failed_restarts_stays_however_often_others_are_restarted(
    journal: Journal, clock: FakeClock
) -> None:
    fail(journal, clock, 3)
    (gone,) = journal.open_incidents()
    given_up = Decision(Verdict.REFUSE, "attempts_exhausted")
    journal.record_decisions([(gone, given_up)])
    known = AnnouncedRuns({TRAINER: AnnouncedWorker(ONE, Path("/runs.d/a.json"), 0)})
    count = "It failed after each restart by the remediator, 3 times of at most 3"
    assert mending(GONE, journal.last_actions(10), known).startswith(count)
    leaks = make_alert(
        alertname="TrainingWorkerMemoryOverLimit", worker="rollout-0", fingerprint="3" * 16
    )
    journal.record_alerts([leaks])
    for _ in range(10):
        action = journal.record_intent(2, ROLLOUT, "restart", (), attempt=(1, 3))
        journal.record_result(action, "done", started_by="trainwarden", processes=[1])
        journal.record_outcome(action, "healed", seconds=5)
    assert mending(GONE, journal.last_actions(10), known).startswith(count)
    assert [one.key for one in journal.last_actions(10)[-10:]] == [ROLLOUT] * 10


def test_one_failure_is_left_to_the_remediator(
    tmp_path: Path, journal: Journal, clock: FakeClock
) -> None:
    fail(journal, clock, 1)
    whole = report(tmp_path, clock, GONE)
    assert "## What to do\n\nNothing now." in whole
    assert "rung 1 of playbook `start_missing_worker`, attempt 1 of 3: **not healed**" in whole


def test_every_attempt_is_listed_with_the_moments_that_are_announced(
    tmp_path: Path, journal: Journal, clock: FakeClock
) -> None:
    fail(journal, clock, 3)
    whole = report(tmp_path, clock, loop(journal, clock))
    rows = [line for line in whole.splitlines() if "| `demo/trainer` | 0" in line]
    assert [[cell.strip() for cell in row.split("|")[3:5]] for row in rows] == [
        ["07:59:57", "07:59:58"],
        ["08:00:00", "08:02:03"],
        ["08:02:05", "08:04:08"],
        ["08:04:10", "08:06:13"],
    ]
    assert all(row.endswith("| 1 |") for row in rows)
    assert whole.count(f"{ERROR}\n```") == 5  # the end of the log, and of each attempt


def test_what_an_operator_has_stopped_before_is_no_fault(
    tmp_path: Path, journal: Journal, clock: FakeClock
) -> None:
    """Its last step was 40 s before the alert; it was started again 20 s before."""
    fail(journal, clock, 3)
    whole = report(tmp_path, clock, loop(journal, clock))
    assert "| **Fault** | Fri 15 Jan 2027, 07:59:58 UTC |" in whole
    ends = "07:59:58, 08:02:03, 08:04:08 and 08:06:13"
    assert f"- Worker `demo/trainer` ended with exit status 1 at {ends}." in whole
    assert "No new step from 07:59:40 until 08:06:" in whole
    assert "when the incident ended" not in whole


def test_the_cause_of_each_crash_of_an_incident_is_shown_but_no_end_by_an_action(
    tmp_path: Path, journal: Journal, clock: FakeClock
) -> None:
    """The kernel kills it three times, as memory runs out; a fourth restart ends a hang."""
    journal.record_alerts([GONE])
    ended_at = 0.0
    for attempt in range(1, 5):
        content = json.loads(evidence(clock.now(), NOW - 20))
        content["announced"]["demo/trainer"]["exit_code"] = 137
        content["seen"]["workers"]["demo/trainer"]["last_exit_code"] = 137
        content["seen"]["memory"] = {"oom_killed_at": clock.now() - 1}
        if attempt == 4:
            content["announced"]["demo/trainer"]["ended_at"] = ended_at
        action = journal.record_intent(1, TRAINER, "restart", (), attempt=(attempt, 4))
        journal.keep_evidence(1, action, "act", json.dumps(content))
        clock.pass_by(5)
        ended_at = clock.now() - 2
        journal.record_result(action, "done", started_by="trainwarden", processes=[attempt])
        clock.pass_by(120)
        journal.record_outcome(action, "not_healed")
    cause = report_incident(tmp_path / "journal.db", 1, STYLE, clock.now())
    cause = cause.partition("## Likely cause\n\n")[2].partition("\n")[0]
    assert cause == (
        "- Worker `demo/trainer` was killed by SIGKILL (exit status 137) at 07:59:58, 08:02:03 and"
        " 08:04:08; the kernel killed a process then because memory ran out (OOM kill)."
    )


def test_crashes_that_were_healed_are_named_though_the_remediator_tries_again(
    tmp_path: Path, journal: Journal, clock: FakeClock
) -> None:
    for _ in range(2):
        journal.record_alerts([replace(GONE, starts_at=clock.now())])
        incident = journal.open_incidents()[-1]
        action = journal.record_intent(incident.id, TRAINER, "restart", (), attempt=(1, 3))
        journal.keep_evidence(incident.id, action, "act", evidence(clock.now(), NOW - 20))
        journal.record_result(action, "done", started_by="trainwarden", processes=[7])
        clock.pass_by(60)
        journal.record_outcome(action, "healed", seconds=60)
        journal.record_alerts([replace(GONE, starts_at=incident.starts_at, firing=False)])
        clock.pass_by(1140)
    again = replace(GONE, starts_at=clock.now())
    journal.record_alerts([again])
    step = (
        f"It has crashed 3 times since 08:00 UTC, though each restart healed it: `{ERROR}`. Each "
        "restart helps until the next crash, and repeats what was not saved. The remediator tries "
        "again; once the cause is mended, you can start it yourself"
    )
    assert f"- `demo/trainer`: {step}: `{START}`" in report(tmp_path, clock, again)
    known = AnnouncedRuns({TRAINER: AnnouncedWorker(ONE, Path("/runs.d/a.json"), 0)})
    actions = journal.last_actions(10)
    assert mending(again, actions, known, who_acts="The remediator").startswith(step)
    tomorrow = replace(again, starts_at=clock.now() + 86400)
    assert not mending(tomorrow, actions, known)
