"""Whether a run may start here: each check, the table, and the program with its exit status."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from simulated_gpu import GIB, SimulatedBox
from simulated_gpu import Process as OnGpu
from trainwarden_exporter.config import Config
from trainwarden_exporter.exceptions import CollectError
from trainwarden_exporter.gpu.driver import DriverReading
from trainwarden_exporter.gpu.holders import Holder, Survey
from trainwarden_exporter.gpu.model import GpuKey, GpuMemory, GpuReading, Remapping, Versions
from trainwarden_exporter.gpu.snapshot import GpuSnapshot
from trainwarden_exporter.preflight import gpu as gpuchecks
from trainwarden_exporter.preflight.checks import run_checks
from trainwarden_exporter.preflight.report import Finding, PreflightContext, render, worst_result
from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.processes.procfs import Identity, Process
from trainwarden_exporter.processes.start_times import start_timestamp

if TYPE_CHECKING:
    from tests.exporter.conftest import Start

ONE, TWO = GpuKey("0", "GPU-a"), GpuKey("1", "GPU-b")
CONFIG = {
    "runs": [
        {"name": "demo", "workers": [{"name": "trainer", "match": {"command": "x"}}]},
        {"name": "other", "workers": [{"name": "trainer", "match": {"command": "y"}}]},
    ]
}


def process(pid: int, name: str = "python") -> Process:
    return Process(Identity(pid, 1000), 1, name, "S", 1, 0.0, 0, (name, 0))


def holder(pid: int, **more: Any) -> Holder:
    return Holder(process(pid), **{"command": "python train.py", "owner": "alice", **more})


def reading(key: GpuKey, *, used: int = 0, **more: Any) -> GpuReading:
    plain: Mapping[str, Any] = {
        "memory": GpuMemory(80 * GIB, used, 80 * GIB - used),
        "compute_mode": "default",
    }
    return GpuReading(key, **{**plain, **more})


def context(
    *gpus: GpuReading,
    holders: tuple[Holder, ...] = (),
    unmapped: int = 0,
    unreadable: int = 0,
    expected: int = 2,
    driver: DriverReading | None = None,
    running: tuple[tuple[WorkerKey, Process], ...] = (),
    config: Mapping[str, Any] = CONFIG,
    **more: Any,
) -> PreflightContext:
    observed = gpus or (reading(ONE), reading(TWO))
    view = GpuSnapshot(
        driver or DriverReading("ok", "", Versions("570.1", "12.8", "12.570"), observed),
        Survey(holders, {ONE: unmapped} if unmapped else {}, unreadable),
        expected,
        running,
    )
    started = start_timestamp(Identity(0, 1000))
    return PreflightContext(Config.model_validate(config), view, now=started + 7200, **more)


def found(
    check: Callable[[PreflightContext], Finding | None], context: PreflightContext
) -> tuple[str, str]:
    finding = check(context)
    assert finding is not None
    return finding.result, " | ".join((finding.observed, *finding.details, finding.advice))


class TestTheDriver:
    def test_that_works_is_named(self) -> None:
        assert found(gpuchecks.check_driver, context()) == ("ok", "570.1, CUDA 12.8 | ")

    def test_is_not_missed_where_there_is_no_gpu(self) -> None:
        absent = context(driver=DriverReading("absent", "no library"), expected=0)
        assert found(gpuchecks.check_driver, absent)[0] == "ok"
        for check in (
            gpuchecks.check_devices,
            gpuchecks.check_holders,
            gpuchecks.check_compute_mode,
            gpuchecks.check_memory,
            gpuchecks.check_health,
        ):
            assert check(absent) is None

    @pytest.mark.parametrize(
        ("state", "words"),
        [
            ("absent", "no driver (why), 2 GPUs expected"),
            ("no_devices", "driver without a GPU (why), 2 GPUs expected"),
            ("failed", "driver unusable (why), 2 GPUs expected"),
        ],
    )
    def test_refuses_where_it_is_needed_and_cannot_be_used(self, state: Any, words: str) -> None:
        result, message = found(gpuchecks.check_driver, context(driver=DriverReading(state, "why")))
        assert result == "refuse"
        assert message.startswith(words)

    def test_refuses_where_it_does_not_answer(self) -> None:
        silent = PreflightContext(Config(), None, timeout=15)
        result, message = found(gpuchecks.check_driver, silent)
        assert (result, message[:21]) == ("refuse", "no answer within 15 s")
        assert gpuchecks.check_holders(silent) is None
        assert gpuchecks.check_running(silent) is None


class TestDevices:
    def test_are_all_there(self) -> None:
        assert found(gpuchecks.check_devices, context()) == ("ok", "2 of 2 GPUs | ")

    def test_refuse_when_one_is_missing_or_lost(self) -> None:
        assert found(gpuchecks.check_devices, context(expected=3))[0] == "refuse"
        lost = DriverReading("ok", gpus=(reading(ONE),), lost=(TWO,))
        result, message = found(gpuchecks.check_devices, context(driver=lost))
        assert result == "refuse"
        assert "1 of 2 GPUs | GPU 1 (GPU-b) does not respond" in message


class TestHolders:
    @pytest.mark.parametrize("more", [{"listed": {TWO: GIB}}, {"monitor_only": True}])
    def test_of_another_account_are_shown_without_their_arguments(
        self, more: Mapping[str, Any]
    ) -> None:
        stranger = holder(11, command="tool --secret", foreign=True, **more)
        _, message = found(gpuchecks.check_holders, context(holders=(stranger,)))
        assert ": [python]" in message
        assert "--secret" not in message

    def test_that_belong_to_nobody_refuse_and_are_named(self) -> None:
        leftovers = (
            holder(11, listed={TWO: 3 * GIB}),
            holder(12, opened=frozenset({ONE, TWO}), owner="bob"),
            holder(13, files=frozenset({"nvidiactl", "nvidia-uvm"}), command="x" * 500),
        )
        result, message = found(gpuchecks.check_holders, context(holders=leftovers))
        assert result == "refuse"
        assert "3 processes of no worker" in message
        assert "pid 11, alice, 2 h old, 3.0 GiB on GPU 1: python train.py" in message
        assert (
            "pid 12, bob, 2 h old, unknown memory on GPU 0, 1, not listed by the driver" in message
        )
        assert "on the driver, not listed by the driver: " in message
        assert "trainwarden clean-gpu" in message
        assert "x" * 200 not in message

    def test_that_somebody_works_with_refuse_too(self) -> None:
        notebook = holder(11, attended="notebook kernel", listed={TWO: GIB})
        result, message = found(gpuchecks.check_holders, context(holders=(notebook,)))
        assert result == "refuse"
        assert "pid 11, " in message

    def test_cannot_steer_the_terminal(self) -> None:
        sly = context(holders=(holder(11, command="python \x1b[2J\nok"),))
        assert found(gpuchecks.check_holders, sly)[1].count("python ?[2J?ok") == 1

    def test_that_may_be_there_do_not_refuse(self) -> None:
        fine = (
            holder(11, worker=WorkerKey("demo", "trainer"), listed={ONE: 1}),
            holder(12, protected=True, listed={ONE: 1}),
        )
        assert found(gpuchecks.check_holders, context(holders=fine))[0] == "ok"

    def test_that_only_look_do_not_refuse_and_are_named(self) -> None:
        monitor = holder(13, files=frozenset({"nvidiactl"}), monitor_only=True)
        result, message = found(gpuchecks.check_holders, context(holders=(monitor,)))
        assert result == "ok"
        assert "pid 13, " in message
        assert "on the driver, not listed by the driver (observes only: no CUDA): " in message

    def test_of_another_run_are_worth_a_warning(self) -> None:
        theirs = (holder(11, worker=WorkerKey("other", "trainer"), listed={ONE: 1}),)
        result, message = found(gpuchecks.check_holders, context(holders=theirs, run="demo"))
        assert (result, message) == ("warn", "other runs use the GPUs: other/trainer | ")

    def test_cannot_be_judged_without_configuration(self) -> None:
        result, message = found(gpuchecks.check_holders, context(holders=(holder(11),), config={}))
        assert result == "warn"
        assert "1 process: no run is configured that could own them | pid 11" in message

    def test_that_cannot_be_seen_are_worth_a_warning(self) -> None:
        result, message = found(gpuchecks.check_holders, context(unmapped=2, unreadable=1))
        assert result == "warn"
        assert "2 processes on the GPUs not visible" in message
        assert "1 process not readable: run this as root" in message


class TestARunThatRunsAlready:
    RUNNING = ((WorkerKey("demo", "trainer"), process(11)),)

    def test_refuses(self) -> None:
        result, message = found(gpuchecks.check_running, context(running=self.RUNNING))
        assert result == "refuse"
        assert "already running: 1 process | demo/trainer: pid 11, python" in message

    def test_is_no_matter_to_another(self) -> None:
        other = context(running=self.RUNNING, run="other")
        assert found(gpuchecks.check_running, other)[0] == "ok"
        assert gpuchecks.check_running(context(config={})) is None


class TestTheComputeMode:
    def test_that_lets_everybody_in_is_fine(self) -> None:
        assert found(gpuchecks.check_compute_mode, context()) == ("ok", "default | ")

    @pytest.mark.parametrize("mode", ["exclusive_process", "exclusive_thread"])
    def test_that_is_exclusive_refuses_where_gpus_are_shared(self, mode: str) -> None:
        exclusive = (reading(ONE, compute_mode=mode), reading(TWO))
        result, message = found(gpuchecks.check_compute_mode, context(*exclusive))
        assert result == "refuse"
        assert f"GPU 0 (GPU-a) is in mode {mode} | nvidia-smi -i 0 -c DEFAULT" in message
        alone = {**CONFIG, "gpu": {"shared": False}}
        assert found(gpuchecks.check_compute_mode, context(*exclusive, config=alone))[0] == "ok"

    def test_that_prohibits_refuses_always(self) -> None:
        alone = {**CONFIG, "gpu": {"shared": False}}
        shut = context(reading(ONE, compute_mode="prohibited"), config=alone)
        assert found(gpuchecks.check_compute_mode, shut)[0] == "refuse"


class TestMemory:
    def test_that_is_free_is_fine(self) -> None:
        assert found(gpuchecks.check_memory, context())[0] == "ok"
        assert found(gpuchecks.check_memory, context(reading(ONE, memory=None)))[0] == "ok"

    def test_that_is_in_use_is_a_warning_with_its_users(self) -> None:
        busy = reading(ONE, used=20 * GIB)
        theirs = (holder(11, listed={ONE: 1}),)
        result, message = found(gpuchecks.check_memory, context(busy, holders=theirs))
        assert result == "warn"
        assert "GPU 0 (GPU-a): 20.0 GiB in use, held by pid 11" in message
        assert "held by no visible process" in found(gpuchecks.check_memory, context(busy))[1]

    def test_that_is_less_than_wanted_refuses(self) -> None:
        busy = reading(ONE, used=20 * GIB)
        assert found(gpuchecks.check_memory, context(busy, memory_free=61 * GIB))[0] == "refuse"
        assert found(gpuchecks.check_memory, context(busy, memory_free=60 * GIB))[0] == "warn"


@pytest.mark.parametrize(
    "sick",
    [
        {"ecc_errors": {("uncorrected", "volatile"): 2}},
        {"remapping": Remapping(0, 1, pending=False, failed=True)},
        {"remapping": Remapping(0, 1, pending=True, failed=False)},
        {"retired_pages_pending": True},
    ],
)
def test_memory_that_is_worn_out_is_worth_a_warning(sick: Mapping[str, Any]) -> None:
    assert found(gpuchecks.check_health, context())[0] == "ok"
    assert found(gpuchecks.check_health, context(reading(ONE), reading(TWO, **sick)))[0] == "warn"


def test_the_worst_finding_is_the_verdict() -> None:
    given = {name: Finding("x", name, "") for name in ("ok", "warn", "refuse")}
    assert worst_result([given["ok"]]) == "ok"
    assert worst_result([given["ok"], given["warn"]]) == "warn"
    assert worst_result([given["warn"], given["refuse"], given["ok"]]) == "refuse"


def test_the_table_is_for_an_operator() -> None:
    table = render(
        [
            Finding("gpu driver", "ok", "570.1, CUDA 12.8"),
            Finding("gpu holders", "refuse", "1 process", ("pid 11, " + "long " * 14,), "end it"),
        ],
        width=60,
    )
    assert table.splitlines() == [
        "gpu driver   ok      570.1, CUDA 12.8",
        "gpu holders  refuse  1 process",
        "                     pid 11, long long long long long long",
        "                       long long long long long long long",
        "                       long",
        "                     → end it",
        "",
        "Not ready to start a run: gpu holders.",
    ]
    assert render([Finding("a", "warn", "b")]).endswith("Ready to start a run, with 1 warning.")
    assert render([Finding("a", "ok", "b")]).endswith("Ready to start a run.")


def test_a_driver_that_hangs_is_not_waited_for() -> None:
    release = threading.Event()

    def hang(*_: object) -> GpuSnapshot:
        release.wait(60)
        raise AssertionError

    first, *others = run_checks(Config(), timeout=0.01, look=hang)
    assert (first.check, first.result) == ("gpu driver", "refuse")
    assert not [finding for finding in others if "gpu" in finding.check]
    release.set()


def test_a_look_that_fails_is_reported() -> None:
    def fail(*_: object) -> GpuSnapshot:
        raise CollectError("cannot list /proc")

    with pytest.raises(CollectError, match="cannot list /proc"):
        run_checks(Config(), look=fail)


HOLDS = "import sys; files = [open(path) for path in sys.argv[2:]]; print(1, flush=True); input()"


@pytest.fixture
def config(gpu_box: SimulatedBox, tmp_path: Path) -> Path:
    path = tmp_path / "exporter.yml"
    path.write_text(
        f"gpu: {{device_root: {gpu_box.make_device_files()}, expected: 2}}\n"
        "runs: [{name: demo, workers: [{name: trainer, match: {command: '--trainer-of-ours'}}]}]\n"
    )
    return path


def preflight(box: SimulatedBox, *arguments: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "trainwarden_exporter", "preflight", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | box.environment,
    )
    return done.returncode, done.stdout, done.stderr


class TestTheProgram:
    def test_lets_a_run_start_on_a_clean_box(self, gpu_box: SimulatedBox, config: Path) -> None:
        status, table, error = preflight(gpu_box, f"--config.file={config}")
        assert (status, error) == (0, "")
        assert "gpu driver    ok      570.124.06, CUDA 12.8" in table
        assert "Ready to start a run" in table
        status, text, _ = preflight(gpu_box, f"--config.file={config}", "--json")
        found = json.loads(text)
        assert (status, found["result"]) == (0, "ok")
        first = {"check": "gpu driver", "result": "ok", "observed": "570.124.06, CUDA 12.8"}
        assert found["findings"][0] == first | {"details": [], "advice": ""}

    def test_refuses_for_leftovers_that_the_driver_does_not_list(
        self, gpu_box: SimulatedBox, config: Path, start: Start
    ) -> None:
        dev = gpu_box.make_device_files()
        leftover = start(HOLDS, "train.py", str(dev / "nvidia1"), str(dev / "nvidia-uvm"))
        status, table, _ = preflight(gpu_box, f"--config.file={config}")
        assert status == 1
        assert f"pid {leftover.pid}, " in table
        assert "on GPU 1, not listed by the driver" in table
        assert table.endswith("Not ready to start a run: gpu holders.\n")

    def test_refuses_for_a_run_that_runs(
        self, gpu_box: SimulatedBox, config: Path, start: Start
    ) -> None:
        trainer = start(HOLDS, "--trainer-of-ours", str(gpu_box.make_device_files() / "nvidia0"))
        gpu_box.change_gpu(0, processes=[OnGpu(pid=trainer.pid, memory=GIB)])
        status, table, _ = preflight(gpu_box, f"--config.file={config}", "--run=demo")
        assert status == 1
        assert f"demo/trainer: pid {trainer.pid}" in table
        assert table.endswith("Not ready to start a run: run.\n")

    def test_tells_the_compute_mode_from_leftovers(
        self, gpu_box: SimulatedBox, config: Path
    ) -> None:
        gpu_box.change_gpu(1, compute_mode=3)
        status, table, _ = preflight(gpu_box, f"--config.file={config}")
        assert status == 1
        assert table.endswith("Not ready to start a run: compute mode.\n")

    def test_asks_for_free_memory(self, gpu_box: SimulatedBox, config: Path) -> None:
        arguments = (f"--config.file={config}", "--gpu.memory-free=100GiB")
        status, table, _ = preflight(gpu_box, *arguments)
        assert status == 1
        assert "GPU 0 (GPU-51a00000-0000-4000-8000-000000000000) has 79.5 GiB free" in table

    def test_refuses_for_a_driver_that_hangs(self, gpu_box: SimulatedBox, config: Path) -> None:
        gpu_box.hang()
        status, table, _ = preflight(gpu_box, f"--config.file={config}", "--gpu.timeout=500ms")
        assert status == 1
        assert "no answer within 500 ms" in table

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--run=nobody"], "no run has the name nobody"),
            (["--config.file=/absent/exporter.yml"], "/absent/exporter.yml: No such file"),
            (["--gpu.memory-free=much"], "not a size"),
            (["--gpu.timeout=10"], "10 has no unit: 10s, 10m or 10h"),
            (["--nonsense"], "usage: "),
        ],
    )
    def test_tells_misuse_apart(
        self, gpu_box: SimulatedBox, arguments: list[str], message: str
    ) -> None:
        status, table, error = preflight(gpu_box, *arguments)
        assert (status, table) == (2, "")
        assert message in error
