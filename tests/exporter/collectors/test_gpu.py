"""The GPU collector on a simulated driver: its states, its users, its leftovers, its hangs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse_text

import stack
from simulated_gpu import GIB, Mig, NvLink, Process, SimulatedBox
from trainwarden_exporter.collectors.gpu import GpuCollector
from trainwarden_exporter.gpu import xid_watcher
from trainwarden_exporter.gpu.config import GpuConfig
from trainwarden_exporter.gpu.model import NO_GPU, GpuKey
from trainwarden_exporter.gpu.nvml_library import Nvml
from trainwarden_exporter.gpu.xid_watcher import XidWatcher
from trainwarden_exporter.processes.config import RunWorkers
from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.scrape.validation import validated

if TYPE_CHECKING:
    from tests.exporter.conftest import FakeProc, Start

Series = dict[str, dict[tuple[str, ...], float]]
Wait = Callable[[Callable[[], bool]], None]


def runs_of(user: str | None) -> RunWorkers:
    return RunWorkers.model_validate(
        {
            "name": "demo",
            "user": user,
            "workers": [
                {"name": "trainer", "role": "trainer", "match": {"command": "--trainer"}},
                {"name": "rollout-0", "match": {"command": "--rollout-0"}},
            ],
        }
    )


RUNS = [runs_of(None)]


class Watched:
    """A collector over a simulated driver, a /proc made of files, and a folder of device files."""

    def __init__(self, box: SimulatedBox, proc: FakeProc, sys: Path) -> None:
        self.box = box
        self.proc = proc
        self.sys = sys
        self.dev = box.make_device_files()
        proc.add(1, ["init"], parent=0)
        proc.add(2, ["kthreadd"], parent=0, flags=0x00200000)
        self.collector = self.build()
        self.keys = [GpuKey(str(index), gpu.uuid) for index, gpu in enumerate(box.state.gpus)]
        self.places = [*self.keys, NO_GPU]

    def build(self, *, runs: bool = True, **config: Any) -> GpuCollector:
        nvml = Nvml()
        self.watch = XidWatcher(nvml.subscribe)
        self.collector = GpuCollector(
            GpuConfig.model_validate({"device_root": self.dev, **config}),
            RUNS if runs else (),
            nvml=nvml,
            xid_watcher=self.watch,
            root=self.proc.root,
            sys=self.sys,
        )
        return self.collector

    def collect(self) -> Series:
        """Every series by its short name and its label values."""
        found: Series = {}
        for family in validated(self.collector.collect(), self.collector.metrics):
            for sample in family.samples:
                name = sample.name.removeprefix("trainwarden_").removeprefix("gpu_")
                found.setdefault(name, {})[tuple(sample.labels.values())] = sample.value
        return found

    def state(self) -> str:
        states = self.collect()["driver_state"]
        assert len(states) == 4
        (state,) = (name for (name,), is_it in states.items() if is_it)
        return state


@pytest.fixture
def watched(
    own_gpu_box: SimulatedBox,
    proc: FakeProc,
    tmp_path: Path,
    wait_until: Wait,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Watched]:
    monkeypatch.setattr(xid_watcher, "WAIT_SECONDS", 0.02)
    watched = Watched(own_gpu_box, proc, tmp_path / "sys")
    yield watched
    watched.box.release()
    watched.watch.stop()
    wait_until(lambda: watched.watch.released)


class TestTheDriver:
    def test_is_ok(self, watched: Watched) -> None:
        seen = watched.collect()
        assert seen["driver_state"][("ok",)] == 1
        assert seen["driver_info"] == {("570.124.06", "12.8", "12.570.124.06"): 1}
        assert (seen["devices_expected"], seen["devices_found"]) == ({(): 2}, {(): 2})
        assert seen["up"] == dict.fromkeys(watched.keys, 1)

    def test_is_absent_on_a_machine_without_gpus_and_there_is_no_more_to_say(
        self, watched: Watched
    ) -> None:
        watched.box.unload_driver()
        seen = watched.collect()
        assert seen == {
            "driver_state": {("ok",): 0, ("absent",): 1, ("no_devices",): 0, ("failed",): 0}
        }

    def test_is_looked_for_cheaply_where_there_is_none(
        self, watched: Watched, tmp_path: Path
    ) -> None:
        watched.box.unload_driver()
        watched.build(device_root=tmp_path / "none")
        watched.proc.add(10, ["python"])
        (watched.proc.root / "10" / "stat").write_text("not to be read")
        assert watched.state() == "absent"

    def test_is_missed_where_gpus_are_expected(self, watched: Watched) -> None:
        watched.box.unload_driver()
        watched.build(expected=4)
        seen = watched.collect()
        assert seen["driver_state"][("absent",)] == 1
        assert (seen["devices_expected"], seen["devices_found"]) == ({(): 4}, {(): 0})

    def test_may_appear_later(self, watched: Watched) -> None:
        watched.box.unload_driver()
        assert watched.state() == "absent"
        watched.box.load_driver()
        assert watched.state() == "ok"

    def test_may_have_no_device(self, watched: Watched) -> None:
        watched.box.remove(1)
        watched.box.remove(0)
        assert watched.state() == "no_devices"

    def test_may_fail_and_recover(self, watched: Watched) -> None:
        watched.box.change_driver(init_error="UNKNOWN")
        assert watched.state() == "failed"
        watched.box.change_driver(init_error=None)
        assert watched.state() == "ok"
        watched.box.change_driver(errors={"nvmlDeviceGetCount_v2": "UNKNOWN"})
        assert watched.state() == "failed"

    def test_may_be_loaded_again(self, watched: Watched, wait_until: Wait) -> None:
        watched.collect()
        wait_until(lambda: watched.watch.watching)
        watched.box.load_driver()
        assert watched.state() == "failed", "what was begun is void"
        wait_until(lambda: watched.state() == "ok")
        wait_until(lambda: watched.watch.watching)

    def test_is_not_let_go_of_while_the_watch_is_inside(
        self, watched: Watched, wait_until: Wait
    ) -> None:
        watched.collect()
        wait_until(lambda: watched.watch.watching)
        watched.box.hang("nvmlEventSetWait_v2")
        watched.box.change_driver(generation=7)
        for _ in range(3):
            assert watched.state() == "failed"
        assert not watched.watch.released
        watched.box.release()
        wait_until(lambda: watched.state() == "ok")

    def test_says_each_change_of_its_state_once(
        self, watched: Watched, wait_until: Wait, caplog: pytest.LogCaptureFixture
    ) -> None:
        watched.collect()
        caplog.clear()
        caplog.set_level("INFO", "trainwarden_exporter.collectors.gpu")
        watched.collect()
        watched.box.unload_driver()
        wait_until(lambda: watched.state() == "absent")
        watched.collect()
        reported = [record for record in caplog.records if record.message == "GPU driver"]
        assert [vars(record)["state"] for record in reported] == ["failed", "absent"]


class TestAGpu:
    def test_that_falls_off_the_bus_is_remembered(self, watched: Watched) -> None:
        watched.collect()
        watched.box.lose(0)
        seen = watched.collect()
        assert seen["up"] == {watched.keys[0]: 0, watched.keys[1]: 1}
        assert watched.keys[0] not in seen["temperature_slowdown_celsius"]
        assert (seen["devices_expected"], seen["devices_found"]) == ({(): 2}, {(): 1})
        watched.box.find(0)
        assert watched.collect()["up"] == dict.fromkeys(watched.keys, 1)

    def test_that_is_not_even_counted_any_more_is_remembered_too(self, watched: Watched) -> None:
        watched.collect()
        watched.box.remove(0)
        assert watched.collect()["up"] == {
            watched.keys[0]: 0,
            ("0", watched.keys[1].uuid): 1,
        }

    def test_that_was_never_seen_is_missing_without_a_name(self, watched: Watched) -> None:
        watched.box.lose(1)
        assert watched.collect()["up"] == {watched.keys[0]: 1, ("1", ""): 0}

    def test_whose_question_fails_is_up_and_says_so(self, watched: Watched) -> None:
        watched.box.change_gpu(0, errors={"nvmlDeviceGetPowerUsage": "UNKNOWN"})
        seen = watched.collect()
        assert seen["read_failures"] == {watched.keys[0]: 1, watched.keys[1]: 0}
        assert list(seen["power_watts"]) == [watched.keys[1]]
        assert seen["up"] == dict.fromkeys(watched.keys, 1)

    def test_has_one_compute_mode_of_four(self, watched: Watched) -> None:
        watched.box.change_gpu(0, compute_mode=3)
        modes = watched.collect()["compute_mode"]
        assert [mode for (gpu, _, mode), is_it in modes.items() if gpu == "0" and is_it] == [
            "exclusive_process"
        ]
        assert len(modes) == 8

    def test_is_never_shown_as_it_was(self, watched: Watched) -> None:
        watched.collect()
        watched.box.change_gpu(0, temperature=91, energy_mj=None)
        seen = watched.collect()
        assert seen["temperature_celsius"][*watched.keys[0], "core"] == 91
        assert list(seen["energy_joules_total"]) == [watched.keys[1]]


class TestWorkers:
    def test_have_the_memory_and_the_load_of_all_their_processes(self, watched: Watched) -> None:
        watched.proc.add(10, ["python", "--trainer"])
        watched.proc.add(11, ["python", "loader"], parent=10)
        watched.proc.add(12, ["python", "--rollout-0"])
        watched.box.change_gpu(
            0,
            processes=[
                Process(pid=10, memory=3 * GIB, sm=40),
                Process(pid=11, memory=GIB, sm=7),
                Process(pid=12, memory=None),
            ],
        )
        watched.box.change_gpu(1, processes=[Process(pid=12, memory=2 * GIB)])
        seen = watched.collect()
        trainer, rollout = ("demo", "trainer", "trainer"), ("demo", "rollout-0", "worker")
        assert seen["worker_gpu_memory_bytes"] == {
            (*trainer, *watched.keys[0]): 4 * GIB,
            (*rollout, *watched.keys[1]): 2 * GIB,
        }
        assert seen["worker_gpu_utilization_ratio"] == {
            (*trainer, *watched.keys[0]): pytest.approx(0.47)
        }
        assert seen["orphan_holders"] == dict.fromkeys(watched.places, 0)

    def test_are_not_credited_with_an_old_sample(self, watched: Watched) -> None:
        watched.proc.add(10, ["python", "--trainer"])
        for age, shown in ((1, True), (60, False)):
            sampled = round((time.time() - age) * 1e6)
            one = Process(pid=10, memory=GIB, sm=40, sample_time_us=sampled)
            watched.box.change_gpu(0, processes=[one])
            assert ("worker_gpu_utilization_ratio" in watched.collect()) is shown
            assert watched.collector.is_computing(WorkerKey("demo", "trainer")) is shown


class TestOrphans:
    def test_are_counted_where_they_are(self, watched: Watched) -> None:
        watched.proc.add(10, ["python", "leftover.py"])
        watched.proc.open(10, watched.dev / "nvidia1", watched.dev / "nvidia-uvm")
        watched.proc.add(11, ["python", "leftover.py"])
        watched.box.change_gpu(0, processes=[Process(pid=11, memory=5 * GIB), Process(pid=99)])
        seen = watched.collect()
        first, second, nowhere = watched.places
        assert seen["orphan_holders"] == {first: 1, second: 1, nowhere: 0}
        assert seen["orphan_holders_unlisted"] == {first: 0, second: 1, nowhere: 0}
        assert seen["orphan_memory_bytes"] == {watched.keys[0]: 5 * GIB, watched.keys[1]: 0}
        assert seen["processes_unmapped"] == {watched.keys[0]: 1, watched.keys[1]: 0}
        assert [artifact.process.pid for artifact in watched.collector.artifacts] == [11, 10]  # type: ignore[attr-defined]

    @pytest.mark.parametrize("known_by", ["worker before a reload", "configuration", ""])
    def test_of_an_account_of_the_runs_are_shown_with_their_arguments(
        self, watched: Watched, monkeypatch: pytest.MonkeyPatch, known_by: str
    ) -> None:
        account = {"status": "Name:\tx\nUid:\t987654\t0\t0\t0\n"}
        if known_by == "configuration":
            monkeypatch.setitem(globals(), "RUNS", [runs_of("987654")])
        of_worker = account if known_by == "worker before a reload" else {}
        watched.proc.add(10, ["python", "--trainer"], files=of_worker)
        watched.proc.add(11, ["python", "leftover.py"], files=account)
        watched.box.change_gpu(0, processes=[Process(pid=10), Process(pid=11)])
        watched.collect()
        before = watched.collector
        watched.watch.stop()
        watched.build().take_over_from(before)
        watched.proc.remove(10)
        watched.collect()
        (orphan,) = watched.collector.artifacts
        assert orphan.shown == ("python leftover.py" if known_by else "[python]")  # type: ignore[attr-defined]

    def test_of_the_driver_alone_have_no_gpu(self, watched: Watched) -> None:
        watched.proc.add(10, ["python", "leftover.py"])
        watched.proc.open(10, watched.dev / "nvidiactl", watched.dev / "nvidia-uvm")
        first, second, nowhere = watched.places
        seen = watched.collect()
        assert seen["orphan_holders"] == {first: 0, second: 0, nowhere: 1}
        assert set(seen["orphan_memory_bytes"]) == set(watched.keys)

    def test_are_seen_even_when_the_driver_is_not(self, watched: Watched) -> None:
        watched.proc.add(10, ["python", "leftover.py"])
        watched.proc.open(10, watched.dev / "nvidia0", watched.dev / "nvidia-uvm")
        watched.box.change_driver(init_error="UNKNOWN")
        assert watched.collect()["orphan_holders"] == {("", ""): 1}

    def test_are_not_what_only_looks(
        self, watched: Watched, caplog: pytest.LogCaptureFixture
    ) -> None:
        watched.proc.add(10, ["python", "monitor.py"])
        watched.proc.open(10, watched.dev / "nvidia1", watched.dev / "nvidiactl")
        first, second, nowhere = watched.places
        seen = watched.collect()
        assert seen["orphan_holders"] == dict.fromkeys(watched.places, 0)
        assert seen["observers"] == {first: 0, second: 1, nowhere: 0}
        assert [artifact.process.pid for artifact in watched.collector.artifacts] == [10]  # type: ignore[attr-defined]
        assert "GPU held by a process of no worker" not in caplog.messages

    def test_mean_nothing_where_no_worker_is_configured(self, watched: Watched) -> None:
        watched.proc.add(10, ["python", "train.py"])
        watched.proc.open(10, watched.dev / "nvidia0")
        watched.build(runs=False)
        seen = watched.collect()
        assert not any(name.startswith(("orphan", "observer")) for name in seen)
        assert watched.collector.artifacts == ()
        assert seen["holders_unreadable_processes"] == {(): 0}

    def test_are_named_in_the_log_once(
        self, watched: Watched, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level("INFO", "trainwarden_exporter.collectors.gpu")
        watched.proc.add(10, ["python", "leftover.py"])
        watched.proc.open(10, watched.dev / "nvidia0", watched.dev / "nvidia-uvm")
        watched.collect()
        watched.collect()
        watched.proc.remove(10)
        watched.collect()
        reported = [(r.levelname, vars(r)["pid"], vars(r)["command"]) for r in caplog.records[1:]]
        assert reported == [
            ("WARNING", 10, "python leftover.py"),
            ("INFO", 10, "python leftover.py"),
        ]


class TestTroubles:
    def test_are_not_there_while_all_is_well(self, watched: Watched) -> None:
        assert "problem" not in watched.collect()

    def test_are_of_all_kinds_at_once(self, watched: Watched) -> None:
        watched.proc.add(10, ["python", "leftover.py"])
        watched.box.change_gpu(
            0,
            ecc_volatile_uncorrected=2,
            remap_failed=1,
            remap_pending=1,
            compute_mode=3,
            processes=[Process(pid=10)],
        )
        watched.box.change_gpu(1, retired_single=0, retired_double=1, retired_pending=1)
        first, second = watched.keys
        wrong = {
            (*first, "held_by_leftovers"): 1,
            (*first, "memory_errors"): 2,
            (*first, "row_remap_failed"): 1,
            (*first, "row_remap_pending"): 1,
            (*first, "exclusive_process"): 1,
            (*second, "retired_pages_pending"): 1,
        }
        assert watched.collect()["problem"] == wrong
        watched.proc.remove(10)
        watched.box.change_gpu(
            0,
            ecc_volatile_uncorrected=0,
            remap_failed=0,
            remap_pending=0,
            compute_mode=0,
            processes=[],
        )
        watched.box.change_gpu(1, retired_pending=0)
        assert watched.collect()["problem"] == dict.fromkeys(wrong, 0), "over, shown for a while"

    def test_of_a_gpu_that_is_lost_and_found(self, watched: Watched) -> None:
        watched.collect()
        watched.box.lose(0)
        assert watched.collect()["problem"] == {(*watched.keys[0], "lost"): 1}
        watched.box.find(0)
        assert watched.collect()["problem"] == {(*watched.keys[0], "lost"): 0}

    def test_are_the_holders_that_the_configuration_leaves(self, watched: Watched) -> None:
        watched.box.change_gpu(0, compute_mode=3)
        watched.box.change_gpu(1, compute_mode=2)
        watched.build(shared=False)
        assert watched.collect()["problem"] == {(*watched.keys[1], "prohibited"): 1}

    def test_are_remembered_over_a_reload(self, watched: Watched) -> None:
        watched.box.change_gpu(0, compute_mode=3)
        watched.collect()
        before = watched.collector
        watched.watch.stop()
        watched.build(shared=False).take_over_from(before)
        assert watched.collect()["problem"] == {(*watched.keys[0], "exclusive_process"): 0}


def test_a_reload_keeps_the_driver_and_the_gpus_that_were_there(watched: Watched) -> None:
    watched.collect()
    before = watched.collector
    watched.watch.stop()
    watched.box.remove(1)
    successor = watched.build(expected=8, shared=False)
    successor.take_over_from(before)
    seen = watched.collect()
    assert seen["up"] == {watched.keys[0]: 1, watched.keys[1]: 0}
    assert seen["devices_expected"] == {(): 8}
    assert seen["shared_expected"] == {(): 0}


@pytest.mark.parametrize("protected", ["", "(", ".*", 3])
def test_a_pattern_that_protects_all_is_refused(protected: object) -> None:
    with pytest.raises(ValueError, match="protected"):
        GpuConfig.model_validate({"protected": [protected]})


CONFIG = """\
gpu: {{device_root: {dev}, expected: 3}}
runs:
  - name: demo
    workers:
      - {{name: trainer, role: trainer, match: {{command: "hold-gpu --trainer"}}}}
"""
HOLDS = "import sys; files = [open(path) for path in sys.argv[3:]]; print(1, flush=True); input()"


class Running:
    """The program itself, on a simulated box."""

    def __init__(self, box: SimulatedBox, config: Path) -> None:
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "trainwarden_exporter", "run", f"--config.file={config}"),
                *("--web.listen-address=127.0.0.1:0", "--log.format=json"),
            ],
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | box.environment,
        )
        assert self.process.stderr is not None
        self.port = json.loads(self.process.stderr.readline())["port"]

    def get(self, path: str = "/metrics", *, timeout: float = 10) -> str:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            headers={"X-Prometheus-Scrape-Timeout-Seconds": str(timeout)},
        )
        with urllib.request.urlopen(request, timeout=60) as response:  # noqa: S310 - as above
            page: str = response.read().decode()
        return page

    def scrape(self, *, timeout: float = 10) -> Series:
        return {
            family.name: {tuple(s.labels.values()): s.value for s in family.samples}
            for family in parse_text(self.get(timeout=timeout))
        }

    def threads(self) -> int:
        return len(list(Path(f"/proc/{self.process.pid}/task").iterdir()))


@pytest.fixture
def run(gpu_box: SimulatedBox, tmp_path: Path) -> Iterator[Callable[[], Running]]:
    started: list[Running] = []

    def run() -> Running:
        config = tmp_path / "exporter.yml"
        config.write_text(CONFIG.format(dev=gpu_box.make_device_files()))
        started.append(Running(gpu_box, config))
        return started[-1]

    yield run
    gpu_box.release()
    for running in started:
        running.process.kill()
        running.process.communicate(timeout=60)


def success(series: Series) -> dict[str, float]:
    return {name: value for (name,), value in series["trainwarden_collector_success"].items()}


def test_a_driver_that_hangs_costs_one_scrape_its_time_and_nothing_else(
    gpu_box: SimulatedBox, run: Callable[[], Running], wait_until: Wait
) -> None:
    running = run()
    running.scrape()
    wait_until(lambda: success(running.scrape()).get("xid") == 1)
    threads = running.threads()

    gpu_box.hang()
    first = running.scrape(timeout=1)
    assert [name for name, well in success(first).items() if not well] == ["gpu"]
    assert not any("gpu_temperature" in name for name in first), "nothing frozen is shown"

    # scrapes that each wait 0.9 s for the driver take longer than this in all
    began = time.monotonic()
    for _ in range(80):
        assert success(running.scrape(timeout=1))["gpu"] == 0
    assert time.monotonic() - began < 60
    assert running.threads() == threads

    gpu_box.change_gpu(0, temperature=77)
    gpu_box.release()
    wait_until(lambda: success(running.scrape())["gpu"] == 1)
    temperatures = running.scrape()["trainwarden_gpu_temperature_celsius"]
    assert temperatures["0", "core", gpu_box.state.gpus[0].uuid] == 77
    assert running.threads() == threads


def test_an_error_of_the_driver_is_seen_while_the_driver_hangs(
    gpu_box: SimulatedBox, run: Callable[[], Running], wait_until: Wait
) -> None:
    running = run()
    running.scrape()
    wait_until(lambda: running.scrape().get("trainwarden_gpu_xid_watching") == {(): 1})
    gpu_box.hang("nvmlDeviceGetTemperature")
    gpu_box.raise_xid(1, 119)

    def seen() -> bool:
        series = running.scrape(timeout=0.2)
        assert success(series)["gpu"] == 0
        return ("1", "fatal", gpu_box.state.gpus[1].uuid, "119") in series.get(
            "trainwarden_gpu_xid_errors", {}
        )

    wait_until(seen)


def test_a_whole_box_is_shown_as_in_the_golden_page(
    gpu_box: SimulatedBox,
    run: Callable[[], Running],
    start: Start,
    wait_until: Wait,
    request: pytest.FixtureRequest,
) -> None:
    binaries: stack.Binaries = request.getfixturevalue("binaries")
    dev = gpu_box.make_device_files()
    trainer = start(HOLDS, "hold-gpu", "--trainer", *(str(dev / f"nvidia{n}") for n in (0, 1)))
    start(HOLDS, "hold-gpu", "--leftover", str(dev / "nvidia1"), str(dev / "nvidia-uvm"))
    gpu_box.change_gpu(
        0,
        utilization_gpu=87,
        utilization_memory=35,
        memory_used=61 * GIB,
        temperature=68,
        power_mw=655_120,
        clock_sm_mhz=1830,
        clock_reasons=0x4,
        ecc_volatile_corrected=2,
        remapped_correctable=1,
        nvlinks=[NvLink(), NvLink(up=0, replay=3)],
        processes=[
            Process(pid=trainer.pid, memory=60 * GIB, sm=85),
            Process(pid=1 << 30, memory=GIB),
        ],
    )
    gpu_box.change_gpu(
        1,
        mig_mode=1,
        compute_mode=3,
        utilization_gpu=None,
        utilization_memory=None,
        temperature_memory=None,
        energy_mj=None,
        ecc_mode=None,
        ecc_volatile_corrected=None,
        ecc_volatile_uncorrected=None,
        ecc_aggregate_corrected=None,
        ecc_aggregate_uncorrected=None,
        remapped_correctable=None,
        remapped_uncorrectable=None,
        remap_pending=None,
        remap_failed=None,
        retired_single=0,
        retired_double=1,
        retired_pending=1,
        mig=[
            Mig(uuid="MIG-0", slot=0, gpu_instance=7, memory_used=GIB),
            Mig(uuid="MIG-3", slot=3, gpu_instance=9, name="Simulated GPU MIG 3g.40gb"),
        ],
    )
    running = run()
    running.get()
    wait_until(lambda: "\ntrainwarden_gpu_xid_watching 1.0" in running.get())
    gpu_box.raise_xid(0, 31)
    gpu_box.raise_xid(1, 79)
    wait_until(lambda: 'xid="79"' in running.get() and 'xid="31"' in running.get())

    page = running.get()
    checked = subprocess.run(
        [binaries.promtool, "check", "metrics"],
        input=page,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")

    golden = Path(__file__).parent / "golden" / "gpu.txt"
    shown = masked(page)
    if request.config.getoption("--refresh-golden"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(shown, encoding="utf-8")
    assert shown == golden.read_text(encoding="utf-8")


def masked(page: str) -> str:
    """The part of a page that is about GPUs; X stands for times, and for who may be looked into."""
    lines = [line for line in page.splitlines() if re.search(r"trainwarden_(worker_)?gpu_", line)]
    varies = re.compile(
        r"^(trainwarden_(?:worker_)?gpu_(?:xid_\w*timestamp|holders_unreadable)\S*) .*"
    )
    return "\n".join([*(varies.sub(r"\1 X", line) for line in lines), ""])
