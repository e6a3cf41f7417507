"""What the checks before a run look at, what they find, and the table a person reads."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from trainwarden_exporter.config import Config
from trainwarden_exporter.disk.view import DiskView
from trainwarden_exporter.gpu.view import GpuView
from trainwarden_exporter.runs import RunConfig
from trainwarden_exporter.wording import plural

Verdict = Literal["ok", "warn", "refuse"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check saw, and what is to be done about it."""

    check: str
    verdict: Verdict
    seen: str
    details: tuple[str, ...] = ()
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Subject:
    """What the checks look at. `gpu` is None when the driver has not answered in time.

    `run` is the one that is to start; None for all that are configured.
    """

    config: Config
    gpu: GpuView | None = None
    run: str | None = None
    memory_free: int | None = None
    """Bytes that each GPU must have free."""
    patience: float = 0.0
    """Seconds that the driver was given."""
    now: float = field(default_factory=time.time)
    disks: tuple[DiskView, ...] = ()

    @property
    def runs(self) -> tuple[RunConfig, ...]:
        """Those that are to start."""
        return tuple(run for run in self.config.runs if self.run in (None, run.name))


Check = Callable[[Subject], Finding | None]
"""None where there is nothing to check."""


def verdict(findings: Iterable[Finding]) -> Verdict:
    """The worst of all."""
    given = {finding.verdict for finding in findings}
    return "refuse" if "refuse" in given else "warn" if "warn" in given else "ok"


def render(findings: Sequence[Finding], *, width: int = 100) -> str:
    """The table, and its sum in one sentence."""
    margin = max((len(finding.check) for finding in findings), default=0) + 2
    lines = []
    for finding in findings:
        head = f"{finding.check:<{margin}}{finding.verdict:<8}"
        body = [finding.seen, *finding.details]
        if finding.advice:
            body.append(f"→ {finding.advice}")
        for text in body:
            lines += textwrap.wrap(
                text, width, initial_indent=head, subsequent_indent=" " * (margin + 10)
            )
            head = " " * (margin + 8)
    refusals = sum(1 for finding in findings if finding.verdict == "refuse")
    warnings = sum(1 for finding in findings if finding.verdict == "warn")
    if refusals:
        reasons = ", ".join(finding.check for finding in findings if finding.verdict == "refuse")
        lines += ["", f"A run must not start here now: {reasons}."]
    else:
        more = f", with {plural(warnings, 'warning')}" if warnings else ""
        lines += ["", f"A run may start here{more}."]
    return "\n".join(lines)
