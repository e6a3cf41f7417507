"""A new user whose run leaves what AReaL leaves, and who does what docs/your-run.md says, no more.

The commands are read out of that page and run in a bare copy of the project. Of what `make up`
would fetch there, what these tests run with is used again: the environment and the servers.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

import areal_trainer
import fake_serving
import stack
from areal_trainer import Traces
from boards import BOARDS, why
from demo_reasons import OF_THE_DEMO
from ports import free_port
from previewing.asking import Prometheus, Window, answer, choose_all
from running import PROJECT, SCRIPTS, Up, fetch, journaled

LONGEST_SECONDS = 300
"""What docs/your-run.md promises: five minutes from the first command to a board with data."""
PATIENCE = 600
STEP_SECONDS = 0.2
SAVE_EVERY = 100
"""Steps: a checkpoint every 20 s."""
BARE = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info")
ENGINES = Path(__file__).parent / "engines"

PAGE = (PROJECT / "docs" / "your-run.md").read_text(encoding="utf-8")
FIRST_STEPS = PAGE.partition("## Your run, in five minutes")[2].partition("**3. ")[0]
FOLDER, OUTPUTS = "/srv/run", "/data/outputs"
"""Where docs/your-run.md has the configuration, and what the run writes."""

OF_THIS_RUN = frozenset(
    {
        # what discovery never guesses, as an action would hang on it
        why.NO_MEMORY_LIMIT,
        # what this host, or a run like this, lacks
        why.NO_GPU,
        why.NO_GPU_OR_WORKER,
        why.NO_GPU_HELD,
        why.NO_ROLLOUTS,
        # what has not happened yet to a run that is well and only looked at
        why.NO_ALERT_FIRED,
        why.NOTHING_DONE,
        why.NOTHING_DECIDED,
        why.NO_END_YET,
    }
)
"""Why a query of the board may be answered with nothing, beside what holds in the demo."""

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="the stack watches processes through /proc"
)


def commands() -> list[str]:
    """The commands to type before `make up`, without the alternatives."""
    blocks = re.findall(r"```console\n(.*?)```", FIRST_STEPS, re.DOTALL)
    lines = re.findall(r"^\$ (.+)$", "".join(blocks), re.MULTILINE)
    return [line for line in lines if not line.endswith("# or this")]


def start_command() -> str:
    """What starts the stack."""
    (command,) = re.findall(r"^\*\*2\. `(.+?)`\*\*", FIRST_STEPS, re.MULTILINE)
    return str(command)


@dataclass(frozen=True)
class User:
    """A user with a copy of the project, a run that goes on, and a folder for two files."""

    copy: Path
    folder: Path
    outputs: Path
    run: tuple[subprocess.Popen[bytes], ...]
    began: float

    def typed(self, command: str) -> str:
        """A command of docs/your-run.md as it is typed on this box."""
        return command.replace(OUTPUTS, shlex.quote(str(self.outputs))).replace(
            FOLDER, shlex.quote(str(self.folder))
        )

    def environment(self) -> dict[str, str]:
        """The environment of a user who is new to this project."""
        path = os.environ["PATH"].split(os.pathsep)
        kept = {
            key: value
            for key, value in os.environ.items()
            if key not in ("CONFIG", "MODE", "VIRTUAL_ENV") and not key.startswith("MAKE")
        }
        return kept | {"PATH": os.pathsep.join(one for one in path if Path(one) != SCRIPTS)}


class Made(Up):
    """The stack as `make up` runs it, in a terminal of its own."""

    def __init__(self, user: User) -> None:
        self.folder = user.copy
        self.output = user.copy.parent / "make-up.out"
        self.started = time.time()
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                ["bash", "-c", user.typed(start_command())],
                cwd=user.copy,
                env=user.environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def interrupt(self) -> None:
        """As Ctrl-C does: all of the foreground hears it."""
        os.killpg(self.process.pid, signal.SIGINT)
        self.process.wait(90)


def bare_copy(place: Path) -> Path:
    """The project as a new user has it, but with the dependencies that are installed already."""
    copy = place / "main"
    shutil.copytree(PROJECT, copy, ignore=BARE)
    environment = copy / ".venv"
    environment.mkdir()
    for name in ("bin", "lib", "pyvenv.cfg"):
        (environment / name).symlink_to(SCRIPTS.parent / name)
    (environment / "stack.done").touch()
    servers = copy / ".stack"
    servers.mkdir()
    for found in stack.stack_folder().glob("[!.]*/"):
        if not (found / "supervisord.conf").exists():  # not what somebody runs here
            (servers / found.name).symlink_to(found)
    return copy


def started_run(outputs: Path, log: Path) -> tuple[subprocess.Popen[bytes], ...]:
    """A server and a trainer that goes on from the last of three checkpoints."""
    traces, port = Traces(outputs), free_port()
    for count, minutes in ((1, 20), (2, 10), (3, 1)):
        traces.save(count * SAVE_EVERY - 1, at=time.time() - 60 * minutes)
    python = os.pathsep.join((str(ENGINES), str(Path(fake_serving.__file__).parent)))
    server = "-m", "sglang.launch_server", "--model-path", "/models/qwen", "--port", str(port)
    trainer = (
        *(areal_trainer.__file__, "--root", outputs, "--server", f"http://127.0.0.1:{port}"),
        *("--step-seconds", str(STEP_SECONDS), "--save-every", str(SAVE_EVERY)),
        "--tells-numbers",
    )
    with log.open("wb") as output:
        return tuple(
            subprocess.Popen(
                [sys.executable, *arguments],
                env={**os.environ, "PYTHONPATH": python},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
            for arguments in (server, trainer)
        )


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[User]:
    """One who has typed all that comes before `make up`."""
    stack.find_binaries()
    place = tmp_path_factory.mktemp("new")
    outputs, folder = place / "outputs", place / "run"
    copy = bare_copy(place)
    with ExitStack() as ending:
        run = started_run(outputs, place / "run.out")
        for process in run:
            ending.callback(process.wait)
            ending.callback(process.kill)
        steps = re.compile(rf"Train step {3 * SAVE_EVERY + 1}\D")
        deadline = time.monotonic() + PATIENCE
        while not (log := Traces(outputs).log).exists() or not steps.search(log.read_text()):
            assert time.monotonic() < deadline, (place / "run.out").read_text()
            time.sleep(0.1)
        new = User(copy, folder, outputs, run, time.time())
        script = "\n".join(map(new.typed, commands()))
        result = subprocess.run(
            ["bash", "-e", "-c", script],
            cwd=copy,
            env=new.environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert (result.returncode, result.stderr) == (0, ""), result.stdout
        assert "ok (1 run, " in result.stdout
        yield new


@pytest.fixture(scope="module")
def made(user: User) -> Iterator[Made]:
    running = Made(user)
    try:
        running.wait_until(lambda: "What happens:" in running.text(), PATIENCE)
        yield running
    finally:
        if running.process.poll() is None:
            running.interrupt()


def test_the_page_says_what_to_type() -> None:
    typed = [*commands(), start_command()]
    assert [line.split()[0] for line in typed] == [
        "export",
        "mkdir",
        "trainwarden",
        "trainwarden",
        "CONFIG=/srv/run",
    ]
    assert f"discover {OUTPUTS} > {FOLDER}/exporter.yml" in typed[2]
    assert typed[3].split()[1:] == ["check", f"{FOLDER}/exporter.yml"]


def test_the_proposal_has_all_parts_of_the_run(user: User) -> None:
    (run,) = yaml.safe_load((user.folder / "exporter.yml").read_text())["runs"]
    assert (run["framework"], run["path"]) == ("areal", str(user.outputs))
    assert {one["role"] for one in run["workers"]} == {"trainer", "inference"}
    assert len(run["inference"]) == 1


def test_every_panel_of_the_board_has_data(
    user: User,
    made: Made,
    capsys: pytest.CaptureFixture[str],
    pytestconfig: pytest.Config,
) -> None:
    """But for what this run has none of, or what has not happened to it."""
    missing: list[str] = []
    excused = OF_THE_DEMO | OF_THIS_RUN
    prometheus, board = Prometheus(made.url("Prometheus")), BOARDS[0]
    shipped = user.copy / "grafana" / "dashboards" / f"{board.uid}.json"
    model = json.loads(shipped.read_text(encoding="utf-8"))
    shown = [panel for panel in model["panels"] if panel["type"] != "row"]

    def all_there() -> bool:
        window = Window(user.began, time.time())
        values = choose_all(model, prometheus, window).values
        missing[:] = [
            f"{panel.title}: {query.text}: {query.empty_when}"
            for panel, drawn in zip(board.panels, shown, strict=True)
            for query, target in zip(panel.queries, drawn.get("targets", ()), strict=True)
            if query.empty_when not in excused and not answer(target, prometheus, window, values)
        ]
        return not missing

    deadline = time.monotonic() + PATIENCE  # how long it takes is shown, and decides nothing
    while not all_there():
        assert time.monotonic() < deadline, "\n".join(missing)
        time.sleep(1)
    took = time.time() - user.began
    with capsys.disabled():
        print(f"\na new user: data on the board {took:.0f} s after the first command")  # noqa: T201 - as in test_up.py
    if pytestconfig.getoption("within_limits"):
        assert took < LONGEST_SECONDS


def test_the_page_shows_the_run_at_a_glance(user: User, made: Made) -> None:
    text = re.sub(r"<[^>]+>", " ", fetch(f"{made.url('exporter')}/")[1])
    name = user.outputs.parent.name  # the folder that the run has to itself
    for seen in (f"Run {name}", "training", "areal_trainer", "launch_server", "sglang"):
        assert seen in text
    assert re.search(r"Checkpoint\s+●?\s*\d+ (s|min)", text), text[:2000]


def test_the_run_is_not_touched_and_outlives_the_stack(user: User, made: Made) -> None:
    started = made.processes()
    assert "mode is observe" in made.text()
    assert "intent" not in journaled(made)
    made.interrupt()
    assert "All that was started has ended" in made.text()
    assert len(started) >= 8
    assert [process.poll() for process in user.run] == [None, None]
