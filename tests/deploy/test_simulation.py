from __future__ import annotations

import os
import shlex
import subprocess
import sys
from configparser import RawConfigParser
from pathlib import Path

import pytest

import runfolder
import simulation
from stack import Binaries
from trainwarden_remediator.config.schema import load_setup

COUNT = """\
import pynvml as nvml
nvml.nvmlInit()
print(nvml.nvmlDeviceGetCount(), nvml.nvmlDeviceGetName(nvml.nvmlDeviceGetHandleByIndex(1)))
"""


def programs(run: runfolder.RunFolder) -> dict[str, str]:
    """The commands in supervisord's file, by program."""
    file = RawConfigParser()
    file.read(run.supervisord_file)
    return {
        name.partition(":")[2]: file[name]["command"]
        for name in file.sections()
        if name.startswith("program:")
    }


def prepare_demo(folder: Path, binaries: Binaries) -> runfolder.RunFolder:
    return runfolder.prepare_demo(folder, binaries, mode="act", any_free=True)


def test_the_demos_gpus_are_there_before_the_programs_that_look(tmp_path: Path) -> None:
    gpus = simulation.prepare(tmp_path / "it's a box")
    assert gpus.present
    command = gpus.seen_by([sys.executable, "-c", COUNT])
    assert subprocess.check_output(command, text=True) == "2 Simulated GPU 1\n"
    assert {file.name for file in (gpus.folder / "dev").iterdir()} >= {"nvidia0", "nvidia1"}


def test_exporter_and_remediator_see_the_gpus_and_nothing_else_does(
    tmp_path: Path, binaries: Binaries
) -> None:
    run = prepare_demo(tmp_path / "run", binaries)
    assert run.gpus is not None
    state = f"SIMULATED_GPU_STATE={run.path}/demo/gpu/state"
    seeing = {name for name, command in programs(run).items() if state in shlex.split(command)}
    assert seeing == {"exporter", "remediator"}
    assert run.programs == (*run.demo, simulation.NAME)
    assert simulation.NAME in programs(run)
    watched = load_setup(run.remediator_file).exporter_config
    assert watched.gpu.device_root == run.gpus.folder / "dev"


def test_only_its_own_are_ended(tmp_path: Path, binaries: Binaries) -> None:
    run = prepare_demo(tmp_path / "it's (a)", binaries)
    setup = load_setup(run.remediator_file)
    ours = f"python leftover.py --name leftover --folder {run.path}/demo"
    (protected,) = setup.exporter_config.gpu.protected
    assert setup.config.gpu_cleanup is not None
    assert setup.config.gpu_cleanup.command is not None
    for command in ("python train.py", ours + "2", f"{ours} --more", "[nv_queue]"):
        assert protected.search(command)
        assert not setup.config.gpu_cleanup.command.search(command)
    assert not protected.search(ours)
    assert setup.config.gpu_cleanup.command.search(ours)


def test_without_a_compiler_the_gpus_are_left_out_and_all_else_is_as_before(
    tmp_path: Path, binaries: Binaries, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    run = prepare_demo(tmp_path / "run", binaries)
    assert run.gpus is not None
    assert not run.gpus.present
    assert run.gpus.missing.startswith("no C compiler: 'no-such-compiler' is not there")
    assert run.programs == run.demo
    assert simulation.NAME not in programs(run)
    assert not any("SIMULATED" in command for command in programs(run).values())
    assert load_setup(run.remediator_file).config.targets


def test_a_run_of_the_users_never_sees_simulated_gpus(tmp_path: Path, binaries: Binaries) -> None:
    config = tmp_path / "config"
    config.mkdir()
    (config / "exporter.yml").write_text("runs: []\n")
    run = runfolder.prepare_own(tmp_path / "run", config, binaries, mode="act", any_free=True)
    assert run.gpus is None
    assert run.programs == ()
    assert not any("SIMULATED" in command for command in programs(run).values())
    assert not (tmp_path / "run" / "demo").exists()


def test_an_earlier_library_path_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/lib")
    gpus = simulation.prepare(tmp_path / "box")
    assert gpus.environment["LD_LIBRARY_PATH"] == f"{tmp_path}/box{os.pathsep}/opt/lib"
