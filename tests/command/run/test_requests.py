"""The socket of a run, and what a restart does."""

from __future__ import annotations

import os
import signal
import socket
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from running_runs import Runs, is_alive, wait_for
from trainwarden.run.process_tree import find_processes

STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
time.sleep(1000)
"""
ENDS_AT_THE_SECOND = """
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
print("ready", flush=True)
signal.sigwait([signal.SIGTERM])
print("first", flush=True)
signal.sigwait([signal.SIGTERM])
"""
SLEEP = ("sleep", "1000")


def test_a_restart_starts_the_same_command_in_the_same_folder_and_environment(
    runs: Runs,
) -> None:
    runs.environment["MARK"] = "kept"
    runs.piped("sh", "-c", "pwd; echo $MARK; exec sleep 1000")
    before = runs.wait_until(state="running")
    wait_for(lambda: b"kept" in runs.log())
    answer = runs.restart()
    now = runs.wait_until(starts=2, state="running")
    assert answer == {"ok": True, "pid": now["pid"], "start_ticks": now["start_ticks"]}
    assert now["exits"] == [[before["pid"], before["start_ticks"], signal.SIGTERM]]
    assert not is_alive(before["pid"])
    wait_for(lambda: runs.log().count(b"kept") == 2)
    assert runs.log().count(str(Path.cwd()).encode()) == 2


def test_the_last_lines_are_those_of_the_last_attempt(runs: Runs) -> None:
    runs.piped("sh", "-c", "echo attempt of $$; exec sleep 1000")
    first = runs.wait_until(state="running")["pid"]
    wait_for(lambda: f"attempt of {first}\n".encode() in runs.log())
    runs.restart()
    second = runs.wait_until(starts=2, state="running")["pid"]
    wait_for(lambda: f"attempt of {second}\n".encode() in runs.log())
    os.kill(second, signal.SIGKILL)
    assert runs.wait_until(state="failed")["last_lines"] == [f"attempt of {second}"]


def test_a_command_that_ignores_sigterm_is_killed_after_the_grace(runs: Runs) -> None:
    runs.piped(sys.executable, "-c", STUBBORN)
    wait_for(lambda: b"ready" in runs.log())
    assert runs.restart(grace=0.1)["ok"]
    assert runs.wait_until(starts=2)["exits"][0][2] == signal.SIGKILL


def test_a_stop_by_the_user_replaces_a_restart_in_progress(runs: Runs) -> None:
    process = runs.piped(sys.executable, "-c", STUBBORN)
    wait_for(lambda: b"ready" in runs.log())
    with ThreadPoolExecutor() as pool:
        restart = pool.submit(runs.restart, grace=100)
        wait_for(lambda: b"restart requested" in runs.log())
        assert runs.request(command="stop", grace=0)["ok"]
        assert restart.result() == {"ok": False, "error": "it was stopped by the user"}
    process.communicate()
    announced = runs.announced()
    assert (announced["state"], announced["starts"]) == ("stopped", 1)


def test_a_signal_of_the_user_replaces_a_restart_in_progress(runs: Runs) -> None:
    process = runs.piped(sys.executable, "-c", ENDS_AT_THE_SECOND)
    wait_for(lambda: b"ready" in runs.log())
    with ThreadPoolExecutor() as pool:
        restart = pool.submit(runs.restart, grace=100)
        wait_for(lambda: b"first" in runs.log())
        process.terminate()
        assert not restart.result()["ok"]
    process.communicate()
    announced = runs.announced()
    assert (announced["state"], announced["starts"]) == ("stopped", 1)


def test_a_restart_of_another_process_than_the_one_meant_is_refused(runs: Runs) -> None:
    runs.piped(*SLEEP)
    before = runs.wait_until(state="running")
    answer = runs.restart(start_ticks=before["start_ticks"] - 1)
    assert answer == {
        "ok": False,
        "error": f"process {before['pid']} is not the requested one",
    }
    assert is_alive(before["pid"])


def test_a_run_that_is_never_restarted_refuses(runs: Runs) -> None:
    runs.piped(*SLEEP, options=("--name", "r", "--restart", "never"))
    before = runs.wait_until(state="running")
    assert runs.restart()["error"] == "the run was started with --restart never"
    assert is_alive(before["pid"])


@pytest.mark.parametrize(
    "line", [b"[]\n", b"{\n", b'{"command": "frobnicate"}\n', b"x" * 5000, b"[" * 4000 + b"\n"]
)
def test_a_wrong_request_is_answered_or_dropped_and_the_next_is_served(
    runs: Runs, line: bytes
) -> None:
    runs.piped(*SLEEP)
    runs.wait_until(state="running")
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(runs.announced()["socket"])
        connection.sendall(line)
        answer = connection.makefile("rb").read()
    assert b"error" in answer or not line.endswith(b"\n")
    assert runs.request(command="status")["status"]["state"] == "running"
    assert "grace" in runs.restart(grace="long")["error"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a second account")
def test_another_account_is_not_answered(runs: Runs) -> None:
    """Also where it could reach the socket."""
    runs.piped(*SLEEP)
    path = Path(runs.wait_until(state="running")["socket"])
    for one in (path, *path.parents[:-1]):
        if one.stat().st_uid == os.geteuid() and one != Path(tempfile.gettempdir()):
            one.chmod(0o777)
    assert ask_as(os.geteuid(), path) > 100
    assert ask_as(65534, path) == 0


def ask_as(account: int, path: Path) -> int:
    """Returns the length of the answer that a process of the account gets."""
    reader, writer = os.pipe()
    if not (pid := os.fork()):
        try:
            os.setgid(account)
            os.setuid(account)
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(str(path))
                with suppress(OSError):
                    connection.sendall(b'{"command": "status"}\n')
                    os.write(writer, connection.makefile("rb").read())
            os.write(writer, b"connected")
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(pid, 0)
    answer = os.read(reader, 1 << 16)
    os.close(reader)
    assert answer.endswith(b"connected")
    return len(answer) - len(b"connected")


def test_files_are_for_the_account_alone_and_hold_nothing_of_the_environment(runs: Runs) -> None:
    runs.environment["API_KEY"] = "s3cret-value"
    before = os.umask(0)
    try:
        runs.piped(*SLEEP)
    finally:
        os.umask(before)
    runs.wait_until(state="running")
    runs.restart()
    for path in runs.folder.rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path
        assert path.is_dir() or path.is_socket() or b"s3cret-value" not in path.read_bytes()


def test_a_stop_is_a_persons_stop_and_ends_the_wrapper(runs: Runs) -> None:
    process = runs.piped(*SLEEP, options=("--name", "r", "--restart", "on-failure"))
    runs.wait_until(state="running")
    assert runs.request(command="stop")["ok"]
    process.communicate()
    assert runs.announced()["state"] == "stopped"
    assert runs.announced()["starts"] == 1


def test_after_a_failure_the_command_is_started_again_where_that_is_wished(
    runs: Runs, tmp_path: Path
) -> None:
    script = f"test -e {tmp_path}/second && exit 0; touch {tmp_path}/second; exit 3"
    process = runs.piped("sh", "-c", script, options=("--name", "r", "--restart", "on-failure"))
    _, shown = process.communicate()
    assert process.returncode == 0
    log = f"log: {runs.folder / 'logs' / 'r@trainer.log'}\n"
    again = "ended with exit status 3; `--restart on-failure` starts it again in 1 s"
    assert shown.decode().startswith("trainwarden: process ")
    assert shown.decode().endswith(f" {again}; {log}")
    assert (runs.announced()["state"], runs.announced()["starts"]) == ("finished", 2)
    assert [status for _, status in runs.announced()["own_restarts"]] == [3 << 8]


def test_ctrl_c_while_the_next_start_is_waited_for_is_a_stop(runs: Runs, tmp_path: Path) -> None:
    script = f"test -e {tmp_path}/second && exec sleep 1000; touch {tmp_path}/second; exit 3"
    options = ("--name", "r", "--restart", "on-failure")
    session = runs.in_terminal("sh", "-c", script, options=options)
    session.read_until(b"starts it again in 1 s")
    session.type(b"\x03")
    session.wait()
    assert runs.announced()["state"] == "stopped"


def test_a_name_is_not_taken_twice(runs: Runs) -> None:
    runs.piped(*SLEEP)
    runs.wait_until(state="running")
    second = runs.piped(*SLEEP)
    _, shown = second.communicate()
    assert second.returncode == 1
    assert b"run r, worker trainer: already runs as process" in shown


def test_a_name_that_was_not_given_gets_a_number(runs: Runs) -> None:
    for number in ("", "-2"):
        runs.piped(*SLEEP, options=())
        runs.wait_until(run=f"sleep{number}", state="running")


def test_a_restart_that_fails_names_what_an_earlier_attempt_has_left(runs: Runs) -> None:
    """It may hold the port for which each new attempt fails; it is named, and not ended."""
    serve = (
        "import os, socket, subprocess, sys\n"
        "server = socket.create_server(('127.0.0.1', int(sys.argv[1])))\n"
        "os.set_inheritable(server.fileno(), True)\n"
        "subprocess.Popen(['sleep', '1000'], pass_fds=[server.fileno()])\n"
        "sys.exit(3)\n"
    )
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = ("--name", "r", "--restart", "on-failure")
    process = runs.piped(sys.executable, "-c", serve, str(port), options=options)
    announced = runs.wait_until(state="failed", starts=2)
    ((pid, _),) = find_processes(-1, announced["run_id"])
    try:
        left = f"of an earlier attempt process {pid} (sleep 1000, port {port}) still runs"
        assert announced["left"] == f"{left}: `kill {pid}` ends what is left"
        assert is_alive(pid)
        wait_for(lambda: left.encode() in runs.log())
    finally:
        os.kill(pid, signal.SIGKILL)
        process.terminate()
        _, shown = process.communicate()
    assert left in shown.decode()
