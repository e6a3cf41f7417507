from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import ValidationError

from trainwarden_exporter.processes.procfs import Cgroup
from trainwarden_exporter.processes.selector import (
    ProcessAttributes,
    Selector,
    in_systemd_unit,
    is_executable,
    matches_selector,
)

if TYPE_CHECKING:
    from tests.exporter.conftest import FakeProc

V2 = "0::{}\n"


def selector(**conditions: Any) -> Selector:
    return Selector.model_validate(conditions)


@pytest.mark.parametrize(
    ("conditions", "complaint"),
    [
        ({}, "at least one condition is needed: command, executable"),
        ({"command": ""}, "must not be empty"),
        ({"command": "("}, "not a regular expression: missing ), unterminated subpattern"),
        ({"command": ".*"}, "matches any text, and so every process"),
        ({"command": "x|"}, "matches any text, and so every process"),
        ({"command": 7}, "not text: put it in quotes"),
        ({"cgroup": "/?"}, "matches any text, and so every process"),
        ({"executable": ""}, "at least 1 character"),
        ({"executable": "bin/python"}, "neither an absolute path nor a bare name"),
        ({"environment": {}}, "at least 1 item"),
        ({"environment": {"": "x"}}, "at least 1 character"),
        ({"environment": {"RANK": ""}}, "must not be empty"),
        ({"environment": {"RANK": 0}}, "not text: put it in quotes"),
        ({"pid_file": ""}, "not a path: it is empty"),
        ({"systemd_unit": ""}, "at least 1 character"),
        ({"descendant_of": ""}, "at least 1 character"),
        ({"comand": "x"}, "Extra inputs are not permitted"),
    ],
)
def test_a_selector_that_cannot_be_meant_is_refused(
    conditions: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ValidationError) as caught:
        Selector.model_validate(conditions)
    assert complaint in str(caught.value)


def test_a_variable_may_have_any_value_but_must_be_there(proc: FakeProc) -> None:
    proc.add(5, environment={"RANK": "0"})
    attributes = ProcessAttributes(5, proc.root)

    assert matches_selector(selector(environment={"RANK": ".*"}), attributes) is True
    assert matches_selector(selector(environment={"ROLE": ".*"}), attributes) is False


def test_a_relative_pid_file_is_beside_the_configuration() -> None:
    found = Selector.model_validate({"pid_file": "x.pid"}, context={"folder": Path("/etc/tw")})

    assert found.pid_file == Path("/etc/tw/x.pid")


@pytest.mark.parametrize(
    ("given", "unit"),
    [("trainer", "trainer.service"), ("a@1.5", "a@1.5.service"), ("job.scope", "job.scope")],
)
def test_a_unit_without_a_kind_is_a_service(given: str, unit: str) -> None:
    assert selector(systemd_unit=given).systemd_unit == unit


@pytest.mark.parametrize(
    ("conditions", "met"),
    [
        ({"command": r"train\.py --lr 0\.1$"}, True),
        ({"command": "^train"}, False),
        ({"executable": "python3.11"}, True),
        ({"executable": "/opt/python3.11"}, True),
        ({"executable": "/usr/bin/python3.11"}, False),
        ({"executable": "python"}, False),
        ({"environment": {"ROLE": "roll.*", "RANK": "[0-9]"}}, True),
        ({"environment": {"ROLE": "roll"}}, False),
        ({"cgroup": "^/training/"}, True),
        ({"cgroup": "^/other/"}, False),
        ({"systemd_unit": "trainer"}, True),
        ({"systemd_unit": "rollout"}, False),
        ({"command": "train", "executable": "bash"}, False),
        ({"command": "train", "cgroup": "training", "environment": {"RANK": "3"}}, True),
        ({"user": "daemon"}, True),
        ({"user": "1"}, True),
        ({"user": "root"}, False),
        ({"user": "0"}, False),
        ({"command": "train", "user": "no-such-account"}, False),
        ({"pid_file": "/run/x.pid"}, True),
        ({"descendant_of": "trainer"}, True),
    ],
)
def test_all_conditions_must_hold(proc: FakeProc, conditions: dict[str, Any], *, met: bool) -> None:
    proc.add(
        5,
        ["python", "train.py", "--lr", "0.1"],
        executable="/opt/python3.11",
        environment={"ROLE": "rollout", "RANK": "3"},
        cgroup=V2.format("/training/trainer.service"),
        files={"status": "Name:\tpython\nUid:\t1\t1\t1\t1\n"},
    )
    assert matches_selector(selector(**conditions), ProcessAttributes(5, proc.root)) is met


@pytest.mark.parametrize(
    ("arguments", "conditions", "met"),
    [
        ("tmux new-session -d /opt/venv/bin/python train.py", {}, False),
        ("SCREEN -dmS run /opt/venv/bin/python train.py", {}, False),
        ("tail -f train.py", {}, False),
        ("/usr/bin/vim train.py", {}, False),
        ("/opt/venv/bin/python train.py", {}, True),
        ("/bin/bash train.py", {}, True),
        ("tmuxp.py train.py", {"command": "tmuxp"}, True),
        ("tmux new-session -d train.py", {"command": "^tmux .*train"}, True),
        ("tmux new-session -d train.py", {"executable": "tmux"}, True),
    ],
)
def test_a_terminal_or_an_editor_that_names_the_program_is_not_the_program(
    proc: FakeProc, arguments: str, conditions: dict[str, Any], *, met: bool
) -> None:
    proc.add(5, arguments.split(), executable="/usr/bin/tmux")
    wanted = selector(**{"command": r"train\.py"} | conditions)
    assert matches_selector(wanted, ProcessAttributes(5, proc.root)) is met


def test_what_may_not_be_read_is_undecided_unless_another_condition_fails(proc: FakeProc) -> None:
    proc.add(5, ["python", "train.py"])
    attributes = ProcessAttributes(5, proc.root)

    assert matches_selector(selector(environment={"ROLE": "x"}), attributes) is None
    assert (
        matches_selector(selector(command="train", environment={"ROLE": "x"}), attributes) is None
    )
    assert (
        matches_selector(selector(command="rollout", environment={"ROLE": "x"}), attributes)
        is False
    )


@pytest.mark.parametrize(
    ("cwd", "started", "met"),
    [
        ("mine", None, True),
        ("mine/outputs", None, True),
        ("link/outputs", None, True),
        ("mine-too", None, False),
        ("elsewhere", "mine", True),
        ("elsewhere", "mine/outputs", True),
        ("elsewhere", "elsewhere", False),
        (None, "mine", True),
        (None, "elsewhere", None),
    ],
)
def test_a_process_belongs_to_the_folder_that_it_runs_or_was_started_in(
    proc: FakeProc, tmp_path: Path, cwd: str | None, started: str | None, *, met: bool | None
) -> None:
    for name in ("mine/outputs", "mine-too", "elsewhere"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "link").symlink_to("mine")
    environment = {} if started is None else {"PWD": str(tmp_path / started)}
    proc.add(5, ["train"], environment=environment, cwd=cwd and tmp_path / cwd)
    attributes = ProcessAttributes(5, proc.root)
    for wanted in ("mine", "link"):
        assert matches_selector(selector(cwd=str(tmp_path / wanted)), attributes) is met


def test_a_folder_without_the_environment_is_undecided_only_where_it_is_another(
    proc: FakeProc, tmp_path: Path
) -> None:
    proc.add(5, ["train"], cwd=tmp_path)
    attributes = ProcessAttributes(5, proc.root)
    assert matches_selector(selector(cwd=str(tmp_path)), attributes) is True
    assert matches_selector(selector(cwd="/elsewhere"), attributes) is None


@pytest.mark.parametrize(
    ("controllers", "path", "inside"),
    [
        ("", "/system.slice/trainer.service", True),
        ("", "/system.slice/trainer.service/payload", True),
        ("", "/user.slice/user-1.slice/user@1.service/app.slice/trainer.service", True),
        ("name=systemd", "/system.slice/trainer.service", True),
        ("memory", "/system.slice/trainer.service", False),
        ("", "/system.slice/my-trainer.service", False),
        ("", "/", False),
    ],
)
def test_a_unit_is_known_by_its_cgroup(controllers: str, path: str, *, inside: bool) -> None:
    assert in_systemd_unit("trainer.service", (Cgroup(controllers, path),)) is inside


def test_a_path_may_be_a_link_to_the_program(tmp_path: Path) -> None:
    program, link = tmp_path / "python3.11", tmp_path / "python3"
    program.touch()
    link.symlink_to(program)

    assert is_executable(str(link), str(program.resolve()))
    assert not is_executable(str(link), "/usr/bin/other")
