"""A worker that leaks again after each healing: the report shows what belongs together."""

from __future__ import annotations

import pytest
from tests.remediator.report.test_report import STYLE, Story, reported
from tests.remediator.samples import NOW, ROLLOUT

from trainwarden_remediator.model import Verdict
from trainwarden_remediator.report.loader import open_journal, read_incidents
from trainwarden_remediator.report.nightly import report_nights
from trainwarden_remediator.report.opening import opening

__all__ = ["reported"]

LEAKS = 3


def leak(story: Story, count: int = LEAKS, *, pause: float = 100) -> None:
    """As many leaks, each of them healed by a restart."""
    for _ in range(count):
        incident = story.hear()
        story.restart(incident)
        story.resolve(incident)
        story.clock.pass_by(pause)


def loop(story: Story, worker: str = "rollout-0") -> int:
    """Receives the alert about a restart loop; returns its incident."""
    labels = {"alertname": "TrainingWorkerRestartLoop", "remediation": "hold_restarts"}
    found = story.hear(fingerprint="2" * 16, worker=worker, **labels)
    story.decide(found, "hold", Verdict.ACT)
    return found.id


def night(story: Story) -> str:
    return report_nights(story.path, NOW - 3600, STYLE, story.clock.now())


def test_healed_leaks_and_their_restart_loop_name_each_other(reported: Story) -> None:
    leak(reported)
    number = loop(reported)
    whole = night(reported)
    assert f"| {number} | " in whole
    assert whole.count(f"| healed, part of the loop {number} |") == LEAKS
    assert whole.count(f"Its restart is one of the loop of incident {number}.") == LEAKS
    held = "**Held**: no actions while the alert fires. An operator is needed."
    assert f"{held} Incidents 1, 2 and 3 are of the same loop." in whole


def test_so_do_those_before_a_loop_that_begins_during_the_last_restart(reported: Story) -> None:
    """The loop is a part of the last incident, whose restart has not healed yet."""
    leak(reported, LEAKS - 1)
    last = reported.hear()
    number = reported.journal.record_intent(last.id, ROLLOUT, "restart", [])
    reported.journal.record_result(number, "done", started_by="us", processes=[], killed=[])
    reported.clock.pass_by(5)
    loop(reported)
    whole = night(reported)
    assert whole.count(f"| healed, part of the loop {last.id} |") == LEAKS - 1
    assert "Incidents 1 and 2 are of the same loop." in whole
    assert "**An operator is needed** after 1 action: it is restarted again and again." in whole


def test_a_healing_long_before_or_of_another_worker_is_no_part_of_the_loop(
    reported: Story,
) -> None:
    leak(reported, 1, pause=700)
    number = loop(reported)
    assert "part of the loop" not in night(reported)
    assert "of the same loop" not in night(reported)
    leak(reported, 1)
    loop(reported, worker="trainer")
    assert f"loop of incident {number}" not in night(reported)


def test_a_worker_that_leaks_after_each_restart_does_not_fail_at_each_start(
    reported: Story,
) -> None:
    incident = reported.hear()
    reported.restart(incident, healed=False)
    loop(reported)
    assert "**An operator is needed** after 1 action: restarts do not help." in night(reported)


@pytest.mark.parametrize("count", [1, LEAKS])
def test_the_first_sentence_counts_them_as_one_fault(reported: Story, count: int) -> None:
    leak(reported, count)
    loop(reported)
    with open_journal(reported.path) as connection:
        incidents = read_incidents(connection, 0)
    sentence = opening("no answer", incidents, "Tonight", 0.0)
    assert "Tonight, 1 fault" in sentence
    assert sentence.endswith("it is held.")
