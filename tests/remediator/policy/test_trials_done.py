"""A worker that has reached its limit of trials is recycled, as a worker over its age is."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.remediator.engine.test_control_loop import HEALED
from tests.remediator.observation.test_snapshot import PAGE
from tests.remediator.samples import GIB, ROLLOUT, make_worker
from tests.remediator.stage import Stage

from trainwarden_remediator.__main__ import main
from trainwarden_remediator.observation.exporter_page import parse_exporter_page

RECYCLE = "recycle_aged_worker"


async def test_it_is_recycled(stage: Stage) -> None:
    async with stage() as scene:
        young = make_worker(memory_bytes=GIB, trials=50, trials_limit=50)
        scene.observer.workers[ROLLOUT] = young
        scene.action.heal = {"trials": 0}
        scene.hear(remediation=RECYCLE)
        await scene.clock.advance(10)
        assert scene.done() == HEALED
        assert scene.action.restarts == [1]


@pytest.mark.parametrize(("trials", "limit"), [(49, 50), (None, 50), (50, None)])
async def test_an_unlimited_worker_is_not(
    stage: Stage, trials: float | None, limit: float | None
) -> None:
    async with stage() as scene:
        scene.observer.workers[ROLLOUT] = make_worker(trials=trials, trials_limit=limit)
        scene.hear(remediation=RECYCLE)
        await scene.clock.advance(30)
        assert scene.journaled() == ["alert", "condition_cleared"]
        assert scene.action.restarts == []


def test_its_trials_are_read_off_the_exporter() -> None:
    labels = '{run="demo",worker="rollout-0",role="rollout"}'
    page = f"{PAGE}trainwarden_worker_trials{labels} 3\ntrainwarden_worker_trials_limit{labels} 5\n"
    worker = parse_exporter_page(page.encode()).workers[ROLLOUT]
    assert (worker.trials, worker.trials_limit) == (3, 5)


@pytest.mark.parametrize("limit", ["trials_limit: 50", "age_limit: 1h", ""])
def test_check_tells_whether_the_playbook_is_about_anything(
    limit: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "exporter.yml").write_text(
        "runs:\n  - name: search\n    framework: optuna\n    path: .\n    workers:\n"
        f"      - {{name: worker-0, match: {{command: no-such-worker}}, {limit}}}\n"
        "    logs: [{name: zero, files: [zero.txt], worker: worker-0}]\n"
    )
    (tmp_path / "remediator.yml").write_text(
        "insecure: true\ntargets:\n"
        "  - {run: search, worker: worker-0, process: {start: [/bin/true]}}\n"
    )
    (tmp_path / "rules.yml").write_text(
        "groups:\n  - name: mine\n    rules:\n      - alert: TrialsDone\n        expr: up\n"
        f"        labels: {{severity: warning, remediation: {RECYCLE}}}\n"
    )
    arguments = ["check", f"--rules={tmp_path}/rules.yml", f"{tmp_path}/remediator.yml"]
    assert main(arguments) == int(not limit)
    journaled = capsys.readouterr().out
    assert ("no target has an age_limit or a trials_limit" in journaled) is (not limit)
    assert ("search/worker-0" in journaled) is bool(limit)
