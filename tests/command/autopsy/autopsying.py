"""Examines a folder as on a host that remembers no boot and no kernel log."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainwarden.autopsy.announced import AnnouncedWorker
from trainwarden.autopsy.case import Case
from trainwarden.autopsy.gather import gather
from trainwarden.autopsy.proving import with_proofs
from trainwarden.autopsy.verdict import Verdict

LATER = 2_000_000_000.0
"""When no run is active any more (Unix seconds)."""


def examine(
    folder: Path,
    *,
    now: float = LATER,
    booted_at: float | None = None,
    announced_in: Callable[[Path], tuple[AnnouncedWorker, ...]] = lambda _: (),
) -> Verdict:
    material = gather(
        folder,
        now=now,
        read_boot_time=lambda: booted_at,
        read_kernel_log=lambda: None,
        announced_in=announced_in,
    )
    return Verdict(with_proofs(Case(material)))


def first_cause(folder: Path) -> str:
    """The name of the likeliest cause; empty without a likely one."""
    likely = examine(folder).likely
    return likely[0].cause.name if likely else ""


def announce(folder: Path, name: str, **content: Any) -> None:
    """Writes what `trainwarden run` records of a worker into its `folder`."""
    (folder / "runs.d").mkdir(parents=True, exist_ok=True)
    whole: dict[str, Any] = {"run": name, "worker": "w", "state": "failed"}
    whole["log"] = str(folder / f"{name}.log")
    whole |= {"exit_status": 256, "started_at": 1.0, "ended_at": 2.0, "path": None, **content}
    (folder / "runs.d" / f"{name}@w.json").write_text(json.dumps(whole))
