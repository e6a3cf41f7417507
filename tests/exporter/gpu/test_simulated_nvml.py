from __future__ import annotations

import dataclasses
import importlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import simulated_gpu
from simulated_gpu import (
    GIB,
    BuildError,
    Driver,
    Event,
    Gpu,
    Mig,
    NvLink,
    Process,
    SimulatedBox,
    State,
    build,
    gpu,
    load,
)
from simulated_state import SOURCE, functions

pynvml: Any = importlib.import_module("pynvml")  # it has no types

PROGRAM = "import pynvml\n"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture(scope="module")
def old_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("old-nvml"), old_driver=True)


@pytest.fixture
def box(library: Path, tmp_path: Path) -> SimulatedBox:
    return SimulatedBox(tmp_path / "box", [gpu(0), gpu(1)], library=library, count_calls=True)


@pytest.fixture
def uninitialised(
    box: SimulatedBox, library: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Any]:
    """The real pynvml on the simulated library, in this process."""
    load(library)
    monkeypatch.setenv("SIMULATED_GPU_STATE", str(box.state_file))
    yield pynvml
    box.write(State())  # releases calls that still hang
    shut_down()


@pytest.fixture
def nvml(uninitialised: Any) -> Any:
    uninitialised.nvmlInit()
    return uninitialised


def shut_down() -> None:
    while True:
        try:
            pynvml.nvmlShutdown()
        except pynvml.NVMLError:
            return


def failure(call: Callable[..., object], *arguments: object) -> str:
    """Returns the name of the error that the call raises."""
    with pytest.raises(pynvml.NVMLError) as raised:
        call(*arguments)
    return raised.type.__name__.removeprefix("NVMLError_")


def python(code: str, **environment: str) -> str:
    """Returns the output of a program that imports pynvml, run in its own process."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM + code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


class Call(threading.Thread):
    """One call in its own thread, because it may hang."""

    def __init__(self, call: Callable[..., object], *arguments: object) -> None:
        super().__init__(daemon=True)
        self.result: object = None
        self._call = call
        self._arguments = arguments
        self.start()

    def run(self) -> None:
        try:
            self.result = self._call(*self._arguments)
        except pynvml.NVMLError as error:
            self.result = type(error).__name__


# ------------------------------------------------------------------------------- the values


SINGLE_VALUES: list[tuple[str, int, Callable[[Any], object]]] = [
    ("minor", 3, pynvml.nvmlDeviceGetMinorNumber),
    ("temperature", 71, lambda h: pynvml.nvmlDeviceGetTemperature(h, 0)),
    ("temperature_shutdown", 93, lambda h: pynvml.nvmlDeviceGetTemperatureThreshold(h, 0)),
    ("temperature_slowdown", 90, lambda h: pynvml.nvmlDeviceGetTemperatureThreshold(h, 1)),
    ("temperature_memory_max", 96, lambda h: pynvml.nvmlDeviceGetTemperatureThreshold(h, 2)),
    ("temperature_gpu_max", 88, lambda h: pynvml.nvmlDeviceGetTemperatureThreshold(h, 3)),
    ("power_mw", 312_345, pynvml.nvmlDeviceGetPowerUsage),
    ("power_limit_mw", 500_000, pynvml.nvmlDeviceGetEnforcedPowerLimit),
    ("energy_mj", 1 << 40, pynvml.nvmlDeviceGetTotalEnergyConsumption),
    (
        "clock_graphics_mhz",
        1,
        lambda h: pynvml.nvmlDeviceGetClockInfo(h, pynvml.NVML_CLOCK_GRAPHICS),
    ),
    ("clock_sm_mhz", 2, lambda h: pynvml.nvmlDeviceGetClockInfo(h, pynvml.NVML_CLOCK_SM)),
    ("clock_memory_mhz", 3, lambda h: pynvml.nvmlDeviceGetClockInfo(h, pynvml.NVML_CLOCK_MEM)),
    ("clock_video_mhz", 4, lambda h: pynvml.nvmlDeviceGetClockInfo(h, pynvml.NVML_CLOCK_VIDEO)),
    ("clock_reasons", 0x44, pynvml.nvmlDeviceGetCurrentClocksThrottleReasons),
    ("clock_reasons", 0x88, pynvml.nvmlDeviceGetCurrentClocksEventReasons),
    ("clock_reasons_supported", 1, pynvml.nvmlDeviceGetSupportedClocksThrottleReasons),
    ("clock_reasons_supported", 2, pynvml.nvmlDeviceGetSupportedClocksEventReasons),
    ("performance_state", 8, pynvml.nvmlDeviceGetPerformanceState),
    ("ecc_volatile_corrected", 11, lambda h: pynvml.nvmlDeviceGetTotalEccErrors(h, 0, 0)),
    ("ecc_volatile_uncorrected", 12, lambda h: pynvml.nvmlDeviceGetTotalEccErrors(h, 1, 0)),
    ("ecc_aggregate_corrected", 13, lambda h: pynvml.nvmlDeviceGetTotalEccErrors(h, 0, 1)),
    ("ecc_aggregate_uncorrected", 14, lambda h: pynvml.nvmlDeviceGetTotalEccErrors(h, 1, 1)),
    ("retired_single", 3, lambda h: len(pynvml.nvmlDeviceGetRetiredPages(h, 0))),
    ("retired_double", 0, lambda h: len(pynvml.nvmlDeviceGetRetiredPages(h, 1))),
    ("retired_pending", 1, pynvml.nvmlDeviceGetRetiredPagesPendingStatus),
    ("pcie_replays", 7, pynvml.nvmlDeviceGetPcieReplayCounter),
    ("pcie_generation", 1, pynvml.nvmlDeviceGetCurrPcieLinkGeneration),
    ("pcie_width", 8, pynvml.nvmlDeviceGetCurrPcieLinkWidth),
    ("pcie_max_generation", 4, pynvml.nvmlDeviceGetMaxPcieLinkGeneration),
    ("pcie_gpu_max_generation", 6, pynvml.nvmlDeviceGetGpuMaxPcieLinkGeneration),
    ("pcie_max_width", 32, pynvml.nvmlDeviceGetMaxPcieLinkWidth),
    ("compute_mode", 3, pynvml.nvmlDeviceGetComputeMode),
    ("persistence_mode", 0, pynvml.nvmlDeviceGetPersistenceMode),
    ("mig_max_devices", 4, pynvml.nvmlDeviceGetMaxMigDeviceCount),
    ("supported_events", 9, pynvml.nvmlDeviceGetSupportedEventTypes),
]


@pytest.mark.parametrize(
    ("field", "value", "ask"),
    SINGLE_VALUES,
    ids=[f"{field}-{value}" for field, value, _ in SINGLE_VALUES],
)
def test_a_value_is_what_the_state_says_and_unsupported_when_it_says_nothing(
    nvml: Any, box: SimulatedBox, field: str, value: int, ask: Callable[[Any], object]
) -> None:
    box.change_gpu(1, **{field: value})
    handle = nvml.nvmlDeviceGetHandleByIndex(1)
    assert ask(handle) == value
    box.change_gpu(1, **{field: None})
    assert failure(ask, handle) == "NotSupported"


@pytest.mark.skipif(
    not hasattr(pynvml, "nvmlDeviceGetTemperatureV"), reason="pynvml has it from 12.570 on"
)
def test_the_temperature_by_its_newer_function(nvml: Any, box: SimulatedBox) -> None:
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    box.change_gpu(0, temperature=72)
    assert nvml.nvmlDeviceGetTemperatureV(handle, 0) == 72
    box.change_gpu(0, temperature=None)
    assert failure(nvml.nvmlDeviceGetTemperatureV, handle, 0) == "NotSupported"


def test_the_library_reads_every_field_that_a_state_can_have() -> None:
    source = SOURCE.read_text()
    kinds = (Driver, Gpu, NvLink, Mig, Process, Event)
    written = {entry.name for kind in kinds for entry in dataclasses.fields(kind)}
    unread = {name for name in written if f'"{name}"' not in source}
    # sections, and lines, with a name of their own
    assert unread == {"nvlinks", "processes", "fields"}


def test_versions(nvml: Any, box: SimulatedBox) -> None:
    box.change_driver(driver_version="535.1", nvml_version="12.535.1", cuda_version=12020)
    assert nvml.nvmlSystemGetDriverVersion() == "535.1"
    assert nvml.nvmlSystemGetNVMLVersion() == "12.535.1"
    assert nvml.nvmlSystemGetCudaDriverVersion() == 12020
    assert nvml.nvmlSystemGetCudaDriverVersion_v2() == 12020


def test_devices_are_found_by_index_uuid_and_bus(nvml: Any, box: SimulatedBox) -> None:
    uuid = box.state.gpus[1].uuid
    assert nvml.nvmlDeviceGetCount() == 2
    for handle in (
        nvml.nvmlDeviceGetHandleByIndex(1),
        nvml.nvmlDeviceGetHandleByUUID(uuid),
        nvml.nvmlDeviceGetHandleByPciBusId("0000:27:00.0"),
    ):
        assert nvml.nvmlDeviceGetUUID(handle) == uuid
        assert nvml.nvmlDeviceGetName(handle) == "Simulated GPU 1"
        assert nvml.nvmlDeviceGetSerial(handle) == "1650000000001"
        assert nvml.nvmlDeviceGetIndex(handle) == 1
        pci = nvml.nvmlDeviceGetPciInfo(handle)
        assert (pci.busId, pci.busIdLegacy) == ("00000000:27:00.0", "0000:27:00.0")
        assert (pci.domain, pci.bus, pci.device) == (0, 0x27, 0)
    assert failure(nvml.nvmlDeviceGetHandleByIndex, 2) == "InvalidArgument"
    assert failure(nvml.nvmlDeviceGetHandleByUUID, "GPU-none") == "NotFound"
    assert failure(nvml.nvmlDeviceGetHandleByPciBusId, "0000:99:00.0") == "NotFound"


def test_memory_is_counted_with_and_without_what_is_reserved(nvml: Any, box: SimulatedBox) -> None:
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    box.change_gpu(0, memory_total=100, memory_reserved=10, memory_used=30)
    first = nvml.nvmlDeviceGetMemoryInfo(handle)
    assert (first.total, first.free, first.used) == (100, 60, 40)
    second = nvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
    assert (second.total, second.reserved, second.free, second.used) == (100, 10, 60, 30)
    box.change_gpu(0, memory_reserved=None)
    assert failure(nvml.nvmlDeviceGetMemoryInfo, handle, pynvml.nvmlMemory_v2) == "NotSupported"
    assert nvml.nvmlDeviceGetMemoryInfo(handle).used == 30
    assert failure(nvml.nvmlDeviceGetMemoryInfo, handle, 7) == "ArgumentVersionMismatch"


def test_values_that_come_together(nvml: Any, box: SimulatedBox) -> None:
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    box.change_gpu(
        0,
        utilization_gpu=97,
        utilization_memory=41,
        ecc_mode=0,
        ecc_mode_pending=1,
        remapped_correctable=1,
        remapped_uncorrectable=2,
        remap_pending=1,
        remap_failed=0,
    )
    rates = nvml.nvmlDeviceGetUtilizationRates(handle)
    assert (rates.gpu, rates.memory) == (97, 41)
    assert nvml.nvmlDeviceGetEccMode(handle) == [0, 1]
    assert nvml.nvmlDeviceGetRemappedRows(handle) == (1, 2, 1, 0)
    box.change_gpu(0, utilization_gpu=None, ecc_mode=None, remap_failed=None)
    for ask in (
        nvml.nvmlDeviceGetUtilizationRates,
        nvml.nvmlDeviceGetEccMode,
        nvml.nvmlDeviceGetRemappedRows,
    ):
        assert failure(ask, handle) == "NotSupported"


def test_field_values_answer_each_for_itself(nvml: Any, box: SimulatedBox) -> None:
    box.change_gpu(
        0,
        temperature_memory=66,
        energy_mj=1 << 41,
        fields={(208, 1): 5},
        errors={"nvmlDeviceGetFieldValues/94": "UNKNOWN"},
    )
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    asked = [82, 83, (208, 1), (208, 0), 94, 32]
    answers = nvml.nvmlDeviceGetFieldValues(handle, asked)
    assert [answer.nvmlReturn for answer in answers] == [0, 0, 0, 3, 999, 3]
    assert (answers[0].valueType, answers[0].value.uiVal) == (1, 66)
    assert (answers[1].valueType, answers[1].value.ullVal) == (3, 1 << 41)
    assert answers[2].value.ullVal == 5
    assert abs(answers[0].timestamp / 1e6 - time.time()) < 60


def test_nvlink_by_functions_and_by_fields(nvml: Any, box: SimulatedBox) -> None:
    link = NvLink(up=0, version=5, replay=1, recovery=2, crc_flit=3, crc_data=4)
    box.change_gpu(0, nvlinks=[NvLink()] * 7 + [link])
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    assert [nvml.nvmlDeviceGetNvLinkState(handle, number) for number in (0, 7)] == [1, 0]
    assert nvml.nvmlDeviceGetNvLinkVersion(handle, 7) == 5
    counters = [nvml.nvmlDeviceGetNvLinkErrorCounter(handle, 7, kind) for kind in range(4)]
    assert counters == [1, 2, 3, 4]
    assert failure(nvml.nvmlDeviceGetNvLinkErrorCounter, handle, 7, 4) == "NotSupported"
    assert failure(nvml.nvmlDeviceGetNvLinkState, handle, 8) == "InvalidArgument"
    fields = {
        pynvml.NVML_FI_DEV_NVLINK_LINK_COUNT: 8,
        pynvml.NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_L7: 3,
        pynvml.NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_L5: 0,
        pynvml.NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL: 1,
        (pynvml.NVML_FI_DEV_NVLINK_ERROR_DL_RECOVERY, 7): 2,
    }
    answers = nvml.nvmlDeviceGetFieldValues(handle, list(fields))
    assert [answer.value.ullVal for answer in answers] == list(fields.values())
    other = nvml.nvmlDeviceGetHandleByIndex(1)
    assert failure(nvml.nvmlDeviceGetNvLinkState, other, 0) == "NotSupported"


# ------------------------------------------------------------------------- processes and MIG


def test_processes_by_kind(nvml: Any, box: SimulatedBox) -> None:
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    assert nvml.nvmlDeviceGetComputeRunningProcesses(handle) == []
    box.change_gpu(
        0,
        processes=[
            *(Process(pid=100 + n, memory=n * GIB) for n in range(20)),
            Process(pid=7, memory=None, kind="graphics"),
            Process(pid=8, memory=1, kind="mps"),
        ],
    )
    for ask in (
        nvml.nvmlDeviceGetComputeRunningProcesses_v3,
        nvml.nvmlDeviceGetComputeRunningProcesses_v2,
    ):
        listed = ask(handle)
        assert [(process.pid, process.usedGpuMemory) for process in listed] == [
            (100 + n, n * GIB) for n in range(20)
        ]
        assert {process.gpuInstanceId for process in listed} == {0xFFFFFFFF}
    (graphics,) = nvml.nvmlDeviceGetGraphicsRunningProcesses(handle)
    assert (graphics.pid, graphics.usedGpuMemory) == (7, None)
    (mps,) = nvml.nvmlDeviceGetMPSComputeRunningProcesses(handle)
    assert mps.pid == 8


def test_utilisation_samples_of_processes_since_a_time(nvml: Any, box: SimulatedBox) -> None:
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    box.change_gpu(
        0,
        processes=[
            Process(pid=1),
            Process(pid=2, sm=40, memory_bandwidth=9, encoder=1, sample_time_us=1000),
            Process(pid=3, sm=50, sample_time_us=2000),
        ],
    )
    first, second = nvml.nvmlDeviceGetProcessUtilization(handle, 0)
    assert (first.pid, first.timeStamp, first.smUtil) == (2, 1000, 40)
    assert (first.memUtil, first.encUtil, first.decUtil) == (9, 1, 0)
    (newer,) = nvml.nvmlDeviceGetProcessUtilization(handle, 1000)
    assert newer.pid == second.pid == 3
    assert failure(nvml.nvmlDeviceGetProcessUtilization, handle, 2000) == "NotFound"
    box.change_gpu(0, processes=[Process(pid=4, sm=1)])
    before = time.time_ns() // 1000
    (sample,) = nvml.nvmlDeviceGetProcessUtilization(handle, before - 1)
    assert sample.timeStamp >= before


def test_mig_devices(nvml: Any, box: SimulatedBox) -> None:
    box.change_gpu(
        1,
        mig_mode=1,
        utilization_gpu=None,
        mig=[
            Mig(uuid="MIG-a", slot=0, gpu_instance=7, memory_total=10 * GIB, memory_used=GIB),
            Mig(uuid="MIG-b", slot=2, gpu_instance=9, compute_instance=1, name="MIG 2g.20gb"),
        ],
        processes=[
            Process(pid=5, gpu_instance=7, compute_instance=0, memory=3),
            Process(pid=6, gpu_instance=9, compute_instance=1, memory=4),
        ],
    )
    parent = nvml.nvmlDeviceGetHandleByIndex(1)
    assert nvml.nvmlDeviceGetMigMode(parent) == [1, 0]
    first, second = (nvml.nvmlDeviceGetMigDeviceHandleByIndex(parent, slot) for slot in (0, 2))
    assert failure(nvml.nvmlDeviceGetMigDeviceHandleByIndex, parent, 1) == "NotFound"
    assert failure(nvml.nvmlDeviceGetMigDeviceHandleByIndex, parent, 7) == "InvalidArgument"
    assert nvml.nvmlDeviceGetUUID(second) == "MIG-b"
    assert nvml.nvmlDeviceGetName(second) == "MIG 2g.20gb"
    assert nvml.nvmlDeviceGetGpuInstanceId(second) == 9
    assert nvml.nvmlDeviceGetComputeInstanceId(second) == 1
    assert nvml.nvmlDeviceGetMemoryInfo(first).used == GIB
    assert nvml.nvmlDeviceGetAttributes(first).memorySizeMB == 10 * 1024
    (process,) = nvml.nvmlDeviceGetComputeRunningProcesses(second)
    assert (process.pid, process.gpuInstanceId, process.computeInstanceId) == (6, 9, 1)
    assert len(nvml.nvmlDeviceGetComputeRunningProcesses(parent)) == 2
    assert nvml.nvmlDeviceIsMigDeviceHandle(first).value == 1
    assert nvml.nvmlDeviceIsMigDeviceHandle(parent).value == 0
    back = nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(first)
    assert nvml.nvmlDeviceGetUUID(back) == box.state.gpus[1].uuid
    assert failure(nvml.nvmlDeviceGetGpuInstanceId, parent) == "NotSupported"
    assert failure(nvml.nvmlDeviceGetTemperature, first, 0) == "NotSupported"
    assert nvml.nvmlDeviceGetName(nvml.nvmlDeviceGetHandleByUUID("MIG-b")) == "MIG 2g.20gb"
    box.change_gpu(1, mig=[])
    assert failure(nvml.nvmlDeviceGetName, second) == "NotFound"


# ------------------------------------------------------------------------------------ faults


@pytest.mark.parametrize(
    ("error", "name"),
    [
        ("DRIVER_NOT_LOADED", "DriverNotLoaded"),
        ("LIB_RM_VERSION_MISMATCH", "LibRmVersionMismatch"),
        ("NO_PERMISSION", "NoPermission"),
        ("UNKNOWN", "Unknown"),
    ],
)
def test_initialising_fails_as_configured_and_later_succeeds(
    uninitialised: Any, box: SimulatedBox, error: str, name: str
) -> None:
    box.change_driver(init_error=error)
    assert failure(uninitialised.nvmlInit) == name
    assert failure(uninitialised.nvmlDeviceGetCount) == "Uninitialized"
    box.change_driver(init_error=None)
    uninitialised.nvmlInit()
    assert uninitialised.nvmlDeviceGetCount() == 2


def test_without_a_state_there_is_no_driver(
    uninitialised: Any, box: SimulatedBox, monkeypatch: pytest.MonkeyPatch
) -> None:
    box.state_file.unlink()
    assert failure(uninitialised.nvmlInit) == "DriverNotLoaded"
    monkeypatch.delenv("SIMULATED_GPU_STATE")
    assert failure(uninitialised.nvmlInit) == "DriverNotLoaded"


def test_an_error_of_one_function_on_one_device(nvml: Any, box: SimulatedBox) -> None:
    box.change_gpu(0, errors={"nvmlDeviceGetPowerUsage": "UNKNOWN", "nvmlDeviceGetName": "NO_DATA"})
    sick, well = (nvml.nvmlDeviceGetHandleByIndex(index) for index in (0, 1))
    assert failure(nvml.nvmlDeviceGetPowerUsage, sick) == "Unknown"
    assert failure(nvml.nvmlDeviceGetName, sick) == "NoData"
    assert nvml.nvmlDeviceGetEnforcedPowerLimit(sick) == 700_000
    assert nvml.nvmlDeviceGetPowerUsage(well) == 70_000


def test_an_error_of_one_function_on_all_devices(nvml: Any, box: SimulatedBox) -> None:
    box.change_driver(errors={"nvmlDeviceGetPowerUsage": "FUNCTION_NOT_FOUND"})
    for index in (0, 1):
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        assert failure(nvml.nvmlDeviceGetPowerUsage, handle) == "FunctionNotFound"
        assert nvml.nvmlDeviceGetName(handle)


def test_an_error_of_every_function_of_a_device(nvml: Any, box: SimulatedBox) -> None:
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    box.change_gpu(0, errors={"*": "RESET_REQUIRED"})
    assert failure(nvml.nvmlDeviceGetName, handle) == "ResetRequired"
    assert failure(nvml.nvmlDeviceGetHandleByIndex, 0) == "ResetRequired"
    assert nvml.nvmlDeviceGetCount() == 2


def test_a_gpu_that_fell_off_the_bus_and_came_back(nvml: Any, box: SimulatedBox) -> None:
    handle = nvml.nvmlDeviceGetHandleByIndex(1)
    box.lose(1)
    assert nvml.nvmlDeviceGetCount() == 2
    assert failure(nvml.nvmlDeviceGetUUID, handle) == "GpuIsLost"
    assert failure(nvml.nvmlDeviceGetHandleByIndex, 1) == "GpuIsLost"
    assert nvml.nvmlDeviceGetName(nvml.nvmlDeviceGetHandleByIndex(0))
    box.find(1)
    assert nvml.nvmlDeviceGetName(handle)
    box.remove(1)
    assert nvml.nvmlDeviceGetCount() == 1
    assert failure(nvml.nvmlDeviceGetUUID, handle) == "GpuIsLost"


def test_a_reloaded_driver_must_be_initialised_again(nvml: Any, box: SimulatedBox) -> None:
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    box.unload_driver()
    assert failure(nvml.nvmlDeviceGetCount) == "Uninitialized"
    assert failure(nvml.nvmlDeviceGetName, handle) == "Uninitialized"
    nvml.nvmlShutdown()
    assert failure(nvml.nvmlInit) == "DriverNotLoaded"
    box.load_driver()
    nvml.nvmlInit()
    assert failure(nvml.nvmlDeviceGetName, handle) == "Uninitialized"
    assert nvml.nvmlDeviceGetName(nvml.nvmlDeviceGetHandleByIndex(0))


def test_initialising_is_counted(nvml: Any, box: SimulatedBox) -> None:
    nvml.nvmlInit()
    nvml.nvmlShutdown()
    assert nvml.nvmlDeviceGetCount() == 2
    box.load_driver()
    nvml.nvmlInit()  # succeeds without opening anything: it was not shut down
    assert failure(nvml.nvmlDeviceGetCount) == "Uninitialized"
    nvml.nvmlShutdown()
    nvml.nvmlShutdown()
    assert failure(nvml.nvmlShutdown) == "Uninitialized"
    nvml.nvmlInit()
    assert nvml.nvmlDeviceGetCount() == 2


def test_a_pointer_that_is_no_handle_is_refused(nvml: Any) -> None:
    stray = pynvml.c_nvmlDevice_t(pynvml.struct_c_nvmlDevice_t())
    assert failure(nvml.nvmlDeviceGetName, stray) == "InvalidArgument"


@pytest.mark.parametrize("text", ["[gpus]\n", "[mig]\n", "a = 1\n", "[driver]\nversion 5\n"])
def test_a_malformed_state_is_no_state(
    nvml: Any, box: SimulatedBox, text: str, capfd: pytest.CaptureFixture[str]
) -> None:
    box.state_file.write_text("# a comment\n" + text)
    assert failure(nvml.nvmlDeviceGetCount) == "Unknown"
    assert f"{box.state_file}, line " in capfd.readouterr().err


def test_a_number_that_is_none_is_reported(
    nvml: Any, box: SimulatedBox, capfd: pytest.CaptureFixture[str]
) -> None:
    text = box.state_file.read_text().replace("temperature = 35", "temperature = warm")
    box.state_file.write_text(text)
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    assert failure(nvml.nvmlDeviceGetTemperature, handle, 0) == "Unknown"
    assert "not a number: temperature = warm" in capfd.readouterr().err


def test_a_misspelt_fault_is_refused(box: SimulatedBox) -> None:
    with pytest.raises(ValueError, match="nvmlDeviceGetTemprature"):
        box.hang("nvmlDeviceGetTemprature")
    with pytest.raises(ValueError, match="GPU_LOST"):
        box.change_gpu(0, errors={"*": "GPU_LOST"})
    with pytest.raises(ValueError, match="nvmlDeviceGetCount"):
        box.called("nvmlDeviceGetCount")
    with pytest.raises(ValueError, match="more than one line"):
        box.change_gpu(0, name="a\n[gpu]")


# ------------------------------------------------------------------------------------ events


@pytest.fixture
def events(nvml: Any) -> Any:
    """An event set that both GPUs are registered with."""
    events = nvml.nvmlEventSetCreate()
    for index in (0, 1):
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        nvml.nvmlDeviceRegisterEvents(handle, pynvml.nvmlEventTypeXidCriticalError, events)
    return events


def test_an_event_is_returned_once(nvml: Any, box: SimulatedBox, events: Any) -> None:
    for index, xid in ((1, 79), (0, 31), (1, 79)):
        box.raise_xid(index, xid)
    seen = []
    for _ in range(3):
        event = nvml.nvmlEventSetWait_v2(events, 0)
        assert event.eventType == pynvml.nvmlEventTypeXidCriticalError
        seen.append((nvml.nvmlDeviceGetIndex(event.device), event.eventData))
    assert sorted(seen) == [(0, 31), (1, 79), (1, 79)]
    assert failure(nvml.nvmlEventSetWait_v2, events, 0) == "Timeout"


def test_every_set_returns_what_was_raised_after_it_registered(
    nvml: Any, box: SimulatedBox, events: Any
) -> None:
    box.raise_xid(0, 13)
    late = nvml.nvmlEventSetCreate()
    nvml.nvmlDeviceRegisterEvents(nvml.nvmlDeviceGetHandleByIndex(0), 8, late)
    box.raise_xid(0, 48)
    assert [nvml.nvmlEventSetWait_v2(events, 0).eventData for _ in range(2)] == [13, 48]
    assert nvml.nvmlEventSetWait_v2(late, 0).eventData == 48
    nvml.nvmlEventSetFree(late)
    assert failure(nvml.nvmlEventSetWait_v2, late, 0) == "InvalidArgument"


def test_waiting_ends_at_the_timeout_or_with_an_event(
    nvml: Any, box: SimulatedBox, events: Any
) -> None:
    start = time.monotonic()
    assert failure(nvml.nvmlEventSetWait_v2, events, 60) == "Timeout"
    assert 0.06 <= time.monotonic() - start < 60
    waiter = Call(nvml.nvmlEventSetWait_v2, events, 60_000)
    event = box.raise_xid(0, 62, delay=0.1)
    waiter.join(60)
    assert isinstance(waiter.result, pynvml.c_nvmlEventData_t)
    assert waiter.result.eventData == 62
    assert time.time_ns() >= event.time_ns


def test_a_set_returns_only_registered_types_and_what_is_supported(
    nvml: Any, box: SimulatedBox
) -> None:
    events = nvml.nvmlEventSetCreate()
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    nvml.nvmlDeviceRegisterEvents(handle, pynvml.nvmlEventTypeDoubleBitEccError, events)
    box.raise_xid(0, 48)
    assert failure(nvml.nvmlEventSetWait_v2, events, 0) == "Timeout"
    assert failure(nvml.nvmlDeviceRegisterEvents, handle, 1 << 20, events) == "NotSupported"
    box.change_gpu(0, supported_events=None)
    assert failure(nvml.nvmlDeviceRegisterEvents, handle, 8, events) == "NotSupported"


def test_a_lost_gpu_ends_the_waiting_after_its_last_event(
    nvml: Any, box: SimulatedBox, events: Any
) -> None:
    box.raise_xid(1, 79)
    box.lose(1)
    assert nvml.nvmlEventSetWait_v2(events, 1000).eventData == 79
    assert failure(nvml.nvmlEventSetWait_v2, events, 1000) == "GpuIsLost"


def test_event_sets_end_with_the_driver(nvml: Any, box: SimulatedBox, events: Any) -> None:
    waiter = Call(nvml.nvmlEventSetWait_v2, events, 60_000)
    box.load_driver()
    waiter.join(60)
    assert waiter.result == "NVMLError_Uninitialized"
    nvml.nvmlShutdown()
    nvml.nvmlInit()
    assert failure(nvml.nvmlEventSetWait_v2, events, 0) == "Uninitialized"


# ----------------------------------------------------------------------------------- hanging

Wait = Callable[[Callable[[], bool]], None]


def test_one_function_hangs_until_released_and_no_other(
    nvml: Any, box: SimulatedBox, wait_until: Wait
) -> None:
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    box.hang("nvmlDeviceGetTemperature")
    hung = Call(nvml.nvmlDeviceGetTemperature, handle, 0)
    wait_until(lambda: box.called("nvmlDeviceGetTemperature") == 1)
    assert nvml.nvmlDeviceGetPowerUsage(handle) == 70_000
    box.change_gpu(0, temperature=55)
    assert hung.is_alive()
    box.release()
    hung.join(60)
    assert hung.result == 55
    assert box.called("nvmlDeviceGetTemperature") == 1


def test_one_device_hangs_and_no_other(nvml: Any, box: SimulatedBox, wait_until: Wait) -> None:
    sick, well = (nvml.nvmlDeviceGetHandleByIndex(index) for index in (0, 1))
    box.change_gpu(0, hang=["*"])
    calls = [Call(nvml.nvmlDeviceGetName, sick), Call(nvml.nvmlDeviceGetHandleByIndex, 0)]
    wait_until(lambda: box.called("nvmlDeviceGetHandleByIndex_v2") == 3)
    wait_until(lambda: box.called("nvmlDeviceGetName") == 1)
    assert nvml.nvmlDeviceGetName(well) == "Simulated GPU 1"
    assert all(call.is_alive() for call in calls)
    box.change_gpu(0, hang=[])
    for call in calls:
        call.join(60)
    assert calls[0].result == "Simulated GPU 0"


def test_everything_hangs_initialising_too(
    uninitialised: Any, box: SimulatedBox, wait_until: Wait
) -> None:
    box.hang()
    hung = Call(uninitialised.nvmlInit)
    wait_until(lambda: box.called("nvmlInitWithFlags") == 1)
    assert hung.is_alive()
    box.release()
    hung.join(60)
    assert not hung.is_alive()
    assert uninitialised.nvmlDeviceGetCount() == 2


def test_a_wait_for_events_hangs_beyond_its_timeout(
    nvml: Any, box: SimulatedBox, events: Any
) -> None:
    box.hang("nvmlEventSetWait_v2")
    hung = Call(nvml.nvmlEventSetWait_v2, events, 1)
    hung.join(0.1)
    assert hung.is_alive()
    box.release()
    hung.join(60)
    assert hung.result == "NVMLError_Timeout"


def test_a_hang_ends_with_the_state(nvml: Any, box: SimulatedBox, wait_until: Wait) -> None:
    box.hang()
    hung = Call(nvml.nvmlDeviceGetCount)
    wait_until(lambda: box.called("nvmlDeviceGetCount_v2") == 1)
    box.state_file.unlink()
    hung.join(60)
    assert hung.result == "NVMLError_Unknown"


def test_threads_see_whole_states_only(nvml: Any, box: SimulatedBox) -> None:
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    over = threading.Event()
    torn: list[object] = []

    def read() -> None:
        while not over.is_set():
            rates = nvml.nvmlDeviceGetUtilizationRates(handle)
            if rates.gpu != rates.memory:
                torn.append((rates.gpu, rates.memory))

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for value in range(60):
        box.change_gpu(0, utilization_gpu=value, utilization_memory=value)
    over.set()
    for reader in readers:
        reader.join()
    assert not torn
    assert nvml.nvmlDeviceGetUtilizationRates(handle).gpu == 59


# ------------------------------------------------------------------- the library and its file


def test_a_program_finds_it_by_its_name(box: SimulatedBox) -> None:
    code = "pynvml.nvmlInit(); print(pynvml.nvmlDeviceGetCount())"
    assert python(code, **box.environment) == "2"


def test_an_old_driver_lacks_the_newer_symbols(old_library: Path, tmp_path: Path) -> None:
    box = SimulatedBox(tmp_path, [gpu(0, processes=[Process(pid=9)])], library=old_library)
    code = """
pynvml.nvmlInit()
handle = pynvml.nvmlDeviceGetHandleByIndex(0)
for ask in (
    pynvml.nvmlDeviceGetComputeRunningProcesses_v3,
    pynvml.nvmlDeviceGetCurrentClocksEventReasons,
    pynvml.nvmlDeviceGetSupportedClocksEventReasons,
    lambda handle: pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2),
):
    try:
        ask(handle)
    except pynvml.NVMLError_FunctionNotFound:
        print("missing", end=" ")
print(pynvml.nvmlDeviceGetComputeRunningProcesses_v2(handle)[0].pid, end=" ")
print(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))
"""
    assert python(code, **box.environment) == "missing missing missing missing 9 1"


def test_any_function_can_be_missing(tmp_path: Path) -> None:
    library = build(tmp_path, missing=["nvmlEventSetCreate"])
    box = SimulatedBox(tmp_path, [gpu(0)], library=library)
    code = """
pynvml.nvmlInit()
try:
    pynvml.nvmlEventSetCreate()
except pynvml.NVMLError_FunctionNotFound:
    print("missing", pynvml.nvmlDeviceGetCount())
"""
    assert python(code, **box.environment) == "missing 1"
    with pytest.raises(ValueError, match="nvmlNone"):
        build(tmp_path, missing=["nvmlNone"])


def test_it_is_built_once_for_a_source_and_again_for_a_variant(tmp_path: Path) -> None:
    first = build(tmp_path)
    made = first.stat()
    assert first == tmp_path / "libnvidia-ml.so.1"
    assert build(tmp_path).stat().st_ino == made.st_ino
    assert build(tmp_path, missing=["nvmlShutdown"]).stat().st_ino != made.st_ino
    assert [file.name for file in tmp_path.iterdir()] == ["libnvidia-ml.so.1"]


def test_a_missing_compiler_is_reported_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", str(tmp_path / "cc"))
    with pytest.raises(BuildError, match="no C compiler"):
        build(tmp_path / "nvml")
    monkeypatch.setenv("CC", "false")
    with pytest.raises(BuildError, match="false ended with 1"):
        build(tmp_path / "nvml")
    assert list((tmp_path / "nvml").iterdir()) == []


def test_it_has_the_functions_that_its_source_names(library: Path) -> None:
    symbols = subprocess.run(
        ["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True
    ).stdout
    exported = {line.split()[-1] for line in symbols.splitlines()}
    assert {name for name in exported if name.startswith("nvml")} == functions()
    assert set(simulated_gpu.NEWER_SYMBOLS) <= functions()


def test_it_leaves_nothing_behind_but_the_calls_it_was_asked_to_count(
    library: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "box"
    box = SimulatedBox(folder, [gpu(0)], library=library)
    code = "pynvml.nvmlInit(); pynvml.nvmlDeviceGetCount()"
    python(code, **box.environment)
    assert {file.name for file in folder.iterdir()} == {"state"}
    with pytest.raises(ValueError, match="not counted"):
        box.calls()
    counting = SimulatedBox(folder, [gpu(0)], library=library, count_calls=True)
    assert not counting.calls()
    python(code, **counting.environment)
    assert counting.calls() == {"nvmlInitWithFlags": 1, "nvmlDeviceGetCount_v2": 1}
    assert {file.name for file in folder.iterdir()} == {"state", "calls"}


def test_device_files_lie_where_a_driver_would_put_them(box: SimulatedBox) -> None:
    folder = box.make_device_files()
    names = {file.name for file in folder.iterdir()}
    assert names == {"nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"}
