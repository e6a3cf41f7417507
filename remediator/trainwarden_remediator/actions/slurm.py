"""Restarts a worker in a Slurm job: requeues or cancels the job."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress

from trainwarden_exporter.processes.matching import Matcher
from trainwarden_exporter.processes.procfs import Process, read_cgroups, read_environment
from trainwarden_remediator.actions.base import ActionState, RecordStep, reading_processes
from trainwarden_remediator.actions.manager_target import ManagedAction, ManagedInstance
from trainwarden_remediator.actions.slurm_cli import Job, SlurmClient
from trainwarden_remediator.config.restart_methods.slurm import SlurmTarget
from trainwarden_remediator.config.schema import Setup
from trainwarden_remediator.config.targets import Target
from trainwarden_remediator.exceptions import ActionError
from trainwarden_remediator.model import TargetInstance

POLL_SECONDS = 1.0
"""Time between two checks of a job's state."""

_IDENTITY = re.compile(r"job (\d+(?:_\d+)?), restart ", re.ASCII)


class SlurmAction(ManagedAction[SlurmTarget]):
    """Acts on exactly one job, identified by its number and its restart count."""

    restarts_atomically = True

    def __init__(
        self,
        target: Target,
        slurm: SlurmTarget,
        setup: Setup,
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(target, slurm, sleep=sleep, clock=clock)
        self._client = SlurmClient(slurm)
        self._matcher = Matcher(setup.selectors)
        self._last_job: str | None = None

    def read_instance(self) -> ManagedInstance:
        return self._managed_instance(self._job())

    def restart(self, instance: ManagedInstance, token: str, record_step: RecordStep) -> None:
        job = self._job()
        if (again := self._managed_instance(job)).identity != instance.identity or again.blocker:
            raise ActionError(f"the job has changed: {again.identity}, {job.state}")
        record_step(self._method.method, manager="slurm", what=f"job {job.name}")
        self._last_job = job.name
        if self._method.method == "cancel":
            self._client.cancel(job)
            self._wait_for(
                lambda now: now is None or now.state not in ACTIVE_STATES, self._method.grace
            )
            return
        self._client.requeue(job)
        self._wait_for(
            lambda now: (
                now is not None and now.restarts > job.restarts and now.state != "COMPLETING"
            ),
            self._method.grace,
        )
        if self._method.start_immediately:
            with suppress(ActionError):  # the job starts anyway, only later
                self._client.start_now(job)
        with suppress(ActionError):  # the job is queued; Slurm schedules it
            self._wait_for(
                lambda now: now is not None and now.state == "RUNNING", self._method.start_timeout
            )

    def start(self, instance: ManagedInstance, token: str, record_step: RecordStep) -> None:
        raise ActionError("only Slurm can start a job")

    def inspect(self, action_token: str, before: Collection[TargetInstance]) -> ActionState:
        named = (_IDENTITY.match(one) for one in before if isinstance(one, str))
        # The worker may have no process left that would identify the job.
        self._last_job = next((found[1] for found in named if found), self._last_job)
        return super().inspect(action_token, before)

    def _managed_instance(self, job: Job) -> ManagedInstance:
        return ManagedInstance(
            identity=f"job {job.name or job.number}, restart {job.restarts}",
            running=job.state in ACTIVE_STATES,
            blocker=job_blocker(job, self._method.method),
        )

    def _job(self) -> Job:
        """Returns the job. Raises ActionError if there is none, or more than one."""
        if (name := self._method.job) is not None:
            return _single_job(self._client.jobs_by_name(name, self._method.user), name)
        number = self._number()
        if number is None and self._last_job is None:
            raise ActionError("no process of the worker runs, so its job is unknown; set `job`")
        last = self._last_job or ""
        job = self._client.job_by_id(last) if number is None else self._client.job_by_number(number)
        if job is None:
            raise ActionError(f"Slurm knows no job {last if number is None else number}")
        return job

    def _number(self) -> int | None:
        """Returns the number of the job that the worker's processes run in; None without processes.

        Raises ActionError.
        """
        with reading_processes():
            trees = self._matcher.find()
        found = [trees[key] for key in self._target.keys if key in trees]
        numbers = {job_number(root) for tree in found for root in tree.roots if root.alive}
        if None in numbers:
            raise ActionError("the worker runs outside of any job")
        if len(numbers) > 1:
            listed = ", ".join(sorted(map(str, numbers)))
            raise ActionError(f"the worker runs in more than one job ({listed})")
        return next(iter(numbers), None)

    def _wait_for(self, reached: Callable[[Job | None], bool], within: float) -> None:
        deadline = self._clock() + within
        while True:
            job = self._client.job_by_id(self._last_job) if self._last_job is not None else None
            if reached(job):
                return
            if self._clock() >= deadline:
                state = job.state if job else "unknown"
                raise ActionError(f"{within:g} s after the request, the job's state is {state}")
            self._sleep(POLL_SECONDS)


def job_number(process: Process) -> int | None:
    """Returns the number of the job that a process runs in; None if it runs in none or is unknown.

    The cgroup takes precedence over the environment: a process can change its environment, and
    processes that have left the job inherit it.
    """
    paths = [cgroup.path for cgroup in read_cgroups(process.pid) or ()]
    if (number := job_number_from_cgroups(paths)) is not None:
        return number
    value = (read_environment(process.pid) or {}).get("SLURM_JOB_ID", "")
    return int(value) if value.isascii() and value.isdecimal() else None


def _single_job(jobs: Collection[Job], name: str) -> Job:
    """Returns the job that has not ended; otherwise the last job, unless the name is an array's."""
    current = [job for job in jobs if job.state not in FINAL_STATES]
    found = current or list(jobs)
    if not found:
        raise ActionError(f"Slurm knows no job named {name}")
    if len(current) > 1 or (len(found) > 1 and any("_" in job.name for job in found)):
        raise ActionError(f"Slurm knows {len(found)} jobs named {name}")
    return max(found, key=lambda job: job.number)


_CGROUP = re.compile(r"/job_(\d{1,10})(?:/|$)", re.ASCII)
"""The control group of a job: `/slurm/uid_0/job_123/step_0`, or below `slurmstepd.scope`."""

_BLOCKED_STATES: Mapping[str, str] = {
    "PENDING": "it is pending",
    "CONFIGURING": "it is being started",
    "COMPLETING": "it is ending",
    "COMPLETED": "it has completed",
    "CANCELLED": "it was cancelled",
    "SUSPENDED": "it is suspended",
    "STOPPED": "it is stopped",
    "PREEMPTED": "it was preempted by another job",
    "DEADLINE": "its deadline has passed",
    "REVOKED": "it runs on another cluster",
    "REQUEUE_HOLD": "it is held",
    "SPECIAL_EXIT": "it is held by its own exit status",
}
"""States in which Slurm or an operator controls the job, with the reason not to act on it."""

ACTIVE_STATES = (
    "RUNNING",
    "COMPLETING",
    "SUSPENDED",
    "STOPPED",
    "SIGNALING",
    "STAGE_OUT",
    "RESIZING",
)
"""States of a job that still runs or is being cleaned up."""

FAILED_STATES = ("FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "TIMEOUT")
"""States of a job that has ended and can be requeued."""

FINAL_STATES = (*FAILED_STATES, "COMPLETED", "CANCELLED", "PREEMPTED", "DEADLINE", "REVOKED")
"""States that a job does not leave without a request."""


def job_blocker(job: Job, method: str) -> str:
    """Returns why the remediator must not act on a job now, or ""."""
    # A job that is held while it runs would not start again.
    if job.reason.startswith("JobHeld") or "held" in job.reason.lower():
        return f"it is held ({job.reason})"
    if not job.name:
        return "it is only a part of a job"
    if job.state == "RUNNING":
        return ""
    if job.state in FAILED_STATES:
        return "" if method == "requeue" else "it has already ended"
    return _BLOCKED_STATES.get(job.state, f"its state is {job.state}")


def job_number_from_cgroups(paths: Iterable[str]) -> int | None:
    """Returns the job number in the paths of a process's control groups; None without one."""
    numbers = {int(found[1]) for path in paths if (found := _CGROUP.search(path))}
    return numbers.pop() if len(numbers) == 1 else None
