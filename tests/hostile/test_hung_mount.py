"""A mount that never answers, as NFS or a FUSE file system whose server is gone."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.hostile.hung_mount import hung_mount
from tests.hostile.programs import EXPORTER, Program
from tests.waiting import until

from trainwarden_exporter.processes.ancestry import descendants
from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.processes.procfs import read_process, read_processes
from trainwarden_exporter.processes.stacks.model import Activity, Diagnosis, Member
from trainwarden_exporter.processes.stacks.sampler import RunSampler

WAITS = """
import concurrent.futures, os, sys
os.chdir(sys.argv[2])  # in this mount namespace
print(flush=True)
match sys.argv[1]:
    case "open": open(f"{os.getcwd()}/mount/model.safetensors")
    case "stat": os.stat("mount/data")
    case "space": os.statvfs(f"{os.getcwd()}/mount")
    case "thread":
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            pool.submit(open, "mount/step_7.pt").result()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hung")
    (folder / "mount").mkdir()
    return folder


@pytest.fixture(scope="module")
def within(folder: Path) -> Iterator[list[str]]:
    """The start of a command line for programs that see the mount."""
    try:
        mounted = hung_mount(folder / "mount")
        yield mounted.__enter__()
    except OSError as error:
        pytest.skip(f"no FUSE file system can be mounted here: {error}")
    mounted.__exit__(None, None, None)


@pytest.mark.parametrize(
    ("how", "named"),
    [
        ("open", "mount/model.safetensors"),
        ("stat", "mount/data"),
        ("space", "mount"),
        ("thread", "mount/step_7.pt"),
    ],
)
def test_a_rank_that_waits_for_it_is_found_and_the_file_is_named(
    folder: Path, within: list[str], how: str, named: str
) -> None:
    command = [*within, sys.executable, "-S", "-c", WAITS, how, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline()
            found = read_process(process.pid)
            assert found is not None
            key = WorkerKey("night", "trainer")
            rank = Member(key, "trainer", found.identity, 1, 1, 0, 1, 1, is_trainer=True)
            sampler, seen = RunSampler(), list[Diagnosis]()

            def is_found() -> bool:
                seen.append(sampler.look(1.0, [rank]))
                return bool(seen[-1].findings[0].far_ends)

            until(is_found)
        finally:
            process.kill()

    assert seen[-1].movement == "unknown"
    assert seen[-1].findings[0].activity is Activity.DISK
    assert seen[-1].chain == f"rank 0 waits for a disk or mount {folder / named}"


def test_an_exporter_whose_disk_logs_and_checkpoints_are_on_it_reports_the_rest(
    folder: Path, within: list[str]
) -> None:
    path, mark = str(folder / "mount"), f"hung-worker-{os.getpid()}"
    workers = [
        {"name": name, "role": "trainer", "match": {"command": mark, "cwd": cwd}}
        for name, cwd in (("beside", str(folder)), ("on_it", path))
    ]
    saves = {"name": "saves", "folder": "checkpoints", "entry": r"step_(?P<step>\d+)"}
    run = {
        "name": "night",
        "path": path,
        "workers": workers,
        "logs": [{"name": "trainer", "files": ["trainer.log"]}],
        "checkpoints": [saves | {"complete": {"renamed": True}}],
    }
    config = {"disks": [{"path": path, "probe": {}}], "runs": [run]}
    (folder / "exporter.yml").write_text(json.dumps(config))  # JSON is YAML
    with subprocess.Popen(["sh", "-c", "sleep 1000; true", mark], cwd=folder) as worker:
        program = Program(EXPORTER, folder, within=within)
        try:
            lines = program.page("/metrics").splitlines()
        finally:
            program.close()
            for pid in descendants(read_processes(), [worker.pid]):
                os.kill(pid, signal.SIGKILL)
            worker.kill()

    failed = [line for line in lines if re.match(r"trainwarden_collector_success.* 0", line)]
    assert failed == []
    assert f'trainwarden_disk_up{{path="{path}"}} 0.0' in lines
    seen = 'trainwarden_worker_processes{role="trainer",run="night",worker="beside"} 1.0'
    assert seen in lines
