"""NVML, the library of NVIDIA's driver: its beginning and end, its GPUs, its events.

Its errors come out as `NvmlError`s. Calls block for as long as the driver likes, and let other
threads run meanwhile. Facts on functions and errors: NVIDIA's NVML API reference.
"""

from __future__ import annotations

import _ctypes
import ctypes
from collections.abc import Mapping

import pynvml  # type: ignore[import-untyped]  # NVIDIA ships no types

from trainwarden_exporter.gpu.nvmldevice import read_gpu
from trainwarden_exporter.gpu.nvmlerrors import GpuLostError, NvmlError, demand, reject
from trainwarden_exporter.gpu.nvmlquestions import Handle, Questions
from trainwarden_exporter.gpu.reading import GpuKey, GpuReading, Versions


class Nvml:
    """What is asked of the library. It is one to a process, and so are start and stop."""

    def start(self) -> None:
        """Begin to use the driver.

        Raises DriverAbsentError or DriverFailedError. After a driver was replaced by another
        version, the library that fits the new one is loaded.
        """
        try:
            self._initialise()
        except pynvml.NVMLError as error:
            if error.value != pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH:
                reject(error)
            _unload()
            demand(self._initialise)

    @staticmethod
    def _initialise() -> None:
        pynvml.nvmlInitWithFlags(pynvml.NVML_INIT_FLAG_NO_GPUS)

    def stop(self) -> None:
        """Let go of the driver, whatever it says. Nobody may be inside the library."""
        try:
            pynvml.nvmlShutdown()
        except pynvml.NVMLError:
            return  # it had let go of us before

    def versions(self) -> Versions:
        """Raises DriverFailedError; what cannot be learned is empty."""
        questions = Questions()
        cuda = questions.ask(pynvml.nvmlSystemGetCudaDriverVersion_v2)
        return Versions(
            driver=questions.ask(pynvml.nvmlSystemGetDriverVersion) or "",
            cuda="" if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
            nvml=questions.ask(pynvml.nvmlSystemGetNVMLVersion) or "",
        )

    def count(self) -> int:
        """How many GPUs the driver has for us. Raises DriverFailedError."""
        found: int = demand(pynvml.nvmlDeviceGetCount)
        return found

    def open(self, index: int) -> tuple[GpuKey, Handle]:
        """The GPU that has this index now. Raises GpuLostError or DriverFailedError."""
        handle = demand(pynvml.nvmlDeviceGetHandleByIndex, index)
        return GpuKey(str(index), demand(pynvml.nvmlDeviceGetUUID, handle)), handle

    def read(self, key: GpuKey, handle: Handle, *, samples_after: int = 0) -> GpuReading:
        """All of one GPU; samples of its processes only if newer than `samples_after` (µs).

        Raises GpuLostError or DriverFailedError; what else fails is named in `failures`.
        """
        return read_gpu(key, handle, samples_after=samples_after)

    def subscribe(self, gpus: Mapping[GpuKey, Handle]) -> Subscription:
        """The critical errors of `gpus` from now on. Raises an NvmlError if none can be had."""
        return Subscription(gpus)


class Subscription:
    """Critical errors (XIDs) of some GPUs, queued by the driver until they are waited for."""

    def __init__(self, gpus: Mapping[GpuKey, Handle]) -> None:
        self._set = demand(pynvml.nvmlEventSetCreate)
        self._gpus: dict[int | None, GpuKey] = {}
        self.lost: list[GpuKey] = []
        """Those that could not be subscribed to, for they have gone."""
        refusal: NvmlError | None = None
        for key, handle in gpus.items():
            try:
                demand(
                    pynvml.nvmlDeviceRegisterEvents,
                    handle,
                    pynvml.nvmlEventTypeXidCriticalError,
                    self._set,
                )
            except NvmlError as error:
                refusal = error  # one GPU must not hide the others
                if isinstance(error, GpuLostError):
                    self.lost.append(key)
            else:
                self._gpus[_address(handle)] = key
        if not self._gpus:
            self.close()
            raise refusal or NvmlError("no GPU to watch")

    def wait(self, seconds: float) -> tuple[GpuKey, int] | None:
        """The next one, its GPU and code; None when there was none for so many seconds.

        Raises GpuLostError when one of the GPUs has gone, DriverFailedError when the driver has.
        """
        try:
            event = pynvml.nvmlEventSetWait_v2(self._set, round(seconds * 1000))
        except pynvml.NVMLError as error:
            if error.value == pynvml.NVML_ERROR_TIMEOUT:
                return None
            reject(error)
        if event.eventType != pynvml.nvmlEventTypeXidCriticalError:
            return None
        return self._gpus.get(_address(event.device), GpuKey("", "unknown")), event.eventData

    def close(self) -> None:
        """Give the events back. Not after `Nvml.stop`."""
        try:
            pynvml.nvmlEventSetFree(self._set)
        except pynvml.NVMLError:
            return  # the driver has dropped them itself


def _address(handle: Handle) -> int | None:
    return ctypes.cast(handle, ctypes.c_void_p).value


def _unload() -> None:
    """Let go of the library itself: one that is loaded is never looked up anew."""
    with pynvml.libLoadLock:
        library, pynvml.nvmlLib = pynvml.nvmlLib, None
        pynvml._nvmlGetFunctionPointer_cache.clear()  # noqa: SLF001 - it would outlive the library
    if library is not None:
        _ctypes.dlclose(library._handle)  # noqa: SLF001 - ctypes has no public way
