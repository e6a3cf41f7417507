"""Whose command lines a page or a report shows: those of the accounts of the runs."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from trainwarden_exporter.processes.matching import ProcessTree
from trainwarden_exporter.processes.procfs import PROC, read_uid


def run_accounts(trees: Iterable[ProcessTree], root: Path = PROC) -> frozenset[int | None]:
    """Returns the accounts (uids) of the workers in `trees`; that of this program without any."""
    found = {read_uid(one.pid, root) for tree in trees for one in tree.roots} - {None}
    return frozenset(found or {os.geteuid()})
