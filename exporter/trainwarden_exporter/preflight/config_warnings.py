"""Valid settings that are probably not intended."""

from __future__ import annotations

from difflib import get_close_matches

from trainwarden_exporter.config import Config
from trainwarden_exporter.processes.exit_status import NO_EXIT_STATUSES, exit_statuses_available
from trainwarden_exporter.processes.roles import KNOWN_ROLES


def config_warnings(config: Config) -> list[str]:
    """Returns warnings on valid settings that are probably not intended."""
    if not config.runs:
        return ["no runs: the exporter observes only the host"]
    finishing = any(worker.finishes for run in config.runs for worker in run.workers)
    unknown_exits = [NO_EXIT_STATUSES] if finishing and not exit_statuses_available() else []
    without_workers = [
        f"run {run.name} has no workers: the exporter does not observe its processes"
        for run in config.runs
        if not run.workers
    ]
    roles = [
        f"worker {worker.name} of run {run.name}: no rule knows the role {worker.role}"
        f" (did you mean {meant}?)"
        for run in config.runs
        for worker in run.workers
        if worker.role not in KNOWN_ROLES
        for meant in get_close_matches(worker.role, KNOWN_ROLES, n=1)
    ]
    return [*unknown_exits, *without_workers, *roles]
