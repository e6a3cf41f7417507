"""Times of lines, attempts, and blocks of a log."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from autopsying import examine
from night_folders import at, write
from trainwarden.autopsy import files, reading
from trainwarden.autopsy.glance import resume_text
from trainwarden.autopsy.line_times import LineTimes
from trainwarden.autopsy.report import render
from trainwarden_exporter.logs.line_blocks import LineBlock


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("2026-02-15T01:14:02Z kernel: x", "2026-02-15 01:14:02"),
        ("[2026-02-15 01:14:02Z] x", "2026-02-15 01:14:02"),
        ("(AReaL) 20260215-01:14:02.000Z x", "2026-02-15 01:14:02"),
        ("2009-02-15 01:14:02Z older than a year", "2009-02-15 01:14:02"),
    ],
)
def test_a_date_of_any_age_is_read(line: str, expected: str) -> None:
    assert LineTimes(at("2026-11-23 00:00:00")).read(line.encode()) == at(expected)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("Feb 15 01:14:02 host kernel: x", "2026-02-15 01:14:02"),
        ("[Sun Feb 15 01:14:02 2026] x", "2026-02-15 01:14:02"),
        ("reboot   system boot  6.8.0  Sun Feb 15 01:14   still running", "2026-02-15 01:14:00"),
        ("Dec 30 10:00:00 host cron: x", "2025-12-30 10:00:00"),
    ],
)
def test_the_times_of_system_logs_are_read(
    line: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "UTC")
    assert LineTimes(at("2026-02-16 00:00:00")).read(line.encode()) == at(expected)


@pytest.mark.parametrize("line", ["", "May", "Foo 15 01:14:02", "Feb 31 01:14:02 x", "12:61:99"])
def test_what_is_no_time_is_none(line: str) -> None:
    assert LineTimes(at("2026-02-16 00:00:00")).read(line.encode()) is None


def test_clocks_without_a_date_are_counted_over_days(tmp_path: Path) -> None:
    """The last clock belongs to the day of the file's last change, the others to those before."""
    lines = [
        f"{hour:02}:00:00 INFO step {day * 24 + hour + 1}/100 loss: 1.0"
        for day in range(3)
        for hour in range(24)
    ]
    write(tmp_path / "train.log", lines, changed=at("2026-02-15 23:30:00"))
    (attempt,) = examine(tmp_path).case.attempts
    assert attempt.began_at is not None
    assert attempt.progress_at is not None
    assert attempt.progress_at - attempt.began_at == 71 * 3600


def test_a_count_that_goes_back_begins_another_attempt(tmp_path: Path) -> None:
    lines = [f"step {step}/100 loss: 1.0" for last in (57, 58, 56) for step in range(1, last)]
    write(tmp_path / "train.log", lines)
    assert [one.last_step for one in examine(tmp_path).case.attempts] == [56, 57, 55]


def test_each_start_by_trainwarden_run_begins_another_attempt(tmp_path: Path) -> None:
    """They all die at the step of the checkpoint, with which the loop begins again."""
    again = (
        "trainwarden: 2026-11-28T06:1{}:00.434Z process 7 ended with exit status 1; starts again"
    )
    lines = [f"step {step} loss 0.5" for step in range(1, 76)]
    for number in range(3):
        lines += ["Traceback (most recent call last):", "OSError: x", again.format(number)]
        lines += ["resuming at step 50", "step 50 loss 0.5"]
    write(tmp_path / "train.log", lines)
    (tmp_path / "ck" / "step_50").mkdir(parents=True)
    write(tmp_path / "ck" / "step_50" / "model", ["x"])
    for path in (tmp_path / "ck").rglob("*"):
        os.utime(path, (1_700_000_000, 1_700_000_000))
    case = examine(tmp_path).case
    assert [one.last_step for one in case.attempts] == [75, 50, 50, 50]
    assert resume_text(case) == "step 50"


def steps(count: int) -> list[str]:
    return [f"step {step}/300 loss {1 / step:.4f}" for step in range(1, count + 1)]


@pytest.mark.parametrize("end", [[], ["done"], ["exited with status 0"]])
def test_a_run_that_made_the_last_step_of_its_total_finished(
    tmp_path: Path, end: list[str]
) -> None:
    write(tmp_path / "train.log", [*steps(300), *end])
    verdict = examine(tmp_path)
    assert verdict.headline == "Nothing wrong was found: the run finished."


@pytest.mark.parametrize(
    "end",
    [
        ["Traceback (most recent call last):", "ValueError: no space"],
        ["Saving checkpoint"],
        ["KeyboardInterrupt"],
        ["exited with status 137"],
    ],
)
def test_a_run_that_failed_after_its_last_step_did_not_finish(
    tmp_path: Path, end: list[str]
) -> None:
    write(tmp_path / "train.log", [*steps(300), *end])
    assert not examine(tmp_path).case.finished


def test_a_word_such_as_done_before_the_last_step_is_no_end(tmp_path: Path) -> None:
    write(tmp_path / "train.log", [*steps(200), "done"])
    assert examine(tmp_path).likely[0].cause.name == "unknown_end"


def test_a_full_progress_bar_is_neither_an_end_nor_a_loss(tmp_path: Path) -> None:
    bars = "\r".join(f"{step:3}%|x| {step}/100 [00:01<00:01, 9.9it/s]" for step in range(1, 101))
    write(tmp_path / "train.log", [bars])
    assert examine(tmp_path).headline.startswith(
        "No error was found, and its last count is complete; train.log ends with: 100%"
    )
    write(tmp_path / "train.log", [bars, "done"])
    assert examine(tmp_path).case.finished


def test_a_start_after_an_end_is_another_attempt_and_no_other_epoch(tmp_path: Path) -> None:
    write(tmp_path / "train.log", [*steps(300), "done", *steps(27), *steps(106), *steps(74)])
    ends = [(one.first_step, one.last_step) for one in examine(tmp_path).case.attempts]
    assert ends == [(1, 300), (1, 27), (1, 106), (1, 74)]


def test_lines_of_several_ranks_out_of_order_are_one_attempt(tmp_path: Path) -> None:
    lines = [f"step {step + shift}/100 loss: 1.0" for step in range(1, 50) for shift in (1, 0, 1)]
    write(tmp_path / "train.log", lines)
    assert [one.last_step for one in examine(tmp_path).case.attempts] == [50]


def test_long_lines_and_lines_over_the_edge_of_a_block_are_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "BLOCK_BYTES", 64)
    lines = [f"step {step}/100 loss: 1.0 {'x' * (step % 50)}" for step in range(1, 90)]
    write(tmp_path / "train.log", [*lines, "y" * 200_000, "step 90/100 loss: 1.0"])
    (log,) = examine(tmp_path).case.logs
    assert log.attempts[-1].last_step == 90
    assert log.bytes_read == (tmp_path / "train.log").stat().st_size


def test_of_a_huge_log_the_beginning_and_the_end_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MAX_FILE_BYTES", 40_000)
    monkeypatch.setattr(files, "HEAD_BYTES", 10_000)
    write(tmp_path / "train.log", [f"step {step}/9999 loss: 1.0" for step in range(1, 4000)])
    case = examine(tmp_path).case
    assert case.last_step == 3999
    assert case.material.unread == ("the middle of train.log",)


@pytest.mark.parametrize("name", ["train.log", "train.log.gz"])
def test_of_a_log_with_many_matches_the_beginning_and_the_end_are_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A compressed one may be a thousand times as long as its file."""
    monkeypatch.setattr(reading, "MAX_MATCHES", 1000)
    monkeypatch.setattr(reading, "TAIL_BYTES", 20_000)
    monkeypatch.setattr(files, "BLOCK_BYTES", 10_000)
    searched = 0
    search = reading.LogReader._search_block

    def count(reader: reading.LogReader, block: LineBlock) -> None:
        nonlocal searched
        searched += block.used_bytes
        search(reader, block)

    monkeypatch.setattr(reading.LogReader, "_search_block", count)
    text = "".join(f"step {step}/99999 loss: 1.0\n" for step in range(1, 20_000)).encode()
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    case = examine(tmp_path).case
    assert case.last_step == 19_999
    assert case.material.unread == (f"the middle of {name}",)
    assert searched < len(text) / 4
    (log,) = case.logs
    assert log.bytes_read == len(text)


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("journal.txt", "kernel"),
        ("journalctl-b-1.log", "kernel"),
        ("dmesg", "kernel"),
        ("kern.log.1", "kernel"),
        ("journal.log", "log"),  # Optuna's storage
        ("worker_watchdog.log", "watchdog"),
        ("nvidia-smi.txt", "gpu"),
        ("trainer.log", "log"),
    ],
)
def test_what_wrote_a_file_is_known_by_its_name(name: str, source: str, tmp_path: Path) -> None:
    write(tmp_path / name, ["x"])
    assert [log.source for log in files.find_files(tmp_path).logs] == [source]


def test_names_are_as_short_as_they_can_be(tmp_path: Path) -> None:
    for name in ("train.log", "a/train.log", "b/train.log", "b/server.log"):
        write(tmp_path / name, ["step 1/2"])
    found = {log.name for log in files.find_files(tmp_path).logs}
    assert found == {"train.log", "a/train.log", "b/train.log", "server.log"}


def test_a_resume_with_a_smaller_total_is_another_attempt_of_the_run(tmp_path: Path) -> None:
    """The lines of an example as it logs a restart with fewer steps."""
    first = [f"step {step}/600 loss 0.3" for step in range(1, 121)]
    second = [f"step {step}/125 loss 0.3" for step in range(111, 126)]
    lines = [*first, "resumed from step 110", *second, "training finished"]
    write(tmp_path / "trainer.log", lines)
    case = examine(tmp_path).case
    assert [one.last_step for one in case.attempts] == [120, 125]
    assert case.finished


@pytest.mark.parametrize(
    "lines",
    [
        ["^CTraceback (most recent call last):", '  File "t.py", line 9', "KeyboardInterrupt"],
        ["Traceback (most recent call last):", '  File "t.py", line 9', "KeyboardInterrupt"],
        ["^CTraceback (most recent call last):", "^CKeyboardInterrupt"],
    ],
)
def test_the_traceback_of_a_ctrl_c_is_no_exception(tmp_path: Path, lines: list[str]) -> None:
    log = tmp_path / "train.log"
    log.write_text("\n".join(["step 1/9 loss 1", "step 2/9 loss 1", *lines, ""]))
    verdict = examine(tmp_path)
    assert verdict.case.errors == ()
    assert [one.cause.name for one in verdict.likely] == ["interrupted"]


def test_an_exception_before_a_ctrl_c_is_still_one(tmp_path: Path) -> None:
    first = ["Traceback (most recent call last):", '  File "t.py", line 9', "ValueError: no"]
    second = ["Traceback (most recent call last):", '  File "t.py", line 9', "KeyboardInterrupt"]
    (tmp_path / "train.log").write_text(
        "\n".join(["step 1/9 loss 1", "step 2/9 loss 1", *first, *second, ""])
    )
    (error,) = examine(tmp_path).case.errors
    assert (error.name, error.count) == ("exception", 1)


def test_a_traceback_that_the_end_of_the_log_cuts_off_counts(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(
        "step 1/9 loss 1\nstep 2/9 loss 1\nTraceback (most recent call last):\n  File"
    )
    (error,) = examine(tmp_path).case.errors
    assert error.name == "exception"


DATED = ["2026-02-15 05:00:00Z start", *(f"step {step}/300 loss 1" for step in range(1, 51))]


def test_lines_without_a_time_at_the_end_live_until_the_last_change_of_the_file(
    tmp_path: Path,
) -> None:
    write(tmp_path / "train.log", DATED, changed=at("2026-02-15 07:00:00"))
    verdict = examine(tmp_path)
    assert verdict.case.last_sign == (at("2026-02-15 07:00:00"), "train.log")
    report = render(verdict)
    assert "2026-02-15 07:00:00 UTC, the last change of `train.log` |" in report
    assert "step 50 of 300, after 2026-02-15 05:00:00 UTC" in report
    assert "05:00:00 | train.log: last line with a time (trainer)" in report


def test_a_last_line_with_a_time_is_the_last_sign_whatever_changed_the_file(tmp_path: Path) -> None:
    lines = [*DATED, "2026-02-15 06:00:00Z saving"]
    write(tmp_path / "train.log", lines, changed=at("2026-02-15 07:00:00"))
    verdict = examine(tmp_path)
    assert verdict.case.last_sign == (at("2026-02-15 06:00:00"), "train.log")
    assert "step 50 of 300, before 2026-02-15 06:00:00 UTC" in render(verdict)


def test_the_time_of_a_copy_is_no_sign_of_life(tmp_path: Path) -> None:
    write(tmp_path / "train.log", DATED, changed=at("2026-02-19 07:00:00"))
    verdict = examine(tmp_path)
    assert verdict.case.last_sign == (at("2026-02-15 05:00:00"), "train.log")
    assert "05:00:00 UTC, in `train.log`; lines without a time follow |" in render(verdict)
