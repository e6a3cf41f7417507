"""Runs in the background, and what shows them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from running_runs import Runs, is_alive, wait_for
from trainwarden import cli
from trainwarden.run.log_follower import LogFollower
from trainwarden.run.run_log import RunLog

COUNT = "import itertools, time\nfor n in itertools.count(): print('line', n); time.sleep(0.02)"
DETACH = ("--detach", "--name", "r")


def detach(runs: Runs, *command: str, options: tuple[str, ...] = DETACH) -> tuple[int, str, str]:
    done = subprocess.run(
        runs.argv(*command, options=options),
        env=runs.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.returncode, done.stdout, done.stderr


def attach(runs: Runs, *arguments: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-m", "trainwarden", "attach", *arguments],
        env=runs.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    runs.processes.append(process)
    return process


def test_a_detached_run_goes_on_without_a_terminal_and_its_output_is_not_buffered(
    runs: Runs,
) -> None:
    status, shown, _ = detach(runs, sys.executable, "-c", COUNT)
    now = runs.announced()
    assert status == 0
    assert f"r: process {now['pid']} runs in the background" in shown
    assert "trainwarden attach r\n" in shown
    assert now["state"] == "running"
    assert os.getsid(now["pid"]) != os.getsid(0)
    assert {str(Path(f"/proc/{now['wrapper_pid']}/fd/{fd}").readlink()) for fd in range(3)} == {
        os.devnull
    }
    wait_for(lambda: b"line 3" in runs.log())
    assert runs.restart()["ok"]


def test_attach_shows_what_follows_until_the_end_and_has_its_exit_status(runs: Runs) -> None:
    script = "import time, sys; print('first'); time.sleep(1); print('last'); sys.exit(3)"
    detach(runs, sys.executable, "-c", script, options=(*DETACH, "--restart", "never"))
    process = attach(runs, "r")
    shown, begin = process.communicate(timeout=60)
    pid, log = runs.announced()["pid"], runs.folder / "logs" / "r@trainer.log"
    end = f"trainwarden: process {pid} ended with exit status 3; nobody starts it again\n"
    assert shown.decode() == f"first\nlast\n{end}"
    assert begin.decode() == f"the last 10 lines, then what follows; all: {log}\n"
    assert process.returncode == 3
    again = attach(runs, "r")
    assert again.communicate(timeout=60)[0] == shown
    assert attach(runs, "other").wait(60) == 1


def test_the_end_of_a_detached_run_that_asked_for_input_names_that(runs: Runs) -> None:
    detach(runs, sys.executable, "-c", "input('go on? ')", options=(*DETACH, "--restart", "never"))
    runs.wait_until(state="failed")
    end = "ended with exit status 1; it asked for input and had none: with `--detach`, nobody can"
    wait_for(lambda: end.encode() in runs.log())
    script = "print('EOFError: EOF when reading a line'); print('no'); raise SystemExit(1)"
    detach(runs, sys.executable, "-c", script, options=(*DETACH, "--restart", "never"))
    wait_for(lambda: b"no\ntrainwarden: process" in runs.log())
    assert runs.log().count(b"asked for input") == 1


def test_ctrl_c_ends_attach_and_not_the_run(runs: Runs) -> None:
    detach(runs, sys.executable, "-c", COUNT)
    process = attach(runs, "r")
    assert process.stdout is not None
    assert b"line" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    shown, _ = process.communicate(timeout=60)
    assert b"the run goes on: trainwarden stop r" in shown
    assert process.returncode == 0
    assert is_alive(runs.announced()["pid"])


def test_a_detached_run_that_fails_waits_to_be_started_again(runs: Runs, tmp_path: Path) -> None:
    detach(runs, "sh", "-c", f"test -e {tmp_path}/second && exec sleep 1000; exit 3")
    runs.wait_until(state="failed")
    (tmp_path / "second").touch()
    assert runs.restart()["ok"]
    assert runs.wait_until(state="running")["starts"] == 2


def test_a_command_that_fails_at_once_at_each_start_is_not_waited_with(runs: Runs) -> None:
    detach(runs, "sh", "-c", "echo usage: a.py; exit 2")
    wrapper = runs.wait_until(state="failed")["wrapper_pid"]
    assert is_alive(wrapper)
    assert runs.restart()["ok"]
    wait_for(lambda: not is_alive(wrapper))
    now = runs.announced()
    assert (now["state"], now["starts"]) == ("failed", 2)  # and not stopped: you are called
    assert b"nobody starts it again: a further start would fail within seconds, too" in runs.log()
    assert now["never_works"]


@pytest.mark.parametrize(
    ("command", "waits"),
    [
        ((sys.executable, "nofile.py"), False),
        ((sys.executable, "-m", "no_such_module"), False),
        ((sys.executable, "-m", "no_such_module.train"), False),
        ((sys.executable, "/"), False),
        (("sh", "-c", "exec /no/such/train.sh"), False),
        ((sys.executable, "-c", "import no_such_module"), True),
        (("sh", "-c", f"echo step 1; {sys.executable} nofile.py"), True),
    ],
)
def test_a_command_that_names_no_program_is_not_waited_with(
    runs: Runs, command: Sequence[str], *, waits: bool
) -> None:
    detach(runs, *command)
    wrapper = runs.wait_until(state="failed")["wrapper_pid"]
    if waits:
        wait_for(lambda: b"it waits an hour" in runs.log())
        return
    wait_for(lambda: not is_alive(wrapper))
    now = runs.announced()
    assert (now["state"], now["starts"], now["never_works"]) == ("failed", 1, True)
    assert b"nobody starts it again: a further start would fail within seconds, too" in runs.log()


@pytest.mark.parametrize("first", ["echo step 1; exit 3", "exit 4"])
def test_a_command_that_has_worked_or_fails_otherwise_is_waited_with(
    runs: Runs, tmp_path: Path, first: str
) -> None:
    detach(runs, "sh", "-c", f"test -e {tmp_path}/second || {{ {first}; }}; exit 3")
    runs.wait_until(state="failed")
    (tmp_path / "second").touch()
    assert runs.restart()["ok"]
    wait_for(lambda: runs.log().count(b"it waits an hour") == 2)


def test_a_command_that_cannot_be_started_is_an_error_of_the_detached_start(runs: Runs) -> None:
    status, shown, error = detach(runs, "/no/such/program")
    assert (status, shown) == (127, "")
    assert error == "trainwarden run: /no/such/program: No such file or directory\n"
    assert runs.announced()["state"] == "stopped"


def test_a_script_without_its_interpreter_is_named_as_what_it_is(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "surely-no-program.py"
    script.touch()
    status, _, error = detach(runs, script.name)
    assert status == 127
    how = "not in PATH, and the file here is not executable: `python surely-no-program.py` runs it"
    assert error == f"trainwarden run: {script.name}: {how}\n"
    script.chmod(0o755)
    _, _, error = detach(runs, script.name)
    assert error.endswith("not in PATH; the file here is `./surely-no-program.py`\n")


def test_a_name_that_is_taken_is_an_error_of_the_detached_start(runs: Runs) -> None:
    assert detach(runs, "sleep", "1000")[0] == 0
    pid = runs.announced()["pid"]
    status, _, error = detach(runs, "sleep", "1000")
    assert status == 1
    assert "already runs as process" in error
    assert runs.announced()["pid"] == pid


def test_a_run_under_the_name_of_a_finished_one_has_a_name_of_its_own(runs: Runs) -> None:
    """Its step and its starts are not those of the run before."""
    runs.piped("true", options=()).communicate()
    assert runs.announced("true")["state"] == "finished"
    runs.piped("true", options=()).communicate()
    assert runs.announced("true-2")["state"] == "finished"
    runs.piped("false", options=()).communicate()
    runs.piped("false", options=()).communicate()  # goes on where the one before failed
    assert runs.announced("false")["state"] == "failed"
    assert runs.announced("false-2") == {}


def test_a_given_name_gets_a_number_once_its_run_has_finished(runs: Runs) -> None:
    """The new run would begin as finished, with the steps and the restarts of the one before."""
    runs.piped("true").communicate()
    _, shown = runs.piped("true").communicate()
    assert shown == b"trainwarden run: the run r has finished; this one is r-2\n"
    assert runs.announced("r-2")["state"] == "finished"
    runs.piped("false").communicate()
    _, shown = runs.piped("true").communicate()  # goes on where the one before failed
    assert b"this one is r-3" in shown
    assert runs.announced("r-3")["state"] == "finished"
    assert runs.announced("r-4") == {}


def test_the_commands_of_a_finished_run_begin_a_new_one_together(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINWARDEN_FOLDER", str(runs.folder))
    server = ("--name", "r", "--worker", "server", "--role", "inference", "--detach")
    for run in ("r", "r-2"):
        runs.piped("true", options=("--name", "r", "--worker", "prepare")).communicate()
        runs.piped("sleep", "1000", options=server).communicate()
        runs.piped("false").communicate()
        runs.piped("true").communicate()  # of the same run: its server runs
        assert runs.announced(run)["state"] == "finished"
        assert cli.main(["stop", run]) == 0
    names = {path.stem for path in (runs.folder / "runs.d").glob("*.json")}
    workers = ("prepare", "server", "trainer")
    assert names == {f"{run}@{worker}" for run in ("r", "r-2") for worker in workers}


def test_a_run_of_another_folder_has_a_name_of_its_own(runs: Runs, tmp_path: Path) -> None:
    """It is another run, also where the script has the same name and the first has failed."""

    def fail_in(folder: Path, *options: str) -> None:
        folder.mkdir(exist_ok=True)
        argv = runs.argv("false", options=options)
        subprocess.run(argv, cwd=folder, env=runs.environment, check=False, capture_output=True)

    first, second = tmp_path / "first", tmp_path / "second"
    fail_in(first)
    fail_in(second)
    fail_in(second)  # goes on where the one before failed
    fail_in(first)
    fail_in(second, "--worker", "other")
    assert runs.announced("false")["cwd"] == str(first)
    assert runs.announced("false-2")["cwd"] == str(second)
    assert runs.announced("false-3") == {}
    assert (runs.folder / "runs.d" / "false-2@other.json").exists()
    assert not (runs.folder / "runs.d" / "false@other.json").exists()


def test_a_server_that_ends_well_has_failed(runs: Runs) -> None:
    runs.piped("true", options=("--name", "r", "--role", "inference")).communicate()
    assert runs.announced()["state"] == "failed"
    runs.piped("true", options=("--name", "r", "--role", "inference", "--finishes")).communicate()
    assert runs.announced()["state"] == "finished"


def test_the_follower_reads_on_after_a_rotation(tmp_path: Path) -> None:
    path = tmp_path / "log"
    follower = LogFollower(path)
    assert follower.read() == b""
    log = RunLog(path, limit=20)
    read = b""
    for number in range(20):
        log.write(b"line %02d\n" % number)
        read += follower.read() + follower.read()
    assert read == b"".join(b"line %02d\n" % number for number in range(20))
    assert path.with_name("log.1").exists()


def test_the_follower_begins_with_the_last_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"".join(b"line %06d\n" % number for number in range(10_000)))
    shown = LogFollower(path).read()
    assert shown.startswith(b"line 00")
    assert shown.endswith(b"line 009999\n")
    assert len(shown) < 9000


@pytest.mark.parametrize("end", [b"", b"half"])
def test_the_follower_shows_no_more_lines_than_asked_and_none_of_an_earlier_run(
    tmp_path: Path, end: bytes
) -> None:
    path = tmp_path / "log"
    before = b"before\n" * 20
    path.write_bytes(before + b"a\nb\nc\n" + end)
    assert LogFollower(path, len(before)).read() == b"a\nb\nc\n" + end
    last = LogFollower(path, len(before), 2).read()
    assert last == (b"c\nhalf" if end else b"b\nc\n")
    path.write_bytes(b"rotated\n")
    assert LogFollower(path, len(before), 2).read() == b"rotated\n"


def test_no_run_of_that_name_is_an_error(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRAINWARDEN_FOLDER", str(runs.folder))
    assert cli.main(["attach", "../x"]) == 1
    assert "a name has" in capsys.readouterr().err
    assert cli.main(["attach", "x"]) == 1
    assert "there is no run named x" in capsys.readouterr().err
