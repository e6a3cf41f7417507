"""What goes on when the terminal, the wrapper or the command's parent is gone."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from running_runs import Runs, is_alive, wait_for

TICKER = (
    "import itertools, time\nfor n in itertools.count(): print(n, flush=True); time.sleep(0.02)"
)
DAEMON = """
import os, sys, time
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
while True:
    print("daemon", os.getpid(), flush=True)
    time.sleep(0.05)
"""


def python(program: str) -> tuple[str, ...]:
    return (sys.executable, "-c", program)


@pytest.mark.parametrize("where", ["pipe", "terminal"])
def test_the_command_goes_on_when_the_wrapper_is_killed(runs: Runs, where: str) -> None:
    if where == "pipe":
        wrapper = runs.piped(*python(TICKER)).pid
    else:
        wrapper = runs.in_terminal(*python(TICKER)).pid
    before = runs.wait_until(state="running")
    assert before["wrapper_pid"] == wrapper
    wait_for(lambda: b"\n3" in runs.log())
    os.kill(wrapper, signal.SIGKILL)

    wait_for(lambda: runs.announced()["wrapper_pid"] != wrapper)
    now = runs.announced()
    assert (now["pid"], now["start_ticks"]) == (before["pid"], before["start_ticks"])
    wait_for(lambda: is_alive(before["pid"]) and Path(now["socket"]).exists())

    # the next wrapper does all that the first did
    assert runs.restart(grace=5)["ok"]
    assert runs.wait_until(starts=2, state="running")["pid"] != before["pid"]
    wait_for(lambda: b"\n0" in runs.log())
    assert runs.request(command="stop", grace=5)["ok"]
    wait_for(lambda: not is_alive(now["wrapper_pid"]))
    numbers = [int(one) for one in runs.log().splitlines() if one.isdigit()]
    first = numbers[: numbers.index(0, 1)]
    assert first == list(range(len(first)))  # nothing it printed is lost


def test_the_exit_status_is_known_after_the_wrapper_was_killed(runs: Runs) -> None:
    wrapper = runs.piped("sleep", "1000").pid
    runs.wait_until(state="running")
    os.kill(wrapper, signal.SIGKILL)
    wait_for(lambda: runs.announced()["wrapper_pid"] != wrapper)
    os.kill(runs.announced()["pid"], signal.SIGTERM)
    assert runs.wait_until(state="failed")["exit_status"] == signal.SIGTERM


def test_the_command_goes_on_when_the_terminal_hangs_up(runs: Runs) -> None:
    session = runs.in_terminal(*python(TICKER))
    pid = runs.wait_until(state="running")["pid"]
    session.read_until(b"1")
    session.hang_up()
    size = len(runs.log())
    wait_for(lambda: len(runs.log()) > size + 100)
    assert is_alive(pid)
    assert runs.request(command="stop")["ok"]
    assert runs.announced()["state"] == "stopped"


def test_the_command_goes_on_when_nobody_reads_its_output_any_more(runs: Runs) -> None:
    process = runs.piped(*python(TICKER))
    runs.wait_until(state="running")
    for stream in (process.stdout, process.stderr):
        assert stream is not None
        stream.close()
    process.stdout = process.stderr = None
    size = len(runs.log())
    wait_for(lambda: len(runs.log()) > size + 100)


def test_under_nohup_a_hangup_is_ignored_by_both(runs: Runs) -> None:
    process = subprocess.Popen(
        ["nohup", *runs.argv("sh", "-c", "echo ready; sleep 1000")],
        env=runs.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    runs.processes.append(process)
    pid = runs.wait_until(state="running")["pid"]
    process.send_signal(signal.SIGHUP)
    os.kill(pid, signal.SIGHUP)
    assert runs.request(command="status")["status"]["state"] == "running"
    assert is_alive(pid)
    assert process.poll() is None


def test_a_command_that_becomes_a_daemon_ends_the_run_and_goes_on(runs: Runs) -> None:
    process = runs.in_terminal(*python(DAEMON))
    assert process.wait() == 0
    assert runs.announced()["state"] == "finished"
    size = len(runs.log())
    wait_for(lambda: len(runs.log()) > size + 50)  # its output still has a reader
    daemon = int(runs.log().split()[-1])
    os.kill(daemon, signal.SIGKILL)


def test_a_stop_ends_what_left_the_tree_of_the_command(runs: Runs) -> None:
    runs.piped("sh", "-c", "setsid sh -c 'echo left $$; sleep 1000' & exec sleep 1000")
    runs.wait_until(state="running")
    wait_for(lambda: b"left" in runs.log())
    left = int(runs.log().split()[1])
    assert runs.request(command="stop", grace=5)["ok"]
    assert not is_alive(left)


CATCHER = (
    "import signal, sys, time\n"
    "signal.signal(signal.SIGHUP, lambda *_: (print('hangup', flush=True), sys.exit(7)))\n"
    "print('ready', flush=True)\n"
    "time.sleep(1000)"
)


def test_a_hangup_without_a_terminal_reaches_the_command(runs: Runs) -> None:
    wrapper = runs.piped(*python(CATCHER), start_new_session=True).pid
    wait_for(lambda: b"ready" in runs.log())
    os.kill(wrapper, signal.SIGHUP)
    wait_for(lambda: b"hangup" in runs.log())
    assert runs.wait_until(state="stopped")["exit_status"] == 7 << 8


def test_a_hangup_in_a_terminal_is_its_end_also_while_it_answers(runs: Runs) -> None:
    """As of sudo, whose own terminal outlasts the connection."""
    session = runs.in_terminal(*python(TICKER))
    pid = runs.wait_until(state="running")["pid"]
    session.read_until(b"1")
    os.kill(session.pid, signal.SIGHUP)
    size = len(runs.log())
    wait_for(lambda: len(runs.log()) > size + 1000)
    assert is_alive(pid)
    assert runs.request(command="stop")["ok"]


def test_a_command_goes_on_when_its_shell_hangs_up_and_takes_the_terminal_along(
    runs: Runs,
) -> None:
    session = runs.in_terminal(*python(TICKER))
    pid = runs.wait_until(state="running")["pid"]
    session.read_until(b"1")
    os.kill(session.pid, signal.SIGHUP)
    session.hang_up()
    size = len(runs.log())
    wait_for(lambda: len(runs.log()) > size + 1000)
    assert is_alive(pid)
    assert runs.request(command="stop")["ok"]


@pytest.mark.parametrize("options", [(), ("-s", "KILL"), ("--preserve-status",), ("-k", "1")])
def test_a_command_whose_timeout_is_over_is_not_started_again(
    runs: Runs, options: tuple[str, ...]
) -> None:
    ignores = ("trap '' TERM; " if options[:1] == ("-k",) else "") + "sleep 1000 & wait; wait"
    restarts = ("--name", "r", "--restart", "on-failure")
    process = runs.piped("timeout", *options, "1", "sh", "-c", ignores, options=restarts)
    runs.wait_until(state="stopped", starts=1)
    _, errors = process.communicate(timeout=60)
    assert process.returncode not in (0, None)
    assert b"the time you gave it is over" in errors


def test_a_failure_within_its_timeout_is_one(runs: Runs) -> None:
    process = runs.piped("timeout", "60", "sh", "-c", "exit 124")
    assert process.wait() == 124
    assert runs.announced()["state"] == "failed"


def test_a_run_whose_state_folder_is_removed_is_announced_again(runs: Runs) -> None:
    runs.piped(*python(TICKER), options=("--detach", "--name", "r"))
    pid = runs.wait_until(state="running")["pid"]
    shutil.rmtree(runs.folder)
    now = runs.wait_until(state="running", pid=pid, log_offset=0)
    wait_for(lambda: re.search(rb"\Atrainwarden: .* removed\n\d+\n", runs.log()))
    wait_for(Path(now["socket"]).exists)
    assert runs.request(command="stop")["ok"]
    assert runs.announced()["state"] == "stopped"
