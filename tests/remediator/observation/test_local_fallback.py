from __future__ import annotations

from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.remediator.process_yard import Yard
from tests.remediator.samples import ROLLOUT

from trainwarden_exporter.config import Config as ExporterConfig
from trainwarden_exporter.host.config import HostConfig
from trainwarden_exporter.processes.config import WorkerConfig
from trainwarden_exporter.processes.matching import Selector, WorkerKey
from trainwarden_exporter.processes.procfs import read_process
from trainwarden_exporter.processes.start_times import start_timestamp
from trainwarden_exporter.run_config import RunConfig
from trainwarden_remediator.config.schema import Config, Setup
from trainwarden_remediator.exceptions import ObservationError
from trainwarden_remediator.observation.local_fallback import LocalObserver

HOLDS = "x = bytearray(64 << 20); import time; print('up', flush=True); time.sleep(30)"


def make_setup(match: str, **host: Any) -> Setup:
    workers = (
        WorkerConfig(
            name="rollout-0",
            match=Selector.model_validate({"command": match}),
            expected=2,
            memory_limit=8 << 30,
        ),
        WorkerConfig(name="gone", match=Selector.model_validate({"command": "no-such-thing"})),
    )
    watched = ExporterConfig(
        host=HostConfig(**host), runs=(RunConfig(name="demo", workers=workers),)
    )
    return Setup(Config(insecure=True), watched)


@pytest.fixture
def cgroup(tmp_path: Path) -> Path:
    """A cgroup that may hold 1000 bytes, and holds 700 that it cannot drop."""
    folder = tmp_path / "cgroup"
    folder.mkdir()
    for name, text in {
        "memory.max": "1000\n",
        "memory.current": "900\n",
        "memory.stat": "inactive_file 200\n",
        "memory.pressure": "some avg10=0.00 total=5000000\nfull avg10=0.00 total=2000000\n",
    }.items():
        (folder / name).write_text(text)
    return folder


def test_it_sees_memory_and_workers_as_the_exporter_does(yard: Yard, cgroup: Path) -> None:
    child = yard.run(HOLDS)
    setup = make_setup(yard.mark, cgroup=cgroup, memory_available_floor="400B")
    exporter = LocalObserver(setup).observe()
    assert (exporter.memory_available_bytes, exporter.memory_floor_bytes) == (300, 400)
    assert exporter.memory_stalled["cgroup", "some"] == 5
    assert exporter.memory_stalled["cgroup", "full"] == 2
    worker = exporter.workers[ROLLOUT]
    process = read_process(child.pid)
    assert process is not None
    assert (worker.processes, worker.expected, worker.finished) == (1, 2, False)
    assert worker.memory_bytes > 64 << 20
    assert worker.started_at == start_timestamp(process.identity)
    assert worker.memory_limit_bytes == 8 << 30
    assert exporter.workers[WorkerKey("demo", "gone")].processes == 0


def test_where_it_cannot_see_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path))
    with pytest.raises(ObservationError, match="local observation failed"):
        LocalObserver(make_setup("x"), proc=tmp_path, cgroup_root=tmp_path).observe()
