from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.remediator.policy.test_decide import (
    CLEANS,
    LEFTOVERS,
    WORKERS,
    held_by,
    incident,
    snapshot,
    state,
)
from tests.remediator.samples import NOW, make_config

from trainwarden_exporter.app import Exporter
from trainwarden_remediator.config.schema import load_setup
from trainwarden_remediator.model import Incident
from trainwarden_remediator.observation.snapshot import Snapshot
from trainwarden_remediator.policy.decide import decide

ALIKE = {"demo": 5.0}
LEAK = incident()


@pytest.mark.parametrize(
    ("about", "shown", "expected"),
    [
        (LEAK, ALIKE, "act restart"),
        (LEAK, {"demo": 6.0}, "wait observation_failed"),
        (LEAK, {"second": 5.0}, "wait observation_failed"),
        (LEAK, {}, "wait observation_failed"),  # an older exporter, with the hash of all
        # What belongs to no worker is a leftover, so every worker counts.
        (LEFTOVERS, ALIKE, "wait observation_failed"),
    ],
)
def test_other_workers_of_the_exporter_stop_only_what_depends_on_them(
    tmp_path: Path, about: Incident, shown: dict[str, float], expected: str
) -> None:
    seen: Snapshot = held_by(2) if about is LEFTOVERS else snapshot()
    assert seen.exporter is not None
    exporter = replace(seen.exporter, workers_hash=1, run_hashes=shown)
    known = state(
        make_config(tmp_path, *WORKERS, **CLEANS), snapshot=replace(seen, exporter=exporter)
    )
    known = replace(known, setup=replace(known.setup, run_hashes={"demo": 5}))
    assert decide(about, known, NOW).text == expected


@pytest.mark.parametrize(("ago", "expected"), [(89, "wait observation"), (90, "refuse config")])
def test_runs_that_come_and_go_on_a_loaded_host_are_no_reason_to_call(
    tmp_path: Path, ago: float, expected: str
) -> None:
    waited = incident(last_decision="wait observation_failed", last_decided_at=NOW - ago)
    seen: Snapshot = snapshot()
    assert seen.exporter is not None
    exporter = replace(seen.exporter, workers_hash=1, run_hashes={"demo": 6.0})
    known = state(make_config(tmp_path, *WORKERS), snapshot=replace(seen, exporter=exporter))
    known = replace(known, setup=replace(known.setup, run_hashes={"demo": 5}))
    assert decide(waited, known, NOW).text.startswith(expected)


def test_both_programs_have_one_hash_for_a_worker_that_is_in_the_file_and_announced(
    tmp_path: Path,
) -> None:
    """It keeps its selector of the file, so it counts for the other runs of its account, too."""
    announced, file = tmp_path / "runs.d", tmp_path / "exporter.yml"
    announced.mkdir()
    for run in ("demo", "other"):
        (announced / run).with_suffix(".json").write_text(
            json.dumps({"run": run, "worker": "trainer", "pid": 7})
        )
        (announced / run).with_suffix(".json").chmod(0o600)
    workers = "workers: [{name: trainer, match: {command: train}}]"
    file.write_text(
        f"runs_folder: {announced}\nruns: [{{name: demo, {workers}}}, {{name: night, {workers}}}]"
    )
    (tmp_path / "remediator.yml").write_text(
        f"insecure: true\njournal: {tmp_path}/journal.db\nexporter: {{config: {file}}}\n"
    )
    exporter = Exporter(file, build=lambda _: ())
    samples = [one for family in exporter.exporter_families() for one in family.samples]
    shown = {
        one.labels["run"]: one.value
        for one in samples
        if one.name == "trainwarden_config_run_workers_hash"
    }

    assert shown.keys() == {"demo", "night", "other"}
    assert load_setup(tmp_path / "remediator.yml").run_hashes == shown
