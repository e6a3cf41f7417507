"""Waits until the host is ready for a run: `trainwarden run --wait`."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from trainwarden_exporter.config import Config
from trainwarden_exporter.preflight.checks import run_checks
from trainwarden_exporter.preflight.disk_snapshot import nearest_existing, take_disk_snapshots
from trainwarden_exporter.preflight.report import Finding

POLL_SECONDS = 10.0


def wait_for_host(folders: Sequence[Path]) -> None:
    """Returns once `preflight` refuses nothing: GPUs free, memory, space in `folders`.

    Prints what it waits for, and each change. Returns also if the parent process has ended.
    """
    parent, shown = os.getppid(), ""
    while (refused := _refused(folders)) and os.getppid() == parent:
        text = "".join(
            f"\n  {one.check}: {'; '.join(one.details) or one.observed}" for one in refused
        )
        if text != shown:
            print(f"trainwarden run: waits for the host:{text}", file=sys.stderr)  # noqa: T201
            shown = text
        time.sleep(POLL_SECONDS)


def _refused(folders: Sequence[Path]) -> list[Finding]:
    paths = dict.fromkeys(nearest_existing(folder) for folder in folders)
    config = Config.model_validate({"disks": [{"path": str(path)} for path in paths]})
    # the write probe takes seconds, and a slow disk refuses nothing
    look = partial(take_disk_snapshots, probe=False)
    return [one for one in run_checks(config, take_disk_snapshots=look) if one.result == "refuse"]
