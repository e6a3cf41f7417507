"""Something else starts the same worker between the last look and the start."""

from __future__ import annotations

import subprocess

import pytest
from tests.remediator.process_yard import SLEEP, Steps, Yard, alive

from trainwarden_exporter.processes.procfs import Identity, read_process
from trainwarden_remediator.actions import process
from trainwarden_remediator.actions.earlier_start import earlier_starts
from trainwarden_remediator.actions.spawn import start_process
from trainwarden_remediator.config.restart_methods.process import ProcessTarget


@pytest.mark.parametrize("earlier", [True, False])
def test_the_later_start_is_withdrawn(
    yard: Yard, monkeypatch: pytest.MonkeyPatch, *, earlier: bool
) -> None:
    others: list[subprocess.Popen[str]] = []

    def start(target: ProcessTarget, action_token: str) -> subprocess.Popen[bytes]:
        if earlier:
            others.append(yard.run(SLEEP))
        child = start_process(target, action_token)
        if not earlier:
            others.append(yard.run(SLEEP))
        return child

    monkeypatch.setattr(process, "start_process", start)
    facts = yard.action.perform("7", Steps())
    (other,) = others
    assert alive(other.pid)
    if earlier:
        assert facts == {"killed": [], "started_by": "another", "processes": [other.pid]}
        assert [root.pid for root in yard.tree().roots if root.alive] == [other.pid]
    else:
        assert facts["started_by"] == "trainwarden"
        assert alive(facts["processes"][0])
    assert yard.action.start_failure() == ""


def test_what_the_start_itself_has_launched_is_no_earlier_one(yard: Yard) -> None:
    """Its pid may be lower: the kernel begins again at the lowest."""
    launcher, below = yard.run_tree()
    own, other = read_process(launcher.pid), yard.run(SLEEP)
    assert own is not None
    lower = Identity(below, own.identity.start_ticks - 1)
    earlier = Identity(other.pid, own.identity.start_ticks - 1)
    assert earlier_starts(launcher, [lower, own.identity, earlier]) == [earlier]
