"""What nvidia-smi printed of real GPUs, fed to a simulated driver and scraped from the exporter.

The driver has the functions that the captured library had, and answers what nvidia-smi printed. The
samples of the exporter are then compared with the samples of nvidia_gpu_exporter from the same
output, which shows whether units, labels and missing values are right.
"""

from __future__ import annotations

import csv
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isclose
from pathlib import Path

from programs import exporter, free_port, running
from results import Result

sys.path.append(str(Path(__file__).resolve().parents[2] / "examples/simulated-gpu"))

from simulated_gpu import Process, SimulatedBox, build, gpu
from simulated_state import functions

FILES = "gpu/*.metrics"
MIB = 1 << 20
INTEGERS: Mapping[str, tuple[str, float]] = {
    "minor": ("index", 1),
    "memory_total": ("memory.total", MIB),
    "memory_reserved": ("memory.reserved", MIB),
    "memory_used": ("memory.used", MIB),
    "utilization_gpu": ("utilization.gpu", 1),
    "utilization_memory": ("utilization.memory", 1),
    "temperature": ("temperature.gpu", 1),
    "temperature_memory": ("temperature.memory", 1),
    "power_mw": ("power.draw", 1000),
    "power_limit_mw": ("enforced.power.limit", 1000),
    "clock_graphics_mhz": ("clocks.current.graphics", 1),
    "clock_sm_mhz": ("clocks.current.sm", 1),
    "clock_memory_mhz": ("clocks.current.memory", 1),
    "clock_video_mhz": ("clocks.current.video", 1),
    "ecc_volatile_corrected": ("ecc.errors.corrected.volatile.total", 1),
    "ecc_volatile_uncorrected": ("ecc.errors.uncorrected.volatile.total", 1),
    "ecc_aggregate_corrected": ("ecc.errors.corrected.aggregate.total", 1),
    "ecc_aggregate_uncorrected": ("ecc.errors.uncorrected.aggregate.total", 1),
    "retired_single": ("retired_pages.single_bit_ecc.count", 1),
    "retired_double": ("retired_pages.double_bit.count", 1),
    "remapped_correctable": ("remapped_rows.correctable", 1),
    "remapped_uncorrectable": ("remapped_rows.uncorrectable", 1),
    "pcie_generation": ("pcie.link.gen.current", 1),
    "pcie_max_generation": ("pcie.link.gen.max", 1),
    "pcie_gpu_max_generation": ("pcie.link.gen.gpumax", 1),
    "pcie_width": ("pcie.link.width.current", 1),
    "pcie_max_width": ("pcie.link.width.max", 1),
}
"""Fields of the simulated GPU: what nvidia-smi calls it, and how many of its units are one."""
WORDS: Mapping[str, str] = {
    "compute_mode": "compute_mode",
    "persistence_mode": "persistence_mode",
    "mig_mode": "mig.mode.current",
    "retired_pending": "retired_pages.pending",
    "remap_pending": "remapped_rows.pending",
    "remap_failed": "remapped_rows.failure",
}
TEXTS: Mapping[str, str] = {
    "uuid": "uuid",
    "name": "name",
    "pci_bus_id": "pci.bus_id",
}
ORDER = {"default": 0, "exclusive_thread": 1, "prohibited": 2, "exclusive_process": 3}
"""Of nvmlComputeMode_t."""
PAIRS: Mapping[str, str] = {
    "utilization_gpu_ratio": "utilization_ratio",
    "utilization_memory_ratio": "memory_utilization_ratio",
    "memory_total_bytes": "memory_total_bytes",
    "memory_used_bytes": "memory_used_bytes",
    "memory_free_bytes": "memory_free_bytes",
    "memory_reserved_bytes": "memory_reserved_bytes",
    "temperature_gpu": 'temperature_celsius{sensor="core"}',
    "temperature_memory": 'temperature_celsius{sensor="memory"}',
    "power_draw_watts": "power_watts",
    "enforced_power_limit_watts": "power_limit_watts",
    **{
        f"clocks_current_{clock}_clock_hz": f'clock_hertz{{clock="{clock}"}}'
        for clock in ("graphics", "sm", "memory", "video")
    },
    **{
        f"clocks_event_reasons_{reason}": f'throttle_active{{reason="{reason}"}}'
        for reason in (
            *("gpu_idle", "applications_clocks_setting", "sw_power_cap", "hw_slowdown"),
            *("sync_boost", "sw_thermal_slowdown", "hw_thermal_slowdown"),
            "hw_power_brake_slowdown",
        )
    },
    **{
        f"ecc_errors_{severity}_{scope}_total": (
            f'ecc_errors_total{{scope="{scope}",severity="{severity}"}}'
        )
        for severity in ("corrected", "uncorrected")
        for scope in ("volatile", "aggregate")
    },
    "remapped_rows_correctable": 'remapped_rows{severity="corrected"}',
    "remapped_rows_uncorrectable": 'remapped_rows{severity="uncorrected"}',
    "remapped_rows_pending": "row_remap_pending",
    "remapped_rows_failure": "row_remap_failed",
    "pcie_link_gen_current": "pcie_link_generation",
    "pcie_link_gen_max": "pcie_link_max_generation",
    "pcie_link_width_current": "pcie_link_width",
    "pcie_link_width_max": "pcie_link_max_width",
    "persistence_mode": "persistence_mode",
    "mig_mode_current": "mig_mode",
}
"""Of nvidia_gpu_exporter (nvidia_smi_…) and of ours (trainwarden_gpu_…), in the same units."""
_SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')
CARD_LABELS = {"gpu", "uuid"}


@dataclass(frozen=True, slots=True)
class Capture:
    """A card in one state, by nvidia-smi and by nvidia_gpu_exporter."""

    name: str
    state: str
    answers: Mapping[str, str]
    """Of `nvidia-smi --query-gpu`, by field, without units."""
    processes: int
    theirs: Mapping[str, float]
    symbols: frozenset[str]


@dataclass(frozen=True, slots=True)
class Compared:
    """Values of one capture by what came of them."""

    capture: Capture
    same: int
    missing: int
    """Neither has."""
    different: tuple[str, ...]


def read(metrics: Path) -> Capture:
    """A capture from its metrics and the text beside it."""
    stem, _, state = metrics.stem.rpartition("__")
    text = metrics.with_name(f"{stem}.txt").read_text()
    names, values = _rows(text, f"{state} :: query-gpu (csv")
    _, *processes = _rows(text, f"{state} :: query-compute-apps")
    return Capture(
        stem.partition("__")[2].replace("__", ", driver "),
        state,
        {
            name.partition(" [")[0]: value.partition(" ")[0] if " [" in name else value
            for name, value in zip(names, values, strict=True)
            if not value.startswith("[") and value not in ("N/A", "")
        },
        len(processes),
        dict(_samples(metrics.read_text(), "nvidia_smi_")),
        frozenset(re.findall(r"^nvml\w+$", text, re.MULTILINE)),
    )


def _rows(text: str, section: str) -> list[list[str]]:
    """The CSV of a section, with its header."""
    _, _, rest = text.partition(f"\n# {section}")
    lines = [line for line in rest.partition("\n\n")[0].splitlines()[1:] if line[:1] != "#"]
    return list(csv.reader(lines, skipinitialspace=True))


def simulated(capture: Capture, folder: Path) -> SimulatedBox:
    """A host with this card, whose driver has the functions that the real one had."""
    numbers = {
        name: round(float(capture.answers[field]) * factor) if field in capture.answers else None
        for name, (field, factor) in INTEGERS.items()
    }
    words = {
        name: _code(capture.answers[field]) if field in capture.answers else None
        for name, field in WORDS.items()
    }
    texts = {name: capture.answers.get(field) for name, field in TEXTS.items()}
    reasons = capture.answers["clocks_event_reasons.active"]
    card = gpu(
        0,
        **(numbers | words | texts),
        clock_reasons=int(reasons, 16),
        # no process of this host has these pids
        processes=[Process(pid=(1 << 22) + number) for number in range(capture.processes)],
    )
    missing = sorted(functions() - capture.symbols) if capture.symbols else ()
    box = SimulatedBox(folder, [card], library=build(folder / "library", missing=missing))
    box.change_driver(driver_version=capture.answers["driver_version"])
    box.make_device_files()
    return box


def _code(word: str) -> int:
    """Of a word of nvidia-smi, as NVML has it; a count is one already."""
    word = word.lower()
    return ORDER.get(word, 0 if word in ("disabled", "no") else int(word) if word.isdigit() else 1)


def compare(capture: Capture) -> Compared:
    """Scrape the exporter on a host with this card, and compare."""
    with tempfile.TemporaryDirectory(prefix="captures-") as name:
        box = simulated(capture, Path(name))
        config = Path(name) / "exporter.yml"
        config.write_text(f"gpu: {{device_root: '{box.state_file.parent / 'dev'}'}}\n")
        port = free_port()
        with running(exporter(config, port), port, environment=box.environment) as program:
            ours = dict(_samples(program.scrape().decode(), "trainwarden_gpu_"))
    same, missing, different = 0, 0, list[str]()
    mode = capture.answers.get("compute_mode", "").lower()
    both = [(capture.theirs.get(name), ours.get(own), name) for name, own in PAIRS.items()]
    both += [
        (float(capture.processes), ours.get("processes"), "processes"),
        (1.0, ours.get(f'compute_mode{{mode="{mode}"}}'), "compute_mode"),
        (0.0, ours.get("read_failures"), "read_failures"),
    ]
    for theirs, own, name in both:
        if theirs is None and own is None:
            missing += 1
        elif theirs is None or own is None or not _alike(name, theirs, own):
            different.append(f"{name}: {own} here, {theirs} there")
        else:
            same += 1
    return Compared(capture, same, missing, tuple(different))


def _alike(name: str, theirs: float, own: float) -> bool:
    """What is free is what remains of three numbers that nvidia-smi rounds to MiB each."""
    return isclose(theirs, own, rel_tol=1e-9, abs_tol=3 * MIB if name == "memory_free_bytes" else 0)


def _samples(page: str, prefix: str) -> Iterator[tuple[str, float]]:
    """Name without `prefix`, labels without those of the card, and value."""
    for name, labels, value in _SAMPLE.findall(page):
        if name.startswith(prefix):
            more = sorted(one for one in _LABEL.findall(labels) if one[0] not in CARD_LABELS)
            inner = ",".join(f'{label}="{text}"' for label, text in more)
            yield name.removeprefix(prefix) + (f"{{{inner}}}" if inner else ""), float(value)


def table(compared: Sequence[Compared]) -> Result:
    """By capture."""
    values = sum(one.same + len(one.different) for one in compared)
    different = sum(len(one.different) for one in compared)
    rows = tuple(
        (
            one.capture.name,
            one.capture.state,
            str(one.same),
            "; ".join(one.different),
            str(one.missing),
            f"{len(one.capture.symbols)}" if one.capture.symbols else "not recorded",
        )
        for one in compared
    )
    return Result(
        "What nvidia-smi printed of real cards",
        f"{values} values of {len({one.capture.name for one in compared})} cards and drivers, idle "
        f"and under load, through a simulated driver that answers what nvidia-smi printed and has "
        f"the functions of the recorded library: {different} differ from the samples that "
        "nvidia_gpu_exporter made of the same output. [gpu.md](gpu.md) has a real card.",
        (
            "card",
            "state",
            "values alike",
            "different",
            "neither has",
            "functions of the library",
        ),
        rows,
    )
