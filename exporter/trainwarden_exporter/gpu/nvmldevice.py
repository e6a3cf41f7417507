"""Asks NVML about one GPU; what the device or the driver does not support is None or absent.

Facts on functions, units and fields: NVIDIA's NVML API reference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pynvml  # type: ignore[import-untyped]  # NVIDIA ships no types

from trainwarden_exporter.gpu.nvmlquestions import DeviceQuestions, Handle
from trainwarden_exporter.gpu.reading import (
    GpuKey,
    GpuReading,
    ListedProcess,
    Memory,
    MigInstance,
    NvLink,
    Remapping,
    UtilizationSample,
)

_SENSOR_CORE = pynvml.NVML_TEMPERATURE_GPU
_CLOCKS = {
    "graphics": pynvml.NVML_CLOCK_GRAPHICS,
    "sm": pynvml.NVML_CLOCK_SM,
    "memory": pynvml.NVML_CLOCK_MEM,
    "video": pynvml.NVML_CLOCK_VIDEO,
}
# The bits of nvmlClocksEventReasons…, which older drivers call nvmlClocksThrottleReasons….
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
_LINK_ERROR_FIELDS = {  # Hopper and later count by these only; the scope is the link
    "replay": pynvml.NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY,
    "recovery": pynvml.NVML_FI_DEV_NVLINK_ERROR_DL_RECOVERY,
    "crc_flit": pynvml.NVML_FI_DEV_NVLINK_ERROR_DL_CRC,
}
_LISTINGS = (
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
    """All of one GPU; samples of its processes only if newer than `samples_after` (µs).

    Raises GpuLostError, or DriverFailedError where all is void; what else fails is in `failures`.
    """
    device = _Device(handle)
    mig_mode = device.ask_first(pynvml.nvmlDeviceGetMigMode)
    parts = tuple(device.mig_handles()) if mig_mode else ()
    utilization = device.ask(pynvml.nvmlDeviceGetUtilizationRates)
    pci = device.ask(pynvml.nvmlDeviceGetPciInfo)
    return GpuReading(
        key=key,
        name=device.ask(pynvml.nvmlDeviceGetName) or "",
        pci_bus_id="" if pci is None else pci.busId,
        minor=device.ask(pynvml.nvmlDeviceGetMinorNumber),
        utilization_ratio=None if utilization is None else utilization.gpu / 100,
        memory_utilization_ratio=None if utilization is None else utilization.memory / 100,
        memory=device.memory(),
        temperatures=device.temperatures(),
        slowdown_celsius=device.ask(
            pynvml.nvmlDeviceGetTemperatureThreshold,
            pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN,
        ),
        power_watts=device.scaled(0.001, pynvml.nvmlDeviceGetPowerUsage),
        power_limit_watts=device.scaled(0.001, pynvml.nvmlDeviceGetEnforcedPowerLimit),
        energy_joules=device.scaled(0.001, pynvml.nvmlDeviceGetTotalEnergyConsumption),
        clocks_hertz=device.each(_CLOCKS, pynvml.nvmlDeviceGetClockInfo, factor=1_000_000),
        throttling=device.throttling(),
        ecc_errors=device.ecc_errors(),
        retired_pages={
            cause: len(pages)
            for cause, code in _RETIREMENT_CAUSES.items()
            if (pages := device.ask(pynvml.nvmlDeviceGetRetiredPages, code)) is not None
        },
        retired_pages_pending=device.flag(pynvml.nvmlDeviceGetRetiredPagesPendingStatus),
        remapping=device.remapping(),
        pcie_replays=device.ask(pynvml.nvmlDeviceGetPcieReplayCounter),
        pcie_generation=device.ask(pynvml.nvmlDeviceGetCurrPcieLinkGeneration),
        pcie_max_generation=device.ask(pynvml.nvmlDeviceGetMaxPcieLinkGeneration),
        pcie_width=device.ask(pynvml.nvmlDeviceGetCurrPcieLinkWidth),
        pcie_max_width=device.ask(pynvml.nvmlDeviceGetMaxPcieLinkWidth),
        nvlinks=tuple(device.links()),
        compute_mode=COMPUTE_MODES.get(device.ask(pynvml.nvmlDeviceGetComputeMode)),
        persistence_mode=device.flag(pynvml.nvmlDeviceGetPersistenceMode),
        mig_mode=None if mig_mode is None else bool(mig_mode),
        mig=tuple(part.as_mig_instance() for part in parts),
        processes=device.processes(parts),
        samples=device.samples(samples_after),
        failures=tuple(dict.fromkeys((*device.failures, *_failures(parts)))),
    )


class _Device(DeviceQuestions):
    """One GPU or one part of it, asked for what takes more than one question."""

    def memory(self) -> Memory | None:
        answer = self.ask(pynvml.nvmlDeviceGetMemoryInfo, pynvml.nvmlMemory_v2)
        if answer is not None:
            return Memory(answer.total, answer.used, answer.free, answer.reserved)
        answer = self.ask(pynvml.nvmlDeviceGetMemoryInfo)
        return None if answer is None else Memory(answer.total, answer.used, answer.free)

    def temperatures(self) -> dict[str, float]:
        core = self.ask(pynvml.nvmlDeviceGetTemperature, _SENSOR_CORE)
        if core is None:  # of the drivers that have dropped the function
            core = self.ask(pynvml.nvmlDeviceGetTemperatureV, _SENSOR_CORE)
        (memory,) = self.fields(pynvml.NVML_FI_DEV_MEMORY_TEMP)
        return {
            sensor: value
            for sensor, value in (("core", core), ("memory", memory))
            if value is not None
        }

    def throttling(self) -> dict[str, bool]:
        active = self.either(
            pynvml.nvmlDeviceGetCurrentClocksEventReasons,
            pynvml.nvmlDeviceGetCurrentClocksThrottleReasons,
        )
        if active is None:
            return {}
        known = self.either(
            pynvml.nvmlDeviceGetSupportedClocksEventReasons,
            pynvml.nvmlDeviceGetSupportedClocksThrottleReasons,
        )
        known = sum(THROTTLE_REASONS.values()) if known is None else known | active
        return {name: bool(active & bit) for name, bit in THROTTLE_REASONS.items() if known & bit}

    def ecc_errors(self) -> dict[tuple[str, str], int]:
        counts = {
            (severity, scope): self.ask(pynvml.nvmlDeviceGetTotalEccErrors, kind, since)
            for severity, kind in _ECC_SEVERITIES.items()
            for scope, since in _ECC_SCOPES.items()
        }
        return {labels: count for labels, count in counts.items() if count is not None}

    def remapping(self) -> Remapping | None:
        answer = self.ask(pynvml.nvmlDeviceGetRemappedRows)
        if answer is None:
            return None
        corrected, uncorrected, pending, failed = answer
        return Remapping(corrected, uncorrected, bool(pending), bool(failed))

    def links(self) -> Iterator[NvLink]:
        (count,) = self.fields(pynvml.NVML_FI_DEV_NVLINK_LINK_COUNT)
        for link in range(pynvml.NVML_NVLINK_MAX_LINKS if count is None else int(count)):
            up = self.ask(pynvml.nvmlDeviceGetNvLinkState, link)
            if up is not None:
                yield NvLink(link, bool(up), self._link_errors(link))
            elif count is None:
                return

    def _link_errors(self, link: int) -> dict[str, int]:
        errors = {
            kind: self.ask(pynvml.nvmlDeviceGetNvLinkErrorCounter, link, code)
            for kind, code in _LINK_ERRORS.items()
        }
        if all(count is None for count in errors.values()):
            values = self.fields(*((field, link) for field in _LINK_ERROR_FIELDS.values()))
            errors = dict(zip(_LINK_ERROR_FIELDS, values, strict=True))
        return {kind: count for kind, count in errors.items() if count is not None}

    def mig_handles(self) -> Iterator[_Device]:
        for slot in range(self.ask(pynvml.nvmlDeviceGetMaxMigDeviceCount) or 0):
            handle = self.ask(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, slot)
            if handle is not None:
                yield _Device(handle)

    def as_mig_instance(self) -> MigInstance:
        gpu_instance = self.ask(pynvml.nvmlDeviceGetGpuInstanceId)
        compute_instance = self.ask(pynvml.nvmlDeviceGetComputeInstanceId)
        return MigInstance(
            uuid=self.ask(pynvml.nvmlDeviceGetUUID) or "",
            gpu_instance="" if gpu_instance is None else str(gpu_instance),
            compute_instance="" if compute_instance is None else str(compute_instance),
            name=self.ask(pynvml.nvmlDeviceGetName) or "",
            memory=self.memory(),
        )

    def processes(self, parts: Sequence[_Device]) -> tuple[ListedProcess, ...] | None:
        """Whom the driver lists; by the parts where the whole may not be asked (MIG)."""
        rows = self.listings()
        if rows is None:
            by_part = [found for part in parts if (found := part.listings()) is not None]
            rows = [row for found in by_part for row in found] if by_part else None
        if rows is None:
            return None
        memory: dict[tuple[int, int, int], int | None] = {}
        for row in rows:
            # one that computes and draws is listed twice, with the same memory
            key = (row.pid, row.gpuInstanceId, row.computeInstanceId)
            known = [one for one in (memory.get(key), row.usedGpuMemory) if one is not None]
            memory[key] = max(known, default=None)
        pids = dict.fromkeys(pid for pid, *_ in memory)
        return tuple(
            ListedProcess(pid, _sum([memory[key] for key in memory if key[0] == pid]))
            for pid in pids
        )

    def listings(self) -> list[Any] | None:
        answers = [self.either(newer, older) for newer, older in _LISTINGS]
        if all(answer is None for answer in answers):
            return None
        return [row for answer in answers if answer is not None for row in answer]

    def samples(self, after: int) -> tuple[UtilizationSample, ...]:
        found = self.ask(pynvml.nvmlDeviceGetProcessUtilization, after) or ()
        newest: dict[int, UtilizationSample] = {}
        for row in found:
            sample = UtilizationSample(row.pid, row.smUtil / 100, row.timeStamp)
            before = newest.get(row.pid)
            if row.timeStamp > after and (before is None or before.timestamp < row.timeStamp):
                newest[row.pid] = sample
        return tuple(newest.values())


def _sum(amounts: Sequence[int | None]) -> int | None:
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if len(known) == len(amounts) else None


def _failures(devices: Sequence[_Device]) -> Iterator[str]:
    for device in devices:
        yield from device.failures
