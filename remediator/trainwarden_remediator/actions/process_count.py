"""Compares the processes that the remediator finds with the processes that an action is for.

The exporter counts a moment earlier, and may have loaded another version of its file: what it shows
is no proof of what a signal would end (harm 29).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from trainwarden_exporter.processes.config import WorkerConfig
from trainwarden_exporter.processes.matching import ProcessTree, WorkerKey, oldest_root_start
from trainwarden_exporter.processes.procfs import Process, read_owner
from trainwarden_exporter.processes.selector import ProcessAttributes, is_account, is_of_folder
from trainwarden_exporter.runtime.formatting import format_time
from trainwarden_remediator.actions.termination import is_alive
from trainwarden_remediator.config.restart_methods.process import ProcessTarget
from trainwarden_remediator.observation.model import ExporterState

START_TOLERANCE_SECONDS = 1.0
"""Seconds by which two programs may compute the start of one process differently."""

Trees = Mapping[WorkerKey, ProcessTree]


def live_roots(tree: ProcessTree) -> list[Process]:
    """Returns the live processes that the selector of a worker matches, without descendants."""
    return [root for root in tree.roots if root.alive]


def surplus_problem(trees: Trees, workers: Mapping[WorkerKey, WorkerConfig]) -> str:
    """Returns which of `workers` has more processes than expected, or ""."""
    for key, worker in workers.items():
        found = live_roots(trees[key])
        if len(found) > worker.expected:
            return (
                f"{len(found)} processes match {key.worker} ({_pids(found)}), "
                f"{worker.expected} expected"
            )
    return ""


def exporter_problem(trees: Trees, keys: Iterable[WorkerKey], exporter: ExporterState) -> str:
    """Returns for which of `keys` the exporter shows other processes, or ""."""
    for key in keys:
        found, shown = live_roots(trees[key]), exporter.workers.get(key)
        if shown is None:
            continue
        if shown.processes != len(found):
            which = f" ({_pids(found)})" if found else ""
            return (
                f"the exporter counts {shown.processes:g} processes of {key.worker}, "
                f"the remediator finds {len(found)}{which}"
            )
        started = oldest_root_start(trees[key])
        if (
            started is not None
            and shown.started_at is not None
            and abs(started - shown.started_at) > START_TOLERANCE_SECONDS
        ):
            return (
                f"the exporter shows a process of {key.worker} that started at "
                f"{format_time(shown.started_at)}, the remediator finds one from "
                f"{format_time(started)} ({_pids(found)})"
            )
    return ""


def selector_problem(
    trees: Trees, workers: Mapping[WorkerKey, WorkerConfig], target: ProcessTarget
) -> str:
    """Returns which process of `workers` another account or folder owns than the target's, or "".

    Two runs on one host often have the same command line: what matches may be the other run's.
    """
    for key, worker in workers.items():
        found = live_roots(trees[key])
        # `match` has checked its own `user` already.
        user = target.user or read_owner(os.getpid())
        if worker.match.user is None and (problem := _account_problem(found, user)):
            return f"{problem}: set `user` in the `match` of {key.worker}"
        if "cwd" in target.model_fields_set and (problem := _folder_problem(found, target.cwd)):
            return f"{problem}: narrow the `match` of {key.worker}, or correct `cwd`"
    return ""


def _account_problem(processes: Iterable[Process], user: str) -> str:
    """Returns which of `processes` runs as another account than `user`, or ""."""
    for process in processes:
        owner = read_owner(process.pid)
        if owner and not is_account(owner, user):
            return f"process {process.pid} runs as {owner}, not as {user}"
    return ""


def _folder_problem(processes: Iterable[Process], folder: Path) -> str:
    """Returns which of `processes` belongs to another working folder than `folder`, or "".

    A live process whose folder cannot be read may be another run's: there is no proof (harm 29).
    """
    for process in processes:
        attributes = ProcessAttributes(process.pid)
        belongs = is_of_folder(folder, attributes)
        if belongs or (belongs is None and not is_alive(process.identity)):
            continue
        if (current := attributes.working_folder) is None:
            return f"the working folder of process {process.pid} cannot be read"
        return f"process {process.pid} runs in {current}, not in {folder}"
    return ""


def _pids(processes: Iterable[Process]) -> str:
    return ", ".join(str(process.pid) for process in processes)
