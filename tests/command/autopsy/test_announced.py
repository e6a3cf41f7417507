"""The autopsy of a run that `trainwarden run` started: its log is in the folder of the state."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autopsying import announce, examine
from trainwarden import cli
from trainwarden.autopsy.json_report import as_data
from trainwarden.autopsy.report import render
from trainwarden.autopsy.settings import missing_options, needs_file, propose
from trainwarden.autopsy.verdict import Verdict
from trainwarden.commands.autopsy import announced_in
from trainwarden.run.process_tree import read_start_ticks

CODE = "import sys; [print(f'step {n}/300 loss 1') for n in range(1, 28)]; sys.stdout.flush(); "


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRAINWARDEN_FOLDER", str(tmp_path / "state"))
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def run_in(folder: Path, end: str) -> Verdict:
    argv = [sys.executable, "-m", "trainwarden", "run", "--name", "r", "--", sys.executable]
    subprocess.run([*argv, "-c", CODE + end], cwd=folder, check=False, capture_output=True)
    return examine(folder, announced_in=announced_in)


def save(folder: Path, *steps: int) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for step in steps:
        (folder / f"step-{step}.ckpt").write_bytes(bytes(100))
        os.utime(folder / f"step-{step}.ckpt", (1e9 + step, 1e9 + step))
    return folder


def announce_runs(work: Path) -> dict[str, Path]:
    """Three runs of one working folder, each with checkpoints and a log; `hang` started last."""
    state = work.parent / "state"
    (state / "logs").mkdir(parents=True)
    logs = {}
    runs = {"good": (840, "finished", 0), "nan": (400, "failed", 256), "hang": (80, "failed", 9)}
    for at, (name, (step, ended, status)) in enumerate(runs.items(), 1):
        saved = save(work / f"ck-{name}", step - 40, step)
        logs[name] = state / "logs" / f"{name}@w.log"
        lines = [f"step {one}/2000 loss 1" for one in range(step - 40, step + 1)]
        logs[name].write_text("\n".join([f"this is {name}", *lines, ""]))
        more = {"checkpoints": str(saved), "log": str(logs[name]), "exit_status": status}
        announce(state, name, cwd=str(work), state=ended, started_at=float(at), **more)
    return logs


def test_the_log_and_the_signal_of_a_killed_run_are_read(work: Path) -> None:
    verdict = run_in(work, "import os; os.kill(os.getpid(), 9)")
    assert verdict.case.last_step == 27
    assert [one.cause.name for one in verdict.likely] == ["killed"]
    assert "killed by SIGKILL" in render(verdict)


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("pyton", "The command pyton was not found"),
        ("./train.py", "The command ./train.py cannot be executed: Permission denied"),
        ("WANDB_API_KEY=0123456789", "The command WANDB_API_KEY=[redacted] was not found"),
    ],
)
def test_that_a_command_could_not_be_started_is_the_first_cause(
    work: Path, command: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (work / "train.py").touch(mode=0o644)
    argv = [sys.executable, "-m", "trainwarden", "run", "--name", "typo", "--", command, "train.py"]
    subprocess.run(argv, cwd=work, check=False, capture_output=True)
    (work / "train.log").write_text("Traceback (most recent call last):\n")
    for named in ("typo", str(work)):
        assert cli.main(["autopsy", named, "--json"]) == 3
        found = json.loads(capsys.readouterr().out)
        assert found["headline"] == f"{why}."
        assert found["causes"][0]["name"] == "not_started"
        assert not {"killed", "interrupted"} & {one["name"] for one in found["causes"]}
        assert cli.main(["autopsy", named]) == 3
        shown = capsys.readouterr().out
        assert "not started, exit status 12" in shown
        assert "exporter.yml" not in shown
    announce(work.parent / "state", "last", cwd=str(work), started_at=9.0)
    cli.main(["autopsy", str(work)])
    assert "`typo`, not started: `trainwarden autopsy typo`" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("silent", "says", "causes"),
    [
        (None, "", ["interrupted"]),
        (60.0, "", ["interrupted"]),
        (300.0, "5 min", ["interrupted"]),
        (900.0, "15 min", ["interrupted", "stalled"]),
    ],
)
def test_a_run_that_was_silent_when_it_was_stopped_may_have_hung(
    work: Path, silent: float | None, says: str, causes: list[str]
) -> None:
    log = work.parent / "r.log"
    log.write_text("".join(f"step {n}/300 loss 1\n" for n in range(1, 28)))
    known = {"state": "stopped", "exit_status": 15, "log": str(log), "silent_before_stop": silent}
    announce(work.parent / "state", "r", cwd=str(work), **known)
    verdict = examine(work, announced_in=announced_in)
    assert [one.cause.name for one in verdict.likely] == causes
    hung = f"It had printed nothing for {says} when it was stopped: it may have hung"
    assert (hung in render(verdict)) == bool(says)


def test_what_trainwarden_stop_ends_has_how_long_it_was_silent(work: Path) -> None:
    argv = [sys.executable, "-m", "trainwarden", "run", "--name", "r", "--", sys.executable]
    code = f"{CODE}import time; time.sleep(60)"
    file = work.parent / "state" / "runs.d" / "r@trainer.json"
    with subprocess.Popen([*argv, "-c", code], cwd=work, stdout=subprocess.PIPE) as run:
        assert run.stdout is not None
        for line in run.stdout:
            if line.startswith(b"step 27"):
                break
        time.sleep(1.5)
        subprocess.run([*argv[:3], "stop", "r"], check=True, capture_output=True)
        run.wait(30)
    content = json.loads(file.read_text())
    assert content["state"] == "stopped"
    assert content["silent_before_stop"] >= 1.5


def test_exit_status_0_is_the_end_of_the_run_whatever_its_last_step(work: Path) -> None:
    verdict = run_in(work, "")
    assert verdict.headline == "Nothing wrong was found: the run finished."
    assert "finished, exit status 0" in render(verdict)


def test_a_run_that_still_runs_is_active_however_old_its_log(work: Path) -> None:
    log = work / "train.log"
    log.write_text("step 1/9 loss 1\nstep 2/9 loss 1\n")
    os.utime(log, (1e9, 1e9))
    own: dict[str, Any] = {"pid": os.getpid(), "start_ticks": read_start_ticks(os.getpid())}
    own |= {"wrapper_pid": 0, "wrapper_start_ticks": 0, "exit_status": None, "ended_at": None}
    announce(work.parent / "state", "r", cwd=str(work), state="running", log=str(log), **own)
    verdict = examine(work, now=time.time(), announced_in=announced_in)
    assert "active" in verdict.headline
    assert [reading.name for reading in verdict.case.logs] == ["train.log"]


def test_of_several_runs_in_a_folder_the_last_one_counts(work: Path) -> None:
    state = work.parent / "state"
    announce(state, "old", cwd=str(work), started_at=1.0)
    announce(state, "new", cwd=str(work), started_at=9.0, exit_status=int(signal.SIGTERM))
    announce(state, "elsewhere", cwd="/", started_at=99.0)
    verdict = examine(work, announced_in=announced_in)
    (found,) = verdict.case.material.announced
    assert (found.run, found.how) == ("new", "killed by SIGTERM")
    assert any("new.log: No such file" in one for one in verdict.case.material.unread)


@pytest.mark.parametrize("content", ["", "[]", "{}", "[" * 100_000, '{"cwd": "\\u0000"}', '{"cwd'])
def test_what_is_no_announcement_is_left_out(work: Path, content: str) -> None:
    runs = work.parent / "state" / "runs.d"
    runs.mkdir(parents=True)
    (runs / "r@w.json").write_text(content)
    assert announced_in(work) == ()


def test_no_memory_limit_is_proposed_but_as_a_comment(work: Path) -> None:
    case = run_in(work, "import os; os.kill(os.getpid(), 9)").case
    lines = [
        one.strip() for one in propose(case, ["memory"]).splitlines() if "memory_limit:" in one
    ]
    assert lines
    assert all(line.startswith("#") for line in lines)


def test_of_a_run_that_is_watched_only_what_is_missing_is_proposed(work: Path) -> None:
    verdict = run_in(work, "import os; os.kill(os.getpid(), 9)")
    report = render(verdict)
    assert "`trainwarden run` has recorded run `r`: it is watched; these alerts report it" in report
    assert "- `--memory-limit SIZE`: above it, the worker is restarted." in report
    assert "- `--checkpoints FOLDER`: a hang is restarted from what is saved there." in report
    assert "exporter.yml" not in report
    assert as_data(verdict)["exporter_yml"] == ""
    (one,) = verdict.case.material.announced
    saves = replace(one, checkpoints=work)
    assert missing_options([saves, saves], ["inference", "workers"]) == []
    (server,) = missing_options([saves], ["inference"])
    assert "`trainwarden run --name r --worker server --role inference -- COMMAND`" in server
    assert needs_file(["watchdog"])
    assert not needs_file(["workers", "inference", "memory"])


def test_the_last_line_of_a_traceback_is_its_exception(work: Path) -> None:
    report = render(run_in(work, "raise KeyError('labels')"))
    assert "| `KeyError: 'labels'` |" in report
    assert "| `Traceback (most recent call last):` |" not in report


def test_of_several_runs_only_the_files_of_the_last_one_are_combined(work: Path) -> None:
    announce_runs(work)
    (work / "notes.log").write_text("step 1900/2000 loss 1\nstep 1901/2000 loss 1\n")
    verdict = examine(work, announced_in=announced_in)
    report, case = render(verdict), verdict.case
    assert (case.last_step, case.checkpoint_step) == (80, 80)
    assert [log.name for log in case.logs] == ["hang@w.log"]
    assert "Resume from the checkpoint of step 80: the next step is 81" in report
    assert "840" not in report
    assert "3 runs of `trainwarden run` belong to this folder" in report
    assert f"`trainwarden autopsy {work / 'ck-good'}`" in report
    assert "hang" in report
    others = as_data(verdict)["other_runs"]
    assert [(one["run"], one["state"]) for one in others] == [
        ("nan", "failed"),
        ("good", "finished"),
    ]
    assert [one["folder"] for one in others] == [str(work / "ck-nan"), str(work / "ck-good")]


@pytest.mark.parametrize("name", ["nan", "hang"])
def test_the_folder_of_the_checkpoints_leads_to_the_log_of_its_run(work: Path, name: str) -> None:
    logs = announce_runs(work)
    verdict = examine(work / f"ck-{name}", announced_in=announced_in)
    step = {"nan": 400, "hang": 80}[name]
    assert (verdict.case.last_step, verdict.case.checkpoint_step) == (step, step)
    assert [log.log.path for log in verdict.case.logs] == [logs[name]]
    assert "belong to this folder" not in render(verdict)
    assert verdict.likely[0].cause.name == "killed"


def test_a_checkpoint_of_the_last_seconds_of_an_ended_run_is_complete(work: Path) -> None:
    logs = announce_runs(work)
    newest = work / "ck-hang/step-80.ckpt"
    newest.touch()
    assert examine(work / "ck-hang", announced_in=announced_in).case.checkpoint_step == 80
    own: dict[str, Any] = {"pid": os.getpid(), "start_ticks": read_start_ticks(os.getpid())}
    own |= {"checkpoints": str(newest.parent), "log": str(logs["hang"]), "exit_status": None}
    announce(work.parent / "state", "hang", cwd="/", state="running", **own)
    assert examine(work / "ck-hang", announced_in=announced_in).case.checkpoint_step == 40


def test_a_log_leads_to_the_checkpoints_of_its_run(work: Path) -> None:
    logs = announce_runs(work)
    verdict = examine(logs["nan"], announced_in=announced_in)
    assert (verdict.case.last_step, verdict.case.checkpoint_step) == (400, 400)


def test_the_folder_of_all_logs_is_that_of_several_runs(work: Path) -> None:
    logs = announce_runs(work)
    verdict = examine(logs["nan"].parent, announced_in=announced_in)
    assert [log.name for log in verdict.case.logs] == ["hang@w.log"]
    assert verdict.case.checkpoint_step == 80
    assert "3 runs of `trainwarden run` belong to this folder" in render(verdict)


def test_a_run_without_a_folder_of_its_own_gets_none_of_another_run(work: Path) -> None:
    announce_runs(work)
    state, log = work.parent / "state", work.parent / "state/logs/eval@w.log"
    log.write_text("step 1/9 loss 1\nstep 2/9 loss 1\n")
    announce(state, "eval", cwd=str(work), started_at=9.0, log=str(log), argv=["eval.py"])
    case = examine(work, announced_in=announced_in).case
    assert [reading.name for reading in case.logs] == ["eval@w.log"]
    assert case.checkpoint is None


def test_without_a_given_folder_no_checkpoint_is_that_of_a_run_which_is_behind_it(
    work: Path,
) -> None:
    save(work / "out", 800, 840)
    state, log = work.parent / "state", work / "eval.log"
    log.write_text("step 1/9 loss 1\nstep 2/9 loss 1\n")
    announce(state, "train", cwd=str(work), started_at=1.0, argv=["train.py"])
    announce(state, "eval", cwd=str(work), started_at=9.0, argv=["eval.py"], log=str(log))
    verdict = examine(work, announced_in=announced_in)
    assert verdict.case.mixed_checkpoints == (str(work / "out"),)
    assert "Resume from the checkpoint of step" not in render(verdict)


def test_the_next_start_of_a_run_is_no_other_run(work: Path) -> None:
    announce_runs(work)
    state = work.parent / "state"
    (state / "logs/hang-2@w.log").write_text("step 81/2000 loss 1\nstep 82/2000 loss 1\n")
    more: dict[str, Any] = {"log": str(state / "logs/hang-2@w.log"), "cwd": str(work)}
    announce(state, "hang-2", started_at=5.0, checkpoints=str(work / "ck-hang"), **more)
    verdict = examine(work / "ck-hang", announced_in=announced_in)
    assert [one.run for one in verdict.case.material.announced] == ["hang-2"]
    assert "belong to this folder" not in render(verdict)


def test_without_a_record_no_checkpoint_is_that_of_a_log_which_is_behind_it(work: Path) -> None:
    save(work / "ck-good", 800, 840)
    save(work / "ck-hang", 40, 80)
    (work / "hang.log").write_text(
        "\n".join([*(f"step {one}/2000 loss 1" for one in range(41, 81)), "Killed", ""])
    )
    verdict = examine(work)
    report = render(verdict)
    assert verdict.case.checkpoint is None
    assert "Resume from the checkpoint of step" not in report
    assert "several runs" in report
    assert f"`trainwarden autopsy {work / 'ck-good'}`" in report


def test_a_run_that_has_finished_is_another_one_than_the_next_start_of_its_command(
    work: Path,
) -> None:
    state = work.parent / "state"
    (state / "logs").mkdir(parents=True)
    runs = {
        "train": ("finished", 0, 30),
        "train-2": ("failed", 256, 11),
        "train-3": ("failed", 9, 12),
    }
    for number, (name, (ended, status, steps)) in enumerate(runs.items(), 1):
        log = state / "logs" / f"{name}@w.log"
        log.write_text("".join(f"step {step}/30 loss 1\n" for step in range(1, steps + 1)))
        more = {"started_at": float(number), "log": str(log), "exit_status": status}
        announce(state, name, cwd=str(work), state=ended, argv=["train.py"], **more)
    verdict = examine(state / "logs", announced_in=announced_in)
    assert sorted(log.name for log in verdict.case.logs) == ["train-2@w.log", "train-3@w.log"]
    assert [one["run"] for one in as_data(verdict)["other_runs"]] == ["train"]


def test_the_last_attempt_of_a_run_that_finished_counts_as_finished(work: Path) -> None:
    log = work / "train.log"
    lines = [f"step {step}/300 loss 1" for last in (20, 27) for step in range(1, last)]
    log.write_text("\n".join([*lines, ""]))
    announce(
        work.parent / "state", "r", cwd=str(work), state="finished", exit_status=0, log=str(log)
    )
    verdict = examine(work, announced_in=announced_in)
    assert "Attempts** | 2, of them 1 finished" in render(verdict)
    assert [one["end"] for one in as_data(verdict)["attempts"]] == ["no error logged", "finished"]
    assert [one["finished"] for one in as_data(verdict)["attempts"]] == [False, True]
