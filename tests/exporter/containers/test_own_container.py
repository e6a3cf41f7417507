"""The starts of the container we are in, counted by a file that outlives it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from trainwarden_exporter.containers.history import ContainerHistory
from trainwarden_exporter.containers.own_container import OwnContainer, read_exit, read_start
from trainwarden_exporter.exceptions import CollectError
from trainwarden_exporter.processes.procfs import Identity
from trainwarden_exporter.processes.start_times import boot_seconds, start_timestamp
from trainwarden_exporter.runtime.state_file import StateFile

if TYPE_CHECKING:
    from tests.exporter.conftest import FakeProc


class Pod:
    """A container that is restarted, with a volume that stays."""

    def __init__(self, proc: FakeProc, volume: Path) -> None:
        self.proc = proc
        self.volume = volume
        self.exit_file = volume / "pod.exit"
        self.uptime = boot_seconds()

    def restart(self, *, seconds_ago: float, boot: str = "one") -> None:
        self.proc.add(1, ["start.sh"], start=round((self.uptime - seconds_ago) * 100))
        boot_id = self.proc.root / "sys/kernel/random/boot_id"
        boot_id.parent.mkdir(parents=True, exist_ok=True)
        boot_id.write_text(f"{boot}\n")

    def end(self, text: str, *, seconds_ago: float) -> None:
        self.exit_file.write_text(text)
        moment = self.now() - seconds_ago
        os.utime(self.exit_file, (moment, moment))

    def now(self) -> float:
        return start_timestamp(Identity(1, round(self.uptime * 100)))

    def look(self) -> ContainerHistory:
        """As a program does that has just been started."""
        state = StateFile(self.volume / "pod.json", ContainerHistory, empty=ContainerHistory())
        own = OwnContainer(state, self.exit_file, root=self.proc.root, now=self.now)
        sighting = own()
        assert own().history == sighting.history
        assert sighting.state == "running"
        assert sighting.restarts == sighting.history.starts_total - 1
        return sighting.history


@pytest.fixture
def pod(proc: FakeProc, tmp_path: Path) -> Pod:
    return Pod(proc, tmp_path)


def test_a_start_counts_once_however_often_this_program_starts(pod: Pod) -> None:
    pod.restart(seconds_ago=50)
    assert pod.look() == pod.look()
    assert pod.look().starts_total == 1


def test_each_start_counts(pod: Pod) -> None:
    for seconds_ago in (51, 34, 17, 0):
        pod.restart(seconds_ago=seconds_ago)
        history = pod.look()
    assert history.starts_total == 4
    assert history.starts == pytest.approx([pod.now() - ago for ago in (51, 34, 17, 0)], abs=0.02)


def test_the_same_ticks_after_another_boot_are_another_start(pod: Pod) -> None:
    pod.restart(seconds_ago=50)
    pod.look()
    pod.restart(seconds_ago=50, boot="two")
    assert pod.look().starts_total == 2


def test_where_boots_have_no_names_the_time_tells_them_apart(pod: Pod, tmp_path: Path) -> None:
    pod.restart(seconds_ago=50)
    (pod.proc.root / "sys/kernel/random/boot_id").unlink()
    assert [pod.look().starts_total, pod.look().starts_total] == [1, 1]
    earlier = json.loads((tmp_path / "pod.json").read_text())
    earlier["starts"] = [earlier["starts"][0] - 100]
    (tmp_path / "pod.json").write_text(json.dumps(earlier))
    assert pod.look().starts_total == 2


def test_what_is_hidden_is_an_error(pod: Pod) -> None:
    with pytest.raises(CollectError, match="hidden"):
        read_start(pod.proc.root)


class TestHowItEnded:
    def test_is_what_the_start_command_wrote_down(self, pod: Pod) -> None:
        pod.restart(seconds_ago=30)
        pod.look()
        pod.end("128\nfatal: destination path exists\n", seconds_ago=20)
        pod.restart(seconds_ago=15)
        history = pod.look()
        assert (history.exit_code, history.line) == (128, "fatal: destination path exists")
        assert history.exit_timestamp == pytest.approx(pod.now() - 20, abs=0.1)

    def test_is_not_what_an_earlier_life_wrote_down(self, pod: Pod) -> None:
        pod.end("1\nold\n", seconds_ago=100)
        for seconds_ago in (50, 30):
            pod.restart(seconds_ago=seconds_ago)
            history = pod.look()
        assert (history.exit_code, history.exit_timestamp, history.line) == (None, None, "")

    def test_is_known_of_the_first_life_that_is_counted_too(self, pod: Pod) -> None:
        pod.end("3", seconds_ago=100)
        pod.restart(seconds_ago=50)
        assert (pod.look().exit_code, pod.look().line) == (3, "")

    @pytest.mark.parametrize("text", ["", "\n", "no number\n", "-1\n", "²\n"])
    def test_is_unknown_where_that_makes_no_sense(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "exit").write_text(text)
        assert read_exit(tmp_path / "exit") is None
        assert read_exit(tmp_path / "none") is None
        assert read_exit(tmp_path) is None


COUNT = """
import sys
from pathlib import Path
from trainwarden_exporter.containers.own_container import OwnContainer
from trainwarden_exporter.containers.history import ContainerHistory
from trainwarden_exporter.runtime.state_file import StateFile
for _ in range(2):  # as an exporter that was started twice
    own = OwnContainer(StateFile(Path(sys.argv[1]), ContainerHistory, empty=ContainerHistory()))
    print(own().history.starts_total)
"""


def test_a_real_pid_namespace_is_a_container_that_restarts(tmp_path: Path) -> None:
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("there is no unshare(1)")
    as_root = () if os.geteuid() == 0 else ("--user", "--map-root-user")
    enter = (unshare, *as_root, "--pid", "--fork", "--mount-proc")
    if subprocess.run([*enter, "true"], capture_output=True, check=False).returncode:
        pytest.skip("pid namespaces are not allowed here")
    counted = []
    for _ in range(2):
        # the start command is process 1, and what counts is its child
        command = [*enter, "sh", "-c", '"$@"; exit $?', "sh", sys.executable, "-c", COUNT]
        output = subprocess.check_output([*command, tmp_path / "pod.json"], text=True)
        counted.append(output.split())
    assert counted == [["1", "1"], ["2", "2"]]
