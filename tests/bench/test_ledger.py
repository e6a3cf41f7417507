"""The account of modelled runs: a slice of it in each test run, and that its page is up to date."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from trainwarden_exporter.progress.run_time import RunState
from verdicts.cases import FAULTS, Case
from verdicts.healthy import Night
from verdicts.ledger import WATCHED_BADLY, Account, account
from verdicts.ledger_cost import Cost
from verdicts.ledger_page import ALLOWED, HARD, PAGE, page
from verdicts.table_healthy import NIGHTS
from verdicts.truth import Truth


@pytest.mark.parametrize("night", WATCHED_BADLY[2:4], ids=lambda night: night.name)
def test_every_second_of_a_run_that_is_hard_to_watch_is_in_the_right_state(night: Night) -> None:
    one = account(Case(0, "seed", "nemo_rl", replace(night, length=1800.0)))
    assert one.worst <= ALLOWED, (one.counted, one.least, one.most)
    assert one.steps == one.true_steps


def example(**changed: object) -> Account:
    case = Case(0, "seed", "verl", WATCHED_BADLY[0])
    down = {RunState.DOWN: 100.0, RunState.TRAINING: 900.0}
    known = Account(case, 1000.0, 0.0, down, down, down, (9, 2, 2), (9, 2, 2), tells_steps=True)
    return replace(known, **changed)  # type: ignore[arg-type] # fields of it


def test_time_in_a_wrong_state_and_time_that_is_missing_are_found() -> None:
    assert example().worst == 0
    wrong = example(counted={RunState.DOWN: 115.0, RunState.TRAINING: 885.0})
    assert (wrong.error(RunState.DOWN), wrong.error(RunState.TRAINING)) == (0.015, 0.015)
    assert wrong.missing == 0
    assert example(counted={RunState.DOWN: 100.0, RunState.TRAINING: 880.0}).missing == 0.02
    unseen = {RunState.DOWN: 100.0, RunState.TRAINING: 900.0, RunState.UNKNOWN: 100.0}
    unknown = {RunState.UNKNOWN: 100.0, RunState.TRAINING: 900.0}
    assert example(counted=unknown, least={RunState.TRAINING: 900.0}, most=unseen).worst == 0


COST = Cost((0.0002, 0.0004, 0.0008), 2048)


def test_the_page_has_what_is_wrong() -> None:
    wrong = example(counted={RunState.DOWN: 500.0, RunState.TRAINING: 500.0}, steps=(9, 1, 2))
    text = page([example(), wrong], 7, COST)
    assert "| runs | 2 | |" in text
    assert "with a state that is wrong by over 1 % of the run | 1 |" in text
    assert "| down | 500 s | 100 s |" in text
    assert "steps made, redone, lost | 9, 1, 2 | 9, 2, 2 |" in text
    assert "| scrapes that took more than 0.5 ms | 1 | 86 % |" in text
    assert "What is wrong" not in page([example()], 7, COST)


def test_the_truth_is_cut_where_nobody_looked() -> None:
    truth = Truth()
    truth.note(0, RunState.STARTING, visible=True)
    truth.note(50, RunState.TRAINING, visible=True)
    for world in (10, 60, 200, 260):
        truth.look(world)
    truth.restate(90, RunState.STALLED)
    assert [tuple(span) for span in truth.spans(250)] == [
        (10, 50, RunState.STARTING, True),
        (50, 60, RunState.TRAINING, True),
        (60, 90, RunState.TRAINING, False),
        (90, 200, RunState.STALLED, False),
        (200, 250, RunState.STALLED, True),
    ]


def test_the_page_is_of_all_kinds_of_runs_and_their_states_add_up() -> None:
    text = PAGE.read_text()
    found = re.search(r"^\| runs \| (\d+) \|", text, re.MULTILINE)
    assert found is not None
    assert int(found[1]) >= len(NIGHTS) + len(FAULTS) + len(WATCHED_BADLY), "make bench-ledger"
    assert "| states that do not add up to the time counted | 0 |" in text
    known = {one.name for one in NIGHTS} | {one.name for one in FAULTS}
    assert known | {one.name for one in WATCHED_BADLY} >= set(HARD)
    for name in HARD:
        assert f"| {name} |" in text, name
