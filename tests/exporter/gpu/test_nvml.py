"""The real pynvml on a simulated library: supported, unsupported and failing calls."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from simulated_gpu import GIB, Mig, NvLink, Process, SimulatedBox, build, gpu
from trainwarden_exporter.gpu.model import (
    GpuKey,
    GpuMemory,
    GpuReading,
    ListedProcess,
    MigInstance,
    Remapping,
    UtilizationSample,
    Versions,
)
from trainwarden_exporter.gpu.nvml_calls import (
    DriverAbsentError,
    DriverFailedError,
    GpuLostError,
    NvmlError,
)
from trainwarden_exporter.gpu.nvml_device import THROTTLE_REASONS
from trainwarden_exporter.gpu.nvml_library import Nvml

NOTHING = dict.fromkeys(
    (
        *("name", "pci_bus_id", "minor", "utilization_gpu", "utilization_memory", "temperature"),
        *("temperature_memory", "temperature_slowdown", "power_mw", "power_limit_mw", "energy_mj"),
        *("clock_graphics_mhz", "clock_sm_mhz", "clock_memory_mhz", "clock_video_mhz"),
        *("clock_reasons", "clock_reasons_supported", "memory_total", "memory_reserved"),
        *("memory_used", "ecc_volatile_corrected", "ecc_volatile_uncorrected"),
        *("ecc_aggregate_corrected", "ecc_aggregate_uncorrected", "remapped_correctable"),
        *("remapped_uncorrectable", "remap_pending", "remap_failed", "pcie_replays"),
        *("pcie_generation", "pcie_width", "pcie_max_generation", "pcie_max_width"),
        *("compute_mode", "persistence_mode", "mig_mode"),
    )
)


@pytest.fixture
def nvml(own_gpu_box: SimulatedBox) -> Iterator[Nvml]:
    nvml = Nvml()
    nvml.start()
    yield nvml
    own_gpu_box.release()
    nvml.stop()


@pytest.fixture
def box(own_gpu_box: SimulatedBox) -> SimulatedBox:
    return own_gpu_box


def read(nvml: Nvml, index: int = 0, *, samples_after: int = 0) -> GpuReading:
    return nvml.read(*nvml.open(index), samples_after=samples_after)


def test_the_versions_are_reported(nvml: Nvml) -> None:
    assert nvml.versions() == Versions("570.124.06", "12.8", "12.570.124.06")
    assert nvml.count() == 2


def test_an_unknown_version_is_empty(nvml: Nvml, box: SimulatedBox) -> None:
    box.change_driver(cuda_version=None, nvml_version=None)
    assert nvml.versions() == Versions("570.124.06", "", "")


def test_a_gpu_has_an_index_and_an_identity(nvml: Nvml, box: SimulatedBox) -> None:
    key, _ = nvml.open(1)
    assert key == GpuKey("1", box.state.gpus[1].uuid)


def test_all_values_of_a_device_are_in_base_units(nvml: Nvml, box: SimulatedBox) -> None:
    box.change_gpu(
        0,
        utilization_gpu=93,
        utilization_memory=41,
        memory_used=3 * GIB,
        temperature=71,
        temperature_memory=84,
        power_mw=512_345,
        energy_mj=12_500,
        clock_sm_mhz=1980,
        clock_reasons=0x44,
        ecc_volatile_corrected=3,
        ecc_aggregate_uncorrected=1,
        remapped_correctable=2,
        remap_pending=1,
        pcie_replays=7,
        pcie_generation=1,
        compute_mode=3,
        persistence_mode=0,
        nvlinks=[NvLink(replay=4), NvLink(up=0, crc_flit=None)],
    )
    seen = read(nvml)

    assert (seen.name, seen.pci_bus_id, seen.minor) == ("Simulated GPU 0", "00000000:17:00.0", 0)
    assert (seen.utilization_ratio, seen.memory_utilization_ratio) == (0.93, 0.41)
    assert seen.memory == GpuMemory(80 * GIB, 3 * GIB, 80 * GIB - 3 * GIB - GIB // 2, GIB // 2)
    assert seen.temperatures == {"core": 71, "memory": 84}
    assert seen.slowdown_celsius == 89
    assert (seen.power_watts, seen.power_limit_watts, seen.energy_joules) == (512.345, 700, 12.5)
    assert seen.clocks_hertz["sm"] == 1_980_000_000
    assert {name for name, active in seen.throttling.items() if active} == {
        "sw_power_cap",
        "hw_thermal_slowdown",
    }
    assert seen.ecc_errors["corrected", "volatile"] == 3
    assert seen.ecc_errors["uncorrected", "aggregate"] == 1
    assert seen.remapping == Remapping(2, 0, pending=True, failed=False)
    assert (seen.retired_pages, seen.retired_pages_pending) == ({}, None)
    assert (seen.pcie_replays, seen.pcie_generation, seen.pcie_max_generation) == (7, 1, 5)
    assert (seen.pcie_width, seen.pcie_max_width) == (16, 16)
    assert (seen.compute_mode, seen.persistence_mode) == ("exclusive_process", False)
    assert (seen.mig_mode, seen.mig) == (False, ())
    assert [(link.up, link.errors.get("replay")) for link in seen.nvlinks] == [
        (True, 4),
        (False, 0),
    ]
    assert "crc_flit" not in seen.nvlinks[1].errors
    assert seen.failures == ()


def test_unsupported_values_are_absent(nvml: Nvml, box: SimulatedBox) -> None:
    box.change_gpu(0, **NOTHING)
    seen = read(nvml)
    assert seen == GpuReading(seen.key, processes=())


def test_an_older_device_retires_pages(nvml: Nvml, box: SimulatedBox) -> None:
    box.change_gpu(
        0,
        retired_single=2,
        retired_double=1,
        retired_pending=1,
        **dict.fromkeys(
            ("remapped_correctable", "remapped_uncorrectable", "remap_pending", "remap_failed")
        ),
    )
    seen = read(nvml)
    assert seen.retired_pages == {"single_bit": 2, "double_bit": 1}
    assert seen.retired_pages_pending
    assert seen.remapping is None


def test_hopper_counts_link_errors_by_field(nvml: Nvml, box: SimulatedBox) -> None:
    refused = {"nvmlDeviceGetNvLinkErrorCounter": "NOT_SUPPORTED"}
    box.change_gpu(0, nvlinks=[NvLink(replay=1), NvLink(recovery=2)], errors=refused)
    assert [dict(link.errors) for link in read(nvml).nvlinks] == [
        {"replay": 1, "recovery": 0, "crc_flit": 0},
        {"replay": 0, "recovery": 2, "crc_flit": 0},
    ]


def test_a_failed_call_is_named_and_affects_no_other(nvml: Nvml, box: SimulatedBox) -> None:
    box.change_gpu(0, errors={"nvmlDeviceGetPowerUsage": "UNKNOWN"})
    seen = read(nvml)
    assert seen.failures == ("nvmlDeviceGetPowerUsage",)
    assert seen.power_watts is None
    assert seen.power_limit_watts == 700
    assert read(nvml, 1).failures == ()


@pytest.mark.parametrize("error", ["NO_PERMISSION", "NOT_FOUND", "INVALID_ARGUMENT", "NO_DATA"])
def test_a_call_without_permission_counts_as_unsupported(
    nvml: Nvml, box: SimulatedBox, error: str
) -> None:
    box.change_gpu(0, errors={"nvmlDeviceGetEccMode": error, "nvmlDeviceGetTotalEccErrors": error})
    seen = read(nvml)
    assert (seen.ecc_errors, seen.failures) == ({}, ())


@pytest.mark.parametrize("error", ["GPU_IS_LOST", "RESET_REQUIRED"])
@pytest.mark.parametrize("function", ["nvmlDeviceGetMigMode", "nvmlDeviceGetProcessUtilization"])
def test_a_gpu_that_is_lost_is_reported_whenever_that_shows(
    nvml: Nvml, box: SimulatedBox, function: str, error: str
) -> None:
    box.change_gpu(0, errors={function: error})
    with pytest.raises(GpuLostError):
        read(nvml)
    assert read(nvml, 1).failures == ()


def test_a_gpu_off_the_bus_cannot_be_opened(nvml: Nvml, box: SimulatedBox) -> None:
    box.lose(1)
    with pytest.raises(GpuLostError):
        nvml.open(1)
    assert nvml.count() == 2


class TestProcesses:
    def test_are_listed_with_their_memory(self, nvml: Nvml, box: SimulatedBox) -> None:
        box.change_gpu(
            0,
            processes=[
                Process(pid=11, memory=GIB),
                Process(pid=12, memory=None),
                Process(pid=13, memory=5, kind="graphics"),
                Process(pid=14, memory=6, kind="mps"),
            ],
        )
        assert set(read(nvml).processes or ()) == {
            ListedProcess(11, GIB),
            ListedProcess(12, None),
            ListedProcess(13, 5),
            ListedProcess(14, 6),
        }

    def test_a_process_that_computes_and_draws_counts_once(
        self, nvml: Nvml, box: SimulatedBox
    ) -> None:
        twice = [Process(pid=11, memory=7), Process(pid=11, memory=7, kind="graphics")]
        box.change_gpu(0, processes=twice)
        assert read(nvml).processes == (ListedProcess(11, 7),)

    def test_on_two_mig_instances_have_the_memory_of_both(
        self, nvml: Nvml, box: SimulatedBox
    ) -> None:
        box.change_gpu(
            0,
            mig_mode=1,
            processes=[
                Process(pid=11, memory=7, gpu_instance=1, compute_instance=0),
                Process(pid=11, memory=8, gpu_instance=2, compute_instance=0),
            ],
        )
        assert read(nvml).processes == (ListedProcess(11, 15),)

    def test_that_may_not_be_listed_are_unknown(self, nvml: Nvml, box: SimulatedBox) -> None:
        listings = (
            f"nvmlDeviceGet{kind}RunningProcesses_v{version}"
            for kind in ("Compute", "Graphics", "MPSCompute")
            for version in (2, 3)
        )
        box.change_gpu(0, errors=dict.fromkeys(listings, "NO_PERMISSION"))
        assert read(nvml).processes is None

    def test_have_their_newest_samples(self, nvml: Nvml, box: SimulatedBox) -> None:
        box.change_gpu(
            0,
            processes=[
                Process(pid=11, sm=40, sample_time_us=1000),
                Process(pid=12, sm=5, sample_time_us=500),
                Process(pid=13),
            ],
        )
        assert set(read(nvml).samples) == {
            UtilizationSample(11, 0.4, 1000),
            UtilizationSample(12, 0.05, 500),
        }
        assert read(nvml, samples_after=500).samples == (UtilizationSample(11, 0.4, 1000),)
        assert read(nvml, samples_after=1000).samples == ()


def test_mig_instances_are_distinguished(nvml: Nvml, box: SimulatedBox) -> None:
    box.change_gpu(
        0,
        mig_mode=1,
        utilization_gpu=None,
        mig=[
            Mig(uuid="MIG-a", slot=0, gpu_instance=3, memory_used=GIB),
            Mig(uuid="MIG-b", slot=2, memory_total=None, memory_used=None),
        ],
    )
    first, second = read(nvml).mig
    assert first == MigInstance(
        "MIG-a", "3", "0", "Simulated GPU MIG 1g.10gb", GpuMemory(10 * GIB, GIB, 9 * GIB, 0)
    )
    assert (second.uuid, second.memory) == ("MIG-b", None)


class TestStart:
    def test_without_a_driver_raises(self, box: SimulatedBox) -> None:
        box.unload_driver()
        with pytest.raises(DriverAbsentError):
            Nvml().start()

    def test_with_a_driver_that_refuses_raises(self, box: SimulatedBox) -> None:
        box.change_driver(init_error="UNKNOWN")
        with pytest.raises(DriverFailedError):
            Nvml().start()

    def test_is_void_after_the_driver_was_loaded_again(self, nvml: Nvml, box: SimulatedBox) -> None:
        _, handle = nvml.open(0)
        box.load_driver()
        with pytest.raises(DriverFailedError):
            nvml.count()
        with pytest.raises(DriverFailedError):
            nvml.read(GpuKey("0", ""), handle)
        nvml.stop()
        nvml.start()
        assert nvml.count() == 2


class TestSubscription:
    def test_returns_each_error_once(self, nvml: Nvml, box: SimulatedBox) -> None:
        gpus = dict(nvml.open(index) for index in range(2))
        events = nvml.subscribe(gpus)
        box.raise_xid(1, 79)
        assert events.wait(1) == (list(gpus)[1], 79)
        assert events.wait(0.01) is None
        events.close()

    def test_leaves_out_lost_gpus(self, nvml: Nvml, box: SimulatedBox) -> None:
        gpus = dict(nvml.open(index) for index in range(2))
        box.lose(0)
        events = nvml.subscribe(gpus)
        assert events.lost == [next(iter(gpus))]
        box.raise_xid(1, 31)
        assert events.wait(1) == (list(gpus)[1], 31)
        events.close()

    def test_fails_when_a_gpu_is_lost(self, nvml: Nvml, box: SimulatedBox) -> None:
        gpus = dict(nvml.open(index) for index in range(2))
        events = nvml.subscribe(gpus)
        box.lose(0)
        with pytest.raises(GpuLostError):
            events.wait(1)
        events.close()

    def test_fails_for_devices_without_events(self, nvml: Nvml, box: SimulatedBox) -> None:
        box.change_gpu(0, supported_events=None)
        box.change_gpu(1, supported_events=None)
        with pytest.raises(NvmlError, match="not supported"):
            nvml.subscribe(dict(nvml.open(index) for index in range(2)))


SCRIPT = """
import json, sys
from trainwarden_exporter.gpu.nvml_library import Nvml
from trainwarden_exporter.gpu.nvml_calls import NvmlError
nvml = Nvml()
for line in sys.stdin:
    try:
        nvml.start()
        seen = nvml.read(*nvml.open(0))
        nvml.stop()
        answer = [seen.memory.reserved, seen.memory.used, sorted(seen.throttling),
                  len(seen.processes), seen.temperatures["core"], list(seen.failures)]
    except NvmlError as error:
        answer = type(error).__name__
    print(json.dumps(answer), flush=True)
"""


class Asking:
    """A program that reads GPU 0 on request."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._program = subprocess.Popen(
            [sys.executable, "-c", SCRIPT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | environment,
        )

    def ask(self) -> object:
        assert self._program.stdin is not None
        assert self._program.stdout is not None
        self._program.stdin.write("\n")
        self._program.stdin.flush()
        return json.loads(self._program.stdout.readline())

    def end(self) -> None:
        self._program.communicate(timeout=60)


Asked = Callable[[SimulatedBox], Asking]


@pytest.fixture
def asked() -> Iterator[Asked]:
    """Starts programs that use a simulated host, and ends them with the test."""
    started: list[Asking] = []

    def ask(box: SimulatedBox) -> Asking:
        started.append(Asking(box.environment))
        return started[-1]

    yield ask
    for asking in started:
        asking.end()


def test_an_old_driver_is_read_through_its_own_functions(tmp_path: Path, asked: Asked) -> None:
    library = build(tmp_path / "old", old_driver=True)
    one = gpu(0, memory_used=GIB, processes=[Process(pid=1)])
    asking = asked(SimulatedBox(tmp_path / "box", [one], library=library))
    assert asking.ask() == [None, GIB + GIB // 2, sorted(list(THROTTLE_REASONS)[:9]), 1, 35, []]


def test_without_a_library_there_is_no_driver(tmp_path: Path, asked: Asked) -> None:
    asking = asked(SimulatedBox(tmp_path / "box", [gpu(0)]))
    assert asking.ask() == "DriverAbsentError"


def test_a_library_that_appears_later_is_found(tmp_path: Path, asked: Asked) -> None:
    folder = tmp_path / "new"
    folder.mkdir()
    box = SimulatedBox(tmp_path / "box", [gpu(0)], library=folder / "libnvidia-ml.so.1")
    asking = asked(box)
    assert asking.ask() == "DriverAbsentError"
    build(folder)
    assert isinstance(asking.ask(), list)


def test_a_driver_of_another_version_gets_the_library_that_fits_it(
    tmp_path: Path, asked: Asked
) -> None:
    """The library of the previous driver reports a version mismatch until the program ends."""
    library = build(tmp_path / "lib")
    box = SimulatedBox(tmp_path / "box", [gpu(0)], library=library)
    asking = asked(box)
    assert asking.ask()[0] == GIB // 2  # type: ignore[index]

    build(tmp_path / "other", old_driver=True).replace(library)
    assert asking.ask()[0] == GIB // 2, "a loaded library stays"  # type: ignore[index]
    box.change_driver(init_error="LIB_RM_VERSION_MISMATCH")
    assert asking.ask() == "DriverFailedError"
    box.change_driver(init_error=None)
    assert asking.ask()[0] is None, "unknown to the library of the old driver"  # type: ignore[index]
