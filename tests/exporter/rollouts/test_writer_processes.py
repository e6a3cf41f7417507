from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from trainwarden_exporter.rollouts.writer_processes import INTERVAL, WriterAccounts
from trainwarden_exporter.run_config import RunConfig

if TYPE_CHECKING:
    from tests.exporter.conftest import FakeProc


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


def status(uid: int) -> dict[str, str]:
    lines = (f"Uid:\t{uid}\t{uid}\t{uid}\t{uid}", f"Gid:\t{uid}\t{uid}\t{uid}\t{uid}")
    return {"status": "\n".join((*lines, "Groups:\t", "CapEff:\t0000000000000000"))}


def run(*roles: str, name: str = "r") -> RunConfig:
    workers: list[dict[str, Any]] = [
        {"name": role, "role": role, "match": {"command": f"{name}-{role}"}} for role in roles
    ]
    return RunConfig.model_validate({"name": name, "workers": workers})


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_batches_are_written_by_the_orchestrator_and_weights_by_the_trainer(
    proc: FakeProc, clock: Clock
) -> None:
    for pid, role in enumerate(("trainer", "rollout", "orchestrator"), start=10):
        proc.add(pid, ["python", f"r-{role}"], files=status(1000 + pid))
    found = WriterAccounts([run("trainer", "rollout", "orchestrator")], root=proc.root, clock=clock)
    batches, weights = found.account("r", "batches"), found.account("r", "weights")
    assert batches is not None
    assert weights is not None
    assert (batches.uid, weights.uid) == (1012, 1010)


def test_each_run_has_its_own(proc: FakeProc, clock: Clock) -> None:
    proc.add(10, ["python", "a-rollout"], files=status(1000))
    proc.add(11, ["python", "b-rollout"], files=status(1001))
    found = WriterAccounts(
        [run("rollout", name="a"), run("rollout", name="b"), run(name="c")],
        root=proc.root,
        clock=clock,
    )
    users = [account and account.uid for account in (found.account(r, "batches") for r in "abc")]
    assert users == [1000, 1001, None]


def test_an_ended_writer_is_still_known_and_a_new_writer_after_a_while(
    proc: FakeProc, clock: Clock
) -> None:
    proc.add(10, ["python", "r-rollout"], files=status(1000))
    found = WriterAccounts([run("rollout")], root=proc.root, clock=clock)
    found.account("r", "batches")
    proc.remove(10)
    clock.now += INTERVAL
    account = found.account("r", "batches")
    assert account is not None
    assert account.uid == 1000
    proc.add(11, ["python", "r-rollout"], files=status(1001))
    assert found.account("r", "batches") == account
    clock.now += INTERVAL
    account = found.account("r", "batches")
    assert account is not None
    assert account.uid == 1001


def test_where_nobody_writes_processes_are_not_even_listed(proc: FakeProc, clock: Clock) -> None:
    found = WriterAccounts([run("evaluation")], root=proc.root / "gone", clock=clock)
    assert found.account("r", "batches") is None
