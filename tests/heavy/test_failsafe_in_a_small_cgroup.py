"""The failsafe where memory is truly short: in a small cgroup, beside a worker with the rest.

The kernel kills a process that asks for more. The test needs root, and writable cgroups.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.heavy.small_cgroup import SmallCgroup
from tests.waiting import until

from running import SCRIPTS, alive
from trainwarden_exporter.processes.procfs import Identity, read_process
from trainwarden_remediator.journal.database import connect
from trainwarden_remediator.journal.rows import Event, read_events

MIB = 1 << 20
LIMIT, FLOOR = 256 * MIB, 24 * MIB
LONGEST_SECONDS = 120

# Grows, on request, until its cgroup has less than a megabyte left; what the remediator has
# started only sits there. Usage and statistics of a cgroup may lag by two seconds.
WORKER = """
import os, pathlib, sys, time
folder, cgroup = map(pathlib.Path, sys.argv[2:4])
limit, usage = (cgroup / name for name in sys.argv[4:6])
def left():
    stat = dict(line.split() for line in (cgroup / "memory.stat").read_text().splitlines())
    total = "total_" if "total_cache" in stat else ""
    cache = sum(int(stat[f"{total}{kind}_file"]) for kind in ("active", "inactive"))
    return int(limit.read_text()) - int(usage.read_text()) + cache
held, full_since = [], None
while "TRAINWARDEN_ACTION" not in os.environ:
    if not (folder / f"{sys.argv[1]}.fill").exists():
        time.sleep(0.1)
    elif left() > 1 << 20:
        held.append(bytearray(b"1") * (1 << 18))
        full_since = None
    elif full_since is None:
        full_since = time.monotonic()
    elif time.monotonic() - full_since > 3:
        (folder / "full").touch()
        break
    else:
        time.sleep(0.1)
time.sleep(600)
"""

# Asks for more than there can be: the kernel is to kill this process first.
WITNESS = "bytearray(b'1') * (8 << 20)"


class Scene:
    """Two workers and a remediator in that cgroup, which nobody else tells anything."""

    def __init__(self, folder: Path, cgroup: SmallCgroup) -> None:
        self.folder = folder
        self.cgroup = cgroup
        version = cgroup.memory.version
        files = (str(cgroup.folder), version.limit, version.usage)
        commands = {
            name: [sys.executable, "-S", "-c", WORKER, name, str(folder), *files]
            for name in ("small", "leaking")
        }
        workers = [{"name": name, "match": {"command": rf" {name} {folder} "}} for name in commands]
        targets = [
            {"run": "demo", "worker": name, "process": {"start": command, "grace": "2s"}}
            for name, command in commands.items()
        ]
        host = {"cgroup": str(cgroup.folder), "memory_available_floor": FLOOR}
        nobody = {"url": "http://127.0.0.1:1"}
        remediator = {
            "mode": "act",
            "insecure": True,
            "journal": "journal.db",
            "exporter": {**nobody, "config": "exporter.yml"},
            "alertmanager": nobody,
            "targets": targets,
            "failsafe": {
                "watchdog_timeout": "5s",
                "shortage_duration": "3s",
                "stalled_shortage_duration": "3s",
            },
        }
        runs = [{"name": "demo", "workers": workers}]
        (folder / "exporter.yml").write_text(yaml.safe_dump({"host": host, "runs": runs}))
        (folder / "remediator.yml").write_text(yaml.safe_dump(remediator))
        self.workers = {
            name: identity(cgroup.start(*command, log=folder / f"{name}.log"))
            for name, command in commands.items()
        }
        self.remediator = cgroup.start(
            *(SCRIPTS / "trainwarden-remediator", "run"),
            f"--config.file={folder / 'remediator.yml'}",
            "--web.listen-address=127.0.0.1:0",
            log=folder / "remediator.log",
        )

    def events(self, *kinds: str) -> list[Event]:
        """The journal, oldest first."""
        if not (self.folder / "journal.db").exists():
            return []
        connection = connect(self.folder / "journal.db", mode="ro")
        try:
            return [event for event in read_events(connection) if event.kind in kinds]
        finally:
            connection.close()

    def wait_for(self, *kinds: str) -> None:
        def seen() -> bool:
            assert self.remediator.poll() is None, (self.folder / "remediator.log").read_text()
            return bool(self.events(*kinds))

        until(seen, LONGEST_SECONDS)


def identity(child: subprocess.Popen[bytes]) -> Identity:
    process = read_process(child.pid)
    assert process is not None
    return process.identity


@pytest.fixture
def cgroup() -> Iterator[SmallCgroup]:
    cgroup = SmallCgroup(LIMIT)
    yield cgroup
    cgroup.close()


def test_with_nothing_left_to_be_had_it_restarts_the_largest_worker_and_nothing_else_dies(
    cgroup: SmallCgroup, tmp_path: Path
) -> None:
    scene = Scene(tmp_path, cgroup)
    scene.wait_for("alerts_stale")
    # it is stopped while the memory is taken: even on a slow host it misses no change
    scene.remediator.send_signal(signal.SIGSTOP)
    (tmp_path / "leaking.fill").touch()
    until((tmp_path / "full").exists, LONGEST_SECONDS)
    assert cgroup.left < FLOOR
    witness = cgroup.start(
        *(sys.executable, "-S", "-c", WITNESS), log=tmp_path / "witness.log", adjust=1000
    )
    assert witness.wait(LONGEST_SECONDS) == -signal.SIGKILL
    killed = cgroup.oom_kills
    scene.remediator.send_signal(signal.SIGCONT)

    scene.wait_for("outcome")
    (intent,) = scene.events("intent")
    assert (intent.worker, intent.alert) == ("leaking", "TrainingLocalBrake")
    (outcome,) = scene.events("outcome")
    assert outcome.facts["outcome"] == "healed"
    assert not alive(scene.workers["leaking"])
    assert alive(scene.workers["small"])
    assert cgroup.left > FLOOR
    # it has never asked for more than there was: the kernel had no reason to kill anybody
    assert cgroup.oom_kills == killed
