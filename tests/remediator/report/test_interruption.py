"""What an incident cost the run, and would have cost without healing."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import ValidationError
from tests.remediator.samples import NOW

from trainwarden_remediator.config.schema import Config
from trainwarden_remediator.observation.exporter_page import parse_exporter_page
from trainwarden_remediator.report.interruption import interruption_cost
from trainwarden_remediator.report.markdown import TimeFormat
from trainwarden_remediator.report.model import ActionRecord, EvidenceRecord, IncidentRecord

FAULT = datetime(2026, 11, 23, 2, 10, tzinfo=UTC).timestamp()
TIMES = TimeFormat(UTC)


def incident(outcome: str | None, **facts: Any) -> IncidentRecord:
    action = ActionRecord(
        1, "demo", "trainer", "restart", FAULT + 70, 0, "done", outcome, FAULT + 200, 57, 50
    )
    records = (
        EvidenceRecord(FAULT + 65, "before", 1, {"seen": {"runs": {"demo": {"step": 57}}}}),
        EvidenceRecord(FAULT + 300, "end", None, {"seen": {"runs": {"demo": facts}}}),
    )
    return IncidentRecord(
        *(1, "TrainingStepStalled", "demo", "trainer", "restart_stalled_run", {}, {}),
        *(FAULT + 60, FAULT + 250, "resolved", FAULT + 300),
        actions=(action,),
        evidence=records,
    )


def cost(found: IncidentRecord, until: str = "08:00") -> list[str]:
    return list(interruption_cost(found, TIMES, until))


def test_the_cost_is_from_the_last_new_step_to_the_next_and_what_it_would_have_been() -> None:
    healed = incident(
        "healed", interruption_start=FAULT, interruption_end=FAULT + 280, interruption_steps=7
    )
    assert cost(healed) == [
        (
            "Downtime: 4 min 40 s from the last step to the next new one (02:10:00 to 02:14:40); "
            "7 steps made again."
        ),
        (
            "Without healing: about 5 h 50 min, if nobody had come before 08:00 "
            "(`unattended_until`)."
        ),
    ]
    # at noon somebody may be there, and see the fault at once
    assert len(cost(healed, "14:00")) == 2
    assert len(cost(healed, "14:30")) == 1
    assert len(cost(healed, "02:00")) == 1
    answered = list(interruption_cost(healed, TIMES, "08:00", answered_after=7200))
    assert answered[1] == "Without healing: 2 h, until its alert is answered (`answered_after`)."


def test_a_fault_that_was_not_healed_has_no_assumption() -> None:
    times = {"interruption_start": FAULT, "interruption_end": FAULT + 280}
    (line,) = cost(incident(None, interruption_steps=0, **times))
    assert line.endswith("; no step lost.")


@pytest.mark.parametrize(
    ("facts", "end"),
    [
        ({}, "."),
        # One line in ten steps, and no line says from which step it resumed.
        ({"interruption_steps": 0, "first_step": 60, "step_spacing": 10}, "."),
        ({"interruption_steps": 4, "first_step": 60}, "; at least 4 steps made again."),
        ({"interruption_steps": 4, "first_step": 60, "resume_step": 59}, "; 4 steps made again."),
    ],
)
def test_steps_that_may_be_lost_are_not_denied(facts: dict[str, float], end: str) -> None:
    times = {"interruption_start": FAULT, "interruption_end": FAULT + 280}
    (line,) = cost(incident(None, **times, **facts))
    assert line.endswith(f"(02:10:00 to 02:14:40){end}")


def test_an_interruption_that_lasts_has_no_end() -> None:
    (line,) = cost(incident("healed", interruption_start=FAULT, interruption_steps=3))
    assert line == (
        "No new step from 02:10:00 until the incident ended; 3 steps made again by then."
    )
    # Before its resume nobody knows how many it will lose.
    (line,) = cost(incident("healed", interruption_start=FAULT, interruption_steps=0))
    assert line == "No new step from 02:10:00 until the incident ended."


def test_the_exporter_knows_now_what_it_did_not_know_before_the_action() -> None:
    opened = replace(incident("healed"), resolved_at=None, closed=None, closed_at=None)
    lasts = {"interruption_start": FAULT, "interruption_steps": 3}
    before = EvidenceRecord(FAULT + 65, "act", 1, {"seen": {"runs": {"demo": lasts}}})
    opened = replace(opened, evidence=(before,))
    # The exporter does not answer: nobody knows what was later.
    known = "No new step from 02:10:00 until 02:11:05; 3 steps made again by then."
    assert cost(opened) == [known]
    now = replace(before, at=FAULT + 90, kind="now", action=None)
    assert cost(replace(opened, now=now)) == [
        "No new step since 02:10:00; 3 steps made again so far."
    ]
    ended = {"seen": {"runs": {"demo": {**lasts, "interruption_end": FAULT + 100}}}}
    (line, _) = cost(replace(opened, now=replace(now, content=ended)))
    assert line.startswith("Downtime: 1 min 40 s from the last step to the next new one")
    later = {"seen": {"runs": {"demo": {"interruption_start": FAULT + 500}}}}
    assert cost(replace(opened, now=replace(now, content=later))) == [known]


def test_an_action_that_had_to_wait_interrupts_the_run_long_after_the_alert() -> None:
    times = {"interruption_start": FAULT + 70, "interruption_end": FAULT + 90}
    early = replace(incident("healed", **times), starts_at=FAULT - 600)
    (line, *_) = cost(early)
    assert line.startswith("Downtime: 20 s")
    assert cost(replace(early, actions=())) == []


@pytest.mark.parametrize("worker", ["trainer", ""])
def test_a_run_that_an_operator_has_started_costs_since_that_start(worker: str) -> None:
    times = {"interruption_start": FAULT - 900, "interruption_end": FAULT + 280}
    known = replace(incident("healed", **times), worker=worker)
    began = {"announced": {"demo/trainer": {"began_at": FAULT}}}
    started = replace(known.evidence[0], content=began)
    (line, *_) = cost(replace(known, evidence=(started, *known.evidence[1:])))
    assert line.startswith("Downtime: 4 min 40 s")


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"interruption_start": FAULT - 900, "interruption_end": FAULT - 600},
        {"interruption_start": FAULT + 250},
    ],
)
def test_another_interruption_is_not_that_of_the_incident(facts: dict[str, float]) -> None:
    assert cost(incident("healed", **facts)) == []


def test_the_exporters_page_has_the_interruption_and_the_ratio() -> None:
    page = f"""
trainwarden_collector_success{{collector="host"}} 1
trainwarden_collector_success{{collector="workers"}} 1
trainwarden_memory_effective_available_bytes 1e9
trainwarden_memory_available_floor_bytes 1e8
trainwarden_training_step{{run="demo"}} 57
trainwarden_run_interruption_start_timestamp_seconds{{run="demo"}} {NOW}
trainwarden_run_interruption_steps_redone{{run="demo"}} 4
trainwarden_run_time_seconds_total{{run="demo",state="training"}} 700
trainwarden_run_time_seconds_total{{run="demo",state="saving"}} 200
trainwarden_run_time_seconds_total{{run="demo",state="down"}} 100
trainwarden_run_time_seconds_total{{run="demo",state="unknown"}} 5000
trainwarden_run_time_seconds_total{{run="demo",state="finished"}} 5000
"""
    run = parse_exporter_page(page.encode()).runs["demo"]
    assert (run.interruption_start, run.interruption_end, run.interruption_steps) == (NOW, None, 4)
    assert (run.effective_seconds, run.counted_seconds) == (900, 1000)


@pytest.mark.parametrize("text", ["8:00", "24:00", "08:60", "morning"])
def test_a_time_of_day_is_hours_and_minutes(text: str) -> None:
    with pytest.raises(ValidationError, match="unattended_until"):
        Config.model_validate({"unattended_until": text, "insecure": True})
    Config.model_validate({"unattended_until": "06:30", "insecure": True})


@pytest.mark.parametrize(
    ("outcome", "closed", "resolved", "counts"),
    [
        (None, "resolved", True, False),
        ("not_healed", "resolved", True, False),
        ("not_healed", "attempts_exhausted", True, False),
        ("not_healed", "attempts_exhausted", False, True),
        ("not_healed", None, False, True),
        ("healed", "resolved", True, True),
    ],
)
def test_the_time_after_an_incident_that_no_action_has_healed_is_an_operators(
    outcome: str | None, closed: str | None, *, resolved: bool, counts: bool
) -> None:
    """A stop by the operator ends the alert; in the morning the run is started again."""
    lasts = {"interruption_start": FAULT}
    over = replace(incident(outcome, **lasts), closed=closed)
    over = over if resolved else replace(over, resolved_at=None)
    morning = FAULT + 8 * 3600
    shown = {"seen": {"runs": {"demo": {**lasts, "interruption_end": morning}}}}
    (line, *_) = cost(replace(over, now=EvidenceRecord(morning + 60, "now", None, shown)))
    assert line.startswith("Downtime: 8 h " if counts else "No new step from 02:10:00 until the")
