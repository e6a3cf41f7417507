"""Whether a target was met is read from the table that the page shows."""

from __future__ import annotations

from dataclasses import replace

import pytest

import targets
from replaced import OURS, SUM
from results import Growth, Result
from scrapes import AT_ONCE, EVERY

SCRAPES = Result(
    "Scrapes",
    "",
    ("processes", "workers", "program", "CPU", "at interval", "median", "p99", "beside ours"),
    (
        ("2000", "1", "trainwarden", "1.0 ms", "", "1.0 ms", "1.0 ms", "1.0x"),
        ("2000", "64", "trainwarden", "24.0 ms", "40.0 ms", "20.0 ms", "50.0 ms", "1.0x"),
        ("2000", "64", "process-exporter 1.2", "72.0 ms", "", "9.0 ms", "9.0 ms", "3.0x"),
        (
            *("2000", "64", f"process-exporter 1.2, {EVERY}"),
            *("360.0 ms", "", "9.0 ms", "9.0 ms", "15.0x"),
        ),
        ("2000", "64", AT_ONCE, "40.0 ms", "", "40.1 ms", "", "1.7x"),
    ),
)
LOGS = Result(
    "Logs",
    "",
    ("files", "program", "CPU per GB", "memory"),
    (
        ("1", "trainwarden", "3.00 s", "50 MiB"),
        ("1", "trainwarden", "2.00 s", "60 MiB"),
        ("1", "mtail, one way", "2.50 s", "9 MiB"),
        ("1", "mtail, another", "9.00 s", "9 MiB"),
    ),
)


def met(found: Result, name: str) -> dict[str, bool]:
    return {one.what: one.met for one in targets.JUDGES[name](found)}


def test_scrapes_are_judged_at_the_size_that_was_named() -> None:
    found = list(met(SCRAPES, "scrapes").values())
    #        CPU, at interval, same workers, every process, p99, ten at once
    assert found == [True, False, False, True, True, False]


def test_a_beat_is_judged_alone_and_beside_a_write() -> None:
    columns = ("call", "median", "slowest batch", "beside a write")
    rows = (("trainwarden.beat", "3.0 µs", "9.0 µs", "1.20x"), ("a line", "2.5 µs", "", "1.00x"))
    assert list(met(Result("", "", columns, rows), "beats").values()) == [True, False]


def test_a_wrapper_is_judged_by_its_memory_and_its_rest() -> None:
    columns = ("program", "largest process", "all, shared pages once", "CPU at rest")
    rows = (("trainwarden run", "15.1 MiB", "5 MiB", "0 ms"), ("script -q", "1 MiB", "", "10 ms"))
    assert list(met(Result("", "", columns, rows), "wrapped").values()) == [False, True, True]
    names = list(met(Result("", "", columns, rows), "wrapped"))
    assert names[1].endswith("two processes, pages shared with other Pythons counted in part")
    rows = (("trainwarden run", "14.9 MiB", "15.1 MiB", "10 ms"), rows[1])
    assert list(met(Result("", "", columns, rows), "wrapped").values()) == [True, False, False]


def test_memory_is_judged_alone_and_beside_the_peers() -> None:
    columns = ("program", "resident")
    rows = ((OURS, "61.0 MiB"), ("mtail", "18.0 MiB"), (SUM, "90.0 MiB"))
    assert list(met(Result("", "", columns, rows), "replaced").values()) == [False, True]


def test_logs_are_judged_by_the_dearest_of_ours_and_the_cheapest_of_theirs() -> None:
    assert list(met(LOGS, "logs").values()) == [False, False]
    cheaper = replace(LOGS, rows=(("1", "trainwarden", "2.50 s", "50 MiB"), *LOGS.rows[1:]))
    assert next(iter(met(cheaper, "logs").values()))


def test_logs_without_a_peer_are_judged_by_their_memory_alone() -> None:
    assert len(met(replace(LOGS, rows=LOGS.rows[:2]), "logs")) == 1


def test_a_scrape_that_was_lost_in_any_of_the_rounds_with_faults_counts() -> None:
    columns = ("scrapes", "count", "lost", "slowest")
    rows = (
        ("all is well", "20", "9", "900.0 ms"),
        ("five faults, the first scrape", "1", "1", "900.0 ms"),
        ("five faults, all later ones", "40", "0", "100.0 ms"),
    )
    found = Result("", "", columns, rows)
    assert list(met(found, "faults").values()) == [False, True]
    assert next(targets.of_faults(found)).found == "1 of 41 (≤ 11 %)"


@pytest.mark.parametrize(("share", "good"), [("25.0%", True), ("25.1%", False)])
def test_rules_are_judged_at_a_thousand_boxes(share: str, good: bool) -> None:
    rows = (("100", "99.0%"), ("1000", share))
    assert list(met(Result("", "", ("boxes", "of the interval"), rows), "rules").values()) == [good]


def test_a_night_that_came_too_late_is_no_target_met() -> None:
    columns = ("night", "what", "seconds", "limit", "")
    rows = (("1", "seen", "17.7", "60", ""), ("2", "healed", "90.0", "90", "TOO LATE"))
    assert not any(met(Result("", "", columns, rows), "nights").values())
    assert all(met(Result("", "", columns, rows[:1]), "nights").values())
    assert not met(Result("", "", columns, ()), "nights")


def test_growth_that_is_worse_than_linear_is_no_target_met() -> None:
    square = Growth("", "boxes", "ms", ((1, 1), (10, 100)))
    line = Growth("", "files", "ms", ((1, 1), (10, 10)))
    found = targets.judged({"gpus": Result("", "", (), (), (square, line))})
    assert [one.met for one in found] == [False, True]


def test_a_cell_without_a_number_is_an_error() -> None:
    with pytest.raises(ValueError, match="no number"):
        targets.amount("")
