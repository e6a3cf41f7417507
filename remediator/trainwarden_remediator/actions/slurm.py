"""Has Slurm run a worker's job again, or cancel it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection
from contextlib import suppress

from trainwarden_exporter.exceptions import CollectError
from trainwarden_exporter.processes.matching import Matcher
from trainwarden_exporter.processes.procfs import Process, read_cgroups, read_environment
from trainwarden_remediator.actions.base import Announce, Standing
from trainwarden_remediator.actions.managed import Kept, ManagedAction
from trainwarden_remediator.actions.slurmjob import OVER, UNDER_WAY, job_of_cgroups, left_alone
from trainwarden_remediator.actions.slurmtools import Job, Slurm
from trainwarden_remediator.config import Setup
from trainwarden_remediator.exceptions import ActionError
from trainwarden_remediator.means.slurm import SlurmTarget
from trainwarden_remediator.subjects import Subject
from trainwarden_remediator.targets import Target

LOOK_SECONDS = 1.0
"""How often it is looked how far Slurm has come."""


_IDENTITY = re.compile(r"job (\d+(?:_\d+)?), restart ", re.ASCII)


class SlurmAction(ManagedAction):
    """Acts on exactly one job, by its number and how often it was restarted."""

    in_one = True

    def __init__(
        self,
        target: Target,
        slurm: SlurmTarget,
        setup: Setup,
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(target, sleep=sleep)
        self._slurm = slurm
        self._tools = Slurm(slurm)
        self._matcher = Matcher(setup.selectors)
        self._clock = clock
        self._last: str | None = None

    def look(self) -> Kept:
        return self._kept(self._job())

    def restart(self, kept: Kept, mark: str, announce: Announce) -> None:
        job = self._job()
        if (again := self._kept(job)).identity != kept.identity or again.hands_off:
            raise ActionError(f"it has changed meanwhile: {again.identity}, {job.state}")
        announce(self._slurm.way, manager="slurm", what=f"job {job.name}")
        self._last = job.name
        if self._slurm.way == "cancel":
            self._tools.cancel(job)
            self._await(lambda now: now is None or now.state not in UNDER_WAY, self._slurm.grace)
            return
        self._tools.requeue(job)
        self._await(
            lambda now: (
                now is not None and now.restarts > job.restarts and now.state != "COMPLETING"
            ),
            self._slurm.grace,
        )
        if self._slurm.at_once:
            with suppress(ActionError):  # it starts without that, only later
                self._tools.start_now(job)
        with suppress(ActionError):  # it waits for a place, and Slurm knows best
            self._await(
                lambda now: now is not None and now.state == "RUNNING", self._slurm.starts_within
            )

    def start(self, kept: Kept, mark: str, announce: Announce) -> None:
        raise ActionError("only Slurm starts a job")

    def standing(self, mark: str, before: Collection[Subject]) -> Standing:
        named = (_IDENTITY.match(one) for one in before if isinstance(one, str))
        # Nothing of it may run by now that would tell which job it is.
        self._last = next((found[1] for found in named if found), self._last)
        return super().standing(mark, before)

    def _kept(self, job: Job) -> Kept:
        return Kept(
            identity=f"job {job.name or job.number}, restart {job.restarts}",
            running=job.state in UNDER_WAY,
            hands_off=left_alone(job, self._slurm.way),
        )

    def _job(self) -> Job:
        """The one job; raises ActionError where there is none, or more than one."""
        if self._slurm.job is not None:
            return _only(self._tools.named(self._slurm.job, self._slurm.user), self._slurm.job)
        number = self._number()
        if number is None and self._last is None:
            raise ActionError("nothing of it runs, so its job is not known; name it by `job`")
        last = self._last or ""
        job = self._tools.called(last) if number is None else self._tools.numbered(number)
        if job is None:
            raise ActionError(f"Slurm knows no job {last if number is None else number}")
        return job

    def _number(self) -> int | None:
        """That of the job that the worker's processes run in; None where none runs.

        Raises ActionError.
        """
        try:
            trees = self._matcher.find()
        except CollectError as error:
            raise ActionError(f"cannot see the processes: {error}") from error
        roots = [
            root
            for key in self._target.keys
            if key in trees
            for root in trees[key].roots
            if root.alive
        ]
        numbers = {job_of(root) for root in roots}
        if None in numbers:
            raise ActionError("it runs outside of any job")
        if len(numbers) > 1:
            told = ", ".join(sorted(map(str, numbers)))
            raise ActionError(f"it runs in more than one job ({told})")
        return next(iter(numbers), None)

    def _await(self, reached: Callable[[Job | None], bool], within: float) -> None:
        deadline = self._clock() + within
        while True:
            job = self._tools.called(self._last) if self._last is not None else None
            if reached(job):
                return
            if self._clock() >= deadline:
                state = job.state if job else "unknown"
                raise ActionError(f"Slurm was told, and after {within:g} s its state is {state}")
            self._sleep(LOOK_SECONDS)


def job_of(process: Process) -> int | None:
    """The number of the job that a process runs in; None where it runs in none, or cannot be told.

    The kernel's word first: an environment is what its owner makes of it, and is inherited by what
    has left the job.
    """
    paths = [cgroup.path for cgroup in read_cgroups(process.pid) or ()]
    if (number := job_of_cgroups(paths)) is not None:
        return number
    told = (read_environment(process.pid) or {}).get("SLURM_JOB_ID", "")
    return int(told) if told.isascii() and told.isdecimal() else None


def _only(jobs: Collection[Job], name: str) -> Job:
    """The one that has not ended; or else, where the name is of no array, the last that was."""
    current = [job for job in jobs if job.state in UNDER_WAY or job.state not in OVER]
    found = current or list(jobs)
    if not found:
        raise ActionError(f"Slurm knows no job called {name}")
    if len(current) > 1 or (len(found) > 1 and any("_" in job.name for job in found)):
        raise ActionError(f"Slurm knows {len(found)} jobs called {name}")
    return max(found, key=lambda job: job.number)
