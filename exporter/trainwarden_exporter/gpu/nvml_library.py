"""Session with NVML, the library of NVIDIA's driver: start and stop, GPUs, events.

Raises its errors as `NvmlError`s. Calls block as long as the driver does, but without holding the
GIL. Facts on functions and errors: NVIDIA's NVML API reference.
"""

from __future__ import annotations

import _ctypes
import ctypes
from collections.abc import Mapping
from contextlib import suppress

import pynvml  # type: ignore[import-untyped]  # NVIDIA ships no types

from trainwarden_exporter.gpu.model import GpuKey, GpuReading, Versions
from trainwarden_exporter.gpu.nvml_calls import (
    GpuLostError,
    Handle,
    NvmlCalls,
    NvmlError,
    raise_nvml_error,
    require,
)
from trainwarden_exporter.gpu.nvml_device import read_gpu


class Nvml:
    """The library, which a process initialises and shuts down as a whole."""

    def start(self) -> None:
        """Initialises the library; loads it again if the driver has been replaced since.

        Raises DriverAbsentError or DriverFailedError.
        """
        try:
            pynvml.nvmlInitWithFlags(pynvml.NVML_INIT_FLAG_NO_GPUS)
        except pynvml.NVMLError as error:
            if error.value != pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH:
                raise_nvml_error(error)
            _unload_library()
            require(pynvml.nvmlInitWithFlags, pynvml.NVML_INIT_FLAG_NO_GPUS)

    def stop(self) -> None:
        """Shuts the library down; never raises. No other thread may be in a call of it."""
        with suppress(pynvml.NVMLError):  # already shut down
            pynvml.nvmlShutdown()

    def versions(self) -> Versions:
        """Returns the versions; empty if unknown. Raises DriverFailedError."""
        calls = NvmlCalls()
        cuda = calls.call(pynvml.nvmlSystemGetCudaDriverVersion_v2)
        return Versions(
            driver=calls.call(pynvml.nvmlSystemGetDriverVersion) or "",
            cuda="" if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
            nvml=calls.call(pynvml.nvmlSystemGetNVMLVersion) or "",
        )

    def count(self) -> int:
        """Returns the number of accessible GPUs. Raises DriverFailedError."""
        found: int = require(pynvml.nvmlDeviceGetCount)
        return found

    def open(self, index: int) -> tuple[GpuKey, Handle]:
        """Returns the GPU that has `index` now. Raises GpuLostError or DriverFailedError."""
        handle = require(pynvml.nvmlDeviceGetHandleByIndex, index)
        return GpuKey(str(index), require(pynvml.nvmlDeviceGetUUID, handle)), handle

    def read(self, key: GpuKey, handle: Handle, *, samples_after: int = 0) -> GpuReading:
        """Reads one GPU; see `read_gpu`."""
        return read_gpu(key, handle, samples_after=samples_after)

    def subscribe(self, gpus: Mapping[GpuKey, Handle]) -> Subscription:
        """Subscribes to critical errors of `gpus`. Raises an NvmlError if none can be watched."""
        return Subscription(gpus)


class Subscription:
    """Critical errors (XIDs) of some GPUs, which the driver queues between calls of `wait`."""

    def __init__(self, gpus: Mapping[GpuKey, Handle]) -> None:
        self._set = require(pynvml.nvmlEventSetCreate)
        self._gpus: dict[int | None, GpuKey] = {}
        self.lost: list[GpuKey] = []
        """GPUs without a subscription because they are lost."""
        failure: NvmlError | None = None
        for key, handle in gpus.items():
            try:
                require(
                    pynvml.nvmlDeviceRegisterEvents,
                    handle,
                    pynvml.nvmlEventTypeXidCriticalError,
                    self._set,
                )
            except NvmlError as error:
                failure = error  # one GPU must not hide the others
                if isinstance(error, GpuLostError):
                    self.lost.append(key)
            else:
                self._gpus[_address(handle)] = key
        if not self._gpus:
            self.close()
            raise failure or NvmlError("no GPU to watch")

    def wait(self, seconds: float) -> tuple[GpuKey, int] | None:
        """Returns GPU and code of the next XID; None if none arrives within `seconds`.

        Raises GpuLostError if one of the GPUs is lost, DriverFailedError if the driver fails.
        """
        try:
            event = pynvml.nvmlEventSetWait_v2(self._set, round(seconds * 1000))
        except pynvml.NVMLError as error:
            if error.value == pynvml.NVML_ERROR_TIMEOUT:
                return None
            raise_nvml_error(error)
        if event.eventType != pynvml.nvmlEventTypeXidCriticalError:
            return None
        return self._gpus.get(_address(event.device), GpuKey("", "unknown")), event.eventData

    def close(self) -> None:
        """Frees the subscription. Must not be called after `Nvml.stop`."""
        with suppress(pynvml.NVMLError):  # already freed by the driver
            pynvml.nvmlEventSetFree(self._set)


def _address(handle: Handle) -> int | None:
    return ctypes.cast(handle, ctypes.c_void_p).value


def _unload_library() -> None:
    """Unloads the library, so that the next start loads the version of the current driver."""
    with pynvml.libLoadLock:
        library, pynvml.nvmlLib = pynvml.nvmlLib, None
        pynvml._nvmlGetFunctionPointer_cache.clear()  # noqa: SLF001 - its pointers would outlive the library
    if library is not None:
        _ctypes.dlclose(library._handle)  # noqa: SLF001 - ctypes has no public equivalent
