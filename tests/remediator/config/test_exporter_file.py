from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer

from trainwarden_exporter.exceptions import ConfigError, Problem
from trainwarden_remediator.api import server
from trainwarden_remediator.api.server import build_app
from trainwarden_remediator.app import Remediator
from trainwarden_remediator.config import exporter_file
from trainwarden_remediator.config.exporter_file import ExporterFile
from trainwarden_remediator.config.schema import Setup, load_exporter_file, load_setup

RUNS = "runs: [{{name: demo, workers: [{{name: {worker}, match: {{command: {match}}}}}]}}]"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write(tmp_path, "train")
    path = tmp_path / "remediator.yml"
    path.write_text(
        "insecure: true\ntargets: [{run: demo, worker: trainer, process: {start: [/bin/true]}}]\n"
    )
    return path


def write(folder: Path, match: str, worker: str = "trainer") -> None:
    (folder / "exporter.yml").write_text(RUNS.format(worker=worker, match=match))


def matches(setup: Setup) -> list[str]:
    return [one.command.pattern for one in setup.selectors.values() if one.command]


def test_a_changed_file_is_read_again(path: Path) -> None:
    file, setup = ExporterFile(path), load_setup(path)
    assert file.read_if_changed(setup) is setup
    write(path.parent, "train.py")
    changed = file.read_if_changed(setup)
    assert matches(changed) == ["train.py"]
    assert changed.config is setup.config
    assert changed.workers_hash != setup.workers_hash
    assert file.read_if_changed(changed) is changed


def test_a_change_before_the_first_look_is_noticed(path: Path) -> None:
    setup = load_setup(path)
    write(path.parent, "train.py")
    assert matches(ExporterFile(path).read_if_changed(setup)) == ["train.py"]


def test_a_read_error_that_passes_is_no_problem_any_more(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, setup = ExporterFile(path), load_setup(path)

    seen: list[str] = []

    def fail(*_: object) -> None:
        seen.append(file.problem)
        raise ConfigError(Problem(path, None, "", "Permission denied"))

    with monkeypatch.context() as moment:
        moment.setattr(exporter_file, "load_exporter_file", fail)
        assert file.read_if_changed(setup) is setup
        assert "Permission denied" in file.problem
        assert file.read_if_changed(setup) is setup
        assert seen[0] == ""
        assert "Permission denied" in seen[1]  # also while it is read again
    assert file.read_if_changed(setup) is setup
    assert not file.problem


@pytest.mark.parametrize("text", ["runs: [", "runs: 3", None])
def test_a_file_that_cannot_be_used_is_a_problem_until_it_can(path: Path, text: str | None) -> None:
    file, setup = ExporterFile(path), load_setup(path)
    exporter = path.parent / "exporter.yml"
    if text is None:
        exporter.unlink()
    else:
        exporter.write_text(text)
    assert file.read_if_changed(setup) is setup
    assert str(exporter) in file.problem
    assert file.read_if_changed(setup) is setup
    assert file.problem
    write(path.parent, "train")
    assert file.read_if_changed(setup) is setup
    assert file.problem == ""


def test_a_target_that_the_file_no_longer_has_is_a_problem(path: Path) -> None:
    file, setup = ExporterFile(path), load_setup(path)
    write(path.parent, "train", worker="another")
    assert file.read_if_changed(setup) is setup
    assert "has no worker trainer" in file.problem


async def test_who_asks_while_the_file_is_read_gets_its_new_content(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(*values: Any) -> Setup:
        begun.set()
        go_on.wait(60)
        return load_exporter_file(*values)

    async with Remediator(path) as remediator:
        await remediator.reread_exporter_file()
        write(path.parent, "train.py")
        monkeypatch.setattr(exporter_file, "load_exporter_file", slow)
        page = asyncio.create_task(remediator.reread_exporter_file())
        await asyncio.to_thread(begun.wait, 60)
        decision = asyncio.create_task(remediator.reread_exporter_file())
        await asyncio.wait({decision}, timeout=0.5)  # it is over soon only if it does not wait
        go_on.set()
        await decision
        assert matches(remediator.setup) == ["train.py"]
        await page


async def test_pages_read_the_file_no_more_often_than_once_a_second(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody may request them, and each reading keeps the decisions waiting."""
    async with Remediator(path) as remediator, TestClient(TestServer(build_app(remediator))) as web:
        for seconds, expected in ((60.0, ["train"]), (0.0, ["train.py"])):
            monkeypatch.setattr(server, "REREAD_SECONDS", seconds)
            write(path.parent, "train")
            await remediator.reread_exporter_file()
            write(path.parent, "train.py")
            assert (await web.get("/status.json")).status == 200
            assert matches(remediator.setup) == expected
            await remediator.reread_exporter_file()  # as a decision does
            assert matches(remediator.setup) == ["train.py"]
