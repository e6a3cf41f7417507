"""Reads one GPU through NVML; values without support are None or absent.

Facts on functions, units and fields: NVIDIA's NVML API reference.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import pynvml  # type: ignore[import-untyped]  # NVIDIA ships no types

from trainwarden_exporter.gpu.model import (
    GpuKey,
    GpuMemory,
    GpuReading,
    ListedProcess,
    MigInstance,
    NvLink,
    Remapping,
    UtilizationSample,
)
from trainwarden_exporter.gpu.nvml_calls import DeviceCalls, Handle

_CLOCKS = {
    "graphics": pynvml.NVML_CLOCK_GRAPHICS,
    "sm": pynvml.NVML_CLOCK_SM,
    "memory": pynvml.NVML_CLOCK_MEM,
    "video": pynvml.NVML_CLOCK_VIDEO,
}
# Bits of nvmlClocksEventReasons…, called nvmlClocksThrottleReasons… by older drivers.
THROTTLE_REASONS: Mapping[str, int] = {
    "gpu_idle": 0x1,
    "applications_clocks_setting": 0x2,
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sync_boost": 0x10,
    "sw_thermal_slowdown": 0x20,
    "hw_thermal_slowdown": 0x40,
    "hw_power_brake_slowdown": 0x80,
    "display_clock_setting": 0x100,
    "board_limit": 0x200,
    "reliability": 0x400,
}
COMPUTE_MODES: Mapping[int, str] = {
    pynvml.NVML_COMPUTEMODE_DEFAULT: "default",
    pynvml.NVML_COMPUTEMODE_EXCLUSIVE_THREAD: "exclusive_thread",
    pynvml.NVML_COMPUTEMODE_PROHIBITED: "prohibited",
    pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS: "exclusive_process",
}
_ECC_SEVERITIES = {
    "corrected": pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED,
    "uncorrected": pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
}
_ECC_SCOPES = {"volatile": pynvml.NVML_VOLATILE_ECC, "aggregate": pynvml.NVML_AGGREGATE_ECC}
_RETIREMENT_CAUSES = {
    "single_bit": pynvml.NVML_PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS,
    "double_bit": pynvml.NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR,
}
_LINK_ERRORS = {
    "replay": pynvml.NVML_NVLINK_ERROR_DL_REPLAY,
    "recovery": pynvml.NVML_NVLINK_ERROR_DL_RECOVERY,
    "crc_flit": pynvml.NVML_NVLINK_ERROR_DL_CRC_FLIT,
    "crc_data": pynvml.NVML_NVLINK_ERROR_DL_CRC_DATA,
    "ecc_data": pynvml.NVML_NVLINK_ERROR_DL_ECC_DATA,
}
_LINK_ERROR_FIELDS = {  # the only counters of Hopper and later; scope: link
    "replay": pynvml.NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY,
    "recovery": pynvml.NVML_FI_DEV_NVLINK_ERROR_DL_RECOVERY,
    "crc_flit": pynvml.NVML_FI_DEV_NVLINK_ERROR_DL_CRC,
}
_PROCESS_LISTS = (
    (
        pynvml.nvmlDeviceGetComputeRunningProcesses_v3,
        pynvml.nvmlDeviceGetComputeRunningProcesses_v2,
    ),
    (
        pynvml.nvmlDeviceGetGraphicsRunningProcesses_v3,
        pynvml.nvmlDeviceGetGraphicsRunningProcesses_v2,
    ),
    (
        pynvml.nvmlDeviceGetMPSComputeRunningProcesses_v3,
        pynvml.nvmlDeviceGetMPSComputeRunningProcesses_v2,
    ),
)


def read_gpu(key: GpuKey, handle: Handle, *, samples_after: int) -> GpuReading:
    """Reads one GPU; process samples only if newer than `samples_after` (µs).

    Raises GpuLostError or DriverFailedError; `failures` of the result lists other failed calls.
    """
    device = _Device(handle)
    # current mode, pending mode
    mig_mode = device.converted(lambda modes: bool(modes[0]), pynvml.nvmlDeviceGetMigMode)
    instances = tuple(device.mig_instances()) if mig_mode else ()
    utilization = device.call(pynvml.nvmlDeviceGetUtilizationRates)
    pci = device.call(pynvml.nvmlDeviceGetPciInfo)
    return GpuReading(
        key=key,
        name=device.call(pynvml.nvmlDeviceGetName) or "",
        pci_bus_id="" if pci is None else pci.busId,
        minor=device.call(pynvml.nvmlDeviceGetMinorNumber),
        utilization_ratio=None if utilization is None else utilization.gpu / 100,
        memory_utilization_ratio=None if utilization is None else utilization.memory / 100,
        memory=device.memory(),
        temperatures=device.temperatures(),
        slowdown_celsius=device.call(
            pynvml.nvmlDeviceGetTemperatureThreshold, pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN
        ),
        power_watts=device.converted(_from_milli, pynvml.nvmlDeviceGetPowerUsage),
        power_limit_watts=device.converted(_from_milli, pynvml.nvmlDeviceGetEnforcedPowerLimit),
        energy_joules=device.converted(_from_milli, pynvml.nvmlDeviceGetTotalEnergyConsumption),
        clocks_hertz={
            clock: megahertz * 1_000_000
            for clock, code in _CLOCKS.items()
            if (megahertz := device.call(pynvml.nvmlDeviceGetClockInfo, code)) is not None
        },
        throttling=device.throttling(),
        ecc_errors=device.ecc_errors(),
        retired_pages={
            cause: len(pages)
            for cause, code in _RETIREMENT_CAUSES.items()
            if (pages := device.call(pynvml.nvmlDeviceGetRetiredPages, code)) is not None
        },
        retired_pages_pending=device.converted(bool, pynvml.nvmlDeviceGetRetiredPagesPendingStatus),
        remapping=device.remapping(),
        pcie_replays=device.call(pynvml.nvmlDeviceGetPcieReplayCounter),
        pcie_generation=device.call(pynvml.nvmlDeviceGetCurrPcieLinkGeneration),
        pcie_max_generation=device.call(pynvml.nvmlDeviceGetMaxPcieLinkGeneration),
        pcie_width=device.call(pynvml.nvmlDeviceGetCurrPcieLinkWidth),
        pcie_max_width=device.call(pynvml.nvmlDeviceGetMaxPcieLinkWidth),
        nvlinks=tuple(device.links()),
        compute_mode=COMPUTE_MODES.get(device.call(pynvml.nvmlDeviceGetComputeMode)),
        persistence_mode=device.converted(bool, pynvml.nvmlDeviceGetPersistenceMode),
        mig_mode=mig_mode,
        mig=tuple(instance.as_mig_instance() for instance in instances),
        processes=device.processes(instances),
        samples=device.samples(samples_after),
        failures=tuple(
            dict.fromkeys(name for one in (device, *instances) for name in one.failures)
        ),
    )


class _Device(DeviceCalls):
    """One GPU or MIG instance; reads values that take several calls."""

    def memory(self) -> GpuMemory | None:
        found = self.call(pynvml.nvmlDeviceGetMemoryInfo, pynvml.nvmlMemory_v2)
        if found is not None:
            return GpuMemory(found.total, found.used, found.free, found.reserved)
        found = self.call(pynvml.nvmlDeviceGetMemoryInfo)
        return None if found is None else GpuMemory(found.total, found.used, found.free)

    def temperatures(self) -> dict[str, float]:
        core = self.call(pynvml.nvmlDeviceGetTemperature, pynvml.NVML_TEMPERATURE_GPU)
        if core is None:  # newer drivers lack the function
            core = self.call(pynvml.nvmlDeviceGetTemperatureV, pynvml.NVML_TEMPERATURE_GPU)
        (memory,) = self.fields(pynvml.NVML_FI_DEV_MEMORY_TEMP)
        values = {"core": core, "memory": memory}
        return {sensor: value for sensor, value in values.items() if value is not None}

    def throttling(self) -> dict[str, bool]:
        active = self.first_supported(
            pynvml.nvmlDeviceGetCurrentClocksEventReasons,
            pynvml.nvmlDeviceGetCurrentClocksThrottleReasons,
        )
        if active is None:
            return {}
        supported = self.first_supported(
            pynvml.nvmlDeviceGetSupportedClocksEventReasons,
            pynvml.nvmlDeviceGetSupportedClocksThrottleReasons,
        )
        return {
            name: bool(active & bit)
            for name, bit in THROTTLE_REASONS.items()
            if supported is None or (supported | active) & bit
        }

    def ecc_errors(self) -> dict[tuple[str, str], int]:
        counts = {
            (severity, scope): self.call(pynvml.nvmlDeviceGetTotalEccErrors, kind, counter)
            for severity, kind in _ECC_SEVERITIES.items()
            for scope, counter in _ECC_SCOPES.items()
        }
        return {labels: count for labels, count in counts.items() if count is not None}

    def remapping(self) -> Remapping | None:
        rows = self.call(pynvml.nvmlDeviceGetRemappedRows)
        if rows is None:
            return None
        corrected, uncorrected, pending, failed = rows
        return Remapping(corrected, uncorrected, bool(pending), bool(failed))

    def links(self) -> Iterator[NvLink]:
        (count,) = self.fields(pynvml.NVML_FI_DEV_NVLINK_LINK_COUNT)
        for link in range(pynvml.NVML_NVLINK_MAX_LINKS if count is None else int(count)):
            up = self.call(pynvml.nvmlDeviceGetNvLinkState, link)
            if up is not None:
                yield NvLink(link, bool(up), self._link_errors(link))
            elif count is None:
                return

    def _link_errors(self, link: int) -> dict[str, int]:
        errors = {
            kind: self.call(pynvml.nvmlDeviceGetNvLinkErrorCounter, link, code)
            for kind, code in _LINK_ERRORS.items()
        }
        if all(count is None for count in errors.values()):
            values = self.fields(*((field, link) for field in _LINK_ERROR_FIELDS.values()))
            errors = dict(zip(_LINK_ERROR_FIELDS, values, strict=True))
        return {kind: count for kind, count in errors.items() if count is not None}

    def mig_instances(self) -> Iterator[_Device]:
        for slot in range(self.call(pynvml.nvmlDeviceGetMaxMigDeviceCount) or 0):
            handle = self.call(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, slot)
            if handle is not None:
                yield _Device(handle)

    def as_mig_instance(self) -> MigInstance:
        return MigInstance(
            uuid=self.call(pynvml.nvmlDeviceGetUUID) or "",
            gpu_instance=self.converted(str, pynvml.nvmlDeviceGetGpuInstanceId) or "",
            compute_instance=self.converted(str, pynvml.nvmlDeviceGetComputeInstanceId) or "",
            name=self.call(pynvml.nvmlDeviceGetName) or "",
            memory=self.memory(),
        )

    def processes(self, instances: Sequence[_Device]) -> tuple[ListedProcess, ...] | None:
        """Returns the processes that the driver lists; by MIG instance if only those have lists."""
        rows = self.listed_rows()
        if rows is None:
            lists = [found for one in instances if (found := one.listed_rows()) is not None]
            rows = list(chain.from_iterable(lists)) if lists else None
        if rows is None:
            return None
        memory: dict[int, dict[tuple[int, int], int | None]] = {}
        for row in rows:
            # a process that uses compute and graphics is listed twice, with the same memory
            by_instance = memory.setdefault(row.pid, {})
            instance = (row.gpuInstanceId, row.computeInstanceId)
            known = [by_instance.get(instance), row.usedGpuMemory]
            by_instance[instance] = max((one for one in known if one is not None), default=None)
        return tuple(ListedProcess(pid, _sum(one.values())) for pid, one in memory.items())

    def listed_rows(self) -> list[Any] | None:
        lists = [self.first_supported(newer, older) for newer, older in _PROCESS_LISTS]
        supported = [rows for rows in lists if rows is not None]
        return list(chain.from_iterable(supported)) if supported else None

    def samples(self, after: int) -> tuple[UtilizationSample, ...]:
        """Returns the newest sample of each process."""
        rows = self.call(pynvml.nvmlDeviceGetProcessUtilization, after) or ()
        newest: dict[int, UtilizationSample] = {}
        for row in rows:
            before = newest.get(row.pid)
            if row.timeStamp > after and (before is None or before.timestamp < row.timeStamp):
                newest[row.pid] = UtilizationSample(row.pid, row.smUtil / 100, row.timeStamp)
        return tuple(newest.values())


def _from_milli(amount: int) -> float:
    return round(amount * 0.001, 3)


def _sum(amounts: Iterable[int | None]) -> int | None:
    """Returns the sum; None if any amount is unknown."""
    total = 0
    for amount in amounts:
        if amount is None:
            return None
        total += amount
    return total
