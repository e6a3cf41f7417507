"""When the fault of an incident happened, and the attempts that ended."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC
from typing import Any

import pytest
from tests.remediator.samples import NOW

from trainwarden_remediator.journal.rows import Event
from trainwarden_remediator.report.attempts import attempts_section
from trainwarden_remediator.report.causes import likely_causes
from trainwarden_remediator.report.fault import fault_at
from trainwarden_remediator.report.incident import ReportStyle, render_incident
from trainwarden_remediator.report.markdown import TimeFormat
from trainwarden_remediator.report.model import ActionRecord, EvidenceRecord, IncidentRecord

EXIT = NOW - 16.0
"""When the process was seen to have ended; its alert came 16 s later."""
TIMES = TimeFormat(UTC)


def event(number: int, action: int, kind: str, at: float, **facts: Any) -> Event:
    return Event(number, at, 1, action, kind, "TrainingWorkerGone", "demo", "trainer", facts)


def evidence(action: int, at: float, **worker: Any) -> EvidenceRecord:
    seen = {
        "workers": {"demo/trainer": {"processes": 0, "expected": 1, **worker}},
        "runs": {"demo": {"step": 57, "first_step": 50}},
    }
    log = {"name": "trainer", "path": "/runs/trainer.log", "size": 9, "modified": NOW - 17}
    logs = [{**log, "lines": [f"step 5{action}", "Killed"]}]
    return EvidenceRecord(at, "act", action, {"seen": seen, "logs": logs})


def action(number: int, at: float, outcome: str) -> ActionRecord:
    return ActionRecord(
        number, "demo", "trainer", "restart", at, 0, "done", outcome, at + 10, 57, 50
    )


def incident(**worker: Any) -> IncidentRecord:
    return IncidentRecord(
        *(1, "TrainingWorkerGone", "demo", "trainer", "restart_worker", {}, {}),
        *(NOW, NOW + 30, "resolved", NOW + 40),
        events=(
            event(1, 1, "start", NOW + 1.1, command=["python"]),
            event(2, 1, "outcome", NOW + 11, outcome="healed", seconds=10),
        ),
        actions=(action(1, NOW + 1, "healed"),),
        evidence=(evidence(1, NOW + 1, **worker),),
    )


def test_the_likely_cause_begins_with_what_a_stuck_run_is_proved_to_wait_for() -> None:
    seen = {"runs": {"demo": {"stuck": True, "waits": "a lock at mytrain.py:28"}}}
    now = EvidenceRecord(NOW + 50, "now", None, {"seen": seen})
    found = replace(incident(), remediation="restart_stalled_run", evidence=(), now=now)
    expected = "It stood still: a lock at mytrain.py:28."
    firing = replace(found, resolved_at=None)
    assert [one.replace("\\", "") for one in likely_causes(firing, TIMES)] == [expected]
    assert expected not in likely_causes(found, TIMES)


def report(found: IncidentRecord) -> str:
    return render_incident(found, ReportStyle(TIMES), NOW + 60)


def test_a_worker_is_down_from_its_end_and_not_from_its_alert() -> None:
    text = report(incident(last_exit_at=EXIT))
    assert "`demo/trainer` did not run for 17 s, from its end to its start." in text
    assert "It was verified as healthy 9.9 s after its start." in text
    assert "**Healed** automatically by 1 action, 27 s after the fault." in text
    assert "| **Fault** | Fri 15 Jan 2027, 07:59:44 UTC |" in text
    assert "| **Alert** | 08:00:00 (+16 s) |" in text
    assert "| **Verified as healthy** | 08:00:11 (+27 s) |" in text
    assert "| time | after the fault | event |" in text
    assert "| 08:00:01 | +17 s | started: `python` |" in text
    assert "Evidence before action 1, 08:00:01 (+17 s)" in text


def test_the_downtime_is_one_number_wherever_it_stands() -> None:
    found = incident(last_exit_at=EXIT)
    facts = {"interruption_start": EXIT - 1, "interruption_end": NOW + 12}
    end = EvidenceRecord(NOW + 40, "end", None, {"seen": {"runs": {"demo": facts}}})
    text = report(replace(found, evidence=(*found.evidence, end)))
    headline = "**Healed** automatically by 1 action. Downtime: 29 s from the last step to the next"
    assert f"{headline} new one." in text
    assert "- Downtime: 29 s from the last step to the next new one (07:59:43 to 08:00:12)" in text


def test_where_the_end_is_not_known_it_is_at_least_since_the_alert() -> None:
    for found in (incident(), incident(last_exit_at=EXIT, processes=1)):
        text = report(found)
        assert "`demo/trainer` did not run for at least 1.1 s, " in text
        assert "by 1 action, 11 s after the alert." in text
        assert "| **Alert** | Fri 15 Jan 2027, 08:00:00 UTC |" in text
        assert "| time | after the alert | event |" in text
        assert "**Fault**" not in text


def test_without_an_end_the_fault_is_the_last_new_step_if_that_was_before_the_alert() -> None:
    for start, at in ((NOW - 90, NOW - 90), (NOW + 30, None)):
        facts = {"seen": {"runs": {"demo": {"interruption_start": start}}}}
        end = EvidenceRecord(NOW + 40, "end", None, facts)
        found = incident()
        assert fault_at(replace(found, evidence=(*found.evidence, end))) == at


def test_each_attempt_has_its_steps_its_end_and_its_last_lines() -> None:
    first = incident(last_exit_at=EXIT, last_exit_code=137, started_at=NOW - 100)
    assert attempts_section(first, TIMES) == ""
    both = replace(
        first,
        actions=(*first.actions, action(2, NOW + 20, "healed")),
        events=(*first.events, event(3, 2, "stop", NOW + 21, processes=[1])),
        evidence=(*first.evidence, evidence(2, NOW + 20, processes=1)),
    )
    text = attempts_section(both, TIMES)
    assert "| 1 | `demo/trainer` | 07:58:20 | 07:59:44 | 50 | 57 | 137 |" in text
    assert "| 2 | `demo/trainer` | 08:00:01 | 08:00:21 | 50 | 57 | stopped by the action |" in text
    assert "The last lines of attempt 2, `/runs/trainer.log`:" in text
    assert "step 52\nKilled" in text
    assert "## Attempts" in report(both)


@pytest.mark.parametrize(
    ("code", "oom_killed_at", "cause"),
    [
        (137, None, "was killed by SIGKILL (exit status 137) at 07:59:44."),
        (
            *(137, 0.0),
            (
                "was killed by SIGKILL (exit status 137) at 07:59:44; no OOM kill by the kernel "
                "was seen then."
            ),
        ),
        (
            *(137, EXIT + 5),
            (
                "was killed by SIGKILL (exit status 137) at 07:59:44; the kernel killed a process "
                "then because memory ran out (OOM kill)."
            ),
        ),
        (139, 0.0, "was killed by SIGSEGV (exit status 139) at 07:59:44."),
        (1, 0.0, "ended with exit status 1 at 07:59:44."),
        (255, 0.0, "ended with exit status 255 at 07:59:44."),
    ],
)
def test_the_first_cause_is_how_the_process_ended(
    code: int, oom_killed_at: float | None, cause: str
) -> None:
    found = incident(last_exit_at=EXIT, last_exit_code=code)
    (seen,) = found.evidence
    content = dict(seen.content)
    content["seen"] = {**content["seen"], "memory": {"oom_killed_at": oom_killed_at}}
    causes = likely_causes(replace(found, evidence=(replace(seen, content=content),)), TIMES)
    assert causes[0] == f"Worker `demo/trainer` {cause}"
    assert not any("processes." in one or "Usually" in one for one in causes)


def test_of_several_ends_the_first_is_the_cause() -> None:
    found = incident(last_exit_at=EXIT, last_exit_code=1)
    (seen,) = found.evidence
    content = dict(seen.content)
    workers = dict(content["seen"]["workers"])
    workers["demo/server"] = {**workers["demo/trainer"], "last_exit_at": EXIT - 3}
    content["seen"] = {**content["seen"], "workers": workers}
    causes = likely_causes(replace(found, evidence=(replace(seen, content=content),)), TIMES)
    assert [one.split()[1] for one in causes[:2]] == ["`demo/server`", "`demo/trainer`"]


def test_an_end_after_a_restart_does_not_hide_what_the_run_waited_for_before_it() -> None:
    hangs = {"seen": {"runs": {"demo": {"stuck": True, "waits": "a lock at mytrain.py:28"}}}}
    crashed = evidence(2, NOW + 40, last_exit_at=NOW + 30, last_exit_code=1)
    restarts = (replace(action(1, NOW + 1, "healed"), result_at=NOW + 5),)
    records = (EvidenceRecord(NOW, "act", 1, hangs), crashed)
    found = replace(incident(), actions=restarts, evidence=records)
    causes = likely_causes(found, TIMES)
    assert [one.replace("\\", "") for one in causes[:2]] == [
        "It stood still: a lock at mytrain.py:28.",
        "Worker `demo/trainer` ended with exit status 1 at 08:00:30.",
    ]
