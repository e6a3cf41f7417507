from __future__ import annotations

import threading

import pytest

from trainwarden_exporter.logs.events import LineEvent
from trainwarden_exporter.rollouts.versions import Said, VersionBook


def event(timestamp: float, run: str = "r", **groups: str) -> LineEvent:
    return LineEvent(run, "trainer", "trainer", "versions", groups, timestamp)


def test_the_last_of_each_side_is_kept() -> None:
    book = VersionBook()
    book.note_line(event(10, trainer_version="7"))
    book.note_line(event(11, rollout_version="5"))
    book.note_line(event(12, trainer_version="8"))
    versions = book.of("r")
    assert (versions.trainer, versions.rollout) == (Said(8, 12), Said(5, 11))
    assert versions.apart == 3
    assert book.of("another").apart is None


def test_a_line_that_is_read_late_changes_nothing() -> None:
    book = VersionBook()
    book.note_line(event(12, trainer_version="8"))
    book.note_line(event(10, trainer_version="7"))
    assert book.of("r").trainer == Said(8, 12)


def test_versions_go_back_when_a_run_does() -> None:
    book = VersionBook()
    book.note_line(event(12, trainer_version="8", rollout_version="8"))
    book.note_line(event(13, trainer_version="3"))
    assert book.of("r").trainer == Said(3, 13)
    assert book.of("r").apart == 0


def test_a_difference_that_is_told_counts_until_versions_are_told_after_it() -> None:
    book = VersionBook()
    book.note_line(event(10, staleness="2.0"))
    assert book.of("r").apart == 2
    book.note_line(event(11, trainer_version="9", rollout_version="4"))
    assert book.of("r").apart == 5
    book.note_line(event(12, staleness="1"))
    assert book.of("r").apart == 1


@pytest.mark.parametrize("text", ["", "v7", "nan", "inf"])
def test_what_is_no_version_is_none(text: str) -> None:
    book = VersionBook()
    book.note_line(event(10, trainer_version=text, loss="0.5"))
    assert book.of("r").trainer is None


def test_one_book_may_learn_from_another() -> None:
    old, new = VersionBook(), VersionBook()
    old.note_line(event(10, trainer_version="1"))
    old.note_line(event(10, "s", trainer_version="2"))
    new.note_line(event(20, trainer_version="3"))
    old.learn(new)
    assert (old.of("r").trainer, old.of("s").trainer) == (Said(3, 20), Said(2, 10))


def test_many_may_tell_at_once() -> None:
    book = VersionBook()

    def tell(run: str) -> None:
        for number in range(200):
            book.note_line(event(number, run, trainer_version=str(number)))

    threads = [threading.Thread(target=tell, args=(f"run-{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {book.of(f"run-{n}").trainer for n in range(4)} == {Said(199, 199)}
