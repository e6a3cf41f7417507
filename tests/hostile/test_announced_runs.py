"""An account announces runs to a stack of root, beside a run of root's file."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.hostile.accounts import STRANGER, needs_root, open_folder, started
from tests.remediator.api.test_webhook import come, post, running
from tests.remediator.live_host import Box
from tests.remediator.samples import delivery, make_alert

from trainwarden_exporter.app import Exporter
from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.processes.procfs import read_process
from trainwarden_remediator.config.targets import Target
from trainwarden_remediator.journal.journal import Journal

pytestmark = needs_root

HEALED_SECONDS = 20
CHURN = """\
cd "$0"; n=0
while :; do
  n=$((n + 1))
  for run in a$n b$n c$n; do
    echo "{\\"run\\": \\"$run\\", \\"worker\\": \\"w\\", \\"pid\\": 0}" >new
    mv new "$run@w.json"; sleep 0.002
  done
  rm ?$n@w.json
done
"""
"""Announces three runs and withdraws them, again and again, in the folder `$0`."""


class SharedBox(Box):
    """A host whose exporter also watches the runs that another account announces in `runs`."""

    def __init__(self, folder: Path, runs: Path) -> None:
        self.runs = runs
        self.ended: dict[str, int] = {}
        """Announced runs that the exporter shows, and the pid of each."""
        super().__init__(folder)

    def match(self, command: str, role: str = "rollout") -> None:
        super().match(command, role)
        file = self.folder / "exporter.yml"
        content = yaml.safe_load(file.read_text())
        content["runs"][0]["workers"][0]["match"]["user"] = "root"
        file.write_text(yaml.safe_dump(content | {"runs_folder": str(self.runs / "runs.d")}))

    def reload_exporter(self) -> None:
        super().reload_exporter()
        self.exporter = Exporter(self.folder / "exporter.yml", build=lambda _: ())

    def hashes(self) -> list[str]:
        """The hashes of the workers as a real exporter shows them, which looks for runs first."""
        asyncio.run(self.exporter.refresh_runs())
        samples = (one for family in self.exporter.exporter_families() for one in family.samples)
        return [
            f"{one.name}{labelled(**one.labels)} {one.value}"
            for one in samples
            if "workers_hash" in one.name
        ]

    def page(self) -> str:
        lines = [
            f"trainwarden_worker_{name}{labelled(run=run, worker='w', role='worker')} {value}\n"
            for run, pid in self.ended.items()
            for name, value in (
                ("processes", int(read_process(pid) is not None)),
                ("expected_processes", 1),
                ("memory_bytes", 0),
                ("finished", 0),
            )
        ]
        return super().page() + "".join(lines)


def labelled(**labels: str) -> str:
    shown = ",".join(f'{name}="{value}"' for name, value in labels.items())
    return f"{{{shown}}}" if shown else ""


@pytest.fixture
def box(tmp_path: Path) -> Iterator[SharedBox]:
    with open_folder(STRANGER) as folder:
        (folder / "runs.d").mkdir()
        os.chown(folder / "runs.d", STRANGER, STRANGER)
        box = SharedBox(tmp_path, folder)
        yield box
        box.close()


async def test_runs_that_come_and_go_do_not_stop_the_healing_of_another_account(
    box: SharedBox,
) -> None:
    own = box.start_worker()
    async with running(box, engine=True) as (client, _):
        with started(["sh", "-c", CHURN, str(box.runs / "runs.d")]):
            await come(lambda: len({box.hashes()[0] for _ in range(5)}) > 1)
            assert (await post(client, delivery(box.alert()))).status == 200
            async with asyncio.timeout(HEALED_SECONDS):
                await come(lambda: "healed" in box.journaled())
    assert own.wait(60) == -15


async def test_restarts_of_the_runs_of_another_account_do_not_use_up_those_of_the_host(
    box: SharedBox,
) -> None:
    own = box.start_worker()
    for run in GREEDY:
        announce(box.runs, run)
    async with running(box, engine=True) as (client, remediator):
        targets = [remediator.setup.config.target(WorkerKey(run, "w")) for run in GREEDY]
        for target in (*targets, *targets):
            assert target is not None
            act(remediator.journal, target)
        for run in GREEDY:  # a limit that counts the targets falls
            (box.runs / "runs.d" / f"{run}@w.json").unlink()
        assert (await post(client, delivery(box.alert()))).status == 200
        async with asyncio.timeout(HEALED_SECONDS):
            await come(lambda: "healed" in box.journaled())
    assert own.wait(60) == -15


async def test_dead_runs_of_another_account_do_not_delay_the_restart_of_a_worker(
    box: SharedBox,
) -> None:
    for run in GREEDY:
        with started(["sleep", "600"]) as child:
            announce(box.runs, run, child.pid)
        box.ended[run] = child.pid
    verify = {"timeout": "20s", "stable_for": "0s"}
    playbook = {"condition": "missing", "verify": verify}
    box.configure(mass_failure_hold="6h", playbooks={"start_missing_worker": playbook})
    async with running(box, engine=True) as (client, remediator):
        assert len(remediator.setup.config.targets) == 1 + len(GREEDY)
        alert = box.alert(remediation="start_missing_worker")
        assert (await post(client, delivery(alert))).status == 200
        await come(lambda: any(event.kind == "decision" for event in box.events()))
        reasons = [e.facts["reason"] for e in box.events() if e.kind == "decision"]
        assert reasons[0] == "restart"
        await come(lambda: "healed" in box.journaled())


GREEDY = ("greedy1", "greedy2", "greedy3")


def announce(folder: Path, run: str, pid: int = 0) -> None:
    """Announces a run of STRANGER that may be restarted at its socket."""
    content = {"run": run, "worker": "w", "pid": pid, "restart": "on-request"}
    content["socket"] = str(folder / "runs.d" / f"{run}.sock")
    file = folder / "runs.d" / f"{run}@w.json"
    file.write_text(json.dumps(content))
    os.chown(file, STRANGER, STRANGER)


def act(journal: Journal, target: Target) -> None:
    """Records a restart of `target` that did not help."""
    fingerprint = f"{GREEDY.index(target.run) + 1:016x}"
    journal.record_alerts([make_alert(fingerprint=fingerprint, run=target.run, worker="w")])
    incident = next(one for one in journal.open_incidents() if one.run == target.run)
    number = journal.record_intent(incident.id, target.key, "restart", (), account=target.account)
    journal.record_result(number, "done")
    journal.record_outcome(number, "not_healed")
