from __future__ import annotations

from pathlib import Path

from trainwarden_exporter.config import Config
from trainwarden_exporter.discovery.box import Box, LogSeen, Place, Server
from trainwarden_exporter.discovery.lines import propose_patterns
from trainwarden_exporter.discovery.programs import Program
from trainwarden_exporter.discovery.propose import ProposedRun, propose
from trainwarden_exporter.discovery.render import render
from trainwarden_exporter.discovery.traces import Numbered
from trainwarden_exporter.layouts import LAYOUTS
from trainwarden_exporter.layouts.base import Phase
from trainwarden_exporter.yamlfile import parse

DATA = Path("/data/run")


def program(pid: int, command: str, *, parent: int = 1, folder: Path = DATA) -> Program:
    return Program(pid, tuple(command.split()), parent, folder)


def read(runs: tuple[ProposedRun, ...], *, gpus: int = 0) -> Config:
    """What an exporter makes of the proposal."""
    return parse(render(runs, gpus=gpus), Path("/etc/tw/exporter.yml"), Config, environment={})


def roles(run: ProposedRun) -> dict[str, str]:
    return {worker.selected.name: worker.role for worker in run.workers}


def test_what_works_in_the_folder_is_a_worker_and_what_it_starts_is_not() -> None:
    box = Box(
        programs=(
            program(10, "python3 train.py"),
            program(11, "python3 loader.py", parent=10),
            program(12, "python3 other.py", folder=Path("/home")),
            program(13, "prometheus --storage /data/run/p"),
        ),
        places=(Place(DATA),),
    )
    (run,) = propose(box)
    assert roles(run) == {"train": "trainer"}
    assert run.workers[0].finishes


def test_what_only_starts_the_parts_is_none_of_them() -> None:
    box = Box(
        programs=(
            program(5, "bash run.sh"),
            program(6, "python3 launch.py", parent=5),
            program(7, "python3 my_train.py", parent=6),
            program(8, "python3 rollout.py", parent=6),
            program(9, "python3 loader.py", parent=7),
            program(10, "python3 reader.py", parent=7),
        ),
        places=(Place(DATA),),
    )
    (run,) = propose(box)
    # train.py starts several others too, but its name says what it is for
    assert set(roles(run)) == {"my_train", "rollout"}


def test_a_launcher_of_one_script_is_counted_with_it() -> None:
    box = Box(
        programs=(
            program(5, "/bin/bash run.sh"),
            program(6, "torchrun --nproc-per-node 2 pretrain.py", parent=5),
            program(7, "python3 pretrain.py", parent=6),
            program(8, "python3 pretrain.py", parent=6),
        ),
        places=(Place(DATA),),
    )
    (run,) = propose(box)
    assert list(roles(run)) == ["torchrun"]


def test_a_frameworks_programs_belong_to_the_only_run_wherever_they_work() -> None:
    box = Box(
        programs=(
            program(10, "python3 train.py"),
            program(20, "vllm serve org/model --port 8001", folder=Path("/")),
        ),
        places=(Place(DATA),),
    )
    (run,) = propose(box)
    assert set(roles(run).values()) == {"trainer", "inference"}
    config = read((run,))
    (server,) = config.runs[0].inference
    assert (server.url, server.engine) == (None, None)
    assert server.worker in {worker.name for worker in config.runs[0].workers}


def test_a_server_known_only_by_its_metrics_is_proposed_with_its_address() -> None:
    box = Box(
        programs=(program(10, "python3 infer.py"),),
        places=(Place(DATA),),
        servers={10: Server("vllm", 8123)},
    )
    config = read(propose(box))
    (server,) = config.runs[0].inference
    assert (server.url, server.engine, server.worker) == ("http://127.0.0.1:8123", "vllm", "infer")
    assert config.runs[0].workers[0].role == "inference"


def test_work_logs_and_lines_are_described() -> None:
    text = "step 1/9 loss 1\nstep 2/9 loss 1\nwaiting for rollouts"
    logs = (LogSeen(DATA / "logs" / "train.log", propose_patterns(text)),)
    work = (
        Numbered(DATA / "ckpt", "checkpoints", r"step_(?P<step>\d+)", 3, marker="DONE"),
        Numbered(
            DATA / "saved", "checkpoints", r"s(?P<step>\d+)", 3, partial=r"tmp_s(?P<step>\d+)"
        ),
        Numbered(DATA / "rollouts", "batches", r"b(?P<step>\d+)\.pt", 3),
        Numbered(DATA / "broadcasts", "weights", r"step_(?P<step>\d+)", 3, marker="STABLE"),
    )
    writer = Program(10, ("python3", "train.py"), 1, DATA, (DATA / "logs" / "train.log",))
    config = read(propose(Box((writer,), (Place(DATA, None, work, logs),), gpus=2)), gpus=2)
    (run,) = config.runs
    assert run.path == DATA
    assert [one.name for one in run.checkpoints] == ["ckpt", "saved"]
    assert [(one.name, one.carries) for one in run.rollouts] == [
        ("rollouts", None),
        ("broadcasts", "weights"),
    ]
    (log,) = run.logs
    assert (log.name, log.files, log.worker) == ("train", ("logs/train.log",), "train")
    assert [pattern.phase for pattern in log.patterns] == [
        Phase.TRAINING,
        Phase.WAITING_FOR_ROLLOUTS,
    ]
    assert config.gpu.expected == 2


def test_what_stands_in_a_command_line_cannot_break_the_file() -> None:
    hostile = ("python3", "train.py", "--name", "a'b\n: {x} ${HOME} #\x1b[1m", "--seed=$1")
    box = Box((Program(10, hostile, 1, DATA), Program(11, hostile[:2], 1, DATA)), (Place(DATA),))
    config = read(propose(box))
    first, second = config.runs[0].workers
    assert first.match.command is not None
    assert first.match.command.search(" ".join(hostile))
    assert second.match.command is not None
    assert second.match.command.search("python3 train.py")
    assert not second.match.command.search(" ".join(hostile))


def test_a_log_whose_path_cannot_be_a_template_is_named_in_a_comment() -> None:
    place = Place(DATA, logs=(LogSeen(DATA / "{x}.log"), LogSeen(DATA / "a[1].log")))
    runs = propose(Box((), (place,)))
    assert "# not to be written as a template: {x}.log" in render(runs)
    (log,) = read(runs).runs[0].logs
    assert log.files == ("a[[]1].log",)


def test_two_runs_of_one_name_are_told_apart() -> None:
    places = (Place(Path("/a/run")), Place(Path("/b/run")))
    assert [run.name for run in propose(Box((), places))] == ["run", "run-2"]


def test_without_a_folder_the_programs_of_frameworks_are_a_run() -> None:
    box = Box((program(10, "python3 -m verl.trainer.main_ppo x=1"), program(11, "vim notes")))
    (run,) = propose(box)
    assert list(roles(run)) == ["main_ppo"]
    assert read((run,)).runs[0].path is None


def test_an_empty_box_gives_a_good_file_without_runs() -> None:
    assert read(propose(Box(()))).runs == ()


def test_a_framework_is_proposed_by_its_name_for_each_layout() -> None:
    for layout in LAYOUTS:
        text = f"runs: [{{name: a, framework: {layout.name}, path: /x}}]"
        assert parse(text, Path("/x.yml"), Config).runs[0].framework == layout.name
