"""What is made of Slurm's words; the real Slurm is asked in tests/slurm."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.remediator.process_yard import SLEEP, Steps, Yard

from trainwarden_exporter.config import Config as ExporterConfig
from trainwarden_exporter.config_file.loader import load
from trainwarden_exporter.exceptions import ConfigError
from trainwarden_exporter.processes.config import WorkerConfig
from trainwarden_exporter.processes.matching import Selector
from trainwarden_exporter.run_config import RunConfig
from trainwarden_remediator.actions.slurm import (
    SlurmAction,
    job_blocker,
    job_number,
    job_number_from_cgroups,
)
from trainwarden_remediator.actions.slurm_cli import Job, parse_jobs
from trainwarden_remediator.config.restart_methods.slurm import SlurmTarget
from trainwarden_remediator.config.schema import Config, Setup
from trainwarden_remediator.config.targets import Target
from trainwarden_remediator.exceptions import ActionError, NotEligibleError, OutcomeUnknownError

PROGRAM = """\
#!/bin/sh
cd "{folder}" || exit 1
printf '%s\\n' "$(basename "$0") $*" >>reported
{lines}
"""


class Desk:
    """Programs in place of Slurm's, which say what the test lets them."""

    def __init__(self, yard: Yard) -> None:
        self.yard = yard
        self.folder = yard.folder
        self.now = 0.0
        self.says("squeue", "cat jobs")
        self.says("scontrol", "exit 0")
        self.says("scancel", "exit 0")
        self.jobs("7|7|RUNNING|0|None|")

    def says(self, program: str, *lines: str) -> None:
        file = self.folder / program
        file.write_text(PROGRAM.format(folder=self.folder, lines="\n".join(lines)))
        file.chmod(0o755)

    def jobs(self, *lines: str) -> None:
        (self.folder / "jobs").write_text("".join(f"{line}\n" for line in lines))

    def reported(self) -> list[str]:
        """The commands that changed something, without queries."""
        lines = (self.folder / "reported").read_text().splitlines()
        return [line for line in lines if not line.startswith("squeue")]

    def action(self, **changes: Any) -> SlurmAction:
        slurm = {"job": "rollout", "programs": self.folder, **changes}
        target = Target.model_validate({"run": "demo", "worker": "rollout-0", "slurm": slurm})
        match = Selector.model_validate({"command": self.yard.mark})
        run = RunConfig(name="demo", workers=(WorkerConfig(name="rollout-0", match=match),))
        setup = Setup(Config(insecure=True, targets=(target,)), ExporterConfig(runs=(run,)))
        assert target.slurm is not None
        return SlurmAction(target, target.slurm, setup, sleep=self.sleep, clock=lambda: self.now)

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def desk(yard: Yard) -> Desk:
    return Desk(yard)


def test_a_job_is_asked_to_run_again_and_waited_for(desk: Desk) -> None:
    action = desk.action()
    intended = action.find_instances()
    assert intended == ["job 7, restart 0"]
    put_back = "[ \"$1\" = requeue ] && echo '7|7|PENDING|1|BeginTime|' >jobs"
    desk.says("scontrol", put_back, "[ $1 = update ] && echo '7|7|RUNNING|1|None|' >jobs", "true")
    steps = Steps()
    facts = action.perform("mark", steps, intended)
    assert facts["processes"] == ["job 7, restart 1"]
    assert desk.reported() == ["scontrol requeue 7", "scontrol update JobId=7 StartTime=now"]
    assert steps == [("requeue", {"manager": "slurm", "what": "job 7"})]


def test_a_job_that_may_wait_is_not_hurried(desk: Desk) -> None:
    desk.says("scontrol", "echo '7|7|RUNNING|1|None|' >jobs")
    desk.action(start_immediately=False).perform("mark", Steps())
    assert desk.reported() == ["scontrol requeue 7"]


def test_a_job_that_finds_no_place_is_left_to_slurm(desk: Desk) -> None:
    desk.says("scontrol", "echo '7|7|PENDING|1|Resources|' >jobs")
    facts = desk.action(start_timeout=20).perform("mark", Steps())
    assert facts["started_by"] == "trainwarden"
    assert 20 <= desk.now <= 22


def test_a_job_that_does_not_end_is_reported(desk: Desk) -> None:
    with pytest.raises(ActionError, match="60 s after the request, the job's state is RUNNING"):
        desk.action().perform("mark", Steps())
    assert desk.reported() == ["scontrol requeue 7"]


def test_a_refusal_is_reported_and_ends_it(desk: Desk) -> None:
    desk.says("scontrol", "echo 'Access/permission denied for job 7' >&2; exit 1")
    with pytest.raises(ActionError, match="scontrol: Access/permission denied"):
        desk.action().perform("mark", Steps())


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Programs that do not answer in their time; the test names them."""
    names: list[str] = []
    real = subprocess.run

    def run(command: list[str], **given: Any) -> subprocess.CompletedProcess[bytes]:
        if Path(command[0]).name in names:
            real(command, **{**given, "timeout": None})
            raise subprocess.TimeoutExpired(command, given["timeout"])
        return real(command, **given)

    monkeypatch.setattr(subprocess, "run", run)
    return names


def test_no_answer_to_an_order_is_not_taken_for_a_failure(desk: Desk, hanging: list[str]) -> None:
    hanging.append("scontrol")
    with pytest.raises(OutcomeUnknownError, match="did not respond within 30 s"):
        desk.action().perform("mark", Steps())
    assert desk.reported() == ["scontrol requeue 7"]


def test_no_answer_to_a_question_is_no_job(desk: Desk, hanging: list[str]) -> None:
    hanging.append("squeue")
    with pytest.raises(ActionError, match="squeue did not respond") as caught:
        desk.action().find_instances()
    assert not isinstance(caught.value, OutcomeUnknownError)


def test_programs_that_are_not_there_are_reported(desk: Desk) -> None:
    with pytest.raises(ActionError, match="cannot run squeue: No such file"):
        desk.action(programs=desk.folder / "absent").find_instances()


def test_what_was_there_before_in_another_state_is_not_acted_upon(desk: Desk) -> None:
    action = desk.action()
    intended = action.find_instances()
    desk.jobs("7|7|RUNNING|1|None|")
    assert action.perform("mark", Steps(), intended)["started_by"] == "another"
    assert desk.reported() == []


def test_of_jobs_that_have_ended_only_the_last_counts(desk: Desk) -> None:
    desk.jobs("7|7|FAILED|0|NonZeroExitCode|", "9|9|FAILED|2|NonZeroExitCode|")
    assert desk.action().find_instances() == ["job 9, restart 2"]
    desk.jobs("7|7|FAILED|0|NonZeroExitCode|", "9|9|CANCELLED|2|None|")
    with pytest.raises(NotEligibleError, match="cancelled"):
        desk.action().find_instances()
    desk.jobs("7|7|RUNNING|0|None|", "9|9|FAILED|2|NonZeroExitCode|")
    assert desk.action().find_instances() == ["job 7, restart 0"]


@pytest.mark.parametrize(
    "lines",
    [
        ("7|7|RUNNING|0|None|", "8|8|RUNNING|0|None|"),
        ("7|7|RUNNING|0|None|", "8|8|PENDING|0|None|"),
        ("7|9_1|FAILED|0|None|", "9|9_2|FAILED|0|None|"),
    ],
)
def test_of_several_jobs_none_is_acted_upon(desk: Desk, lines: tuple[str, ...]) -> None:
    desk.jobs(*lines)
    with pytest.raises(ActionError, match="2 jobs named rollout"):
        desk.action().find_instances()


def test_only_an_account_that_is_named_is_asked_for(desk: Desk) -> None:
    desk.action(user="alice").find_instances()
    (asked,) = (desk.folder / "reported").read_text().splitlines()
    assert "--name=rollout --user=alice" in asked


def test_a_worker_outside_of_any_job_has_none(desk: Desk) -> None:
    desk.yard.run(SLEEP)
    with pytest.raises(ActionError, match="outside of any job"):
        desk.action(job=None).find_instances()


def test_the_job_of_a_process_is_in_its_environment(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    desk.yard.run(SLEEP)
    assert desk.action(job=None).find_instances() == ["job 7, restart 0"]
    monkeypatch.setenv("SLURM_JOB_ID", "7; rm -rf /")
    odd = desk.yard.run(SLEEP)
    (process,) = (one for one in desk.yard.tree().roots if one.pid == odd.pid)
    assert job_number(process) is None


# pure


@pytest.mark.parametrize(
    ("text", "jobs"),
    [
        ("", ()),
        ("7|7|RUNNING|0|None|\n", (Job(7, "7", "RUNNING", 0, "None"),)),
        ("9|9_3|PENDING|2|Resources|\n", (Job(9, "9_3", "PENDING", 2, "Resources"),)),
        ("9|9_[1-5]|PENDING|0|None|\n", (Job(9, "", "PENDING", 0, "None"),)),
        ("9|9+1|RUNNING|0|None|\n", (Job(9, "", "RUNNING", 0, "None"),)),
    ],
)
def test_what_squeue_prints_is_read(text: str, jobs: tuple[Job, ...]) -> None:
    assert parse_jobs(text) == jobs


@pytest.mark.parametrize(
    "text", ["JOBID|NAME\n", "7|7|RUNNING|0|\n", "x|7|RUNNING|0|None|\n", "7|7|RUNNING|-|None|\n"]
)
def test_anything_else_is_no_job(text: str) -> None:
    with pytest.raises(ActionError, match="is not a list of jobs"):
        parse_jobs(text)


@pytest.mark.parametrize(
    ("state", "reason", "message"),
    [
        ("RUNNING", "None", ""),
        ("FAILED", "NonZeroExitCode", ""),
        ("NODE_FAIL", "None", ""),
        ("OUT_OF_MEMORY", "None", ""),
        ("TIMEOUT", "TimeLimit", ""),
        ("RUNNING", "JobHeldAdmin", "held"),
        ("PENDING", "JobHeldUser", "held"),
        ("PENDING", "job requeued in held state", "held"),
        ("PENDING", "Resources", "pending"),
        ("COMPLETING", "None", "ending"),
        ("COMPLETED", "None", "completed"),
        ("CANCELLED", "None", "cancelled"),
        ("SUSPENDED", "None", "suspended"),
        ("REQUEUE_HOLD", "None", "held"),
        ("A_STATE_TO_COME", "None", "A_STATE_TO_COME"),
    ],
)
def test_what_an_operator_or_slurm_has_in_hand_is_left_alone(
    state: str, reason: str, message: str
) -> None:
    found = job_blocker(Job(7, "7", state, 0, reason), "requeue")
    assert message in found
    assert bool(found) == bool(message)


def test_what_has_ended_is_not_cancelled_and_a_part_is_not_acted_upon() -> None:
    assert job_blocker(Job(7, "7", "FAILED", 0, "None"), "cancel")
    assert "part of a job" in job_blocker(Job(7, "", "RUNNING", 0, "None"), "requeue")


@pytest.mark.parametrize(
    ("paths", "number"),
    [
        (["/slurm/uid_0/job_123/step_0/task_0"], 123),
        (["/system.slice/slurmstepd.scope/job_123/step_batch/user"], 123),
        (["/a", "/slurm/uid_0/job_5", "/slurm_x/uid_0/job_5/step_0"], 5),
        (["/slurm/uid_0/job_5", "/slurm/uid_0/job_6"], None),
        (["/user.slice/myjob_123/x", "/"], None),
        ([], None),
    ],
)
def test_the_job_of_a_process_is_in_its_control_groups(
    paths: list[str], number: int | None
) -> None:
    assert job_number_from_cgroups(paths) == number


# configuration

CONFIG = """\
insecure: true
targets:
  - run: demo
    worker: rollout-0
    slurm: {content}
"""


def test_a_job_is_configured(tmp_path: Path) -> None:
    content = json.dumps({"job": "grpo", "conf": "slurm.conf"})
    (tmp_path / "remediator.yml").write_text(CONFIG.format(content=content))
    (target,) = load(tmp_path / "remediator.yml", Config).targets
    assert target.restart_method.summary == "requeue job grpo"
    assert target.slurm is not None
    assert target.slurm.conf == tmp_path / "slurm.conf"


def test_two_targets_may_not_share_a_job_and_may_each_have_its_own() -> None:
    named, other = SlurmTarget(job="grpo"), SlurmTarget(job="grpo", method="cancel")
    assert named.restarts_same(other)
    assert not named.restarts_same(SlurmTarget(job="ppo"))
    assert not SlurmTarget().restarts_same(SlurmTarget())


def test_programs_that_are_missing_are_a_doubt(desk: Desk) -> None:
    assert list(SlurmTarget(programs=desk.folder).warnings()) == []
    (desk.folder / "scontrol").unlink()
    assert [doubt.partition(":")[0] for doubt in SlurmTarget(programs=desk.folder).warnings()] == [
        "slurm.programs"
    ]


@pytest.mark.parametrize(
    "content", [{"job": "a b"}, {"job": "-x"}, {"job": ""}, {"job": "a,b"}, {"method": "kill"}]
)
def test_what_could_name_more_than_one_job_or_an_option_is_refused(
    content: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "remediator.yml").write_text(CONFIG.format(content=json.dumps(content)))
    with pytest.raises(ConfigError):
        load(tmp_path / "remediator.yml", Config)
