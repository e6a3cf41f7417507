"""`trainwarden run` passes terminal, input, output and exit status on as they are."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shlex
import signal
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from running_runs import Runs, wait_for
from terminal_session import TerminalSession

BINARY = "import sys; sys.stdout.buffer.write(bytes(range(256)) * 100); sys.stderr.write('error')"
FLOOD = "import sys; [sys.stdout.buffer.write(bytes(range(256)) * 256) for _ in range(320)]"
FULL_SCREEN = """
import os, sys, tty
tty.setraw(0)
os.write(1, b"\\x1b[?1049h\\x1b[2J\\x1b[5;5Hmenu\\n")
while (key := os.read(0, 1)) != b"q":
    os.write(1, b"\\x1b[H<%d>" % key[0])
os.write(1, b"\\x1b[?1049l")
"""
SIZE = """
import os, signal
signal.signal(signal.SIGWINCH, lambda *_: print("now", *os.get_terminal_size(), flush=True))
print("first", *os.get_terminal_size(), flush=True)
while True:
    signal.pause()
"""
READY = """
import signal, time
signal.signal(signal.SIGINT, signal.SIG_DFL)
print("ready", flush=True)
time.sleep(1000)
"""
"""Ends by SIGINT at once. A shell loses the signal between `echo` and the start of `sleep`."""
BAR = """
import sys
for step in range(3):
    sys.stderr.write(f"\\r\\x1b[32m{step}/2\\x1b[0m")
    sys.stderr.flush()
print("\\ndone")
"""


def python(program: str) -> tuple[str, ...]:
    return (sys.executable, "-c", program)


@pytest.mark.parametrize(
    ("command", "status"),
    [
        (("true",), 0),
        (("sh", "-c", "exit 7"), 7),
        (("sh", "-c", "kill -KILL $$"), -signal.SIGKILL),
        (("sh", "-c", "kill -SEGV $$"), -signal.SIGSEGV),
        (("/no/such/program",), 127),
        (("/etc",), 126),
    ],
)
def test_exit_status_and_signal_are_those_of_the_command(
    runs: Runs, command: tuple[str, ...], status: int
) -> None:
    process = runs.piped(*command)
    process.communicate()
    assert process.returncode == status
    # 126 and 127 here: the command was not started, so no run has failed
    state = {0: "finished", 126: "stopped", 127: "stopped"}.get(status, "failed")
    assert runs.announced()["state"] == state
    assert not Path(runs.announced()["socket"]).exists()


def test_binary_output_is_unchanged_and_both_outputs_stay_apart(runs: Runs) -> None:
    out, err = runs.piped(*python(BINARY)).communicate()
    assert out == bytes(range(256)) * 100
    assert err == b"error"
    assert sorted(runs.log()) == sorted(out + err)


def test_output_redirected_into_one_file_keeps_its_order(runs: Runs, tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as file:
        process = runs.piped("sh", "-c", "for i in 1 2 3; do echo o$i; echo e$i >&2; done")
        process.communicate()
        both = "echo o1; echo e1 >&2"
        command = " ".join(f"'{one}'" for one in runs.argv("sh", "-c", both, options=()))
        os.waitpid(
            os.posix_spawnp(
                "sh",
                ["sh", "-c", f"exec {command} 2>&1"],
                runs.environment,
                file_actions=[(os.POSIX_SPAWN_DUP2, file.fileno(), 1)],
            ),
            0,
        )
    assert (tmp_path / "out").read_bytes() == b"o1\ne1\n"


@pytest.mark.parametrize("where", ["pipe", "terminal"])
def test_a_flood_of_output_arrives_whole(runs: Runs, where: str) -> None:
    """20 MB: the program writes faster than 10 MB/s."""
    expected = bytes(range(256)) * 256 * 320
    if where == "pipe":
        out, _ = runs.piped(*python(FLOOD)).communicate()
    else:
        session = runs.in_terminal(*python(f"import tty; tty.setraw(1); {FLOOD}"))
        session.wait()
        out = bytes(session.output)
    assert len(out) == len(expected)
    assert hashlib.sha256(out).digest() == hashlib.sha256(expected).digest()
    assert runs.log() == expected


def test_a_full_screen_program_gets_each_key_and_its_sequences_are_unchanged(runs: Runs) -> None:
    session = runs.in_terminal(*python(FULL_SCREEN))
    session.read_until(b"menu")
    session.type(b"\x03\x1a\x1bOA")
    session.read_until(b"\x1b[H<3>\x1b[H<26>\x1b[H<27>\x1b[H<79>\x1b[H<65>")
    session.type(b"q")
    assert session.wait() == 0
    assert session.output == (
        b"\x1b[?1049h\x1b[2J\x1b[5;5Hmenu\n"
        b"\x1b[H<3>\x1b[H<26>\x1b[H<27>\x1b[H<79>\x1b[H<65>\x1b[?1049l"
    )
    assert runs.announced()["state"] == "finished"


def test_a_progress_bar_is_passed_on_and_its_last_state_is_kept(runs: Runs) -> None:
    session = runs.in_terminal(*python(BAR))
    assert session.wait() == 0
    bar = b"\r\x1b[32m0/2\x1b[0m\r\x1b[32m1/2\x1b[0m\r\x1b[32m2/2\x1b[0m\r\ndone\r\n"
    assert session.output == bar
    assert runs.log() == bar
    assert runs.announced()["last_lines"] == ["2/2", "done"]


def test_the_size_of_the_terminal_is_passed_on(runs: Runs) -> None:
    session = runs.in_terminal(*python(SIZE))
    session.read_until(b"first 0 0")
    fcntl.ioctl(session.master, termios.TIOCSWINSZ, struct.pack("4H", 33, 77, 0, 0))
    session.read_until(b"now 77 33")


def test_ctrl_c_interrupts_the_command_and_is_a_stop(runs: Runs) -> None:
    session = runs.in_terminal(*python(READY))
    runs.wait_until(state="running")
    session.read_until(b"ready")
    session.type(b"\x03")
    assert os.WTERMSIG(session.wait()) == signal.SIGINT
    assert runs.announced()["state"] == "stopped"


def test_ctrl_z_stops_the_command_and_the_wrapper_until_it_is_continued(runs: Runs) -> None:
    session = runs.in_terminal("sh", "-c", "echo ready; read x; echo got $x; read y")
    pid = runs.wait_until(state="running")["pid"]
    session.read_until(b"ready")
    session.type(b"\x1a")
    wait_for(lambda: state_of(session.pid) == state_of(pid) == "T")
    os.kill(session.pid, signal.SIGCONT)
    session.type(b"it\r")
    session.read_until(b"got it")


def test_the_terminal_is_as_before_after_the_end(runs: Runs) -> None:
    session = runs.in_terminal("sh", "-c", "echo ready; read x", options=("--name", "r"))
    before = termios.tcgetattr(session.master)
    runs.wait_until(state="running")
    session.read_until(b"ready")
    assert termios.tcgetattr(session.master) != before  # raw: each key is passed on
    session.type(b"\r")
    # at the end of the session, `wait` reads to the end of a terminal that is still open here
    wait_for(lambda: termios.tcgetattr(session.master) == before)
    session.wait()


def test_without_a_terminal_signals_reach_the_command(runs: Runs) -> None:
    process = runs.piped(
        "sh", "-c", "trap 'echo usr1' USR1; echo ready; while :; do sleep 0.05; done"
    )
    assert process.stdout is not None
    runs.wait_until(state="running")
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGUSR1)
    assert process.stdout.readline() == b"usr1\n"
    process.terminate()
    process.communicate()
    assert process.returncode == -signal.SIGTERM
    assert runs.announced()["state"] == "stopped"


def test_input_that_is_no_terminal_reaches_the_command(runs: Runs, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"a\nb\n")
    command = " ".join(f"'{one}'" for one in runs.argv("cat"))
    session = TerminalSession(["sh", "-c", f"{command} < {tmp_path / 'in'}"], runs.environment)
    runs.sessions.append(session)
    assert session.wait() == 0
    assert session.output == b"a\r\nb\r\n"


@pytest.mark.parametrize("closed", ["<&-", "2>&-", "<&- 2>&-"])
def test_a_standard_descriptor_that_is_closed_is_no_obstacle(runs: Runs, closed: str) -> None:
    command = shlex.join(runs.argv("sh", "-c", "cat; echo done"))
    done = subprocess.run(
        ["sh", "-c", f"exec {command} {closed}"],
        env=runs.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.returncode) == (b"done\n", 0)


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
