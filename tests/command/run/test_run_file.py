"""`trainwarden run` without a command: those of trainwarden.yml, and `--wait`."""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ports import free_port
from running_runs import Runs, is_alive, wait_for
from trainwarden.commands.run import USAGE, add_arguments
from trainwarden.run.announcement import read_content
from trainwarden.starting import group
from trainwarden.starting.run_file import RUN_FILE, load_run_file, options_of
from trainwarden_exporter.exceptions import ConfigError

SERVER = "sleep 0.3; exec {} -m http.server --bind 127.0.0.1 {}"


class Folder:
    """A working folder with a trainwarden.yml."""

    def __init__(self, path: Path, runs: Runs) -> None:
        path.mkdir()
        self.path = path
        self._runs = runs

    def write(self, **commands: object) -> None:
        content = {"name": "r", "commands": commands}
        (self.path / "trainwarden.yml").write_text(json.dumps(content))

    def run(self, *options: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-m", "trainwarden", "run", *options],
            cwd=self.path,
            env=self._runs.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._runs.processes.append(process)
        return process

    def state(self, worker: str) -> object:
        return self.announced(worker).get("state")

    def announced(self, worker: str) -> dict[str, Any]:
        return read_content(self._runs.folder / "runs.d" / f"r@{worker}.json")


@pytest.fixture
def folder(runs: Runs, tmp_path: Path) -> Folder:
    return Folder(tmp_path / "work", runs)


def test_each_command_starts_once_the_one_before_is_ready_and_they_end_together(
    folder: Folder,
) -> None:
    port = free_port()
    ask = f"import urllib.request as u; print(u.urlopen('http://127.0.0.1:{port}').status)"
    folder.write(
        server={
            "command": ["sh", "-c", SERVER.format(sys.executable, port)],
            "role": "inference",
            "ready": f"http://127.0.0.1:{port}/",
        },
        trainer=[sys.executable, "-c", ask],
    )
    process = folder.run()
    shown, error = process.communicate(timeout=60)
    assert (process.returncode, error) == (0, b"")
    assert folder.announced("server")["ready"] == f"http://127.0.0.1:{port}/", "for the exporter"
    lines = shown.decode().splitlines()
    places = [
        next(number for number, line in enumerate(lines) if line.startswith(text))
        for text in (
            "r/server: process",
            f"server: waits until http://127.0.0.1:{port}/ answers",
            "server: ready after",
            "r: process",
            "trainer | 200",
            "server: stopped",
        )
    ]
    assert places == sorted(places)
    assert (folder.state("trainer"), folder.state("server")) == ("finished", "stopped")
    assert folder.announced("server")["ended_with_run"]  # and no operator did
    assert not is_alive(folder.announced("server")["pid"])


def test_commands_that_have_finished_are_another_run_the_next_time(
    folder: Folder, runs: Runs
) -> None:
    folder.write(
        prepare="true", server={"command": "sleep 1000", "finishes": False}, trainer="true"
    )
    for run in ("r", "r-2"):
        process = folder.run()
        shown, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        assert f"{run}: process" in shown.decode()
        assert runs.announced(run)["state"] == "finished"
    assert len(list((runs.folder / "runs.d").glob("r-2@*.json"))) == 3


def test_a_producer_of_rollouts_does_not_keep_a_run_alive_whose_trainer_has_ended(
    folder: Folder, runs: Runs
) -> None:
    folder.write(sampler={"command": "sleep 1000", "role": "rollout"}, trainer="true")
    for run in ("r", "r-2"):  # a run that has finished, though its sampler was stopped
        process = folder.run()
        shown, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        assert f"{run}: the run ends when trainer has ended; sampler is stopped then" in str(shown)
        assert runs.announced(run)["state"] == "finished"
    assert folder.state("sampler") == "stopped"
    assert folder.announced("sampler")["finishes"]  # so its own end is no failure


def test_a_command_that_has_ended_names_those_for_which_the_run_goes_on(folder: Folder) -> None:
    folder.write(sampler="sleep 1000", trainer="true")
    process = folder.run()
    assert process.stdout is not None
    shown = b""
    while b"trainer: has ended" not in shown:
        line = process.stdout.readline()
        assert line, shown
        shown += line
    begin = b"r: the run ends when sampler and trainer have ended (`finishes: false` in trainwarden"
    assert shown.startswith(begin)
    end = b"; the run goes on until sampler has ended: Ctrl-C or `trainwarden stop r` ends it\n"
    assert shown.endswith(b"trainer: has ended" + end)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    assert folder.state("sampler") == "stopped"


def test_the_exit_status_is_that_of_the_command_that_ends_the_run(folder: Folder) -> None:
    folder.write(
        server={"command": "sleep 1000", "finishes": False},
        trainer={"command": "sh -c 'exit 5'", "restart": "never"},
    )
    assert folder.run().wait(60) == 5
    assert folder.state("server") == "stopped"


def test_a_server_that_fails_before_it_is_ready_is_shown_and_what_runs_is_stopped(
    folder: Folder,
) -> None:
    folder.write(
        ray="sleep 1000",
        server={
            "command": "sh -c 'echo no GPU found; exit 1'",
            "ready": f"tcp://127.0.0.1:{free_port()}",
        },
        trainer="true",
    )
    process = folder.run()
    _, error = process.communicate(timeout=60)
    assert process.returncode == 1
    assert b"server ended before it was ready\n  no GPU found" in error
    assert folder.state("ray") == "stopped"
    assert folder.announced("trainer") == {}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_by_the_operator_ends_all_commands(folder: Folder, number: signal.Signals) -> None:
    folder.write(one="sleep 1000", two="sleep 1000")
    process = folder.run()
    wait_for(lambda: folder.state("two") == "running")
    assert process.stdout is not None
    for _ in range(8):
        process.stdout.readline()  # it shows the logs from now on
    process.send_signal(number)
    assert process.wait(60) == 130
    assert (folder.state("one"), folder.state("two")) == ("stopped", "stopped")


def test_detached_commands_go_on(folder: Folder) -> None:
    server = {"command": "sleep 1000", "finishes": False}
    folder.write(one="A=5 sh -c 'echo value $A; exec sleep 1000'", two=server)
    process = folder.run("--detach")
    assert process.wait(60) == 0
    assert process.stdout is not None
    begin = process.stdout.readline()
    assert begin == b"r: the run ends when one has ended; two goes on then: `trainwarden stop r`\n"
    assert (folder.state("one"), folder.state("two")) == ("running", "running")
    log = Path(folder.announced("one")["log"])
    wait_for(lambda: log.read_bytes() == b"value 5\n")


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        ("memory_limit: much", ":5: commands.trainer.memory_limit: not a size"),
        ("memory_limit: 5", ":5: commands.trainer.memory_limit: 5 bytes: is a unit missing"),
        ("frobnicate: 1", ":5: commands.trainer.frobnicate: unknown key"),
        ("command: 'a \"b'", ":5: commands.trainer.command: not a command: No closing quotation"),
        (
            "command: cd x && python a.py",
            ":5: commands.trainer.command: `cd` needs a shell, and no",
        ),
        ("command: [python, a.py, '>', log]", ":5: commands.trainer.command: `>` needs a shell"),
        ("ready: 8000", ":5: commands.trainer.ready: expected text"),
        ("ready: 'http://h:99999'", ":5: commands.trainer.ready: not a URL: Port out of range"),
        ("role: inferense", ":5: commands.trainer.role: no rule knows the role inferense; did you"),
        ("role: inference", ":3: commands.trainer.ready: required: the command does not show"),
    ],
)
def test_a_mistake_has_its_line(tmp_path: Path, mistake: str, message: str) -> None:
    path = tmp_path / "trainwarden.yml"
    command = "" if mistake.startswith("command") else "command: python train.py"
    path.write_text(f"commands:\n  first: 'true'\n  trainer:\n    {command}\n    {mistake}\n")
    with pytest.raises(ConfigError) as caught:
        load_run_file(tmp_path / RUN_FILE)
    (problem,) = caught.value.problems
    assert str(problem).startswith(f"{path}{message}")


def test_the_address_of_a_known_server_is_that_of_its_command_line(tmp_path: Path) -> None:
    (tmp_path / "trainwarden.yml").write_text(
        "commands:\n"
        "  vllm: {command: CUDA_VISIBLE_DEVICES=0 vllm serve Qwen --port 8123, role: inference}\n"
        "  own: {command: python server.py --host 0.0.0.0 --port=18978, role: inference}\n"
        "  trainer: python train.py --port 5\n"
    )
    name, commands = load_run_file(tmp_path / RUN_FILE)
    assert name == tmp_path.name
    assert list(commands) == ["vllm", "own", "trainer"]
    assert commands["vllm"].ready_address == "http://127.0.0.1:8123/health"
    assert commands["vllm"].command[:2] == ("env", "CUDA_VISIBLE_DEVICES=0")
    assert not commands["vllm"].has_end
    assert not any(one.startswith("--ready") for one in options_of(commands["vllm"]))
    # whether it speaks HTTP, and has a /health, is not known
    assert commands["own"].ready_address == "tcp://127.0.0.1:18978"
    assert not any(one.startswith("--ready") for one in options_of(commands["own"]))
    assert commands["trainer"].ready_address is None


@pytest.mark.parametrize(
    ("command", "client"),
    [
        ("ssh gpu2 vllm serve Qwen --port 8000", "ssh"),
        ("HF_HOME=/x /usr/bin/ssh -t gpu2 vllm serve Qwen --port 8000", "ssh"),
        ("srun --gpus 1 python server.py --port 8000", "srun"),
        ("ssh -L 8000:localhost:8000 gpu2 vllm serve Qwen --port 8000", ""),
        ("ssh gpu2 vllm serve Qwen --host 10.0.0.2 --port 8000", ""),
        ("vllm serve Qwen", ""),
        ("docker run -p 8000:8000 vllm/vllm-openai vllm serve Qwen --port 8000", ""),
    ],
)
def test_a_server_that_a_client_starts_elsewhere_is_known(
    tmp_path: Path, command: str, client: str
) -> None:
    content = {"command": command, "role": "inference"}
    (tmp_path / "trainwarden.yml").write_text(json.dumps({"commands": {"vllm": content}}))
    _, commands = load_run_file(tmp_path / RUN_FILE)
    assert commands["vllm"].remote_client == client
    content["ready"] = "http://gpu2:8000/health"
    (tmp_path / "trainwarden.yml").write_text(json.dumps({"commands": {"vllm": content}}))
    _, commands = load_run_file(tmp_path / RUN_FILE)
    assert not commands["vllm"].remote_client


def test_the_next_command_does_not_wait_for_ever_for_a_server_elsewhere(
    folder: Folder,
    runs: Runs,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    client = folder.path / "ssh"
    client.write_text("#!/bin/sh\nexec sleep 1000\n")
    client.chmod(0o755)
    server = {"command": f"{client} gpu2 vllm serve Qwen --port {free_port()}", "role": "inference"}
    folder.write(vllm=server, trainer="sleep 1000")
    monkeypatch.setenv("TRAINWARDEN_FOLDER", str(runs.folder))
    monkeypatch.setattr(group, "REMOTE_SECONDS", 0.6)
    monkeypatch.setattr(
        group.StopRequest, "__init__", lambda self: setattr(self, "_is_made", False)
    )
    name, commands = load_run_file(folder.path / RUN_FILE)
    started: list[Path] = []
    group.start_all(name, commands, folder.path, started=started, stop=group.StopRequest())
    assert (folder.state("vllm"), folder.state("trainer")) == ("running", "running")
    shown = capsys.readouterr().out
    assert (
        "at most 0.01 min: the server of ssh may answer elsewhere: write where as `ready`" in shown
    )
    assert "vllm: no answer, goes on without" in shown


def test_the_exporter_asks_only_an_address_of_this_host(tmp_path: Path) -> None:
    (tmp_path / "trainwarden.yml").write_text(
        "commands:\n"
        "  near: {command: python serve.py, role: inference, ready: 'http://localhost/health'}\n"
        "  far: {command: ssh gpu2 serve, role: inference, ready: 'http://gpu2:8000/health'}\n"
        "  port: {command: python serve.py, role: inference, ready: 'tcp://127.0.0.1:8001'}\n"
    )
    _, commands = load_run_file(tmp_path / RUN_FILE)
    assert {name: one.probed_address for name, one in commands.items()} == {
        "near": "http://localhost/health",
        "far": None,
        "port": None,
    }


@pytest.mark.parametrize(
    ("ready", "message"),
    [
        ("127.0.0.1:8000", "not a URL"),
        ("http://[", "Invalid IPv6 URL"),
        ("http://127.0.0.1:99999", "not a URL"),
        ("http://user:pw@127.0.0.1/", "no user and password allowed"),
        ("http://127.0.0.1/a b", "has a space"),
        ("http://gpu2:8000/health", "not an address of this host"),
    ],
)
def test_an_address_that_the_exporter_cannot_ask_is_refused(
    ready: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    with pytest.raises(SystemExit):
        parser.parse_args([f"--ready={ready}", "--", "serve"])
    assert f"argument --ready: {ready!r}: {message}" in capsys.readouterr().err


def test_a_misspelt_role_is_refused_and_one_of_your_own_is_not(
    capsys: pytest.CaptureFixture[str],
) -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    for role in ("inference", "worker-1", "evaluator", "judge", "7"):
        assert parser.parse_args([f"--role={role}", "--", "serve"]).role == role
    with pytest.raises(SystemExit):
        parser.parse_args(["--role=inferense", "--", "serve"])
    assert "did you mean inference?" in capsys.readouterr().err


def test_without_a_command_and_without_a_file_there_is_nothing_to_run(folder: Folder) -> None:
    process = folder.run()
    _, error = process.communicate(timeout=60)
    assert process.returncode == USAGE
    assert error.startswith(b"trainwarden run: no COMMAND given, and ")


def test_wait_starts_once_the_host_is_ready(runs: Runs, tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.symlink_to("/proc")  # where nobody can write
    options = ("--name", "r", "--wait", "--checkpoints", str(place))
    process = runs.piped("true", options=options)
    assert process.stderr is not None
    assert process.stderr.readline() == b"trainwarden run: waits for the host:\n"
    assert b"/place: " in process.stderr.readline()
    assert runs.announced() == {}
    place.unlink()
    place.symlink_to(tmp_path)
    assert process.wait(60) == 0
    assert runs.announced()["state"] == "finished"


def test_ctrl_c_ends_the_wait(runs: Runs, tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.symlink_to("/proc")
    session = runs.in_terminal("true", options=("--wait", "--checkpoints", str(place)))
    session.read_until(b"waits for the host")
    session.type(b"\x03")
    assert session.wait() == 130 << 8
    assert list(runs.folder.glob("runs.d/*")) == []
