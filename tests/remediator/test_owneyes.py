from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.remediator.conftest import ROLLOUT, Yard

from trainwarden_exporter.collectors.host import HostConfig
from trainwarden_exporter.config import Config as ExporterConfig
from trainwarden_exporter.processes.config import WorkerConfig
from trainwarden_exporter.processes.matching import Selector, WorkerKey
from trainwarden_exporter.processes.procfs import read_process, start_timestamp
from trainwarden_exporter.runs import RunConfig
from trainwarden_remediator.config import Config, Setup
from trainwarden_remediator.exceptions import UnknownError
from trainwarden_remediator.owneyes import OwnEyes

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
    """One that may hold 1000 bytes, and holds 700 it cannot drop."""
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
    setup = make_setup(yard.mark, cgroup=cgroup, memory_available_floor=400)
    sight = OwnEyes(setup).look()
    assert (sight.memory_available_bytes, sight.memory_floor_bytes) == (300, 400)
    assert sight.memory_stalled["cgroup", "some"] == 5
    assert sight.memory_stalled["cgroup", "full"] == 2
    worker = sight.workers[ROLLOUT]
    process = read_process(child.pid)
    assert process is not None
    assert (worker.processes, worker.expected, worker.finished) == (1, 2, False)
    assert worker.resident_bytes > 64 << 20
    assert worker.started_at == start_timestamp(process.identity)
    assert worker.memory_limit_bytes == 8 << 30
    assert sight.workers[WorkerKey("demo", "gone")].processes == 0


def test_where_it_cannot_see_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(UnknownError, match="cannot see by itself"):
        OwnEyes(make_setup("x"), proc=tmp_path, cgroup_root=tmp_path).look()
