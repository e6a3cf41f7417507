"""The program itself, run as its users run it."""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text
from tests.roomless import with_room_for

import stack
from trainwarden_exporter import __version__
from trainwarden_exporter.__main__ import main
from trainwarden_exporter.app import COLLECTORS, declared_metrics
from trainwarden_exporter.config import Config
from trainwarden_exporter.preflight.config_warnings import config_warnings
from trainwarden_exporter.processes.exit_status import NO_EXIT_STATUSES

PROGRAM = [sys.executable, "-m", "trainwarden_exporter"]
CONFIG = """\
runs:
  - name: demo
    workers:
      - {name: nobody, role: rollout, match: {command: 'no such command line'}, memory_limit: 1GiB}
"""


class Running:
    """The program under way on a port of its own choice, which it logs."""

    def __init__(self, *arguments: str, environment: dict[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [*PROGRAM, "run", "--web.listen-address=127.0.0.1:0", "--log.format=json", *arguments],
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | (environment or {}),
        )
        self.lines: list[dict[str, object]] = []
        self.port = self.wait_for("listening")["port"]

    def wait_for(self, message: str) -> dict[str, object]:
        """The next line of the log that says `message`."""
        assert self.process.stderr is not None
        for text in self.process.stderr:
            line: dict[str, object] = json.loads(text)
            self.lines.append(line)
            if line["msg"] == message:
                return line
        raise AssertionError(f"ended without saying {message!r}: {self.lines}")

    def get(self, path: str, method: str = "GET", **headers: str) -> tuple[int, bytes]:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            method=method,
            headers={key.replace("_", "-"): value for key, value in headers.items()},
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as response:  # noqa: S310 - as above
                return response.status, response.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    def value(self, name: str) -> float:
        for family in parse_text(self.get("/metrics")[1].decode()):
            for sample in family.samples:
                if sample.name == name:
                    return sample.value
        raise LookupError(name)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        status = self.process.wait(60)
        assert self.process.stderr is not None
        self.lines += map(json.loads, self.process.stderr)
        return status


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "exporter.yml"
    path.write_text(CONFIG)
    return path


@pytest.fixture
def start() -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def start(*arguments: str, **environment: str) -> Running:
        started.append(Running(*arguments, environment=environment))
        return started[-1]

    yield start
    for running in started:
        running.process.kill()
        running.process.wait(60)
        assert running.process.stderr is not None
        running.process.stderr.close()


def ended(*arguments: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [*PROGRAM, *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stdout, done.stderr


def test_it_serves_metrics_that_every_parser_takes(
    start: Callable[..., Running], path: Path
) -> None:
    running = start(f"--config.file={path}")

    text = running.get("/metrics")[1].decode()
    declared = {metric.name: metric for metric in declared_metrics()}
    series = [sample for family in parse_text(text) for sample in family.samples]
    assert {sample.name for sample in series} <= set(declared)
    assert all(set(sample.labels) == set(declared[sample.name].labels) for sample in series)
    success = [s for s in series if s.name == "trainwarden_collector_success"]
    assert [(s.labels["collector"], s.value) for s in success] == [
        (collector.name, 1) for collector in COLLECTORS
    ]

    openmetrics = running.get("/metrics", Accept="application/openmetrics-text")[1].decode()
    assert list(parse_openmetrics(openmetrics))  # type: ignore[no-untyped-call]
    packed = running.get("/metrics", Accept_Encoding="gzip")[1]
    assert b"trainwarden_worker_processes" in gzip.decompress(packed)
    assert b"nobody" in running.get("/")[1]
    assert running.end() == 0


def test_promtool_finds_no_fault_in_the_metrics(
    start: Callable[..., Running], path: Path, binaries: stack.Binaries
) -> None:
    page = start(f"--config.file={path}").get("/metrics")[1]
    checked = subprocess.run(
        [binaries.promtool, "check", "metrics"], input=page, capture_output=True, check=False
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_well(start: Callable[..., Running], number: signal.Signals) -> None:
    running = start()
    assert running.end(number) == 0
    assert [line["msg"] for line in running.lines] == ["listening", "stopping", "stopped"]


def test_it_ends_well_under_load(start: Callable[..., Running], path: Path) -> None:
    running = start(f"--config.file={path}")
    broken: list[bytes] = []
    answered = threading.Semaphore(0)

    def scrape_until_refused() -> None:
        while True:
            try:
                status, body = running.get("/metrics")
            except OSError:
                return
            if status != 200 or not body.endswith(b"\n"):
                broken.append(body)
            answered.release()

    scrapers = [threading.Thread(target=scrape_until_refused) for _ in range(4)]
    for scraper in scrapers:
        scraper.start()
    for _ in range(40):
        assert answered.acquire(timeout=60)
    status = running.end()
    for scraper in scrapers:
        scraper.join(60)

    assert (status, broken) == (0, [])
    assert [line for line in running.lines if line["level"] in {"warning", "error"}] == []


def test_sighup_reloads_the_file_and_survives_a_bad_one(
    start: Callable[..., Running], path: Path
) -> None:
    running = start(f"--config.file={path}")

    path.write_text(CONFIG + "  - name: another\n    nonsense: 1\n")
    running.process.send_signal(signal.SIGHUP)
    failed = running.wait_for("reload failed")
    assert failed["problem"] == f"{path}:6: runs[1].nonsense: unknown key"
    assert running.value("trainwarden_config_last_reload_successful") == 0
    assert running.value("trainwarden_worker_processes") == 0, "the old one is still in force"

    path.write_text(CONFIG.replace("nobody", "somebody"))
    running.process.send_signal(signal.SIGHUP)
    running.wait_for("reloaded")
    assert running.value("trainwarden_config_last_reload_successful") == 1
    assert b'worker="somebody"' in running.get("/metrics")[1]
    assert running.end() == 0


def test_post_reloads_the_file_and_answers_with_what_is_wrong(
    start: Callable[..., Running], path: Path
) -> None:
    running = start(f"--config.file={path}")
    assert running.get("/-/reload", "POST") == (200, b"reloaded\n")
    path.write_text("runs: [")
    status, problems = running.get("/-/reload", "POST")
    assert status == 500
    assert problems.decode().startswith(f"{path}:1: not YAML: ")
    assert running.get("/-/reload")[0] == 405


def test_a_web_config_file_is_obeyed_and_shown(
    start: Callable[..., Running], tmp_path: Path
) -> None:
    web_file = tmp_path / "web.yml"
    web_file.write_text("")
    running = start(f"--web.config.file={web_file}")
    assert running.value("trainwarden_web_config_last_reload_successful") == 1

    web_file.write_text("basic_auth_users: 3")
    status, problems = running.get("/-/reload", "POST")
    assert status == 500
    assert str(web_file) in problems.decode()
    assert running.value("trainwarden_web_config_last_reload_successful") == 0
    assert running.value("trainwarden_config_last_reload_successful") == 1


def test_the_service_manager_is_kept_informed(
    start: Callable[..., Running], tmp_path: Path
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(60)
        running = start(NOTIFY_SOCKET=str(tmp_path / "notify"), WATCHDOG_USEC="60000000")
        assert running.end() == 0
        assert [manager.recv(100) for _ in range(3)] == [b"READY=1", b"WATCHDOG=1", b"STOPPING=1"]


def test_an_address_in_use_is_one_clear_line() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        status, _, error = ended("run", f"--web.listen-address={address}")
    assert status == 1
    assert error.splitlines() == [
        f"trainwarden-exporter: [Errno 98] cannot listen on {address}: Address already in use"
    ]


@pytest.mark.parametrize("command", ["check", "preflight", "checkpoints", "stacks", "discover"])
def test_a_short_command_imports_no_server(command: str, path: Path) -> None:
    path.write_text("runs: []\n")
    heavy = ("aiohttp", "trainwarden_exporter.app", "trainwarden_exporter.status_page")
    named = {"check": [str(path)], "discover": []}.get(command, [f"--config.file={path}"])
    program = (
        "import sys\nfrom trainwarden_exporter.__main__ import main\n"
        f"main({[command, *named]})\nprint([one for one in {heavy} if one in sys.modules])\n"
    )
    environment = os.environ | {"TRAINWARDEN_FOLDER": str(path.parent / "tw")}
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        cwd=path.parent,
        env=environment,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "[]"


IMPORTS = "import sys\nfrom trainwarden_exporter.__main__ import main\n"
BEGIN = 'sys.exit(main(["run", "--web.listen-address=127.0.0.1:0"]))'


@pytest.mark.parametrize("threads", [0, 1, 2])
def test_a_box_without_the_threads_it_begins_with_is_one_clear_line(threads: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS + with_room_for(threads) + BEGIN],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith('trainwarden-exporter: no thread "')
    assert line.endswith("\": can't start new thread")


def test_a_bad_file_at_the_start_is_reported_problem_by_problem(path: Path) -> None:
    path.write_text("rnus: 3\nhost: 4\n")
    status, _, error = ended("run", f"--config.file={path}")
    assert status == 1
    assert error.splitlines() == [
        f"trainwarden-exporter: {path}:1: rnus: unknown key (did you mean runs?)",
        f"trainwarden-exporter: {path}:2: host: expected a mapping",
    ]


def test_a_bad_web_file_at_the_start_is_reported(tmp_path: Path) -> None:
    status, _, error = ended(
        "run", "--web.listen-address=127.0.0.1:0", f"--web.config.file={tmp_path / 'absent.yml'}"
    )
    assert status == 1
    assert "absent.yml: No such file or directory" in error
    assert "Traceback" not in error


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["walk"],
        ["run", "--web.listen-address=nowhere"],
        ["run", "--log.level=loud"],
        ["run", "--remediator.url=nowhere"],
        ["run", "--nonsense"],
        ["check"],
    ],
)
def test_misuse_has_its_own_exit_status(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage: trainwarden-exporter" in capsys.readouterr().err


def test_the_version_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert re.match(
        rf"trainwarden-exporter {re.escape(__version__)} \(Python 3\.", capsys.readouterr().out
    )


def test_check_says_that_a_file_is_good(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(path)]) == 0
    assert capsys.readouterr() == (f"{path}: ok (1 run, 1 worker)\n", "")


def test_check_explains_limits_and_who_set_them(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path.write_text(
        "runs: [{name: a, path: /d, framework: areal, progress: {phase_limits: {saving: 5m}}}]"
    )
    assert main(["check", "--explain", str(path)]) == 0
    _, *limits = capsys.readouterr().out.splitlines()
    assert "run a: saving: at most 300 s (configured)" in limits
    assert "run a: evaluating: at most 3600 s (default)" in limits
    assert [line for line in limits if "at most 120 s (AReaL waits 120 s" in line]


def test_check_says_what_is_wrong_with_a_file(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path.write_text("rnus: 3\nhost: 4\n")
    assert main(["check", str(path)]) == 1
    assert capsys.readouterr() == (
        "",
        (
            f"{path}:1: rnus: unknown key (did you mean runs?)\n"
            f"{path}:1: runs: expected a list\n"
            f"{path}:2: host: expected a mapping\n"
        ),
    )


def test_check_warns_of_what_is_hardly_meant(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path.write_text("")
    assert main(["check", str(path)]) == 0
    out, err = capsys.readouterr()
    assert out == f"{path}: ok (0 runs, 0 workers)\n"
    assert err == f"{path}: warning: no runs: the exporter observes only the host\n"
    assert config_warnings(Config.model_validate({"runs": [{"name": "a"}]})) == [
        "run a has no workers: the exporter does not observe its processes"
    ]


def test_check_warns_of_a_role_that_is_probably_misspelled() -> None:
    workers = [
        {"name": role, "role": role, "match": {"command": "^/opt/x"}}
        for role in ("traner", "trainer", "judge")
    ]
    config = Config.model_validate({"runs": [{"name": "a", "workers": workers}]})
    assert config_warnings(config) == [
        "worker traner of run a: no rule knows the role traner (did you mean trainer?)"
    ]


@pytest.mark.parametrize(("available", "warnings"), [(True, []), (False, [NO_EXIT_STATUSES])])
def test_check_warns_of_a_kernel_without_exit_statuses(
    monkeypatch: pytest.MonkeyPatch, available: bool, warnings: list[str]
) -> None:
    monkeypatch.setattr(f"{config_warnings.__module__}.exit_statuses_available", lambda: available)
    worker = {"name": "trainer", "match": {"command": "-m trainer"}, "finishes": True}
    config = Config.model_validate({"runs": [{"name": "a", "workers": [worker]}]})

    assert config_warnings(config) == warnings
