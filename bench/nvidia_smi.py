"""Compares the output of nvidia-smi with the exporter's observations."""

from __future__ import annotations

import csv
import io
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from trainwarden_exporter.gpu.model import GpuReading
from trainwarden_exporter.gpu.snapshot import GpuSnapshot

MIB = 1 << 20
SMI_SECONDS = 60
Number = float | int | None


@dataclass(frozen=True, slots=True)
class Question:
    """A field of `nvidia-smi --query-gpu`, and our value in its unit.

    `slack` is the permitted difference; None for changing values.
    """

    field: str
    ours: Callable[[GpuReading], str | Number]
    slack: float | None = 0.0


@dataclass(frozen=True, slots=True)
class Row:
    """One value, as we have it and as nvidia-smi does."""

    what: str
    ours: str
    theirs: str
    verdict: str
    """`same`, `differs`, `moves` (differs, as it may), or `not comparable`."""


class CheckError(Exception):
    """The check cannot be made; one line that says why."""


def _memory(gpu: GpuReading, part: Literal["total", "reserved", "used", "free"]) -> float | None:
    amount = None if gpu.memory is None else getattr(gpu.memory, part)
    return None if amount is None else amount / MIB


def _ecc(severity: str, scope: str, gpu: GpuReading) -> int | None:
    return gpu.ecc_errors.get((severity, scope))


def _switch(value: bool | None) -> str | None:
    return None if value is None else "enabled" if value else "disabled"


def _percent(ratio: float | None) -> float | None:
    return None if ratio is None else ratio * 100


def _megahertz(gpu: GpuReading, clock: str) -> float | None:
    hertz = gpu.clocks_hertz.get(clock)
    return None if hertz is None else hertz / 1e6


QUESTIONS = (
    Question("name", lambda gpu: gpu.name),
    Question("uuid", lambda gpu: gpu.key.uuid),
    Question("pci.bus_id", lambda gpu: gpu.pci_bus_id),
    Question("compute_mode", lambda gpu: gpu.compute_mode),
    Question("persistence_mode", lambda gpu: _switch(gpu.persistence_mode)),
    Question("mig.mode.current", lambda gpu: _switch(gpu.mig_mode)),
    Question("memory.total", lambda gpu: _memory(gpu, "total"), 1),
    Question("memory.reserved", lambda gpu: _memory(gpu, "reserved"), 1),
    Question("memory.used", lambda gpu: _memory(gpu, "used"), None),
    Question("memory.free", lambda gpu: _memory(gpu, "free"), None),
    Question("utilization.gpu", lambda gpu: _percent(gpu.utilization_ratio), None),
    Question("utilization.memory", lambda gpu: _percent(gpu.memory_utilization_ratio), None),
    Question("temperature.gpu", lambda gpu: gpu.temperatures.get("core"), None),
    Question("temperature.memory", lambda gpu: gpu.temperatures.get("memory"), None),
    Question("power.draw", lambda gpu: gpu.power_watts, None),
    Question("enforced.power.limit", lambda gpu: gpu.power_limit_watts, 0.01),
    Question("clocks.sm", lambda gpu: _megahertz(gpu, "sm"), None),
    Question("clocks.mem", lambda gpu: _megahertz(gpu, "memory"), None),
    Question("clocks.gr", lambda gpu: _megahertz(gpu, "graphics"), None),
    Question("clocks.video", lambda gpu: _megahertz(gpu, "video"), None),
    *(
        Question(f"ecc.errors.{severity}.{scope}.total", partial(_ecc, severity, scope))
        for severity in ("corrected", "uncorrected")
        for scope in ("volatile", "aggregate")
    ),
    Question("pcie.link.gen.current", lambda gpu: gpu.pcie_generation, None),
    Question("pcie.link.gen.max", lambda gpu: gpu.pcie_max_generation),
    Question("pcie.link.width.current", lambda gpu: gpu.pcie_width),
    Question("pcie.link.width.max", lambda gpu: gpu.pcie_max_width),
)
"""What both can be asked."""

MISSING = {"", "n/a", "[n/a]", "[not supported]", "[unknown error]", "unsupported", "none"}


def ask(smi: str, what: str, fields: Sequence[str]) -> list[dict[str, str]]:
    """What nvidia-smi answers, by field, without units. Raises CheckError."""
    command = [smi, f"--query-{what}={','.join(fields)}", "--format=csv,noheader,nounits"]
    try:
        result = subprocess.run(
            command, capture_output=True, text=True, timeout=SMI_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CheckError(f"nvidia-smi: {error}") from error
    if result.returncode != 0:
        output = (result.stdout + result.stderr).strip() or "no output"
        raise CheckError(f"nvidia-smi ended with {result.returncode}: {output}")
    return parse(result.stdout, fields)


def parse(text: str, fields: Sequence[str]) -> list[dict[str, str]]:
    """Rows of CSV without a header, by field."""
    rows = csv.reader(io.StringIO(text), skipinitialspace=True)
    return [dict(zip(fields, map(str.strip, row), strict=True)) for row in rows if row]


def supported_fields(smi: str) -> list[str]:
    """The fields of `QUESTIONS` that this nvidia-smi knows: one it does not know fails them all."""
    command = [smi, "--help-query-gpu"]
    result = subprocess.run(
        command, capture_output=True, text=True, timeout=SMI_SECONDS, check=False
    )
    return [question.field for question in QUESTIONS if f'"{question.field}"' in result.stdout]


def compare(gpu: GpuReading, answers: dict[str, str]) -> Iterator[Row]:
    """Each value of one GPU that nvidia-smi was asked for."""
    for question in QUESTIONS:
        if question.field in answers:
            ours, theirs = question.ours(gpu), answers[question.field]
            yield Row(question.field, _text(ours), theirs, judge(ours, theirs, question.slack))


def judge(ours: str | Number, theirs: str, slack: float | None) -> str:
    """How two values of the same thing stand to each other."""
    theirs_known = theirs.lower() not in MISSING
    if ours is None or not theirs_known:
        return "same" if ours is None and not theirs_known else "differs"
    if isinstance(ours, str):
        # Exclusive_Process, Enabled, 00000000:17:00.0: the same words, in another case
        return "same" if ours.lower() == theirs.lower() else "differs"
    try:
        distance = abs(ours - float(theirs))
    except ValueError:
        return "not comparable"
    if slack is None:
        return "same" if distance < 1 else "moves"
    return "same" if distance <= slack else "differs"


def compare_processes(view: GpuSnapshot, listed: Sequence[dict[str, str]]) -> list[Row]:
    """The processes on each GPU by both sources, and those found only by open files."""
    ours = {
        (gpu.key.uuid, str(row.pid)): _mebibytes(row.memory_bytes)
        for gpu in view.driver.gpus
        for row in gpu.processes or ()
    }
    theirs = {(row["gpu_uuid"], row["pid"]): row["used_memory"] for row in listed}
    rows = []
    for key in sorted(ours.keys() | theirs.keys()):
        name = f"{key[1]} on {key[0]}"
        if key not in theirs:  # graphics and MPS are no compute apps; what ended meanwhile is none
            rows.append(Row(name, f"{_text(ours[key])} MiB", "not listed", "moves"))
        elif key not in ours:
            rows.append(Row(name, "not listed", f"{theirs[key]} MiB", "differs"))
        else:
            verdict = judge(ours[key], theirs[key], None)
            rows.append(Row(name, f"{_text(ours[key])} MiB", f"{theirs[key]} MiB", verdict))
    unlisted = [holder for holder in view.survey.holders if not holder.listed]
    rows += [
        Row(f"{holder.process.pid} {holder.process.name}", ", ".join(sorted(holder.files)), "", "")
        for holder in unlisted
    ]
    return rows


def _text(value: str | Number) -> str:
    if value is None:
        return "(not reported)"
    return value if isinstance(value, str) else f"{value:.6g}"


def _mebibytes(amount: int | None) -> float | None:
    return None if amount is None else amount / MIB
