"""Jobs of a real Slurm: run again or cancelled, one and the right one, or left alone."""

from __future__ import annotations

import os
import signal
from typing import Any

import psutil
import pytest
from tests.slurm.conftest import Job
from tests.waiting import until

from trainwarden_remediator.actions.base import ActionState
from trainwarden_remediator.exceptions import ActionError, NotEligibleError


def quiet(step: str, **facts: Any) -> None:
    del step, facts


def name_of(pid: int) -> str:
    try:
        return psutil.Process(pid).name()
    except psutil.NoSuchProcess:
        return ""


def running(job: Job, *flags: str, **given: Any) -> str:
    number = job.submit(*flags, **given)
    until(lambda: job.state(number).startswith("RUNNING") and job.pids())
    return number


def test_a_job_is_run_again_and_has_not_to_wait_for_it(job: Job) -> None:
    number = running(job)
    (old,) = job.pids()
    action = job.action(job=job.name)
    intended = action.find_instances()
    facts = action.perform("mark", quiet, intended)
    assert facts["started_by"] == "trainwarden"
    assert facts["processes"] == [f"job {number}, restart 1"]
    assert job.state(number) == "RUNNING|1|"
    until(lambda: job.pids() and old not in job.pids())
    assert action.inspect("mark", intended) is ActionState.STARTED


def test_after_a_crash_the_job_is_known_though_nothing_of_it_runs(job: Job) -> None:
    number = running(job)
    intended = job.action().find_instances()
    job.cluster.ask("scontrol", "requeue", number)
    until(lambda: job.state(number).startswith("PENDING") and not job.pids())
    assert job.action().inspect("mark", intended) is ActionState.STARTED


def test_the_job_is_found_by_the_process_that_runs_in_it(job: Job) -> None:
    number = running(job)
    assert job.action().find_instances() == [f"job {number}, restart 0"]


def test_what_srun_starts_is_the_worker_and_srun_is_not(job: Job) -> None:
    """Its command line has all of the worker's, which slurmstepd starts."""
    running(job, "--ntasks=1", script=f"{job.cluster.programs}/srun {{worker}}")
    until(lambda: [name[:6] for name in map(name_of, job.pids())] == ["python"])


def test_an_earlier_run_of_the_same_job_is_not_what_was_meant(job: Job) -> None:
    number = running(job)
    action = job.action(job=job.name)
    intended = action.find_instances()
    action.perform("mark", quiet, intended)
    facts = action.perform("mark", quiet, intended)
    assert facts["started_by"] == "another"
    assert job.state(number) == "RUNNING|1|"


def test_a_job_that_has_failed_is_run_again(job: Job) -> None:
    number = job.submit(script='test -e "$0.once" && sleep 600; touch "$0.once"; exit 3')
    until(lambda: job.state(number).startswith("FAILED"))
    action = job.action(job=job.name)
    assert action.perform("mark", quiet, action.find_instances())["started_by"] == "trainwarden"
    assert job.state(number).split("|")[1] == "1"


def test_one_task_of_an_array_is_run_again_and_no_other(job: Job) -> None:
    job.submit("--array=1-3")
    until(lambda: len(job.pids()) == 3)
    numbers = job.cluster.ask("squeue", "-h", "--array", f"--name={job.name}", "-O", "JobArrayID:|")
    tasks = sorted(line.strip("|") for line in numbers.split())
    with pytest.raises(ActionError, match="3 jobs named"):
        job.action(job=job.name).find_instances()
    # The last task has the number of the whole array.
    by_process = job.action()
    with pytest.raises(ActionError, match="more than one job"):
        by_process.find_instances()
    keep = next(pid for pid in job.pids() if _variable(pid, "SLURM_ARRAY_TASK_ID") == "3")
    action = job.action()
    number = int(_variable(keep, "SLURM_JOB_ID"))
    action._number = lambda: number  # type: ignore[method-assign]
    action.perform("mark", quiet, action.find_instances())
    assert [job.state(task).split("|")[1] for task in tasks] == ["0", "0", "1"]


def _variable(pid: int, name: str) -> str:
    with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123 - of /proc
        pairs = (part.decode().partition("=") for part in file.read().split(b"\0"))
    return next(value for key, _, value in pairs if key == name)


def test_a_job_that_waits_is_left_alone(job: Job) -> None:
    job.submit("--begin=now+1hour")
    with pytest.raises(NotEligibleError, match="it is pending"):
        job.action(job=job.name).find_instances()


def test_a_job_that_an_operator_holds_is_left_alone(job: Job) -> None:
    number = job.submit("--hold")
    with pytest.raises(NotEligibleError, match="held"):
        job.action(job=job.name).find_instances()
    job.cluster.ask("scontrol", "release", number)
    until(lambda: job.state(number).startswith("RUNNING"))
    job.cluster.ask("scontrol", "requeuehold", number)
    until(lambda: job.state(number).startswith("PENDING"))
    with pytest.raises(NotEligibleError, match="held"):
        job.action(job=job.name).find_instances()


def test_a_job_that_an_operator_suspends_is_left_alone(job: Job) -> None:
    number = running(job)
    job.cluster.ask("scontrol", "suspend", number)
    with pytest.raises(NotEligibleError, match="suspended"):
        job.action(job=job.name).find_instances()
    job.cluster.ask("scontrol", "resume", number)


def test_a_job_that_an_operator_has_cancelled_is_left_alone(job: Job) -> None:
    number = running(job)
    job.cluster.ask("scancel", number)
    until(lambda: job.state(number).startswith("CANCELLED"))
    with pytest.raises(NotEligibleError, match="cancelled"):
        job.action(job=job.name).find_instances()


def test_of_two_jobs_of_one_name_none_is_touched(job: Job) -> None:
    numbers = [running(job), running(job)]
    with pytest.raises(ActionError, match="2 jobs named"):
        job.action(job=job.name).perform("mark", quiet)
    assert [job.state(number) for number in numbers] == ["RUNNING|0|"] * 2


def test_a_job_that_does_not_allow_it_is_not_run_again(job: Job) -> None:
    number = running(job, "--no-requeue")
    with pytest.raises(ActionError, match="scontrol: "):
        job.action(job=job.name).perform("mark", quiet)
    assert job.state(number) == "RUNNING|0|"


def test_a_job_is_cancelled_and_nothing_else(job: Job) -> None:
    number = running(job)
    action = job.action(job=job.name, method="cancel")
    action.perform("mark", quiet, action.find_instances())
    assert job.state(number).startswith("CANCELLED")
    until(lambda: not job.pids())


def test_what_slurm_does_not_know_is_reported(job: Job) -> None:
    with pytest.raises(ActionError, match="no job named nobody"):
        job.action(job="nobody").find_instances()
    with pytest.raises(ActionError, match="its job is unknown"):
        job.action().find_instances()
    assert job.action(job="x")._client.job_by_number(999_999) is None
    assert job.action(job="x")._client.job_by_id("999999_1") is None


def test_a_controller_that_is_away_is_not_taken_for_no_job(job: Job) -> None:
    running(job)
    conf = job.cluster.folder / "away.conf"
    text = job.cluster.conf.read_text()
    port = text.partition("SlurmctldPort=")[2].partition("\n")[0]
    conf.write_text(text.replace(f"SlurmctldPort={port}", "SlurmctldPort=1"))
    with pytest.raises(ActionError, match="squeue"):
        job.action(job=job.name, conf=conf).find_instances()


def test_a_worker_that_died_is_run_again_by_its_name(job: Job) -> None:
    number = running(job)
    os.kill(job.pids()[0], signal.SIGKILL)
    until(lambda: job.state(number).startswith("FAILED"))
    action = job.action(job=job.name)
    action.perform("mark", quiet, action.find_instances())
    until(job.pids)
    assert job.state(number) == "RUNNING|1|"
