"""What a remediator restarted a run for is the cause, and its restarts are the consequence."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from tests.remediator.fake_clock import FakeClock
from tests.remediator.samples import NOW, make_alert

from autopsying import announce
from trainwarden import cli
from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_remediator.journal.journal import Journal

CHAIN = "process 7 of trainer waits for a lock at data.py:18"
HANG: dict[str, Any] = {"seen": {"runs": {"r": {"stuck": True, "waits": CHAIN}}}}
RAISED = ["Traceback (most recent call last):", '  File "x.py", line 9, in f', "ValueError: shape"]
ALERTS = {
    "hang": "TrainingStepStalled",
    "leak": "TrainingWorkerMemoryOverLimit",
    "crash": "TrainingWorkerGone",
    "server": "TrainingInferenceDown",
    "floor": "TrainingMemoryFloor",
    "age": "TrainingWorkerTrialsDone",
    "own": "MyOwnAlert",
}


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRAINWARDEN_FOLDER", str(tmp_path / "state"))
    monkeypatch.setenv("TRAINWARDEN_STACK_DIR", str(tmp_path / "stacks"))
    (tmp_path / "work" / "state").mkdir(parents=True)
    return tmp_path / "work"


def restart(work: Path, *why: str, first: float = NOW, by: str = "", **evidence: Any) -> None:
    """Records restarts of the worker r/w, each five minutes after the one before."""
    for number, reason in enumerate(why):
        at = first + 300 * number
        journal = Journal(work / "state" / "journal.db", clock=FakeClock(at))
        alert = make_alert(
            fingerprint=f"{round(at):016x}",
            starts_at=at,
            alertname=ALERTS[reason],
            run="r",
            worker="w",
        )
        journal.record_alerts([alert])
        incident = max(one.id for one in journal.open_incidents())
        nth = (number + 1, 3)
        action = journal.record_intent(incident, WorkerKey("r", "w"), "restart", [], attempt=nth)
        journal.keep_evidence(incident, action, "act", json.dumps(evidence))
        who = "another" if by == "somebody else" else "trainwarden"
        journal.record_result(action, "done", started_by=who, processes=[9])
        taken_over = {"taken_over": "started_by_operator"} if by == "an operator" else {}
        journal.record_outcome(action, "healed", seconds=9.0, **taken_over)
        journal.close()


def log_steps(work: Path, last: float, *more: str) -> None:
    """Writes a log of attempts that end at different steps, the last one at the time `last`."""
    lines = []
    for number in range(4):
        at = last - 300 * (3 - number)
        clock = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))
        lines += [f"{clock} step {step}/900 loss 1" for step in range(1, 11 + 20 * number)]
    (work / "train.log").write_text("".join(f"{line}\n" for line in (*lines, *more)))


def explained(work: Path, capsys: pytest.CaptureFixture[str]) -> tuple[dict[str, Any], str]:
    cli.main(["autopsy", str(work), "--json"])
    data = json.loads(capsys.readouterr().out)
    cli.main(["autopsy", str(work)])
    return data, capsys.readouterr().out


def likely(data: dict[str, Any]) -> list[str]:
    return [one["name"] for one in data["causes"] if one["likely"]]


@pytest.mark.parametrize(
    ("why", "cause"),
    [
        ("hang", "stalled"),
        ("leak", "memory_limit"),
        ("crash", "killed"),
        ("server", "inference_down"),
        ("floor", "memory_full"),
        ("own", "restarted"),
    ],
)
def test_the_cause_is_what_the_restarts_were_for(
    work: Path, why: str, cause: str, capsys: pytest.CaptureFixture[str]
) -> None:
    log_steps(work, NOW + 660)
    restart(work, why, why, why)
    data, report = explained(work, capsys)
    assert likely(data)[0] == cause
    assert ("restarted" in [one["name"] for one in data["causes"]]) == (why == "own")
    (text,) = [one["text"] for one in data["causes"][0]["evidence"] if "restarted" in one["text"]]
    alert, last = ALERTS[why], "the last time at 2027-01-15 08:10:00 UTC (healed)"
    assert text == f"The remediator restarted r/w 3 times for {alert}, {last}"
    done = f"restart of `r/w` for {alert}, 3 times; the last at 2027-01-15 08:10:00 UTC: healed"
    assert f"| **The remediator** | {done} |" in report
    assert [one["alert"] for one in data["actions"]] == [alert] * 3
    assert data["actions"][0]["attempt"] == "attempt 1 of 3"


def test_what_a_proved_hang_waited_for_is_shown(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log_steps(work, NOW + 660, "trainwarden: stop requested")
    restart(work, "hang", "hang", "hang", **HANG)
    data, report = explained(work, capsys)
    assert likely(data) == ["stalled", "interrupted"]
    assert f"; before a restart it saw: `{CHAIN}`" in report


def test_an_error_in_the_log_explains_restarts_after_a_crash(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log_steps(work, NOW + 660, *RAISED)
    restart(work, "crash", "crash", "crash")
    data, _ = explained(work, capsys)
    assert likely(data) == ["exception"]


@pytest.mark.parametrize(
    "why", [("hang",) * 2, ("age",) * 5, ("hang", "leak", "crash", "age", "age", "age")]
)
def test_few_restarts_and_those_of_age_are_no_cause(
    work: Path, why: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    log_steps(work, NOW + 1600)
    restart(work, *why)
    data, _ = explained(work, capsys)
    assert likely(data) == []


def test_restarts_long_before_the_last_step_are_no_cause(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log_steps(work, NOW + 6000)
    restart(work, "hang", "hang", "hang")
    assert likely(explained(work, capsys)[0]) == []


@pytest.mark.parametrize("who", ["an operator", "somebody else"])
def test_a_start_by_another_is_none_by_the_remediator(
    work: Path, who: str, capsys: pytest.CaptureFixture[str]
) -> None:
    log_steps(work, NOW + 660)
    restart(work, "hang", "hang")
    restart(work, "hang", first=NOW + 600, by=who)
    data, report = explained(work, capsys)
    assert likely(data) == []
    assert [one["started_by"] for one in data["actions"]] == ["", "", who]
    assert f"restart of r/w for TrainingStepStalled: {who} had started it, attempt" in report


@pytest.mark.parametrize("operator_start", [0, 1000])
def test_restarts_from_before_an_operator_started_it_are_not_those_of_this_start(
    work: Path, operator_start: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the log alone: a new start of a name appends to it."""
    lines = []
    for number in range(3):
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(NOW + 300 * number))
        lines += [f"{at}Z step {step}/900 loss 1" for step in range(1, 11)]
        lines += ["trainwarden: restart requested by the remediator"]
        lines += [f"trainwarden: {at}.500Z process 7 ended by SIGTERM; starts again"]
    at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(NOW + 1100))
    lines += [f"{at}Z step {step}/900 loss 1" for step in range(1, 11)]
    log = work / "train.log"
    log.write_text("\n".join([*lines, ""]))
    started = NOW + (operator_start or 605)
    known = {"announced_at": NOW + operator_start, "started_at": started, "cwd": str(work)}
    known |= {"log": str(log), "exit_status": 9, "ended_at": NOW + 1110}
    announce(work.parent / "state", "r", **known)
    data, report = explained(work, capsys)
    assert ("restarted" in likely(data)) == (operator_start == 0)
    assert ("the last time at 2027-01-15 08:10:05 UTC" in report) == (operator_start == 0)
