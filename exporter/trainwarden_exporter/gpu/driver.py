"""The GPU driver over its comings and goings: one look at all GPUs, whatever state it is in."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from trainwarden_exporter.gpu.nvml import Nvml
from trainwarden_exporter.gpu.nvmlerrors import (
    DriverAbsentError,
    DriverFailedError,
    GpuLostError,
    NvmlError,
)
from trainwarden_exporter.gpu.nvmlquestions import Handle
from trainwarden_exporter.gpu.reading import GpuKey, GpuReading, Versions
from trainwarden_exporter.gpu.xidwatch import XidWatch

DriverState = Literal["ok", "absent", "no_devices", "failed"]

PATIENCE = 15.0
"""Seconds that the driver has to answer who asks it once; the first question of all may load it."""

_SAMPLE_SECONDS = 5.0
"""Age up to which a sample of a process is worth showing; the driver takes one or more a second."""

STATES: tuple[DriverState, ...] = ("ok", "absent", "no_devices", "failed")


@dataclass(frozen=True, slots=True)
class Sight:
    """What was seen in one look; `lost` are GPUs that are or were there and do not answer."""

    state: DriverState
    reason: str = ""
    versions: Versions | None = None
    gpus: tuple[GpuReading, ...] = ()
    lost: tuple[GpuKey, ...] = ()


class Driver:
    """Looks at the GPUs, and keeps what must outlast a look: the session, and which there were.

    `watch` is told which GPUs there are to watch. `look` may block for as long as the driver does,
    and is for one thread only.
    """

    def __init__(
        self,
        nvml: Nvml,
        watch: XidWatch | None = None,
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._nvml = nvml
        self._watch = watch
        self._now = now
        self._started = False
        self._void = False
        self._known: dict[str, GpuKey] = {}

    def look(self) -> Sight:
        """Never raises for the driver: its state says so."""
        try:
            self._begin()
            return self._look()
        except DriverAbsentError as error:
            self._abandon()
            return Sight("absent", str(error))
        except NvmlError as error:
            self._abandon()
            return Sight("failed", str(error))

    def close(self) -> None:
        """Let go of the driver; only where nobody watches XIDs. A `look` begins anew."""
        if self._started:
            self._nvml.stop()
        self._started = self._void = False

    def _begin(self) -> None:
        if self._void:
            # shutting down under somebody who is inside the library could crash the program
            if self._watch is not None and not self._watch.released:
                raise DriverFailedError("the driver has not yet let go of the watch for XIDs")
            self._nvml.stop()
            self._started = self._void = False
        if not self._started:
            self._nvml.start()
            self._started = True

    def _abandon(self) -> None:
        """What was begun is void; it is ended at the next look."""
        self._void = self._started
        if self._watch is not None:
            self._watch.stop()

    def _look(self) -> Sight:
        versions = self._nvml.versions()
        gpus: list[GpuReading] = []
        handles: dict[GpuKey, Handle] = {}
        unnamed: list[str] = []
        recent = round((self._now() - _SAMPLE_SECONDS) * 1_000_000)
        for index in range(self._nvml.count()):
            try:
                key, handle = self._nvml.open(index)
            except GpuLostError:
                unnamed.append(str(index))
                continue
            self._known[key.uuid] = key
            try:
                gpus.append(self._nvml.read(key, handle, samples_after=recent))
            except GpuLostError:
                continue
            handles[key] = handle
        if self._watch is not None:
            self._watch.watch(handles)
        lost = self._lost(gpus, unnamed)
        state: DriverState = "ok" if gpus or unnamed or lost else "no_devices"
        return Sight(state, "", versions, tuple(gpus), lost)

    def _lost(self, gpus: list[GpuReading], unnamed: list[str]) -> tuple[GpuKey, ...]:
        present = {gpu.key.uuid for gpu in gpus}
        lost = [key for uuid, key in self._known.items() if uuid not in present]
        named = {key.gpu for key in lost}
        return (*lost, *(GpuKey(index, "") for index in unnamed if index not in named))
