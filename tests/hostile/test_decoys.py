"""Another account starts processes that look like the worker of a run."""

from __future__ import annotations

import os
import signal
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.hostile.accounts import OPERATOR, STRANGER, needs_root, open_folder, started
from tests.hostile.programs import EXPORTER, Program
from tests.remediator.fakes import NoRecords
from tests.remediator.process_yard import Steps
from tests.waiting import until

from trainwarden_exporter.config import Config as ExporterConfig
from trainwarden_exporter.processes.matching import Matcher, WorkerKey, count_live_roots
from trainwarden_exporter.processes.procfs import read_owner, read_process
from trainwarden_exporter.run_config import RunConfig
from trainwarden_remediator.actions.descendants import DescendantTracker
from trainwarden_remediator.actions.process import ProcessAction
from trainwarden_remediator.config.schema import Config, Setup
from trainwarden_remediator.exceptions import ActionError

pytestmark = needs_root

TRAINER = WorkerKey("demo", "trainer")
ACCOUNT, ACCOUNT_UID = "nobody", 65534
METRIC = "trainwarden_worker_processes"
COMMAND = ["sh", "-c", "sleep 600; :", "train-among-decoys.py"]


def exporter_file(*, user: str | None, expected: int = 1) -> ExporterConfig:
    worker = {"name": "trainer", "match": {"command": "[t]rain-among-decoys"}, "expected": expected}
    account = {} if user is None else {"user": user}
    run = RunConfig.model_validate({"name": "demo", **account, "workers": [worker]})
    return ExporterConfig(runs=(run,))


def setup_of(account: str | None, cwd: Path, **process: Any) -> Setup:
    target = {
        "run": "demo",
        "worker": "trainer",
        "process": {"start": COMMAND, "cwd": cwd, "grace": 5, **process},
    }
    config = Config.model_validate({"insecure": True, "targets": [target]})
    return Setup(config, exporter_file(user=account))


def action_for(setup: Setup) -> ProcessAction:
    (target,) = setup.config.targets
    assert target.process is not None
    return ProcessAction(target, target.process, setup, DescendantTracker(NoRecords()))


@pytest.fixture
def action() -> Iterator[ProcessAction]:
    """Restarts the trainer of `nobody`."""
    action = action_for(setup_of(ACCOUNT, Path("/")))
    yield action
    end(action)


def end(action: ProcessAction) -> None:
    for child in action._children:
        os.killpg(child.pid, signal.SIGKILL)  # also the shell's sleep
        child.wait()


def count(*, user: str | None, expected: int = 1) -> int:
    """How many processes of the trainer the exporter counts."""
    setup = Setup(Config(insecure=True), exporter_file(user=user, expected=expected))
    return count_live_roots(Matcher(setup.selectors).find()[TRAINER])


def test_a_decoy_does_not_stand_in_for_a_dead_worker() -> None:
    with started(COMMAND, STRANGER, program="/bin/sh"):
        assert count(user=str(OPERATOR)) == 0


def test_a_decoy_does_not_stand_in_for_one_of_two() -> None:
    with ExitStack() as stack:
        stack.enter_context(started(COMMAND, STRANGER, program="/bin/sh"))
        stack.enter_context(started(COMMAND, OPERATOR, program="/bin/sh"))
        assert count(user=str(OPERATOR), expected=2) == 1


def test_a_worker_is_restarted_beside_a_decoy_as_its_own_account(action: ProcessAction) -> None:
    with ExitStack() as stack:
        decoy = stack.enter_context(started(COMMAND, STRANGER, program="/bin/sh"))
        worker = stack.enter_context(started(COMMAND, ACCOUNT_UID, program="/bin/sh"))
        action.find_instances()
        facts = action.perform("hostile/1", Steps())
        (pid,) = facts["processes"]
        assert facts["started_by"] == "trainwarden"
        until(lambda: read_owner(pid) == ACCOUNT)
        assert decoy.poll() is None
        assert worker.poll() is not None


def test_a_dead_worker_is_started_beside_a_decoy(action: ProcessAction) -> None:
    with started(COMMAND, STRANGER, program="/bin/sh"):
        action.find_instances()
        assert action.perform("hostile/2", Steps())["started_by"] == "trainwarden"


def test_a_worker_in_the_folder_of_another_account_is_not_started_as_root() -> None:
    with open_folder(ACCOUNT_UID) as folder:
        action = action_for(setup_of(None, folder))
        with pytest.raises(ActionError, match=f"as root what belongs to {ACCOUNT}"):
            action.perform("hostile/3", Steps())
        action = action_for(setup_of(None, folder, user="root"))
        (pid,) = action.perform("hostile/4", Steps())["processes"]
        assert read_owner(pid) == "root"
        end(action)


def test_a_worker_last_seen_as_another_account_is_not_started_as_root() -> None:
    action = action_for(setup_of(None, Path("/")))
    with started(COMMAND, OPERATOR, program="/bin/sh") as worker:
        action.find_instances()
        assert read_process(worker.pid) is not None
    successor = action_for(setup_of(None, Path("/")))
    successor.take_over_from(action)
    with pytest.raises(ActionError, match=f"as root what belongs to {OPERATOR}"):
        successor.perform("hostile/5", Steps())


EXPORTER_FILE = """\
runs:
  - name: demo
    user: '{user}'
    workers:
      - {{name: trainer, match: {{command: '[t]rain-among-decoys'}}}}
"""


@pytest.mark.parametrize(("user", "shown"), [(OPERATOR, 0), (STRANGER, 1)])
def test_the_running_exporter_counts_the_account_of_the_run(
    tmp_path: Path, user: int, shown: int
) -> None:
    (tmp_path / "exporter.yml").write_text(EXPORTER_FILE.format(user=user))
    with started(COMMAND, STRANGER, program="/bin/sh"):
        program = Program(EXPORTER, tmp_path)
        try:
            url = f"http://127.0.0.1:{program.address[1]}/metrics"
            with urllib.request.urlopen(url, timeout=60) as answer:
                page = answer.read().decode()
        finally:
            program.close()
    (line,) = (line for line in page.splitlines() if line.startswith(f"{METRIC}{{"))
    assert float(line.split()[-1]) == shown
