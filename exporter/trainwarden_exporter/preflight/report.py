"""Preflight context, findings and their table."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal

from trainwarden_exporter.config import Config
from trainwarden_exporter.gpu.snapshot import GpuSnapshot
from trainwarden_exporter.preflight.disk_snapshot import DiskSnapshot
from trainwarden_exporter.run_config import RunConfig
from trainwarden_exporter.runtime.formatting import plural

CheckResult = Literal["ok", "warn", "refuse"]


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check, with advice."""

    check: str
    result: CheckResult
    observed: str
    details: tuple[str, ...] = ()
    advice: str = ""


@dataclass(frozen=True, slots=True)
class PreflightContext:
    """Input of the checks. `gpu` is None if the driver timed out.

    `run` is the run that is to start; None for all configured runs.
    """

    config: Config
    gpu: GpuSnapshot | None = None
    run: str | None = None
    memory_free: int | None = None
    """Bytes that each GPU must have free."""
    timeout: float = 0.0
    """Timeout of the driver in seconds."""
    now: float = field(default_factory=time.time)
    disks: tuple[DiskSnapshot, ...] = ()

    @property
    def runs(self) -> tuple[RunConfig, ...]:
        """The runs that are to start."""
        return tuple(run for run in self.config.runs if self.run in (None, run.name))


Check = Callable[[PreflightContext], Finding | None]
"""Returns None where the check does not apply."""


def worst_result(findings: Iterable[Finding]) -> CheckResult:
    given = {finding.result for finding in findings}
    return "refuse" if "refuse" in given else "warn" if "warn" in given else "ok"


def as_data(findings: Sequence[Finding]) -> dict[str, object]:
    """Returns the findings for programs: the worst result, and each with the keys of `Finding`."""
    return {"result": worst_result(findings), "findings": [asdict(one) for one in findings]}


def render(findings: Sequence[Finding], *, width: int = 100) -> str:
    """Returns the findings as a table with a one-sentence summary."""
    margin = max((len(finding.check) for finding in findings), default=0) + 2
    lines = []
    for finding in findings:
        head = f"{finding.check:<{margin}}{finding.result:<8}"
        body = [finding.observed, *finding.details]
        if finding.advice:
            body.append(f"→ {finding.advice}")
        for text in body:
            lines += textwrap.wrap(
                text, width, initial_indent=head, subsequent_indent=" " * (margin + 10)
            )
            head = " " * (margin + 8)
    refusals = sum(1 for finding in findings if finding.result == "refuse")
    warnings = sum(1 for finding in findings if finding.result == "warn")
    if refusals:
        reasons = ", ".join(finding.check for finding in findings if finding.result == "refuse")
        lines += ["", f"Not ready to start a run: {reasons}."]
    else:
        more = f", with {plural(warnings, 'warning')}" if warnings else ""
        lines += ["", f"Ready to start a run{more}."]
    return "\n".join(lines)
