from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from trainwarden_exporter.discovery.host_scan import (
    DetectedServer,
    HostScan,
    detect_engine,
    find_run_folders,
    limit_to_folder,
    matching_frameworks,
    read_servers,
    scan_folder,
)
from trainwarden_exporter.discovery.processes import Candidate
from trainwarden_exporter.discovery.programs import is_monitoring
from trainwarden_exporter.discovery.proposal import propose
from trainwarden_exporter.discovery.yaml_writer import render
from trainwarden_exporter.frameworks import FRAMEWORKS

VLLM = '# HELP vllm:num_requests_running x\nvllm:num_requests_running{engine="0"} 0.0\n'


@pytest.mark.parametrize(
    ("metrics", "engine"),
    [
        (VLLM, "vllm"),
        ("sglang:num_running_reqs 0\n", "sglang"),
        ("llamacpp:requests_processing 0\n", "llama_cpp"),
        ("# vllm: is not here\nhttp_requests_total 1\n", ""),
        ("", ""),
    ],
)
def test_an_engine_is_known_by_its_metrics(metrics: str, engine: str) -> None:
    assert detect_engine(metrics) == engine


class Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(VLLM.encode())

    def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002 - as in the base


@pytest.fixture
def port() -> Iterator[int]:
    with HTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def test_an_open_port_is_asked_what_serves_there(port: int) -> None:
    serving = Candidate(os.getpid(), ("python3", "inference.py"))
    other = Candidate(os.getpid(), ("python3", "train.py"))
    clear = Candidate(os.getpid(), ("vllm", "serve", "m"))
    assert read_servers([serving]) == {os.getpid(): DetectedServer("vllm", port)}
    assert read_servers([other, clear]) == {}


def test_a_shared_engine_says_nothing_of_the_framework() -> None:
    assert not list(matching_frameworks(Candidate(7, ("vllm", "serve", "m"))))
    verl = Candidate(7, ("python3", "-m", "verl.trainer.main_ppo"))
    assert "verl" in set(matching_frameworks(verl))


def test_weak_evidence_is_enough_where_the_frameworks_programs_run(tmp_path: Path) -> None:
    step = tmp_path / "step_10"
    step.mkdir()
    (step / "weights.bin").write_text("x")
    assert scan_folder(tmp_path).detected is None
    found = scan_folder(tmp_path, running={"nemo_rl"}).detected
    assert found is not None
    assert found.framework.name == "nemo_rl"


def trainer(pid: int, folder: Path, *arguments: str, log: Path | None = None) -> Candidate:
    written = () if log is None else (log,)
    return Candidate(pid, ("python3", *arguments), 1, folder, written, started=1.0)


def test_trainers_in_one_working_folder_are_runs_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("from trl import SFTTrainer\nargs = Config(output_dir='out_a')")
    (tmp_path / "b.py").write_text("import torch\nimport lightning as L\n")
    for name in ("out_a/checkpoint-10", "out_b", "other/checkpoint-70"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("out_a/checkpoint-10", "other/checkpoint-70"):
        (tmp_path / name / "trainer_state.json").write_text('{"global_step": 10}')
    found, trainers = find_run_folders(
        [
            trainer(10, tmp_path, "a.py"),
            trainer(11, tmp_path, "b.py", "--out=out_b"),
            Candidate(12, ("tail", "-f", "a.py"), 1, tmp_path),
            Candidate(13, ("vim", "a.py"), 1, tmp_path),
            Candidate(14, ("vllm", "serve", "m"), 1, tmp_path),
        ],
    )
    assert trainers == {10: tmp_path / "out_a", 11: tmp_path / "out_b"}
    assert {path.name: one.framework for path, one in found.items()} == {
        "out_a": "trl",
        "out_b": "lightning",
    }


def test_the_logs_of_a_folder_that_is_named_are_those_of_its_run(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch\n")
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "trainer.log").write_text("step 1 loss 2\nstep 2 loss 1\n")
    (tmp_path / "out").mkdir()
    for arguments in (("train.py",), ("train.py", "--out=out")):
        found, trainers = find_run_folders([trainer(10, tmp_path, *arguments)])
        scanned = scan_folder(tmp_path, FRAMEWORKS)
        run_folder, _ = limit_to_folder(tmp_path, scanned, found, trainers)
        assert [log.path.name for log in run_folder.logs] == ["trainer.log"]


@pytest.mark.parametrize(
    ("save", "renamed"),
    [
        ("torch.save(state, tmp)\n    os.replace(tmp, path)", True),
        ("torch.save(state, f'{path}.tmp')\n    os.rename(f'{path}.tmp', path)", True),
        ("torch.save(state, temporary)\n    temporary.rename(path)", True),
        ("torch.save(state, path)\n    name = name.replace('tmp', '')", False),
        ("torch.save(state, path)\n    os.replace(state_file, other)", False),
    ],
)
def test_a_script_that_renames_what_it_has_saved_needs_no_wait(
    tmp_path: Path, save: str, *, renamed: bool
) -> None:
    (tmp_path / "train.py").write_text(f"import os, torch\nout = 'out'\nif True:\n    {save}\n")
    (tmp_path / "out").mkdir()
    for step in (10, 20):
        (tmp_path / "out" / f"ckpt_{step}.pt").write_bytes(b"x")
    found, trainers = find_run_folders([trainer(10, tmp_path, "train.py")])
    (work,) = found[tmp_path / "out"].step_folders
    assert work.renamed is renamed
    one = Candidate(10, ("python3", "train.py"), 1, tmp_path)
    scan = HostScan((one,), tuple(found.values()), trainers=trainers)
    text = render(propose(scan))
    assert ("complete: {renamed: true}" in text) is renamed
    assert ("settled" in text) is not renamed


@pytest.mark.parametrize("detected", [False, True])
def test_a_trainer_started_above_the_folder_that_it_writes_to_belongs_to_it(
    tmp_path: Path, detected: bool
) -> None:
    script = "from trl import SFTTrainer\n" if detected else "import torch\n"
    (tmp_path / "train.py").write_text(f"{script}out = 'out'\n")
    (tmp_path / "out" / "checkpoint-10").mkdir(parents=True)
    if detected:
        state = tmp_path / "out" / "checkpoint-10" / "trainer_state.json"
        state.write_text('{"global_step": 10}')
    found, trainers = find_run_folders([trainer(10, tmp_path, "train.py")])
    run_folder, own = limit_to_folder(
        tmp_path, scan_folder(tmp_path, FRAMEWORKS), found, {**trainers, 11: Path("/other")}
    )
    assert run_folder.path == (tmp_path if detected else tmp_path / "out")
    assert own == {10: run_folder.path}


def test_a_log_that_is_named_after_the_process_is_not_that_of_the_run(tmp_path: Path) -> None:
    (tmp_path / "work" / "out").mkdir(parents=True)
    (tmp_path / "work" / "tune.py").write_text("from ray import tune\nstorage = 'out'\n")
    logs = [tmp_path / "logs" / "train.log", tmp_path / "session" / "core-driver-01_4711.log"]
    for log in logs:
        log.parent.mkdir()
        log.write_text("step 1/9\n")
    one = Candidate(4711, ("python3", "tune.py"), 1, tmp_path / "work", tuple(logs), started=1.0)
    found, _ = find_run_folders([one])
    (run_folder,) = found.values()
    assert [log.path for log in run_folder.logs] == logs[:1]


def test_a_search_is_recognised_by_its_script_or_its_log(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "hpo.py").write_text("import numpy, optuna\n")
    (tmp_path / "plain.py").write_text("import mine\n")
    log = tmp_path / "logs" / "w.txt"
    log.write_text("[I 2026-01-01] Trial 3 finished with value: 0.5 and parameters: {}\n")
    (tmp_path / "x").mkdir()
    candidates = [
        trainer(10, tmp_path / "x", "../hpo.py"),
        trainer(11, tmp_path, "plain.py", log=log),
    ]
    found, trainers = find_run_folders(candidates)
    assert {found[trainers[pid]].framework for pid in (10, 11)} == {"optuna"}


RAY_RUN = "from ray import tune\nout = 'out'\n"


@pytest.mark.parametrize(
    "script",
    [
        RAY_RUN,
        RAY_RUN.replace("tune", "(\n    tune,\n)"),
        "import numpy as np\nfrom ray.tune import Tuner\nout = 'out'\n",
        "from my import tuning\nout = 'out'\n",  # by its actors and its files
    ],
)
def test_two_programs_of_ray_at_once_are_runs_of_ray(tmp_path: Path, script: str) -> None:
    """One of them as scripts import Tune; the driver's children are the actors of Ray."""
    candidates = []
    for name, pid, text, actor in (
        ("train", 10, "import ray\nfrom ray.train.torch import TorchTrainer\n", "RayTrainWorker"),
        ("tune", 20, script, "ImplicitFunc.train"),
    ):
        (tmp_path / name / "other").mkdir(parents=True)
        (tmp_path / name / f"{name}.py").write_text(text)
        candidates += [
            trainer(pid, tmp_path / name, f"{name}.py"),
            Candidate(pid + 1, ("/v/ray/raylet", f"--port={pid}"), pid, tmp_path / name),
            Candidate(pid + 2, (f"ray::{actor}",), pid + 1, tmp_path / name),
        ]
    trial = tmp_path / "tune" / "out" / "experiment" / "trial_1"
    trial.mkdir(parents=True)
    (trial / "result.json").write_text('{"training_iteration": 1}\n')
    folders, trainers = find_run_folders(candidates)
    assert folders[trainers[10]].framework == "ray_train"
    assert folders[trainers[20]].framework == "ray_train"


def test_a_script_that_shows_no_training_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "web.py").write_text("import flask\n")
    assert find_run_folders([trainer(10, tmp_path, "web.py")]) == ({}, {})


def test_a_training_script_of_any_name_is_not_slime(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch\n")
    found, _ = find_run_folders([trainer(10, tmp_path, "train.py")])
    assert [one.framework for one in found.values()] == ["generic"]


def test_an_older_run_in_the_working_folder_is_not_that_of_the_process(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch\n")
    (tmp_path / "old" / "checkpoint-10").mkdir(parents=True)
    (tmp_path / "old" / "checkpoint-10" / "trainer_state.json").write_text('{"global_step": 10}')
    os.utime(tmp_path / "old", (100, 100))
    os.utime(tmp_path / "old" / "checkpoint-10", (100, 100))
    one = Candidate(10, ("python3", "train.py"), 1, tmp_path, started=1000.0)
    assert list(find_run_folders([one])[0]) == [tmp_path]


def test_a_program_that_only_reads_checkpoints_is_no_trainer(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "step_10.pt").write_text("x")
    reader = trainer(10, tmp_path, "plot.py", "--run=out")
    assert find_run_folders([reader]) == ({}, {})


def test_the_stack_itself_is_no_run_but_a_run_may_lie_in_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "trainwarden"
    folder.mkdir()
    (folder / "train.py").write_text("import torch\n")
    candidates = [
        trainer(10, folder, "-m", "trainwarden_remediator", "run"),
        trainer(11, folder, "/v/bin/trainwarden-exporter", "run"),
        trainer(12, tmp_path, f"{folder}/train.py"),
    ]
    assert list(find_run_folders(candidates)[1]) == [12]


def test_the_stack_of_another_installation_is_no_run(tmp_path: Path) -> None:
    stack, own = Path(__file__).parents[3] / "deploy", tmp_path / "deploy"
    own.mkdir()
    (own / "up.py").write_text("import torch\n")
    candidates = [
        trainer(10, tmp_path, f"{stack}/up.py", "--background", "--folder", str(tmp_path / "run")),
        trainer(11, tmp_path, f"{stack}/watch.py", str(tmp_path / "supervisor.sock")),
        trainer(12, tmp_path, f"{own}/up.py"),
    ]
    assert [is_monitoring(one) for one in candidates] == [True, True, False]
