"""Runs Slurm's programs squeue, scontrol and scancel, without a shell.

Observed with Slurm 22.05: `squeue --states=all` lists a job for MinJobAge after its end; a requeued
job is PENDING with one more restart, and waits about two minutes for its BeginTime; the last task
of an array has the JobID of the whole array: only its JobArrayID (`3_2`) is unique.
"""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass

from trainwarden_remediator.actions.spawn import inherited_environment
from trainwarden_remediator.config.restart_methods.slurm import SlurmTarget
from trainwarden_remediator.exceptions import ActionError, OutcomeUnknownError

ANSWER_SECONDS = 30.0
"""Timeout of a Slurm program, which blocks while the controller is unreachable."""

# No field with user-defined text, such as the name: it could contain the separator.
FIELDS = ("JobID", "JobArrayID", "State", "RestartCnt", "Reason")
_FORMAT = ",".join(f"{field}:|" for field in FIELDS)

_NUMBER = re.compile(r"\d{1,10}", re.ASCII)
_TASK = re.compile(r"\d{1,10}(_\d{1,10})?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Job:
    """A job, or one task of an array. `number`: the JobID; `name`: the JobArrayID for requests."""

    number: int
    name: str
    state: str
    restarts: int
    reason: str


def parse_jobs(text: str) -> tuple[Job, ...]:
    """Parses the output of `squeue`. Raises ActionError if it is malformed.

    The name is empty if Slurm cannot act on the job separately (a component of a heterogeneous job,
    tasks of an array without a record of their own yet).
    """
    jobs = []
    for line in text.splitlines():
        parts = line.strip().removesuffix("|").split("|")
        if len(parts) != len(FIELDS) or not (
            _NUMBER.fullmatch(parts[0]) and _NUMBER.fullmatch(parts[3])
        ):
            raise ActionError("the output of squeue is not a list of jobs")
        number, name, state, restarts, reason = parts
        known = name if _TASK.fullmatch(name) else ""
        jobs.append(Job(int(number), known, state, int(restarts), reason))
    return tuple(jobs)


class SlurmClient:
    """Client of one Slurm cluster. All methods block and raise ActionError."""

    def __init__(self, target: SlurmTarget) -> None:
        self._target = target

    def jobs_by_name(self, name: str, user: str | None) -> tuple[Job, ...]:
        """Returns all jobs of that name that Slurm still lists."""
        owner = () if user is None else (f"--user={user}",)
        return self._jobs(f"--name={name}", *owner)

    def job_by_number(self, number: int) -> Job | None:
        """Returns the job of that number; of an array, only that task."""
        found = self._lookup(str(number))
        return next((job for job in found if job.number == number), None)

    def job_by_id(self, name: str) -> Job | None:
        return next((job for job in self._lookup(name) if job.name == name), None)

    def requeue(self, job: Job) -> None:
        """Requeues a job. Raises OutcomeUnknownError after a timeout."""
        self._command("scontrol", "requeue", job.name)

    def start_now(self, job: Job) -> None:
        """Lets a requeued job start as soon as resources are free."""
        self._command("scontrol", "update", f"JobId={job.name}", "StartTime=now")

    def cancel(self, job: Job) -> None:
        """Cancels a job. Raises OutcomeUnknownError after a timeout."""
        self._command("scancel", job.name)

    def _lookup(self, name: str) -> tuple[Job, ...]:
        try:
            return self._jobs(f"--jobs={name}")
        except UnknownJobError:
            return ()

    def _jobs(self, *filters: str) -> tuple[Job, ...]:
        options = ("--noheader", "--array", "--states=all", f"--Format={_FORMAT}", *filters)
        try:
            return parse_jobs(self._run("squeue", *options))
        except subprocess.TimeoutExpired as error:
            raise ActionError(f"squeue did not respond within {ANSWER_SECONDS:g} s") from error

    def _command(self, program: str, *arguments: str) -> None:
        try:
            self._run(program, *arguments)
        except subprocess.TimeoutExpired as error:
            raise OutcomeUnknownError(
                f"{program} did not respond within {ANSWER_SECONDS:g} s; checking its outcome"
            ) from error

    def _run(self, program: str, *arguments: str) -> str:
        environment = inherited_environment()
        conf = self._target.conf or os.environ.get("SLURM_CONF")
        if conf is not None:
            environment["SLURM_CONF"] = str(conf)
        try:
            done = subprocess.run(  # noqa: S603 - a fixed argument list, no shell
                [self._target.program(program), *arguments],
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=ANSWER_SECONDS,
                check=False,
            )
        except OSError as error:
            raise ActionError(f"cannot run {program}: {error.strerror}") from error
        if done.returncode:
            lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
            reason = lines[0][:200] if lines else f"status {done.returncode}"
            if program == "squeue" and "Invalid job id" in reason:
                raise UnknownJobError(f"squeue: {reason}")
            raise ActionError(f"{program}: {reason}")
        return done.stdout.decode("utf-8", "replace")


class UnknownJobError(ActionError):
    """Slurm does not list the job, or no longer lists it."""
