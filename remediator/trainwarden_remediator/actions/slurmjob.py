"""What a job of Slurm is by its state, and which job a process belongs to. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from trainwarden_remediator.actions.slurmtools import Job

_CGROUP = re.compile(r"/job_(\d{1,10})(?:/|$)", re.ASCII)
"""As Slurm names them: `/slurm/uid_0/job_123/step_0`, or below `slurmstepd.scope`."""

_HANDS_OFF: Mapping[str, str] = {
    "PENDING": "it waits to be started",
    "CONFIGURING": "it is being started",
    "COMPLETING": "it is ending",
    "COMPLETED": "it has completed",
    "CANCELLED": "somebody has cancelled it",
    "SUSPENDED": "it is suspended",
    "STOPPED": "it is stopped",
    "PREEMPTED": "it had to make room for another job",
    "DEADLINE": "its deadline is over",
    "REVOKED": "it runs at another cluster",
    "REQUEUE_HOLD": "it is held",
    "SPECIAL_EXIT": "it is held by its own exit status",
}
"""States in which a job is Slurm's business, or a person's."""

UNDER_WAY = ("RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING")
"""States of a job of which something still runs, or is being put away."""

ENDED = ("FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "TIMEOUT")
"""States of a job that has ended and can be put back."""

OVER = (*ENDED, "COMPLETED", "CANCELLED", "PREEMPTED", "DEADLINE", "REVOKED")
"""States that a job does not leave by itself."""


def left_alone(job: Job, way: str) -> str:
    """Why a job must not be acted upon as it stands, or nothing."""
    # One that is held while it runs would not start again.
    if job.reason.startswith("JobHeld") or "held" in job.reason.lower():
        return f"it is held ({job.reason})"
    if not job.name:
        return "it is no job of its own, but a part of one"
    if job.state == "RUNNING":
        return ""
    if job.state in ENDED:
        return "" if way == "requeue" else "it has ended already"
    return _HANDS_OFF.get(job.state, f"its state is {job.state}")


def job_of_cgroups(paths: Iterable[str]) -> int | None:
    """The number of the job in the paths of a process's control groups; None without one."""
    numbers = {int(found[1]) for path in paths if (found := _CGROUP.search(path))}
    return numbers.pop() if len(numbers) == 1 else None
