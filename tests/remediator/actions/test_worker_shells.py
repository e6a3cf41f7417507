"""Restarts of workers that shells run, and that shells outlive."""

from __future__ import annotations

import random
import shlex
import sys
from pathlib import Path

import psutil
from tests.remediator.decoys import restart_beside_decoys
from tests.remediator.process_yard import SLEEP, Steps, Yard, alive
from tests.remediator.samples import GIB, ROLLOUT, make_worker
from tests.waiting import until

from trainwarden_remediator.observation.model import ExporterState


def command_of(yard: Yard) -> str:
    return shlex.join([sys.executable, "-c", SLEEP, yard.mark])


def shown(processes: int) -> ExporterState:
    return ExporterState({ROLLOUT: make_worker(processes=processes)}, GIB, 0)


def test_a_worker_that_died_below_its_shell_is_started_and_the_shell_goes_on(yard: Yard) -> None:
    shell, _ = yard.run_command("bash", "-c", f"{command_of(yard)}; sleep 600; :")
    (worker,) = psutil.Process(shell.pid).children()
    worker.kill()
    until(lambda: [one.name() for one in psutil.Process(shell.pid).children()] == ["sleep"])
    (sleep,) = psutil.Process(shell.pid).children()
    yard.care_for(sleep.pid)

    # a remediator that has just started decides like the exporter
    intended = yard.acting().find_instances()
    assert intended == []
    assert yard.action.proof_problem(shown(0)) == ""
    facts = yard.action.perform("7", Steps(), intended=intended)

    assert facts["killed"] == []
    assert facts["started_by"] == "trainwarden"
    until(lambda: [root.pid for root in yard.tree().roots] == facts["processes"])
    assert shell.poll() is None
    assert sleep.is_running()


def test_a_hung_worker_is_ended_and_its_shell_is_not(yard: Yard) -> None:
    shell, _ = yard.run_command("sh", "-c", f"{command_of(yard)}; sleep 600")
    (worker,) = psutil.Process(shell.pid).children()
    intended = yard.action.find_instances()
    assert [one.pid for one in intended] == [worker.pid]
    steps = Steps()
    facts = yard.action.perform("7", steps, intended=intended)

    assert steps[0] == ("stop", {"processes": [worker.pid]})
    assert facts["started_by"] == "trainwarden"
    assert not alive(worker.pid)
    assert shell.poll() is None
    for child in psutil.Process(shell.pid).children():
        yard.care_for(child.pid)


def test_a_shell_that_would_start_the_worker_once_more_ends_with_it(yard: Yard) -> None:
    shell, _ = yard.run_command("bash", "-c", f"while :; do {command_of(yard)}; done")
    (worker,) = psutil.Process(shell.pid).children()
    yard.care_for(worker.pid)
    facts = yard.action.perform("7", Steps(), intended=yard.action.find_instances())
    assert shell.wait(60) != 0
    until(lambda: [root.pid for root in yard.tree().roots] == facts["processes"])


def test_a_shell_that_was_started_with_the_worker_is_replaced_with_it(yard: Yard) -> None:
    action = yard.acting(start=["bash", "-c", f"{command_of(yard)}; sleep 600; :"])
    (first,) = action.perform("7", Steps())["processes"]
    until(lambda: psutil.Process(first).children() and yard.tree().roots)
    (worker,) = psutil.Process(first).children()
    worker.kill()
    until(lambda: [one.name() for one in psutil.Process(first).children()] == ["sleep"])
    (sleep,) = psutil.Process(first).children()

    steps = Steps()
    (second,) = action.perform("8", steps, intended=action.find_instances())["processes"]

    assert [step for step, _ in steps] == ["stop", "start"]
    assert not alive(first)
    assert not alive(sleep.pid)
    until(lambda: psutil.Process(second).children())
    for child in psutil.Process(second).children():
        yard.care_for(child.pid)


def test_no_wrong_process_is_ended_beside_shells_that_start_and_end(tmp_path: Path) -> None:
    tally = restart_beside_decoys(tmp_path, 40, random.Random(3), shells=True)  # noqa: S311
    assert tally.wrongly_ended == []
    assert tally.restarts == 40
