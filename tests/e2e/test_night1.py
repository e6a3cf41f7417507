"""Night 1, a restart loop taken for a crash: in a container's stead a pid namespace, then without.

With containers of a real engine it is in tests/docker.
"""

from __future__ import annotations

import os
import shlex
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from loops import FATAL, ask_for_a_restart, refused, remediator
from measuring import LIMITS, Measure
from parts import Parts, parts, write_config

SEEN_SECONDS, CALLED_SECONDS = LIMITS[1].seen, LIMITS[1].healed
CALL_TAKES_SECONDS = 20
LONGEST_SECONDS = 300
UNSHARE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
EXIT_CODES_ARE_REPORTED = tuple(map(int, os.uname().release.split(".")[:2])) >= (6, 15)

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="the stack watches processes through /proc"
)


class Platform:
    """Starts a command again whenever it ends, for ever: what the platform of a rented pod does."""

    def __init__(self, command: Sequence[str | Path], *, pause: float) -> None:
        self.began = 0.0
        self.starts: list[float] = []
        self._command = command
        self._pause = pause
        self._over = threading.Event()
        self._child: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def period(self) -> float:
        """The median seconds from one start to the next."""
        return statistics.median(after - before for before, after in pairwise(self.starts))

    def start(self) -> None:
        self.began = time.time()
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        if self._child is not None:
            self._child.kill()
        self._thread.join(60)

    def _run(self) -> None:
        while not self._over.is_set():
            self.starts.append(time.time())
            self._child = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
            )
            self._child.wait()
            self._over.wait(self._pause)


@contextmanager
def running(platform: Platform) -> Iterator[None]:
    platform.start()
    try:
        yield
    finally:
        platform.stop()


class TestAPodInALoop:
    """The start command fails, and takes the exporter with it each time."""

    RULE = "TrainingContainerRestartLoop"
    LIFE, PAUSE = 5.0, 1.0

    @pytest.fixture
    def stack(self, tmp_path: Path) -> Iterator[Parts]:
        if (
            shutil.which("unshare") is None
            or subprocess.run([*UNSHARE, "true"], capture_output=True, check=False).returncode
        ):
            pytest.skip("pid namespaces are not allowed here")
        container = {"name": "pod", "self": True, "exit_file": "pod.exit"}
        trainer = {"name": "trainer", "match": {"command": "never there"}}
        exporter = {
            "state_folder": "state",
            "runs": [{"name": "grpo", "workers": [trainer], "containers": [container]}],
        }
        config = write_config(tmp_path / "config", exporter, remediator(tmp_path))
        with parts(tmp_path / "run", config) as stack:
            yield stack

    def start_command(self, stack: Parts) -> list[str | Path]:
        """The exporter in the background, then what fails, written down as the manual says."""
        work = f"sleep {self.LIFE}; echo {shlex.quote(FATAL)} >&2; exit 128"
        script = (
            f"{shlex.join(stack.command('exporter'))} 2> exporter.log &\n"
            f"sh -c {shlex.quote(work)} > start.log 2>&1; code=$?\n"
            "{ echo $code; tail -n 1 start.log; } > pod.exit; exit $code\n"
        )
        (stack.config / "start.sh").write_text(f"cd {shlex.quote(str(stack.config))}\n{script}")
        return [*UNSHARE, "sh", stack.config / "start.sh"]

    def test_is_seen_named_and_held_and_the_on_call_is_paged_once(
        self, stack: Parts, tmp_path: Path, measured: Measure
    ) -> None:
        stack.start("prometheus", "alertmanager", "remediator")
        platform = Platform(self.start_command(stack), pause=self.PAUSE)
        with running(platform):
            stack.wait_until(lambda: stack.firing(self.RULE), LONGEST_SECONDS)
            seen = time.time() - platform.began
            stack.wait_until(lambda: stack.person.calls_about(self.RULE), LONGEST_SECONDS)
            called = stack.person.calls[0][0] - platform.began
            restarts = len(platform.starts) - 1
            ask_for_a_restart(stack)
            stack.wait_until(refused(stack), 180)
            time.sleep(3 * (self.LIFE + self.PAUSE))
            # the exporter may be away just now, as it is once in each turn
            shown = stack.query("last_over_time(trainwarden_container_start_period_seconds[1m])")
            period = float(shown[0]["value"][1])
        measured(1, "a pod in a loop: seen", seen, SEEN_SECONDS)
        measured(1, f"held, on-call paged ({restarts} restarts)", called, CALLED_SECONDS)
        assert period == pytest.approx(platform.period, abs=1.5)
        ((_, call),) = stack.person.calls
        (alert,) = call["alerts"]
        assert alert["labels"]["run"] == "grpo"
        description = alert["annotations"]["description"]
        assert "exit code 128" in description
        assert FATAL in description
        assert f"every {round(period)}" in description or f"every {int(period)}." in description
        assert not (tmp_path / "started").exists()
        assert not [event for event in stack.journal() if event["kind"] == "intent"]


class TestAWorkerInALoop:
    """Its own supervisor starts it again each time; the exporter is killed meanwhile."""

    RULE = "TrainingWorkerRestartLoop"
    LIFE, PAUSE = 7.0, 1.0

    @pytest.fixture
    def stack(self, tmp_path: Path) -> Iterator[Parts]:
        trainer = {"name": "trainer", "match": {"command": f"{tmp_path}/trainer.py"}}
        exporter = {"state_folder": "state", "runs": [{"name": "grpo", "workers": [trainer]}]}
        config = write_config(tmp_path / "config", exporter, remediator(tmp_path))
        with parts(tmp_path / "run", config) as stack:
            yield stack

    def test_is_seen_though_the_exporter_is_killed_too_and_the_on_call_is_paged_once(
        self, stack: Parts, tmp_path: Path, measured: Measure
    ) -> None:
        program = tmp_path / "trainer.py"
        program.write_text(f"import sys, time\ntime.sleep({self.LIFE})\nsys.exit(128)\n")
        stack.start("prometheus", "alertmanager", "remediator", "exporter")
        platform = Platform([sys.executable, "-S", program], pause=self.PAUSE)
        with running(platform):
            stack.wait_until(lambda: stack.query("trainwarden_worker_recent_starts == 2"), 180)
            stack.kill("exporter")
            stack.start("exporter")
            stack.wait_until(lambda: stack.firing(self.RULE), LONGEST_SECONDS)
            seen = time.time() - platform.began
            stack.wait_until(lambda: stack.person.calls_about(self.RULE), LONGEST_SECONDS)
            called = stack.person.calls[0][0] - platform.began
            ask_for_a_restart(stack)
            stack.wait_until(refused(stack), 180)
            time.sleep(2 * (self.LIFE + self.PAUSE))
            (period,) = stack.query("last_over_time(trainwarden_worker_restart_period_seconds[1m])")
            (counted,) = stack.query("trainwarden_worker_recent_starts[10m]")
            starts = tuple(platform.starts)
        measured(1, "a worker in a loop, the exporter killed: seen", seen, SEEN_SECONDS)
        measured(1, "held, on-call paged, since seen", called - seen, CALL_TAKES_SECONDS)
        # Each process that a scrape can have seen is counted once; where a scrape fell within a
        # second of a start or an end, either count is right.
        scrapes = [float(at) for at, _ in counted["values"]]
        surely, perhaps = (
            sum(
                any(at + off <= scrape <= at + self.LIFE - off for scrape in scrapes)
                for at in starts
            )
            for off in (1, -1)
        )
        assert surely >= 4
        assert surely <= float(counted["values"][-1][1]) <= perhaps
        assert float(period["value"][1]) == pytest.approx(self.LIFE + self.PAUSE, abs=0.5)
        ((_, call),) = stack.person.calls_about(self.RULE)
        (alert,) = call["alerts"]
        assert (alert["labels"]["run"], alert["labels"]["worker"]) == ("grpo", "trainer")
        if EXIT_CODES_ARE_REPORTED:
            assert "status 128" in alert["annotations"]["description"]
        assert not (tmp_path / "started").exists()
        assert not [event for event in stack.journal() if event["kind"] == "intent"]
