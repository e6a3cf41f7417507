"""What `trainwarden run` records and logs of runs that live, crash, and are restarted."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from autopsying import LATER, announce, examine
from night_folders import at
from trainwarden import cli
from trainwarden.autopsy.json_report import as_data
from trainwarden.autopsy.report import render
from trainwarden.autopsy.verdict import Verdict
from trainwarden.commands.autopsy import announced_in
from trainwarden.run.process_tree import read_start_ticks

OOM = [
    "Traceback (most recent call last):",
    '  File "oom.py", line 11, in <module>',
    '    raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.50 GiB.")',
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB.",
    "trainwarden: process 7 ended with exit status 1; it waits an hour for the remediator",
]
ASKED = "trainwarden: restart requested by the remediator"
FAILED = "trainwarden: 2026-11-30T{}.737Z process 7 ended with exit status 1; starts again"
ENDED = "trainwarden: 2026-11-30T{}.934Z process 7 ended by SIGTERM; starts again"
STOPPED = "trainwarden: stop requested"


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRAINWARDEN_FOLDER", str(tmp_path))
    (tmp_path / "logs").mkdir()
    return tmp_path


def clock(text: str) -> float:
    return at(f"2026-11-30 {text}")


def steps(first: int, last: int, form: str = "step {} loss 0.5") -> list[str]:
    return [form.format(step) for step in range(first, last + 1)]


def explain(
    folder: Path, lines: list[str], changed: str, *, now: float = LATER, **known: Any
) -> Verdict:
    """Explains a run that logs `lines`, the last at the clock `changed`, by the folder it saves to.

    With `now`, its process lives.
    """
    log, saved = folder / "logs" / "r@w.log", folder / "ck"
    log.write_text("".join(f"{line}\n" for line in lines))
    os.utime(log, (clock(changed), clock(changed)))
    saved.mkdir(exist_ok=True)
    if now < LATER:
        own: dict[str, Any] = {"pid": os.getpid(), "start_ticks": read_start_ticks(os.getpid())}
        own |= {"wrapper_pid": 0, "wrapper_start_ticks": 0}
        known = {
            "state": "running",
            "exit_status": None,
            "ended_at": None,
            **own,
            **known,
        }
    announce(folder, "r", log=str(log), checkpoints=str(saved), **known)
    return examine(saved, now=now, announced_in=announced_in)


@pytest.mark.parametrize(
    ("now", "pause"),
    [
        ("06:08:40", ""),  # 90 steps in 63 seconds, the last at 06:07:37
        ("06:31:00", "23 min 23 s, 2,004 usual steps"),
        ("06:41:00", "33 min 23 s, 2,861 usual steps"),
    ],
)
def test_of_a_living_run_the_steps_that_it_has_not_made_come_first(
    state: Path, now: str, pause: str
) -> None:
    known: dict[str, Any] = {"started_at": clock("06:06:34")}
    verdict = explain(state, steps(1, 90), "06:07:37", now=clock(now), **known)
    shown = f"Run r lives, but has made no step for {pause}: `trainwarden stacks r` shows what"
    active = "Nothing wrong was found: the run was active within the last minutes."
    assert verdict.headline == (f"{shown} it does." if pause else active)
    assert as_data(verdict)["healthy"] is not bool(pause)
    # as long, a silent evaluation may take
    assert [one.cause.name for one in verdict.likely] == (["stalled"] if now > "06:37" else [])


def test_a_pause_is_long_by_the_usual_step_of_the_run(state: Path) -> None:
    lines = [f"2026-11-30 0{hour}:00:00Z step {hour}/90 loss 0.5" for hour in range(1, 6)]
    verdict = explain(state, lines, "05:00:00", now=clock("09:30:00"))
    assert verdict.pause is None
    sign = "the run is active, with its last sign of life 4 h 30 min ago."
    assert verdict.headline == f"Nothing wrong was found: {sign}"
    verdict = explain(state, lines, "05:00:00", now=clock("10:30:00"))
    assert "no step for 5 h 30 min, 6 usual steps" in verdict.headline


def test_a_run_that_was_just_started_again_has_made_no_pause(state: Path) -> None:
    lines = [
        *steps(1, 90, "2026-11-30 06:07:37Z step {} loss 0.5"),
        ASKED,
        ENDED.format("06:38:25"),
    ]
    known: dict[str, Any] = {"now": clock("06:39:00"), "started_at": clock("06:38:25")}
    assert explain(state, lines, "06:38:25", **known).pause is None


def test_a_loss_that_was_not_finite_counts_as_an_error_also_after_a_resume(state: Path) -> None:
    lines = [*steps(1, 70), *steps(71, 210, "step {} loss nan"), STOPPED]
    verdict = explain(state, [*lines, *steps(61, 200)], "06:44:00", now=clock("06:44:02"))
    (error,) = verdict.case.errors
    assert (error.name, error.count, error.last.text) == (
        *("loss_not_finite", 140),
        "step 210 loss nan",
    )
    assert verdict.headline.endswith("within the last minutes. It survived the errors below.")
    ends = [
        (one["first_step"], one["last_step"], one["end"]) for one in as_data(verdict)["attempts"]
    ]
    assert ends == [(1, 210, "loss not finite"), (61, 200, "no error logged")]


def test_each_crash_has_the_time_of_the_end_of_its_process(state: Path) -> None:
    lines = [*steps(1, 70), *OOM, ASKED, FAILED.format("06:10:15"), *steps(61, 130), *OOM, ASKED]
    lines += [FAILED.format("06:11:29"), *steps(121, 190), *OOM]
    known: dict[str, Any] = {"state": "failed", "exit_status": 256, "ended_at": clock("06:13:33")}
    verdict = explain(state, lines, "06:13:34", **known)
    report = render(verdict)
    assert [one.cause.name for one in verdict.likely] == ["gpu_out_of_memory"]
    assert "CUDA reports it: once, at 2026-11-30 06:13:33 UTC, in r@w.log; before" in report
    assert "before the last progress, 2 more: `torch.OutOfMemoryError" in report
    assert "step 190, before 2026-11-30 06:13:33 UTC" in report
    assert verdict.case.last_sign == (clock("06:13:33"), "r@w.log")
    (kind,) = [one for one in verdict.case.errors if one.name == "gpu_out_of_memory"]
    assert [round(at) for at in (kind.first.at or 0.0, kind.last.at or 0.0)] == [
        round(clock("06:10:15.737")),
        round(clock("06:13:33")),
    ]


@pytest.mark.parametrize(
    "error", ["RuntimeError: x", "torch.OutOfMemoryError: CUDA out of memory."]
)
def test_restarts_after_an_error_that_the_log_names_are_no_cause(state: Path, error: str) -> None:
    lines: list[str] = []
    for number in range(4):
        lines += [*steps(number * 10 + 1, number * 10 + 20), OOM[0], '  File "x.py", line 9', error]
        lines += [OOM[-1], ASKED, FAILED.format(f"06:1{number}:15")][: 1 if number == 3 else 3]
    known: dict[str, Any] = {"state": "failed", "exit_status": 256, "ended_at": clock("06:13:33")}
    verdict = explain(state, lines, "06:13:34", **known)
    cause = "exception" if error.startswith("Runtime") else "gpu_out_of_memory"
    assert [one.cause.name for one in verdict.likely] == [cause]
    assert "restarted" in [one.cause.name for one in verdict.unlikely]


def test_a_run_with_one_failed_command_has_not_finished(state: Path) -> None:
    (state / "trainer.log").write_text("exists\n")
    known: dict[str, Any] = {"state": "stopped", "exit_status": 512, "ended_at": clock("06:43:00")}
    ends = {"worker": "b", "state": "finished", "exit_status": 0, "cwd": str(state / "ck")}
    announce(state, "r", **ends, log=str(state / "trainer.log"))
    (state / "runs.d/r@w.json").rename(state / "runs.d/r@b.json")
    verdict = explain(state, ["can't open file 'nofile.py'", OOM[-1]], "06:43:00", **known)
    assert len(verdict.case.material.announced) == 2
    assert not verdict.case.finished


def test_a_crash_before_the_stop_is_no_stop_by_hand(state: Path) -> None:
    known: dict[str, Any] = {"state": "stopped", "exit_status": 256, "ended_at": clock("06:13:33")}
    verdict = explain(state, [*steps(1, 70), *OOM, STOPPED], "06:20:00", **known)
    assert [one.cause.name for one in verdict.likely] == ["gpu_out_of_memory"]
    verdict = explain(state, [*steps(1, 70), "no such file", OOM[-1], STOPPED], "06:20:00", **known)
    assert "interrupted" not in [one.cause.name for one in verdict.likely]
    verdict = explain(state, [*steps(1, 70), STOPPED, *OOM], "06:20:00", **known)
    assert {one.cause.name for one in verdict.likely} == {"gpu_out_of_memory", "interrupted"}


@pytest.mark.parametrize("count", [2, 3])
def test_restarts_by_the_remediator_are_evidence(state: Path, count: int) -> None:
    """The program prints clocks, which are read after the dates of `trainwarden run`, too."""
    lines: list[str] = []
    for number in range(count):
        first = 400 * number
        lines += steps(first + 1, first + 430, f"[06:{8 + 2 * number:02}:29] iter {{}} | loss 2.3")
        lines += [ASKED, ENDED.format(f"06:{8 + 2 * number:02}:29")]
    lines += [*steps(1201, 3300, "[06:22:53] iter {} | loss 2.3"), STOPPED]
    known: dict[str, Any] = {"state": "stopped", "exit_status": 15, "ended_at": clock("06:22:57")}
    verdict = explain(state, lines, "06:22:55", **known)
    causes = ["restarted", "interrupted"] if count == 3 else ["interrupted"]
    assert [one.cause.name for one in verdict.likely] == causes
    shown = "restarted it 3 times in the last hour of the log, the last time at 2026-11-30 06:12:29"
    assert (shown in render(verdict)) == (count == 3)
    data = as_data(verdict)["attempts"]
    assert [one["end"] for one in data] == [
        *["restart requested by the remediator"] * count,
        "stop requested",
    ]
    ended = [one.progress_at for one in verdict.case.attempts]
    assert ended == [
        *(clock(f"06:{8 + 2 * number:02}:29") for number in range(count)),
        clock("06:22:53"),
    ]


def test_without_its_record_a_stop_by_hand_is_known_by_the_log(tmp_path: Path) -> None:
    (tmp_path / "r@w.log").write_text("\n".join([*steps(1, 70), STOPPED, ""]))
    verdict = examine(tmp_path)
    assert [one.cause.name for one in verdict.likely] == ["interrupted"]


def test_a_run_is_named_instead_of_its_folder(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    explain(state, [*steps(1, 70), *OOM], "06:13:34", started_at=1.0, cwd="/")
    (state / "logs" / "old@w.log").write_text("\n".join([*steps(1, 9), "Killed", ""]))
    assert cli.main(["autopsy", "r"]) == 3
    assert "**A GPU ran out of memory.**" in capsys.readouterr().out
    assert cli.main(["autopsy", "old"]) == 3
    assert "step 9" in capsys.readouterr().out
    assert cli.main(["autopsy", "nobody"]) == 1
    error = (
        "trainwarden autopsy: neither a folder, nor a log, nor a run has the name nobody; runs: r\n"
    )
    assert capsys.readouterr().err == error


THREAD_FAILED = [
    "Exception in thread Thread-1 (prod):",
    "Traceback (most recent call last):",
    '  File "odd.py", line 73, in prod',
    "ValueError: corrupt shard data-00017.parquet",
]


@pytest.mark.parametrize(("now", "still"), [("06:08:20", ""), ("06:09:00", "1 min 23 s")])
def test_an_error_did_not_end_a_process_that_lives(state: Path, now: str, still: str) -> None:
    """After an error, a minute without a step is no evaluation."""
    known: dict[str, Any] = {"now": clock(now), "started_at": clock("06:06:34")}
    verdict = explain(state, [*steps(1, 90), *THREAD_FAILED], "06:07:37", **known)
    assert [one.cause.name for one in verdict.likely] == []
    pause = f"Run r lives, but has made no step for {still}, "
    assert verdict.headline.startswith(pause if still else "Nothing wrong was found: the run was")
    known = {"state": "stopped", "exit_status": 15, "ended_at": clock("06:10:00")}
    verdict = explain(state, [*steps(1, 90), *THREAD_FAILED, STOPPED], "06:10:00", **known)
    assert [one.cause.name for one in verdict.likely] == ["interrupted"]
    known = {"state": "failed", "exit_status": 256, "ended_at": clock("06:07:37")}
    verdict = explain(state, [*steps(1, 90), *THREAD_FAILED], "06:07:37", **known)
    error = "ValueError: corrupt shard data-00017.parquet"
    assert verdict.headline == f"An exception ended it: {error}."


def test_without_a_checkpoint_no_resume_is_advised(state: Path) -> None:
    known: dict[str, Any] = {"state": "stopped", "exit_status": 15, "ended_at": clock("06:44:00")}
    verdict = explain(state, [*steps(1, 70), STOPPED], "06:44:00", **known)
    assert verdict.headline == "It was stopped by hand."
    assert as_data(verdict)["next_steps"] == []


def test_one_step_that_is_repeated_is_one(state: Path) -> None:
    saved = state / "ck" / "step-70.ckpt"
    saved.parent.mkdir()
    saved.write_bytes(bytes(100))
    os.utime(saved, (1e9, 1e9))
    known: dict[str, Any] = {"state": "stopped", "exit_status": 15, "ended_at": clock("06:44:00")}
    verdict = explain(state, [*steps(1, 71), STOPPED], "06:44:00", **known)
    assert "step 71; step 71 is repeated |" in render(verdict)


def test_a_script_that_does_not_exist_is_a_command_to_correct(state: Path) -> None:
    lines = ["/usr/bin/python3: can't open file '/w/trian.py': [Errno 2] No such file", OOM[-1]]
    known: dict[str, Any] = {"state": "failed", "exit_status": 512, "ended_at": clock("06:07:37")}
    verdict = explain(state, [*lines, ASKED, FAILED.format("06:06:30"), *lines], "06:07", **known)
    assert verdict.headline == "The script /w/trian.py was not found."
    data = as_data(verdict)
    assert [one["name"] for one in data["causes"] if one["likely"]] == ["not_started"]
    assert "Correct the command" in data["next_steps"][0]
    assert data["alerts"] == []
    # of a later part of the command, it is an error like others
    verdict = explain(state, [*steps(1, 70), *lines], "06:07:37", **known)
    assert [one.cause.name for one in verdict.likely] == ["environment_missing"]
    assert as_data(verdict)["alerts"] == ["TrainingWorkerGone"]


@pytest.mark.parametrize(
    "line",
    [
        "badargs.py: error: unrecognized arguments: --lrr 3",
        "train.py: error: --lr is below zero",
        "verl sft: error: argument --lr: invalid float value: 'x'",
        "Error: No such option: --lrr Did you mean --lr?",
    ],
)
def test_wrong_arguments_are_the_cause_rather_than_a_kill(state: Path, line: str) -> None:
    lines = ["usage: badargs.py [-h] [--lr LR]", line]
    known: dict[str, Any] = {"state": "failed", "exit_status": 512, "ended_at": clock("06:07:37")}
    verdict = explain(state, lines, "06:07:37", **known)
    assert verdict.headline == "The arguments of the command are wrong."
    (likely,) = (one for one in as_data(verdict)["causes"] if one["likely"])
    assert (likely["name"], likely["evidence"][0]["line"]) == ("wrong_usage", line)
    assert "Correct the arguments" in as_data(verdict)["next_steps"][0]
    # the trainer went on: another program had them
    verdict = explain(state, [*lines, *steps(1, 70)], "06:07:37", **known)
    assert "wrong_usage" not in [one.cause.name for one in verdict.likely]


def test_what_was_killed_before_the_stop_was_not_stopped_by_hand(state: Path) -> None:
    killed = "trainwarden: process 9 ended by SIGKILL; it waits an hour for the remediator"
    lines = ["serving", ASKED, ENDED.format("06:10:00"), "serving", killed, STOPPED]
    (state / "logs" / "r@server.log").write_text("\n".join([*lines, ""]))
    ends = {"worker": "server", "state": "stopped", "exit_status": 9, "ended_at": clock("06:43:53")}
    announce(state, "r", **ends, log=str(state / "logs" / "r@server.log"), path=str(state / "ck"))
    (state / "runs.d/r@w.json").rename(state / "runs.d/r@server.json")
    known: dict[str, Any] = {"state": "stopped", "exit_status": 15, "ended_at": clock("06:44:00")}
    verdict = explain(state, [*steps(1, 70), STOPPED], "06:44:00", **known)
    assert {one.cause.name: one.evidence[0][1].text for one in verdict.likely} == {
        "interrupted": "trainwarden run recorded of r/w: stopped, killed by SIGTERM",
        "killed": "trainwarden run recorded of r/server: failed, killed by SIGKILL",
    }


def test_a_restart_has_the_time_of_the_start_and_an_end_that_of_the_end(state: Path) -> None:
    lines: list[str] = []
    for number in range(3):
        lines += [*steps(1, 40), *OOM, ASKED, FAILED.format(f"06:1{number}:15")]
    known: dict[str, Any] = {"state": "failed", "exit_status": 256, "ended_at": clock("06:18:00")}
    known["started_at"] = clock("06:17:09")
    verdict = explain(state, [*lines, *steps(1, 40), *OOM], "06:18:00", **known)
    report = render(verdict)
    assert "3 times in the last hour of the log, the last time at 2026-11-30 06:17:09" in report
    assert "| 2026-11-30 06:12:15 | r@w.log: the process ended, and the remed" in report
    assert "restart requested by the remediator |\n" not in report.partition("## Attempts")[0]


def test_a_folder_without_anything_of_a_run_cannot_be_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["autopsy", str(tmp_path)]) == 1
    assert "The folder holds no log and no checkpoint of a run." in capsys.readouterr().out
