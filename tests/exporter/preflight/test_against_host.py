"""What of a configuration exists on the host."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.waiting import until

from trainwarden_exporter.preflight.check_command import check

SCRIPT = "import sys, time; print('step 1', flush=True); time.sleep(600)"


@pytest.fixture
def trainer(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    (tmp_path / "my_trainer.py").write_text(SCRIPT)
    with (
        (tmp_path / "any.txt").open("wb") as log,
        subprocess.Popen(
            [sys.executable, "-S", tmp_path / "my_trainer.py"], stdout=log, cwd=tmp_path
        ) as process,
    ):
        until(lambda: (tmp_path / "any.txt").stat().st_size > 0)
        yield process
        process.kill()


def written(tmp_path: Path, path: Path) -> Path:
    file = tmp_path / "exporter.yml"
    worker = {
        "name": "trainer",
        "role": "trainer",
        "match": {"command": f"{tmp_path}/my_trainer.py"},
    }
    run = {"name": "a", "framework": "trl", "path": str(path), "workers": [worker]}
    run["inference"] = [{"name": "s", "url": "http://127.0.0.1:9", "engine": "vllm"}]
    file.write_text(json.dumps({"runs": [run]}))
    return file


def test_each_entry_shows_what_of_it_exists(
    trainer: subprocess.Popen[bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = tmp_path / "out" / "checkpoint-30"
    checkpoint.mkdir(parents=True)
    (checkpoint / "trainer_state.json").write_text('{"global_step": 30, "max_steps": 90}')
    assert check(written(tmp_path, tmp_path / "out"), against_host=True) == 0
    shown = capsys.readouterr().out
    assert f"ok       run a, path {tmp_path}/out: exists" in shown
    assert f"worker trainer: 1 of 1 expected processes (pid {trainer.pid})" in shown
    assert f"log trainer: {tmp_path}/any.txt, written " in shown
    assert "progress file state: step 30" in shown
    assert "checkpoint default: newest complete checkpoint-30" in shown
    assert "MISSING  run a, server s: no answer at http://127.0.0.1:9 (Connection refused)" in shown


def test_a_mistyped_path_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(written(tmp_path, tmp_path / "typo"), against_host=True) == 1
    shown = capsys.readouterr().out
    assert f"MISSING  run a, path {tmp_path}/typo: does not exist" in shown
    assert "MISSING  run a, worker trainer: 0 of 1 expected processes" in shown
    assert "MISSING  run a, checkpoint default: no folder" in shown


def test_a_folder_with_nothing_of_the_run_is_an_error_too(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert check(written(tmp_path, tmp_path / "empty"), against_host=True) == 1
