from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from trainwarden_exporter.__main__ import main
from trainwarden_exporter.config import Config
from trainwarden_exporter.config_file.loader import parse
from trainwarden_exporter.discovery.artifacts import StepFolder
from trainwarden_exporter.discovery.host_scan import (
    DetectedServer,
    DiscoveredLog,
    HostScan,
    RunFolder,
)
from trainwarden_exporter.discovery.log_patterns import propose_patterns
from trainwarden_exporter.discovery.processes import Candidate
from trainwarden_exporter.discovery.proposal import Proposal, ProposedRun, propose
from trainwarden_exporter.discovery.yaml_writer import render
from trainwarden_exporter.frameworks import FRAMEWORKS
from trainwarden_exporter.frameworks.base import Phase

DATA = Path("/data/run")


def candidate(pid: int, command: str, *, parent: int = 1, folder: Path = DATA) -> Candidate:
    return Candidate(pid, tuple(command.split()), parent, folder)


def read(runs: Proposal, *, gpus: int = 0) -> Config:
    """What an exporter makes of the proposal."""
    return parse(render(runs, gpus=gpus), Path("/etc/tw/exporter.yml"), Config, environment={})


def roles(run: ProposedRun) -> dict[str, str]:
    return {worker.selected.name: worker.role for worker in run.workers}


def test_what_works_in_the_folder_is_a_worker_and_what_it_starts_is_not() -> None:
    scan = HostScan(
        candidates=(
            candidate(10, "python3 train.py"),
            candidate(11, "python3 loader.py", parent=10),
            candidate(12, "python3 other.py", folder=Path("/home")),
            candidate(13, "prometheus --storage /data/run/p"),
        ),
        run_folders=(RunFolder(DATA),),
    )
    (run,) = propose(scan).runs
    assert roles(run) == {"train": "trainer"}
    assert run.workers[0].finishes


def test_what_only_starts_the_parts_is_none_of_them() -> None:
    scan = HostScan(
        candidates=(
            candidate(5, "bash run.sh"),
            candidate(6, "python3 launch.py", parent=5),
            candidate(7, "python3 my_train.py", parent=6),
            candidate(8, "python3 rollout.py", parent=6),
            candidate(9, "python3 loader.py", parent=7),
            candidate(10, "python3 reader.py", parent=7),
        ),
        run_folders=(RunFolder(DATA),),
    )
    (run,) = propose(scan).runs
    # train.py starts several others too, but its name says what it is for
    assert set(roles(run)) == {"my_train", "rollout"}


def test_a_launcher_of_one_script_is_counted_with_it() -> None:
    scan = HostScan(
        candidates=(
            candidate(5, "/bin/bash run.sh"),
            candidate(6, "torchrun --nproc-per-node 2 pretrain.py", parent=5),
            candidate(7, "python3 pretrain.py", parent=6),
            candidate(8, "python3 pretrain.py", parent=6),
        ),
        run_folders=(RunFolder(DATA),),
    )
    (run,) = propose(scan).runs
    assert list(roles(run)) == ["pretrain"]


TRAINER = Candidate(10, ("python3", "train.py"), 1, DATA, session=10, user="a")
SERVER = Candidate(
    20, ("vllm", "serve", "org/model", "--port", "8001"), 1, Path("/"), session=20, user="a"
)


@pytest.mark.parametrize(
    ("trainer", "server", "clients"),
    [
        (TRAINER, SERVER, {10: frozenset({8001})}),
        (TRAINER, replace(SERVER, session=10), {}),
        (replace(TRAINER, cgroup="/x.service"), replace(SERVER, cgroup="/x.service"), {}),
        (replace(TRAINER, arguments=("python3", "train.py", "--vllm_port", "8001")), SERVER, {}),
        (TRAINER, replace(SERVER, written=(DATA / "vllm.log",)), {}),
    ],
    ids=["connection", "session", "cgroup", "argument", "file"],
)
def test_a_server_belongs_to_the_run_that_evidence_connects_it_to(
    trainer: Candidate, server: Candidate, clients: dict[int, frozenset[int]]
) -> None:
    scan = HostScan((trainer, server), (RunFolder(DATA),), clients=clients)
    assert set(roles(propose(scan).runs[0]).values()) == {"trainer", "inference"}
    (proposed,) = read(propose(scan)).runs[0].inference
    assert (proposed.url, proposed.engine) == (None, None)


def test_a_strangers_server_is_a_comment() -> None:
    proposal = propose(HostScan((TRAINER, SERVER), (RunFolder(DATA),)))
    assert set(roles(proposal.runs[0]).values()) == {"trainer"}
    assert "# - pid 20, no connection to a run was found: vllm serve" in render(proposal)


def test_a_server_that_fits_two_runs_is_in_none() -> None:
    other = Candidate(11, ("python3", "train2.py"), 1, Path("/b"), session=10, user="a")
    scan = HostScan(
        (TRAINER, other, replace(SERVER, session=10)),
        (RunFolder(DATA), RunFolder(Path("/b"))),
        trainers={10: DATA, 11: Path("/b")},
    )
    proposal = propose(scan)
    assert [list(roles(run).values()) for run in proposal.runs] == [["trainer"], ["trainer"]]
    assert [reason for _, reason in proposal.unclear] == ["fits several runs"]


@pytest.mark.parametrize(
    ("folders", "start_folders"),
    [
        (("/a", "/b"), ("/a", "/b")),
        (("/data", "/data"), ("/a", "/b")),  # they changed it
        (("/a", "/b"), ("/data", "/data")),  # one program started both
        (("/a", "/b/below"), (None, None)),
        (("/data", "/data"), (None, None)),
    ],
)
def test_equal_command_lines_of_two_runs_are_distinguished_by_their_folders(
    folders: tuple[str, str], start_folders: tuple[str | None, str | None]
) -> None:
    both = tuple(
        Candidate(
            pid,
            ("python3", "train.py"),
            1,
            Path(folder),
            user="u",
            start_folder=None if started is None else Path(started),
        )
        for pid, folder, started in zip((10, 11), folders, start_folders, strict=True)
    )
    scan = HostScan(
        both,
        (RunFolder(Path("/a")), RunFolder(Path("/b"))),
        trainers={10: Path("/a"), 11: Path("/b")},
    )
    one, two = read(propose(scan)).runs
    assert two.workers[0].match.user == "u"
    if "/a" in (*folders, *start_folders):
        assert one.workers[0].match.cwd == Path("/a")
        assert two.workers[0].match.cwd in (Path("/b"), Path("/b/below"))
    else:
        assert "# Not distinguishable from pid 11" in render(propose(scan))


@pytest.mark.parametrize(
    "starter",
    [
        "python3 /opt/conda/bin/conda run -n x python3 fit.py",
        "python3 /usr/bin/poetry run python3 fit.py",
        "python3 -m accelerate.commands.launch fit.py",
        "python3 wrap.py fit.py",
    ],
)
def test_what_started_the_trainer_is_the_trainer_and_may_finish(starter: str) -> None:
    both = tuple(
        Candidate(pid, tuple(line.split()), pid - 1, Path("/a"))
        for pid, line in ((10, starter), (11, "python3 fit.py"))
    )
    (run,) = propose(HostScan(both, (RunFolder(Path("/a")),), trainers={11: Path("/a")})).runs
    (worker,) = run.workers
    assert [one.pid for one in worker.selected.candidates] == [10]
    assert (worker.role, worker.finishes) == ("trainer", True)


def test_tools_are_no_workers_and_watchdogs_become_heartbeats() -> None:
    scan = HostScan(
        (
            TRAINER,
            candidate(11, "tail -f train.py"),
            candidate(12, "vim train.py"),
            candidate(13, "python3 -m tensorboard.main --logdir /data/run"),
            candidate(14, "python3 -m ipykernel_launcher -f x"),
            candidate(15, "python3 watchdog.py"),
        ),
        (RunFolder(DATA),),
    )
    proposal = propose(scan)
    assert list(roles(proposal.runs[0])) == ["train"]
    assert "#   - {name: watchdog, run: data, file: /run/watchdog.beat, interval: 5m}" in render(
        proposal
    )


def test_an_emergency_brake_in_a_log_is_watched_by_its_streak() -> None:
    text = "step 1/9\nstep 2/9\nemergency brake: out of memory"
    logs = (DiscoveredLog(DATA / "train.log", propose_patterns(text)),)
    (run,) = read(propose(HostScan((TRAINER,), (RunFolder(DATA, logs=logs),)))).runs
    step, brake = run.logs[0].patterns
    assert (step.resets, brake.name, brake.error) == ("emergency_brake", "emergency_brake", True)


def test_the_memory_that_a_worker_took_is_a_comment() -> None:
    used = replace(TRAINER, memory=3 << 30, memory_peak=5 << 30)
    text = render(propose(HostScan((used,), (RunFolder(DATA),))))
    assert "# memory without its children: 3.0 GiB now, at most 5.0 GiB since it started" in text
    assert "# memory_limit: " in text


def test_a_server_known_only_by_its_metrics_is_proposed_with_its_address() -> None:
    scan = HostScan(
        candidates=(candidate(10, "python3 infer.py"),),
        run_folders=(RunFolder(DATA),),
        servers={10: DetectedServer("vllm", 8123)},
    )
    config = read(propose(scan))
    (server,) = config.runs[0].inference
    assert (server.url, server.engine, server.worker) == ("http://127.0.0.1:8123", "vllm", "infer")
    assert config.runs[0].workers[0].role == "inference"


@pytest.mark.parametrize("content", ["out", "checkpoints", "lightning_logs"])
def test_a_run_is_not_named_after_the_kind_of_its_content(content: str) -> None:
    (run,) = propose(HostScan((), (RunFolder(DATA / content),))).runs
    assert run.name == DATA.name


def test_work_logs_and_lines_are_described() -> None:
    text = "step 1/9 loss 1\nstep 2/9 loss 1\nwaiting for rollouts"
    logs = (DiscoveredLog(DATA / "logs" / "train.log", propose_patterns(text)),)
    work = (
        StepFolder(DATA / "ckpt", "checkpoints", r"step_(?P<step>\d+)", 3, marker="DONE"),
        StepFolder(
            DATA / "saved", "checkpoints", r"s(?P<step>\d+)", 3, partial=r"tmp_s(?P<step>\d+)"
        ),
        StepFolder(DATA / "rollouts", "batches", r"b(?P<step>\d+)\.pt", 3),
        StepFolder(DATA / "broadcasts", "weights", r"step_(?P<step>\d+)", 3, marker="STABLE"),
    )
    writer = Candidate(10, ("python3", "train.py"), 1, DATA, (DATA / "logs" / "train.log",))
    config = read(
        propose(HostScan((writer,), (RunFolder(DATA, None, work, logs),), gpus=2)), gpus=2
    )
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
    scan = HostScan(
        (Candidate(10, hostile, 1, DATA), Candidate(11, hostile[:2], 1, DATA)), (RunFolder(DATA),)
    )
    config = read(propose(scan))
    first, second = config.runs[0].workers
    assert first.match.command is not None
    assert first.match.command.search(" ".join(hostile))
    assert second.match.command is not None
    assert second.match.command.search("python3 train.py")
    assert not second.match.command.search(" ".join(hostile))


def test_a_log_whose_path_cannot_be_a_template_is_named_in_a_comment() -> None:
    run_folder = RunFolder(
        DATA, logs=(DiscoveredLog(DATA / "{x}.log"), DiscoveredLog(DATA / "a[1].log"))
    )
    runs = propose(HostScan((), (run_folder,)))
    assert "# cannot be written as a template: {x}.log" in render(runs)
    (log,) = read(runs).runs[0].logs
    assert log.files == ("a[[]1].log",)


def test_two_runs_of_one_name_are_distinguished() -> None:
    run_folders = (RunFolder(Path("/a/run")), RunFolder(Path("/b/run")))
    assert [run.name for run in propose(HostScan((), run_folders)).runs] == ["a", "b"]


def test_an_empty_box_gives_a_good_file_without_runs() -> None:
    assert read(propose(HostScan(()))).runs == ()


def test_a_framework_is_proposed_by_its_name_for_each_layout() -> None:
    for framework in FRAMEWORKS:
        text = f"runs: [{{name: a, framework: {framework.name}, path: /x}}]"
        assert parse(text, Path("/x.yml"), Config).runs[0].framework == framework.name


def test_a_program_reads_the_proposal_as_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "checkpoints").mkdir()
    for step in (10, 20):
        (tmp_path / "checkpoints" / f"step_{step}.pt").write_bytes(b"whole")
    command = ["discover", str(tmp_path)]
    assert main(command) == 0
    shown = yaml.safe_load(capsys.readouterr().out)
    assert main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == shown
    assert shown["runs"][0]["path"] == str(tmp_path)
