"""Parts of `trainwarden run` that need no process."""

from __future__ import annotations

import json
import os
import select
import signal
import time
from pathlib import Path

import pytest

from trainwarden.cli import main
from trainwarden.run import folder, policy
from trainwarden.run.announcement import MAX_BYTES, Announcement, dismiss, read_content
from trainwarden.run.claim import claim
from trainwarden.run.folder import check_name, run_files
from trainwarden.run.policy import (
    MAX_FAILURES,
    STEADY_SECONDS,
    FailureCount,
    end_state,
    is_time_over,
)
from trainwarden.run.relay import Relay
from trainwarden.run.run_log import RunLog
from trainwarden.run.start import default_name
from trainwarden.run.streams import Streams
from trainwarden_exporter.config_file import types


def test_the_log_is_bounded(tmp_path: Path) -> None:
    log = RunLog(tmp_path / "log", limit=100)
    for number in range(100):
        log.write(b"%03d" % number * 10)
    files = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    assert sorted(files) == ["log", "log.1"]
    assert max(files.values()) <= 130
    assert (tmp_path / "log").read_bytes().endswith(b"099")


def test_a_log_that_cannot_be_written_is_no_reason_to_fail(tmp_path: Path) -> None:
    log = RunLog(tmp_path / "missing" / "log")
    log.write(b"one\ntwo\n")
    assert log.last_lines() == ["one", "two"]


def test_last_lines_are_as_they_were_shown(tmp_path: Path) -> None:
    log = RunLog(tmp_path / "log")
    log.write(b"\x1b]0;title\x07a\r\n 10%\r 20%\r\x1b[1m 30%\x1b[0m\r\n\n\xff\xfe\n" + b"x" * 999)
    assert log.last_lines() == ["a", " 30%", "\ufffd\ufffd", "x" * 300]


def test_output_that_was_read_since_it_was_polled_does_not_block(tmp_path: Path) -> None:
    streams = Streams()
    relay = Relay(streams, RunLog(tmp_path / "log"))
    assert streams.sources
    assert [relay.serve(source, select.POLLIN) for source in streams.sources] == [
        b"" for _ in streams.sources
    ]


@pytest.mark.parametrize(
    ("read", "terminal", "shown_on"),
    [
        ({}, None, []),
        ({10: 1, 11: 2}, None, [2]),
        ({10: 1}, None, [1]),  # `2>&1`: both are one file
        ({10: 1}, 1, [1]),
        ({10: 1, 11: 2}, 1, [2]),
        ({10: None}, None, []),
    ],
)
def test_a_line_of_the_wrapper_is_shown_where_standard_error_is_read(
    tmp_path: Path, read: dict[int, int | None], terminal: int | None, shown_on: list[int]
) -> None:
    streams = Streams()
    streams.sources, streams.terminal = dict(read), terminal
    relay = Relay(streams, RunLog(tmp_path / "log"))
    relay.say("ended\n")
    assert [fd for fd, event in relay.wanted().items() if event == select.POLLOUT] == shown_on


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("python train.py --lr 1", "train"),
        ("/usr/bin/python3.11 -u /srv/run/grpo_main.py", "grpo_main"),
        ("torchrun --nproc-per-node 8 scripts/sft.py", "sft"),
        ("python -m verl.trainer.main_ppo x=1", "verl.trainer.main_ppo"),
        ("vllm serve Qwen", "vllm"),
        ("./my@tool", "my-tool"),
        ("./__", "run"),
    ],
)
def test_the_name_of_a_run_is_that_of_its_script(command: str, name: str) -> None:
    assert default_name(command.split()) == name
    check_name(name)


@pytest.mark.parametrize("name", ["", "a b", "../x", "-x", "ä", "a@b", "x" * 101])
def test_a_name_that_is_no_label_is_refused_as_wrong_usage(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert folder.NAME_RULE == types.NAME_RULE
    for option in ("--name", "--worker"):
        with pytest.raises(SystemExit, match="2"):
            main(["run", f"{option}={name}", "--", "true"])
        assert f"argument {option}: {name!r}: {types.NAME_RULE}\n" in capsys.readouterr().err


def test_failures_in_a_row_wait_longer_and_run_out() -> None:
    count = FailureCount()
    delays = [count.next_delay(1.0) for _ in range(MAX_FAILURES + 1)]
    assert delays == [1.0, 2.0, 4.0, 8.0, 16.0, None]
    assert count.next_delay(STEADY_SECONDS) == 1.0


@pytest.mark.parametrize(
    ("status", "stopped", "finishes", "state"),
    [
        (0, False, True, "finished"),
        (0, False, False, "failed"),
        (0, True, True, "stopped"),
        (0, True, False, "stopped"),
        (256, False, True, "failed"),
    ],
)
def test_the_state_after_an_end(status: int, stopped: bool, finishes: bool, state: str) -> None:
    assert end_state(status, stopped=stopped, finishes=finishes) == state


@pytest.mark.parametrize(
    ("command", "lasted", "status", "over"),
    [
        ("timeout 40 python train.py", 40.2, 124, True),
        ("timeout 40 python train.py", 40.2, 1, False),
        ("timeout 40 python train.py", 39.0, 124, False),
        ("/usr/bin/timeout -s KILL -k 5 40s python train.py -k 3", 45.0, 137, True),
        ("timeout --preserve-status --kill-after=1m 1.5h python train.py", 5400.0, 1, True),
        ("timeout -v --signal INT 2m sh", 119.0, 124, False),
        ("timeout 0 python train.py", 9999.0, 124, False),
        ("timeout soon python train.py", 9999.0, 124, False),
        ("timeout", 9999.0, 124, False),
        ("python timeout 40", 9999.0, 124, False),
    ],
)
def test_the_end_of_the_time_of_timeout_is_known_by_time_and_exit_status(
    command: str, lasted: float, status: int, *, over: bool
) -> None:
    assert is_time_over(command.split(), lasted, status << 8) is over
    assert is_time_over(["timeout", "40", "sh"], 41.0, signal.SIGKILL)


BAR = "\r 10%|# | {}/1000 [00:10<01:30, 9.9it/s]"


@pytest.mark.parametrize(
    ("shown", "later", "status", "seconds", "stop"),
    [
        ("step 10\n", "step 11\nsaving\n", 256, 1800.0, True),
        ("step 10\n", "saving shards:  92%|# | 11/12 [00:10<00:01]", 256, 7200.0, True),
        ("step 10\n", "step 2000\n", 256, 7200.0, False),
        ("step 10\n", "step 2000\n", 256, 59.0, True),
        ("step 10\n", "step 2000\n", signal.SIGINT, 7200.0, True),
        ("step 10\n", "step 2000\n", 130 << 8, 7200.0, True),
        (BAR.format(100), BAR.format(101), signal.SIGKILL, 1800.0, True),
        (BAR.format(100), BAR.format(900), signal.SIGKILL, 1800.0, False),
        ("loss 1\n", "loss 2\n", 256, 1800.0, True),
        ("loss 1\n", "loss 2\n", 256, 7200.0, False),
    ],
)
def test_an_end_long_after_ctrl_c_is_a_stop_unless_the_command_counts_on(
    monkeypatch: pytest.MonkeyPatch,
    *,
    shown: str,
    later: str,
    status: int,
    seconds: float,
    stop: bool,
) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    ctrl_c = policy.UserStop(shown.encode())
    now[0] += seconds
    assert ctrl_c.explains(status, (shown + later).encode()) == stop


@pytest.mark.parametrize(
    ("state", "restart", "waits", "delay", "prospect"),
    [
        ("finished", "on-failure", False, None, ""),
        ("stopped", "on-failure", False, None, "stopped by you: nobody starts it again"),
        ("failed", "on-failure", False, 2.0, "`--restart on-failure` starts it again in 2 s"),
        ("failed", "on-failure", False, None, "nobody starts it again: it failed 6 times"),
        ("failed", "on-request", False, None, "nobody starts it again (`--restart on-failure` or"),
        ("failed", "on-request", True, None, "it waits an hour for the remediator"),
        ("failed", "never", False, None, "nobody starts it again"),
    ],
)
def test_who_starts_a_command_again_that_has_ended(
    *, state: str, restart: str, waits: bool, delay: float | None, prospect: str
) -> None:
    shown = policy.describe_prospect(state, restart, waits=waits, delay=delay)
    assert shown.startswith(prospect)
    assert bool(shown) == bool(prospect)


@pytest.mark.parametrize(
    ("state", "restart", "detached", "waits"),
    [
        ("failed", "on-request", True, True),
        ("failed", "on-request", False, False),
        ("failed", "on-failure", True, False),
        ("failed", "never", True, False),
        ("finished", "on-request", True, False),
    ],
)
def test_only_a_detached_run_that_the_remediator_alone_restarts_waits_for_it(
    *, state: str, restart: str, detached: bool, waits: bool
) -> None:
    assert policy.waits_for_remediator(state, restart, detached=detached) == waits


@pytest.mark.parametrize(
    ("state", "arguments", "goes_on"),
    [
        ("failed", ["train"], True),
        ("running", ["train"], True),
        ("stopped", ["train"], False),
        ("dismissed", ["train"], False),
        ("failed", ["train", "--lr=1"], False),
    ],
)
def test_a_restart_loop_begins_after_a_stop_by_the_operator_or_with_other_arguments(
    tmp_path: Path, state: str, arguments: list[str], goes_on: bool
) -> None:
    run = {"run": "r", "worker": "trainer", "cwd": "/", "finishes": True}
    first = claim(tmp_path, {**run, "argv": ["train"]}, free_name=False, say=print)
    first.content.update(wrapper_pid=0, state="failed" if state == "dismissed" else state)
    first.save()
    if state == "dismissed":
        assert dismiss(first.files.announcement)
    again = claim(tmp_path, {**run, "argv": arguments}, free_name=False, say=print).content
    assert (again["counted_since"] == first.content["counted_since"]) == goes_on
    assert goes_on or again["counted_since"] == again["announced_at"]


def test_what_is_no_announcement_is_empty(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)
    for content in ("[]", "{", "[" * 100_000, json.dumps({"state": "x" * MAX_BYTES})):
        (tmp_path / "a.json").write_text(content)
        assert read_content(tmp_path / "a.json") == {}
    for path in (pipe, tmp_path, tmp_path / "missing", Path("/dev/zero")):
        assert read_content(path) == {}


@pytest.mark.parametrize("content", ["[]", "[" * 100_000, "{"])
def test_a_damaged_announcement_keeps_what_was_known(tmp_path: Path, content: str) -> None:
    files = run_files(tmp_path, "demo", "trainer")
    files.announcement.parent.mkdir()
    files.announcement.write_text(content)
    announcement = Announcement(files, {"state": "running"})
    announcement.reload()
    assert announcement.content == {"state": "running"}
