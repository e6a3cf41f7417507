"""The stacks of a run's processes at one moment, as evidence."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from trainwarden_exporter.exceptions import CollectError
from trainwarden_exporter.host.config import HostConfig
from trainwarden_exporter.host.memory import read_available_memory
from trainwarden_exporter.processes.config import RunWorkers
from trainwarden_exporter.processes.matching import Matcher, Selector, WorkerKey
from trainwarden_exporter.processes.procfs import PROC
from trainwarden_exporter.processes.stacks.kernel_state import read_kernel_state
from trainwarden_exporter.processes.stacks.members import find_members
from trainwarden_exporter.processes.stacks.model import Activity, Finding, Member, Stacks
from trainwarden_exporter.processes.stacks.py_spy import read_stacks
from trainwarden_exporter.processes.stacks.text import render_findings
from trainwarden_exporter.processes.stacks.waits import find_wait
from trainwarden_remediator.journal.event_text import printable

SECONDS = 1.0
"""Seconds after which no further stack is read: a collection waits no longer for its sources."""

CONCURRENT = 4
"""Processes that are read at the same time."""


def read_run_stacks(
    run: RunWorkers,
    selectors: Mapping[WorkerKey, Selector],
    host: HostConfig,
    *,
    seconds: float = SECONDS,
    root: Path = PROC,
) -> Mapping[str, Any]:
    """Returns the number of processes of `run`, and their stacks as lines, rare ones first.

    One look tells what a process waits for, and not whether it moves. Raises CollectError, also
    where memory is so short that no program may be started for this.
    """
    _, available, floor = read_available_memory(host)
    if available < floor:
        raise CollectError("memory is short: no stacks are read")
    members = find_members(run, Matcher(selectors, root=root).find())
    find = partial(_find, deadline=time.monotonic() + seconds, root=root)
    with ThreadPoolExecutor(CONCURRENT) as pool:
        findings = [one for one in pool.map(find, members) if one is not None]
    lines = [printable(line) for line in render_findings(findings)]
    return {"of_run": len(findings), "stacks": lines}


def _find(member: Member, *, deadline: float, root: Path) -> Finding | None:
    """Returns what a process does at this moment, or None if it has ended."""
    pid = member.identity.pid
    left = deadline - time.monotonic()
    stacks = Stacks(problem="not read in time")
    if left > 0:
        stacks = read_stacks(pid, member.threads, timeout=left)
    kernel = read_kernel_state(member.identity, root)
    if kernel is None:
        return None
    wait = find_wait(stacks, kernel, pid, world=member.world)
    runs = Activity.MOVING if kernel.state == "R" else Activity.UNKNOWN
    activity, detail = wait or (runs, "")
    return Finding(member, activity, detail, stacks=stacks, kernel=kernel)
