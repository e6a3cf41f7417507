"""Asks Slurm, and tells it, by its own programs: argument lists, no shell.

Seen with Slurm 22.05: `squeue --states=all` still knows a job for MinJobAge after its end; a job
that was put back is PENDING with one restart more, and waits about two minutes for its BeginTime;
the JobID of an array's last task is that of the whole array: only its JobArrayID (`3_2`) is its
own.
"""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass

from trainwarden_remediator.actions.starting import PASSED_ON
from trainwarden_remediator.exceptions import ActionError, AmbiguousError
from trainwarden_remediator.means.slurm import SlurmTarget

ANSWER_SECONDS = 30.0
"""How long a program of Slurm's may take; a controller that is away makes it wait."""

# No field that its owner chooses, such as the name: nothing in them can be taken for another.
FIELDS = ("JobID", "JobArrayID", "State", "RestartCnt", "Reason")
_FORMAT = ",".join(f"{field}:|" for field in FIELDS)

_NUMBER = re.compile(r"\d{1,10}", re.ASCII)
_TASK = re.compile(r"\d{1,10}(_\d{1,10})?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Job:
    """A job, or one task of an array. `number` is Slurm's own, `name` what it is acted upon by."""

    number: int
    name: str
    state: str
    restarts: int
    reason: str


def parse_jobs(text: str) -> tuple[Job, ...]:
    """The jobs in what `squeue` printed. Raises ActionError for anything else.

    What cannot be acted upon on its own (a component of a heterogeneous job, tasks of an array that
    have no record of their own yet) is called by no name.
    """
    jobs = []
    for line in text.splitlines():
        parts = line.strip().removesuffix("|").split("|")
        if len(parts) != len(FIELDS) or not (
            _NUMBER.fullmatch(parts[0]) and _NUMBER.fullmatch(parts[3])
        ):
            raise ActionError("squeue answered with something else than jobs")
        number, name, state, restarts, reason = parts
        known = name if _TASK.fullmatch(name) else ""
        jobs.append(Job(int(number), known, state, int(restarts), reason))
    return tuple(jobs)


class Slurm:
    """The programs of one Slurm. All methods block, and raise ActionError."""

    def __init__(self, target: SlurmTarget) -> None:
        self._target = target

    def named(self, name: str, user: str | None) -> tuple[Job, ...]:
        """All jobs of that name that Slurm still knows."""
        whose = () if user is None else (f"--user={user}",)
        return self._jobs(f"--name={name}", *whose)

    def numbered(self, number: int) -> Job | None:
        """The job of that number, of an array only that task."""
        found = self._among(str(number))
        return next((job for job in found if job.number == number), None)

    def called(self, name: str) -> Job | None:
        """The job that is acted upon by that `Job.name`."""
        return next((job for job in self._among(name) if job.name == name), None)

    def requeue(self, job: Job) -> None:
        """Have it run again. Raises AmbiguousError where no answer came."""
        self._tell("scontrol", "requeue", job.name)

    def start_now(self, job: Job) -> None:
        """Have one that was put back wait no longer than for a place to run at."""
        self._tell("scontrol", "update", f"JobId={job.name}", "StartTime=now")

    def cancel(self, job: Job) -> None:
        """End it. Raises AmbiguousError where no answer came."""
        self._tell("scancel", job.name)

    def _among(self, name: str) -> tuple[Job, ...]:
        try:
            return self._jobs(f"--jobs={name}")
        except UnknownJobError:
            return ()

    def _jobs(self, *chosen: str) -> tuple[Job, ...]:
        asked = ("--noheader", "--array", "--states=all", f"--Format={_FORMAT}", *chosen)
        try:
            return parse_jobs(self._run("squeue", *asked))
        except subprocess.TimeoutExpired as error:
            raise ActionError(f"squeue did not answer within {ANSWER_SECONDS:g} s") from error

    def _tell(self, program: str, *arguments: str) -> None:
        try:
            self._run(program, *arguments)
        except subprocess.TimeoutExpired as error:
            raise AmbiguousError(
                f"{program} did not answer within {ANSWER_SECONDS:g} s: whether it was done is "
                "looked at"
            ) from error

    def _run(self, program: str, *arguments: str) -> str:
        environment = {
            name: value
            for name, value in os.environ.items()
            if name in PASSED_ON or name.startswith("LC_") or name == "SLURM_CONF"
        }
        if self._target.conf is not None:
            environment["SLURM_CONF"] = str(self._target.conf)
        try:
            done = subprocess.run(  # noqa: S603 - an argument list of our own, no shell
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
            said = done.stderr.decode("utf-8", "replace").strip().splitlines()
            reason = said[0][:200] if said else f"status {done.returncode}"
            if program == "squeue" and "Invalid job id" in reason:
                raise UnknownJobError(f"squeue: {reason}")
            raise ActionError(f"{program}: {reason}")
        return done.stdout.decode("utf-8", "replace")


class UnknownJobError(ActionError):
    """Slurm knows no such job, or not any more."""
