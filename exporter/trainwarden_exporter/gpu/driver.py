"""Reads all GPUs, in any state of the driver and across its failures and restarts."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal, get_args

from trainwarden_exporter.gpu.model import GpuKey, GpuReading, Versions
from trainwarden_exporter.gpu.nvml_calls import (
    DriverAbsentError,
    DriverFailedError,
    GpuLostError,
    Handle,
    NvmlError,
)
from trainwarden_exporter.gpu.nvml_library import Nvml
from trainwarden_exporter.gpu.xid_watcher import XidWatcher

DriverState = Literal["ok", "absent", "no_devices", "failed"]

TIMEOUT_SECONDS = 15.0
"""Timeout of a single inspection in seconds; the first call may load the driver."""

_SAMPLE_SECONDS = 5.0
"""Maximum age in seconds of a process sample; the driver takes one or more per second."""

STATES: tuple[DriverState, ...] = get_args(DriverState)


@dataclass(frozen=True, slots=True)
class DriverReading:
    """Result of one reading; `lost` are known GPUs that do not respond."""

    state: DriverState
    reason: str = ""
    versions: Versions | None = None
    gpus: tuple[GpuReading, ...] = ()
    lost: tuple[GpuKey, ...] = ()


class Driver:
    """Reads the GPUs, and keeps the session and the known GPUs between readings.

    `xid_watcher` receives the GPUs to watch. `read` may block as long as the driver does, and is
    for one thread only.
    """

    def __init__(self, nvml: Nvml, xid_watcher: XidWatcher | None = None) -> None:
        self._nvml = nvml
        self._xid_watcher = xid_watcher
        self._started = False
        self._session_void = False
        self._known_gpus: dict[str, GpuKey] = {}

    def read(self) -> DriverReading:
        """Reads all GPUs. Never raises for the driver: the result contains its state."""
        try:
            self._start_session()
            return self._read()
        except DriverAbsentError as error:
            self._mark_void()
            return DriverReading("absent", str(error))
        except NvmlError as error:
            self._mark_void()
            return DriverReading("failed", str(error))

    def close(self) -> None:
        """Shuts the library down, unless the XID watcher uses it. `read` initialises it again."""
        if self._started:
            self._nvml.stop()
        self._started = self._session_void = False

    def _start_session(self) -> None:
        if self._session_void:
            # shutdown during a call of the library in another thread could crash the program
            if self._xid_watcher is not None and not self._xid_watcher.released:
                raise DriverFailedError("the XID watcher still waits inside the driver")
            self._nvml.stop()
            self._started = self._session_void = False
        if not self._started:
            self._nvml.start()
            self._started = True

    def _mark_void(self) -> None:
        """Marks the session as invalid; the next reading ends it."""
        self._session_void = self._started
        if self._xid_watcher is not None:
            self._xid_watcher.stop()

    def _read(self) -> DriverReading:
        versions = self._nvml.versions()
        gpus: list[GpuReading] = []
        handles: dict[GpuKey, Handle] = {}
        unnamed_indexes: list[str] = []
        recent = round((time.time() - _SAMPLE_SECONDS) * 1_000_000)
        for index in range(self._nvml.count()):
            try:
                key, handle = self._nvml.open(index)
            except GpuLostError:
                unnamed_indexes.append(str(index))
                continue
            self._known_gpus[key.uuid] = key
            try:
                gpus.append(self._nvml.read(key, handle, samples_after=recent))
            except GpuLostError:
                continue
            handles[key] = handle
        if self._xid_watcher is not None:
            self._xid_watcher.watch(handles)
        lost = self._lost_gpus(gpus, unnamed_indexes)
        state: DriverState = "ok" if gpus or unnamed_indexes or lost else "no_devices"
        return DriverReading(state, "", versions, tuple(gpus), lost)

    def _lost_gpus(self, gpus: list[GpuReading], unnamed_indexes: list[str]) -> tuple[GpuKey, ...]:
        present = {gpu.key.uuid for gpu in gpus}
        lost = [key for uuid, key in self._known_gpus.items() if uuid not in present]
        named = {key.gpu for key in lost}
        return (*lost, *(GpuKey(index, "") for index in unnamed_indexes if index not in named))
