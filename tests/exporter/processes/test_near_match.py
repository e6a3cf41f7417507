from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.processes.near_match import (
    SEARCH_INTERVAL,
    NearMatchFinder,
    describe_selector,
)
from trainwarden_exporter.processes.selector import Selector

if TYPE_CHECKING:
    from tests.exporter.conftest import FakeProc

KEY = WorkerKey("demo", "trainer")


def selector(command: str) -> Selector:
    return Selector.model_validate({"command": command})


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (r"python .*trian\.py", "python train.py"),
        (r"\btrain\.py --seed 1", "python train.py"),
        (r"my_trainer\.worker", "python -m my_trainer.workers"),
        (r"\bserve_model\b", ""),
        (r"python", ""),
    ],
)
def test_the_most_similar_script_is_named(proc: FakeProc, command: str, expected: str) -> None:
    proc.add(10, ["/usr/bin/python", "/home/a/train.py", "--token", "secret"])
    proc.add(11, ["python", "-m", "my_trainer.workers"])
    proc.add(12, ["nginx"])

    assert NearMatchFinder(proc.root).find(KEY, selector(command)) == expected


def test_processes_are_searched_once_a_minute(proc: FakeProc) -> None:
    now = 0.0
    finder = NearMatchFinder(proc.root, clock=lambda: now)
    assert finder.find(KEY, selector("trian")) == ""
    proc.add(10, ["train"])
    now = SEARCH_INTERVAL - 1
    assert finder.find(KEY, selector("trian")) == ""
    now = SEARCH_INTERVAL
    assert finder.find(KEY, selector("trian")) == "train"


def test_a_selector_is_described_as_in_the_file() -> None:
    chosen = Selector.model_validate({"command": "train", "user": "ann"})

    assert describe_selector(chosen) == "command: train, user: ann"
