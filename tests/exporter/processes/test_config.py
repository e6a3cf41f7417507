from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from trainwarden_exporter.processes.config import (
    RunWorkers,
    hash_workers,
    hash_workers_by_run,
)
from trainwarden_exporter.processes.matching import WorkerKey

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


def hashed_run(user: str | None, **others: dict[str, Any]) -> int:
    """The hash of the run `a` of an account, beside a run of each of the `others`."""
    match = {"command": "train"} if user is None else {"command": "train", "user": user}
    workers = {"a": match, **others}
    return hash_workers_by_run(
        [
            RunWorkers.model_validate({"name": run, "workers": [{"name": "w", "match": one}]})
            for run, one in workers.items()
        ]
    )["a"]


@pytest.mark.parametrize("user", ["root", "0"])
def test_the_hash_of_a_run_does_not_change_with_a_worker_of_another_account(user: str) -> None:
    assert hashed_run(user, b={"pid_file": "/run/b", "user": "61234"}) == hashed_run(user)


@pytest.mark.parametrize(
    ("user", "other"),
    [
        ("root", {"user": "0"}),
        ("0", {"user": "root"}),
        ("61234", {"user": "61234"}),
        ("root", {}),
        (None, {"user": "61234"}),
        ("root", {"user": "an-account-that-does-not-exist"}),
        ("an-account-that-does-not-exist", {"user": "61234"}),
    ],
)
def test_the_hash_of_a_run_changes_with_each_worker_that_may_find_its_processes(
    user: str | None, other: dict[str, str]
) -> None:
    assert hashed_run(user, b={"pid_file": "/run/b", **other}) != hashed_run(user)
    assert hashed_run(user) != hashed_run("1")


def test_the_hash_of_a_run_does_not_change_with_what_is_announced_for_another_run() -> None:
    """Else each start of a run, and each end, would interrupt an action on any other one."""
    announced = [
        RunWorkers.model_validate(
            {"name": run, "workers": [{"name": "w", "match": {"pid_file": f"/run/{run}"}}]}
        )
        for run in ("a", "b")
    ]
    keys = [WorkerKey("a", "w"), WorkerKey("b", "w")]
    alone, beside = (hash_workers_by_run(announced[:count], keys) for count in (1, 2))

    assert alone["a"] == beside["a"] != beside["b"]
    assert hash_workers_by_run(announced, keys[:1])["a"] != alone["a"]
    renewed = announced[0].model_copy(update={"workers": announced[1].workers})
    assert hash_workers_by_run([renewed], keys) != alone


def test_a_worker_counts_if_any_worker_of_the_run_may_be_of_its_account() -> None:
    run = {"name": "a", "user": "61234", "workers": [TRAINER, SERVER | {"match": OF_ROOT}]}
    other = {"name": "b", "workers": [{"name": "w", "match": OF_ROOT | {"command": "eval"}}]}
    alone, beside = (
        hash_workers_by_run([RunWorkers.model_validate(one) for one in runs])
        for runs in ([run], [run, other])
    )
    assert alone["a"] != beside["a"] != beside["b"]


OF_ROOT = {"command": "serve", "user": "root"}
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
