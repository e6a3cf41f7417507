"""The state of a simulated box of GPUs: what it consists of, and how it is written down."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

SOURCE = Path(__file__).with_name("libnvidia_ml.c")
GIB = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process on a GPU, as the driver lists it (with the pid of the host)."""

    pid: int
    memory: int | None = 0
    """Bytes; None: the driver does not say."""
    kind: Literal["compute", "graphics", "mps"] = "compute"
    gpu_instance: int | None = None
    compute_instance: int | None = None
    sm: int | None = None
    """Per cent of the last sample period; None: there is no sample of this process."""
    memory_bandwidth: int | None = 0
    encoder: int | None = 0
    decoder: int | None = 0
    sample_time_us: int | None = None
    """Microseconds since the epoch; None: at the time of the call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NvLink:
    """One link; a value that is None is not supported."""

    up: int | None = 1
    version: int | None = 4
    replay: int | None = 0
    recovery: int | None = 0
    crc_flit: int | None = 0
    crc_data: int | None = 0
    ecc_data: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mig:
    """One MIG device of a GPU. `slot` is its index below the GPU; other slots are empty."""

    uuid: str
    slot: int = 0
    name: str | None = "Simulated GPU MIG 1g.10gb"
    gpu_instance: int | None = 7
    compute_instance: int | None = 0
    memory_total: int | None = 10 * GIB
    memory_reserved: int | None = 0
    memory_used: int | None = 0
    multiprocessors: int | None = 16
    gpu_instance_slices: int | None = 1
    compute_instance_slices: int | None = 1
    hang: Sequence[str] = ()
    errors: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU, in the units of NVML; a value that is None is not supported by this device.

    `errors` maps a function (or `*`, or `nvmlDeviceGetFieldValues/82` for one field) to the error
    it returns for this device, for instance RESET_REQUIRED; `hang` lists functions (or `*`) that
    block.
    """

    uuid: str
    name: str | None = "Simulated GPU"
    serial: str | None = "0000000000000"
    pci_bus_id: str | None = "00000000:17:00.0"
    minor: int | None = 0
    """N of its device file /dev/nvidiaN."""
    lost: bool = False
    """Fallen off the bus: still counted, and every question about it returns GPU_IS_LOST."""

    memory_total: int | None = 80 * GIB
    memory_reserved: int | None = GIB // 2
    """None: nvmlDeviceGetMemoryInfo_v2 is not supported."""
    memory_used: int | None = 0
    """Without what is reserved, as version 2 counts; version 1 reports the sum."""

    utilization_gpu: int | None = 0
    utilization_memory: int | None = 0
    temperature: int | None = 35
    temperature_memory: int | None = 40
    temperature_shutdown: int | None = 92
    temperature_slowdown: int | None = 89
    temperature_memory_max: int | None = 95
    temperature_gpu_max: int | None = 87
    power_mw: int | None = 70_000
    power_limit_mw: int | None = 700_000
    energy_mj: int | None = 1_000_000
    clock_graphics_mhz: int | None = 345
    clock_sm_mhz: int | None = 345
    clock_memory_mhz: int | None = 2619
    clock_video_mhz: int | None = 765
    clock_reasons: int | None = 0x1
    """Bits as in pynvml.nvmlClocksEventReason…; by either of the functions, old or new."""
    clock_reasons_supported: int | None = 0x1FF
    performance_state: int | None = 0

    ecc_mode: int | None = 1
    ecc_mode_pending: int | None = 1
    ecc_volatile_corrected: int | None = 0
    ecc_volatile_uncorrected: int | None = 0
    ecc_aggregate_corrected: int | None = 0
    ecc_aggregate_uncorrected: int | None = 0
    retired_single: int | None = None
    """Count of retired pages; a GPU has these (before Ampere) or the remapped rows, not both."""
    retired_double: int | None = None
    retired_pending: int | None = None
    remapped_correctable: int | None = 0
    remapped_uncorrectable: int | None = 0
    remap_pending: int | None = 0
    remap_failed: int | None = 0

    pcie_replays: int | None = 0
    pcie_generation: int | None = 5
    pcie_width: int | None = 16
    pcie_max_generation: int | None = 5
    """Of the GPU in its slot."""
    pcie_gpu_max_generation: int | None = 5
    pcie_max_width: int | None = 16

    compute_mode: int | None = 0
    persistence_mode: int | None = 1
    mig_mode: int | None = 0
    mig_mode_pending: int | None = 0
    mig_max_devices: int | None = 7
    supported_events: int | None = 0x1F
    """None: events are not supported at all."""

    nvlinks: Sequence[NvLink] = ()
    """Empty: NVLink is not supported."""
    mig: Sequence[Mig] = ()
    processes: Sequence[Process] = ()
    """An empty list of a kind is supported; refuse one by `errors`."""
    fields: Mapping[tuple[int, int], int] = field(default_factory=dict)
    """Further values of nvmlDeviceGetFieldValues: (field, scope) to value."""
    hang: Sequence[str] = ()
    errors: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """The driver, and the library as a whole."""

    driver_version: str | None = "570.124.06"
    nvml_version: str | None = "12.570.124.06"
    cuda_version: int | None = 12080
    init_error: str | None = None
    """What initialisation returns, for instance DRIVER_NOT_LOADED; None: it succeeds."""
    generation: int = 0
    """A program that initialised under another generation gets UNINITIALIZED from every function
    until it has shut down (as often as it had initialised) and initialised again; initialising
    without shutting down succeeds, as with NVML, and changes nothing."""
    hang: Sequence[str] = ()
    errors: Mapping[str, str] = field(default_factory=dict)
    """Of functions, whatever the device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something nvmlEventSetWait_v2 returns once to every event set that was registered before."""

    id: int
    gpu: str
    """UUID of the GPU, not of a MIG device."""
    data: int
    """Of a critical error: its XID."""
    type: int = 8
    """As in pynvml.nvmlEventType…; 8 is nvmlEventTypeXidCriticalError."""
    time_ns: int
    """Not returned before this time (nanoseconds since the epoch)."""
    gpu_instance: int | None = None
    compute_instance: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """All that the library answers from."""

    gpus: Sequence[Gpu] = ()
    driver: Driver = Driver()
    events: Sequence[Event] = ()


def gpu(index: int, **changes: Any) -> Gpu:
    """A plausible GPU with an identity of its own; `changes` are fields of `Gpu`."""
    plain = Gpu(
        uuid=f"GPU-51a0{index:04x}-0000-4000-8000-{index:012x}",
        name=f"Simulated GPU {index}",
        serial=f"{1650000000000 + index}",
        pci_bus_id=f"00000000:{0x17 + 0x10 * index:02X}:00.0",
        minor=index,
    )
    return replace(plain, **changes)


def render(state: State, *, calls_file: Path | None = None) -> str:
    """The state file: sections of `key = value`; what is None has no line, so is not supported."""
    driver = _section("driver", state.driver)
    if calls_file is not None:
        driver.append(f"calls_file = {calls_file}")
    lines = ["# State of a simulated NVML; README.md explains it.", *driver]
    for device in state.gpus:
        lines += _section("gpu", device)
        lines += [
            f"field/{number}/{scope} = {value}" for (number, scope), value in device.fields.items()
        ]
        for link in device.nvlinks:
            lines += _section("nvlink", link)
        for instance in device.mig:
            lines += _section("mig", instance)
        for process in device.processes:
            lines += _section("process", process)
    for event in state.events:
        lines += _section("event", event)
    return "\n".join(lines) + "\n"


_SECTIONS_OF_THEIR_OWN = frozenset({"nvlinks", "mig", "processes", "fields"})


def _section(name: str, content: Driver | Gpu | NvLink | Mig | Process | Event) -> list[str]:
    lines = ["", f"[{name}]"]
    for entry in fields(content):
        value = getattr(content, entry.name)
        if entry.name == "hang":
            value = " ".join(_known_function(function) for function in value)
        elif entry.name == "errors":
            value = " ".join(
                f"{_known_function(function)}:{_known_error(error)}"
                for function, error in value.items()
            )
        elif entry.name == "init_error" and value is not None:
            value = _known_error(value)
        if value is None or value == "" or entry.name in _SECTIONS_OF_THEIR_OWN:
            continue
        text = str(int(value) if isinstance(value, bool) else value)
        if "\n" in text:
            raise ValueError(f"{entry.name}: more than one line: {text!r}")
        lines.append(f"{entry.name} = {text}")
    return lines


@functools.cache
def functions() -> frozenset[str]:
    """The functions that the library has."""
    source = SOURCE.read_text(encoding="utf-8")
    return frozenset(re.findall(r"^EXPORT [\w* ]*?(nvml\w+)\(", source, re.MULTILINE))


@functools.cache
def errors() -> frozenset[str]:
    """The errors that a state may name."""
    source = SOURCE.read_text(encoding="utf-8")
    return frozenset(re.findall(r'^ *\{\d+, "(\w+)"', source, re.MULTILINE))


def _known_function(name: str) -> str:
    if name != "*" and name.partition("/")[0] not in functions():
        raise ValueError(f"the simulated NVML has no function {name!r}")
    return name


def _known_error(name: str) -> str:
    if name not in errors():
        raise ValueError(f"the simulated NVML has no error {name!r}")
    return name
