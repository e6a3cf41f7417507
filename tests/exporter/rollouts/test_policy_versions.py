from __future__ import annotations

import threading

import pytest

from trainwarden_exporter.logs.events import LineEvent
from trainwarden_exporter.rollouts.policy_versions import PolicyVersionRegistry, ReportedVersion


def event(timestamp: float, run: str = "r", **groups: str) -> LineEvent:
    return LineEvent(run, "trainer", "trainer", "versions", groups, timestamp)


def test_the_last_of_each_side_is_kept() -> None:
    book = PolicyVersionRegistry()
    book.record_line(event(10, trainer_version="7"))
    book.record_line(event(11, rollout_version="5"))
    book.record_line(event(12, trainer_version="8"))
    versions = book.get("r")
    assert (versions.trainer, versions.rollout) == (ReportedVersion(8, 12), ReportedVersion(5, 11))
    assert versions.lag == 3
    assert book.get("another").lag is None


def test_a_line_that_is_read_late_changes_nothing() -> None:
    book = PolicyVersionRegistry()
    book.record_line(event(12, trainer_version="8"))
    book.record_line(event(10, trainer_version="7"))
    assert book.get("r").trainer == ReportedVersion(8, 12)


def test_versions_go_back_when_a_run_does() -> None:
    book = PolicyVersionRegistry()
    book.record_line(event(12, trainer_version="8", rollout_version="8"))
    book.record_line(event(13, trainer_version="3"))
    assert book.get("r").trainer == ReportedVersion(3, 13)
    assert book.get("r").lag == 0


def test_a_difference_that_is_reported_counts_until_versions_are_reported_after_it() -> None:
    book = PolicyVersionRegistry()
    book.record_line(event(10, staleness="2.0"))
    assert book.get("r").lag == 2
    book.record_line(event(11, trainer_version="9", rollout_version="4"))
    assert book.get("r").lag == 5
    book.record_line(event(12, staleness="1"))
    assert book.get("r").lag == 1


@pytest.mark.parametrize("text", ["", "v7", "nan", "inf"])
def test_what_is_no_version_is_none(text: str) -> None:
    book = PolicyVersionRegistry()
    book.record_line(event(10, trainer_version=text, loss="0.5"))
    assert book.get("r").trainer is None


def test_one_book_may_learn_from_another() -> None:
    old, new = PolicyVersionRegistry(), PolicyVersionRegistry()
    old.record_line(event(10, trainer_version="1"))
    old.record_line(event(10, "s", trainer_version="2"))
    new.record_line(event(20, trainer_version="3"))
    old.take_over_from(new)
    assert (old.get("r").trainer, old.get("s").trainer) == (
        ReportedVersion(3, 20),
        ReportedVersion(2, 10),
    )


def test_many_may_tell_at_once() -> None:
    book = PolicyVersionRegistry()

    def tell(run: str) -> None:
        for number in range(200):
            book.record_line(event(number, run, trainer_version=str(number)))

    threads = [threading.Thread(target=tell, args=(f"run-{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {book.get(f"run-{n}").trainer for n in range(4)} == {ReportedVersion(199, 199)}
