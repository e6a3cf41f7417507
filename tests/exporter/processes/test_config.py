from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from trainwarden_exporter.processes.config import RunWorkers, hash_workers

WORKER = {"name": "trainer", "match": {"command": "train", "environment": {"RANK": "0"}}}


def hashed(**changes: Any) -> int:
    return hash_workers(
        [RunWorkers.model_validate({"name": "a", "workers": [{**WORKER, **changes}]})]
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "other"},
        {"match": {"command": "train"}},
        {"match": {"command": "train", "environment": {"RANK": "1"}}},
        {"expected": 2},
    ],
)
def test_the_hash_changes_with_what_selects_processes(changes: dict[str, Any]) -> None:
    assert hashed(**changes) != hashed()


@pytest.mark.parametrize(
    "changes", [{"memory_limit": "1GiB"}, {"role": "trainer"}, {"expected": 1}]
)
def test_the_hash_does_not_change_with_limits(changes: dict[str, Any]) -> None:
    assert hashed(**changes) == hashed()


def test_the_hash_is_exact_as_the_value_of_a_metric() -> None:
    assert hashed() == int(float(hashed()))
    assert hash_workers([]) != hashed()


TRAINER = {"name": "trainer", "match": {"command": "train"}}
SERVER = {"name": "server", "match": {"command": "serve", "user": "bob"}}


def test_the_account_of_a_run_is_that_of_its_workers_unless_they_name_one() -> None:
    run = RunWorkers.model_validate({"name": "a", "user": "alice", "workers": [TRAINER, SERVER]})
    assert [worker.match.user for worker in run.workers] == ["alice", "bob"]
    run = RunWorkers.model_validate({"name": "a", "workers": [TRAINER, SERVER]})
    assert [worker.match.user for worker in run.workers] == [None, "bob"]


def test_the_account_of_a_run_selects_no_processes_without_another_condition() -> None:
    with pytest.raises(ValidationError, match="at least one condition"):
        RunWorkers.model_validate(
            {"name": "a", "user": "alice", "workers": [{"name": "t", "match": {}}]}
        )
