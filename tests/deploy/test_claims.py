"""Who runs the stack in a folder, and how it is ended."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from tests.waiting import until

import claims
import detached
from stack import StackError
from trainwarden_exporter.processes.procfs import read_process

HOLD = """
import pathlib, sys, time, claims
with claims.claimed(pathlib.Path(sys.argv[1])):
    time.sleep(600)
"""
HOLD_SECONDS = 60


def test_a_folder_has_one_owner_at_a_time(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    lock = claims.lock_of(folder)
    assert claims.owner(lock) is None
    own = read_process(os.getpid())
    assert own is not None
    with claims.claimed(folder):
        assert claims.owner(lock) == own.identity
        ends = r"already: `trainwarden down --folder .*` ends it"
        with pytest.raises(StackError, match=ends), claims.claimed(folder):
            pass
        assert claims.owner(lock) == own.identity
    assert claims.owner(lock) is None


@pytest.fixture
def shared_umask() -> Iterator[None]:
    """The umask with which a group can write whatever is created."""
    before = os.umask(0o002)
    yield
    os.umask(before)


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.mark.usefixtures("shared_umask")
def test_the_folder_of_a_stack_is_for_its_account_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRAINWARDEN_STACK_DIR", raising=False)
    for existed in (False, True):
        where = tmp_path / f"state-{existed}" / "stack"
        monkeypatch.setattr(claims, "stack_folder", lambda where=where: where)
        folder = claims.default_folder(None)
        if existed:
            folder.mkdir(parents=True)
            assert mode_of(folder) == 0o775
        with claims.claimed(folder):
            assert (mode_of(folder), mode_of(where)) == (0o700, 0o700)
    assert mode_of(tmp_path / "state-False") == 0o700


@pytest.mark.usefixtures("shared_umask")
def test_a_folder_that_an_operator_names_is_created_narrow_and_else_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    for name, expected in (("new", 0o700), (".", 0o775)):
        with claims.claimed(shared / name):
            assert mode_of(shared / name) == expected
    monkeypatch.setenv("TRAINWARDEN_STACK_DIR", str(shared))
    with claims.claimed(claims.default_folder(None)):
        assert (mode_of(shared), mode_of(shared / "run-announced")) == (0o775, 0o700)


def test_a_stack_in_a_folder_that_an_operator_names_is_found_while_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its messages say `trainwarden resume`, and that has to find it."""
    monkeypatch.setenv("TRAINWARDEN_STACK_DIR", str(tmp_path / "stacks"))
    named, usual = tmp_path / "mine", claims.default_folder(None)
    with claims.claimed(named):
        assert claims.running_folders() == [named]
        with claims.claimed(usual):
            assert claims.running_folders() == [usual, named]
    assert claims.running_folders() == []
    assert not list((tmp_path / "stacks").glob(".elsewhere*"))


def test_a_lock_that_names_nobody_is_an_error_and_ends_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with claims.claimed(folder):
        claims.lock_of(folder).write_text("someone\n")
        with pytest.raises(StackError, match="does not say which process"):
            claims.owner(claims.lock_of(folder))


def test_the_owner_is_ended_and_waited_for(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    lock = claims.lock_of(folder)
    scripts = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", HOLD, folder], env=scripts) as process:
        until(lambda: lock.exists() and lock.read_text())
        running = claims.owner(lock)
        assert running is not None
        assert running.pid == process.pid
        assert claims.end(running, seconds=HOLD_SECONDS)
    assert claims.owner(lock) is None


def test_a_process_that_does_not_end_is_left_running(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    lock = claims.lock_of(folder)
    scripts = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    stubborn = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n{HOLD}"
    with subprocess.Popen([sys.executable, "-c", stubborn, folder], env=scripts) as process:
        until(lambda: lock.exists() and lock.read_text())
        running = claims.owner(lock)
        assert running is not None
        assert not claims.end(running, seconds=0.3)
        assert process.poll() is None
        process.kill()


def test_a_second_start_in_the_background_leaves_the_first_ones_output(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    output = tmp_path / "run.out"
    output.write_text("the first\n")
    with claims.claimed(folder), pytest.raises(StackError, match="trainwarden down"):
        detached.detach(folder, [])
    assert output.read_text() == "the first\n"


def test_what_the_start_prints_is_shown_and_its_status_returned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments: list[str | Path] = ["--folder", tmp_path / "run", "--config", tmp_path]
    assert detached.detach(tmp_path / "run", arguments) == 1
    problem = capsys.readouterr().out
    assert problem.startswith(f"there is no exporter.yml in {tmp_path}: `trainwarden discover ")
    assert "`trainwarden run " in problem


def test_down_without_a_stack_reports_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINWARDEN_STACK_DIR", str(tmp_path))
    assert detached.run(argparse.Namespace(config=None, folder=None)) == 0
    assert capsys.readouterr().out == "no stack runs\n"


def _is_claimed(lock: Path) -> bool:
    return lock.exists() and bool(lock.read_text())


@contextmanager
def holding(*folders: Path) -> Iterator[Sequence[subprocess.Popen[bytes]]]:
    """Processes that claim these folders, as a stack does."""
    scripts = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = f"import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit())\n{HOLD}"
    command = [sys.executable, "-c", ended]
    holders = [subprocess.Popen([*command, folder], env=scripts) for folder in folders]
    try:
        for folder in folders:
            lock = claims.lock_of(folder)
            until(partial(_is_claimed, lock))
        until(lambda: len(claims.running_folders()) == len(folders))
        yield holders
    finally:
        for holder in holders:
            holder.kill()
            holder.wait()


DOWN = argparse.Namespace(config=None, folder=None)


def test_down_ends_the_only_stack_though_it_runs_in_a_named_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINWARDEN_STACK_DIR", str(tmp_path / "stacks"))
    with holding(tmp_path / "mine") as (holder,):
        assert detached.run(DOWN) == 0
        assert holder.wait(10) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"ended; {tmp_path} keeps the logs"


@pytest.mark.parametrize("usual", [True, False])
def test_another_stack_is_found_if_it_watches_the_same_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, usual: bool
) -> None:
    monkeypatch.setenv("TRAINWARDEN_STACK_DIR", str(tmp_path / "stacks"))
    monkeypatch.setenv("TRAINWARDEN_FOLDER", str(tmp_path / "state"))
    first, second = tmp_path / ("stacks/demo" if usual else "one"), tmp_path / "two"
    with holding(first):
        assert claims.beside(first) == []
        assert claims.beside(second) == [first]
        monkeypatch.setenv("TRAINWARDEN_FOLDER", str(tmp_path / "others"))
        assert claims.beside(second) == []
    assert claims.beside(second) == []


@pytest.mark.parametrize("usual", [True, False])
def test_down_names_the_stacks_in_named_folders_that_it_leaves(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    *,
    usual: bool,
) -> None:
    """It has failed where it ended none: `trainwarden down && trainwarden up` goes on otherwise."""
    monkeypatch.setenv("TRAINWARDEN_STACK_DIR", str(tmp_path / "stacks"))
    first = tmp_path / ("stacks/demo" if usual else "one")
    with holding(first, tmp_path / "two") as (one, two):
        assert detached.run(DOWN) == (0 if usual else 1)
        lines = capsys.readouterr().out.splitlines()
        assert two.poll() is None
        on = " on" if usual else ""
        assert lines[-1] == (
            f"the stack in {tmp_path}/two runs{on}: `trainwarden down --folder {tmp_path}/two`"
            " ends it"
        )
        if usual:
            assert one.wait(10) == 0
        else:
            assert one.poll() is None
            assert len(lines) == 2


def test_down_of_a_folder_without_a_stack_names_the_running_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINWARDEN_STACK_DIR", str(tmp_path / "stacks"))
    nothing, demo = tmp_path / "nothing", tmp_path / "stacks/demo"
    with holding(demo, tmp_path / "two") as holders:
        assert detached.run(argparse.Namespace(config=None, folder=nothing)) == 0
        assert all(one.poll() is None for one in holders)
    assert capsys.readouterr().out.splitlines() == [
        f"no stack runs in {nothing}",
        f"the stack in {demo} runs: `trainwarden down` ends it",
        f"the stack in {tmp_path}/two runs: `trainwarden down --folder {tmp_path}/two` ends it",
    ]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts a program of another account")
@pytest.mark.parametrize(
    ("may_read", "problem"),
    [
        ((), "/.mine.lock cannot be read: "),
        (("--inh-caps=+dac_override", "--ambient-caps=+dac_override"), " belongs to root: "),
    ],
)
def test_the_stack_of_another_account_is_not_ended_and_named_so(
    may_read: Sequence[str], problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINWARDEN_STACK_DIR", str(tmp_path / "stacks"))
    switch = ["setpriv", "--reuid=1234", "--regid=1234", "--clear-groups", *may_read]
    down = [sys.executable, "-m", "trainwarden", "down", "--folder", str(tmp_path / "mine")]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "TRAINWARDEN_STACK_DIR": "/nonexistent",
    }
    with holding(tmp_path / "mine") as (holder,):
        done = subprocess.run(
            [*switch, *down], capture_output=True, text=True, check=False, env=environment
        )
        assert holder.poll() is None
    assert done.returncode == 1
    others = "the stack of another account is ended by that account, or by root\n"
    assert done.stderr.endswith(f"{problem}{others}")
    assert len(done.stderr.splitlines()) == 1


def test_what_ends_a_stack_of_another_place_names_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert claims.command_to_end(tmp_path / "a b") == f"trainwarden down --folder '{tmp_path}/a b'"
    monkeypatch.setattr(claims, "stack_folder", lambda: tmp_path)
    with claims.claimed(tmp_path / "run-announced"):
        assert claims.command_to_end(tmp_path / "run-announced") == "trainwarden down"
