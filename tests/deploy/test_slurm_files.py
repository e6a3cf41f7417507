"""What the scripts for Slurm make of preflight's answer; tests/slurm has them in a real Slurm."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from stack import PROJECT

SLURM = PROJECT / "deploy" / "slurm"
REFUSED = "Not ready to start a run: disk space."


def ask(
    folder: Path,
    status: int,
    message: str,
    *,
    script: str = "node.sh",
    steps: str = "",
    **environment: str,
) -> subprocess.CompletedProcess[str]:
    """Run a script, with a preflight that gives such an answer and writes down its arguments.

    `steps` are the processes of jobs that are on the node, as pgrep shows them.
    """
    pgrep = folder / "pgrep"
    pgrep.write_text(f"#!/bin/sh\nprintf '{steps}'\n")
    pgrep.chmod(0o755)
    exporter = folder / "exporter"
    exporter.write_text(
        f"#!/bin/sh\necho \"$*\" >> {folder}/asked\necho '{message}'\nexit {status}\n"
    )
    exporter.chmod(0o755)
    return subprocess.run(
        [SLURM / script],
        env={
            "PATH": f"{folder}:/usr/bin:/bin",
            "TRAINWARDEN_EXPORTER": str(exporter),
            "TRAINWARDEN_CONFIG": "/etc/here.yml",
            "TRAINWARDEN_RETRY_FOR": "0",
            "SLURM_JOB_ID": "7",
            "SLURM_SCRIPT_CONTEXT": "prolog_slurmd",
            **environment,
        },
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
    )


@pytest.mark.parametrize("context", ["prolog_slurmd", "epilog_slurmd"])
@pytest.mark.parametrize(
    ("status", "message", "ends_with"),
    [
        (0, "Ready to start a run.", 0),
        (1, REFUSED, 1),
        # Broken, and not asked: an interpreter that is gone, a program that fails, a wrong file.
        (1, "Traceback (most recent call last):", 0),
        (2, "exporter.yml:1: unknown key", 0),
        (127, "not found", 0),
    ],
)
def test_a_node_is_drained_for_a_refusal_alone(
    context: str, status: int, message: str, ends_with: int, tmp_path: Path
) -> None:
    result = ask(tmp_path, status, message, SLURM_SCRIPT_CONTEXT=context)
    assert result.returncode == ends_with
    assert (tmp_path / "asked").read_text() == "preflight --config.file=/etc/here.yml\n"
    if status == 0:
        assert result.stderr == ""
    else:
        assert f"{context} of job 7" in result.stderr
        assert message in result.stderr


@pytest.mark.parametrize(
    ("steps", "looks"),
    [
        ("", True),
        ("41 slurmstepd: [7.extern]\n42 slurmstepd: [7.0]\n", True),
        ("41 slurmstepd: [7.extern]\n43 slurmstepd: [77.batch]\n", False),
    ],
)
def test_a_node_with_another_job_on_it_is_not_looked_at(
    steps: str, looks: bool, tmp_path: Path
) -> None:
    result = ask(tmp_path, 1, REFUSED, steps=steps)
    assert (tmp_path / "asked").exists() == looks
    assert result.returncode == int(looks)
    assert ("not looked at" in result.stderr) == (not looks)


def test_a_node_that_another_job_came_to_meanwhile_is_not_judged(tmp_path: Path) -> None:
    came = tmp_path / "exporter-and-a-job"
    came.write_text(
        f"#!/bin/sh\nprintf '#!/bin/sh\\necho \"43 slurmstepd: [77.batch]\"' > {tmp_path}/pgrep\n"
        f"echo '{REFUSED}'\nexit 1\n"
    )
    came.chmod(0o755)
    result = ask(tmp_path, 0, "", TRAINWARDEN_EXPORTER=str(came))
    assert result.returncode == 0
    assert "not looked at" in result.stderr


def test_a_preflight_without_an_answer_drains_no_node(tmp_path: Path) -> None:
    slow = tmp_path / "slow"
    slow.write_text("#!/bin/sh\nexec sleep 600\n")
    slow.chmod(0o755)
    result = ask(tmp_path, 0, "", TRAINWARDEN_EXPORTER=str(slow), TRAINWARDEN_TIMEOUT="1")
    assert result.returncode == 0
    assert "could not be asked (status 124)" in result.stderr


def test_no_program_at_all_drains_nothing(tmp_path: Path) -> None:
    result = ask(tmp_path, 0, "", TRAINWARDEN_EXPORTER=str(tmp_path / "none"))
    assert result.returncode == 0
    assert "could not be asked (status 127)" in result.stderr


def test_more_is_asked_for_where_that_is_set(tmp_path: Path) -> None:
    ask(tmp_path, 0, "", TRAINWARDEN_PREFLIGHT="--gpu.memory-free=70GiB --run=grpo")
    asked = (tmp_path / "asked").read_text()
    assert asked.split()[2:] == ["--gpu.memory-free=70GiB", "--run=grpo"]


def test_after_a_job_it_waits_for_processes_that_are_ending(tmp_path: Path) -> None:
    exporter = tmp_path / "once"
    exporter.write_text(
        f"#!/bin/sh\n[ -e {tmp_path}/asked ] && exit 0\ntouch {tmp_path}/asked\n"
        f"echo '{REFUSED}'\nexit 1\n"
    )
    exporter.chmod(0o755)
    more = {"TRAINWARDEN_EXPORTER": str(exporter), "TRAINWARDEN_RETRY_FOR": "60"}
    before = ask(tmp_path, 0, "", SLURM_SCRIPT_CONTEXT="prolog_slurmd", **more)
    assert before.returncode == 1
    (tmp_path / "asked").unlink()
    after = ask(tmp_path, 0, "", SLURM_SCRIPT_CONTEXT="epilog_slurmd", **more)
    assert (after.returncode, after.stderr) == (0, "")


@pytest.mark.parametrize(("status", "ends_with"), [(0, 0), (1, 75), (2, 76), (127, 75)])
def test_a_rejected_job_ends_as_slurm_expects(status: int, ends_with: int, tmp_path: Path) -> None:
    training = tmp_path / "train"
    training.write_text("#!/bin/sh\necho trained\n")
    training.chmod(0o755)
    result = ask(tmp_path, status, "reported", script="job.sh", TRAINING=str(training))
    assert result.returncode == ends_with
    assert ("trained" in result.stdout) == (status == 0)
    settings = (SLURM / "slurm.conf").read_text(encoding="utf-8")
    known = dict(re.findall(r"^(\w+)=(\S+)$", settings, re.MULTILINE))
    assert (known["RequeueExit"], known["RequeueExitHold"]) == ("75", "76")
