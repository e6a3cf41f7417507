"""The exporter, in a small cgroup, beside a checkpoint folder with a million files."""

from __future__ import annotations

import os
import re
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.heavy.small_cgroup import SmallCgroup
from tests.waiting import until

import ports

COUNT = 1_000_000
MIB = 1 << 20
LIMIT = 160 * MIB
"""A third of `MemoryMax=` in the unit."""
SCRAPE_SECONDS = 60
FOUND_SECONDS = 900
STEP = 500

CONFIG = """
runs:
  - name: {name}
    checkpoints:
      - name: any
        folder: {folder}
        entry: {entry}
        complete: {{settled: ['*']}}
"""


@pytest.fixture
def cgroup() -> Iterator[SmallCgroup]:
    cgroup = SmallCgroup(LIMIT)
    yield cgroup
    cgroup.close()


def fill(folder: Path, name: str) -> None:
    """Writes a million old files, whose names hold their numbers, and a newer checkpoint."""
    folder.mkdir()
    descriptor = os.open(folder, os.O_RDONLY)
    old = (time.time() - 600,) * 2
    for number in range(COUNT):
        file = os.open(name.format(number), os.O_CREAT | os.O_WRONLY, dir_fd=descriptor)
        os.utime(file, old)
        os.close(file)
    os.close(descriptor)
    checkpoint = folder / f"step_{COUNT + STEP}"
    checkpoint.mkdir()
    (checkpoint / "model.bin").write_bytes(b"1")
    for path in (checkpoint / "model.bin", checkpoint):
        os.utime(path, (time.time() - 300,) * 2)


@pytest.mark.parametrize("name", ["shard-{}.bin", "step_{}"])
def test_the_newest_checkpoint_beside_a_million_files_is_found_within_little_memory(
    tmp_path: Path, cgroup: SmallCgroup, name: str
) -> None:
    folder = tmp_path / "checkpoints"
    fill(folder, name)
    config, log = tmp_path / "exporter.yml", tmp_path / "exporter.log"
    config.write_text(CONFIG.format(name="demo", folder=folder, entry=r"step_(?P<step>\d+)"))
    port = ports.free_port()
    program = cgroup.start(
        *(sys.executable, "-m", "trainwarden_exporter", "run", f"--config.file={config}"),
        f"--web.listen-address=127.0.0.1:{port}",
        log=log,
    )

    def ask(path: str) -> str:
        url = f"http://127.0.0.1:{port}{path}"
        with urllib.request.urlopen(url, timeout=SCRAPE_SECONDS) as answer:
            return str(answer.read().decode())

    def is_ready() -> bool:
        try:
            return bool(ask("/-/ready"))
        except OSError:
            return False

    def step() -> float | None:
        assert program.poll() is None, log.read_text()[-2000:]
        found = re.search(r"^trainwarden_checkpoint_step{.*} (\S+)$", ask("/metrics"), re.MULTILINE)
        return None if found is None else float(found[1])

    until(is_ready, SCRAPE_SECONDS * 2)
    until(lambda: step() == COUNT + STEP, FOUND_SECONDS)
    for _ in range(3):
        assert step() == COUNT + STEP
    assert cgroup.oom_kills == 0
    status = Path(f"/proc/{program.pid}/status").read_text()
    peak = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
    assert peak is not None
    assert int(peak[1]) * 1024 < LIMIT
    assert "Traceback" not in log.read_text()
