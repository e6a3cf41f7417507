from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from trainwarden_exporter.exceptions import ConfigError
from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_remediator.config import PLAYBOOKS, Config, Playbook, Setup, load_setup

EXPORTER = {
    "runs": [
        {
            "name": "demo",
            "workers": [
                {"name": "rollout-0", "match": {"command": "rollout"}},
                {"name": "trainer", "match": {"command": "trainer"}},
            ],
        }
    ]
}
TARGET = {"run": "demo", "worker": "rollout-0", "process": {"start": ["python", "rollout.py"]}}
SMALLEST = """\
token_file: secrets/token
targets:
  - run: demo
    worker: rollout-0
    process:
      start: [python, rollout.py]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "exporter.yml").write_text(yaml.safe_dump(EXPORTER))
    file = tmp_path / "remediator.yml"
    file.write_text(SMALLEST)
    return file


def problems(file: Path, text: str) -> list[str]:
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_setup(file)
    return [line.removeprefix(f"{file}") for line in str(caught.value).splitlines()]


def test_what_is_not_said_is_careful(file: Path) -> None:
    setup = load_setup(file)
    config = setup.config
    assert config.mode == "observe"
    assert not config.insecure
    (target,) = config.targets
    assert (target.cooldown, target.attempts, target.attempts_window) == (120, 3, 3600)
    assert (target.process.grace, target.process.user, target.process.log) == (10, None, None)
    assert config.exporter.url == "http://127.0.0.1:10977"
    assert config.alertmanager.url == "http://127.0.0.1:9093"
    assert set(setup.selectors) == {WorkerKey("demo", "rollout-0"), WorkerKey("demo", "trainer")}


def test_paths_are_relative_to_the_file(file: Path) -> None:
    config = load_setup(file).config
    folder = file.parent
    assert config.token_file == folder / "secrets/token"
    assert (config.journal, config.hold_file) == (folder / "journal.db", folder / "hold")
    assert config.targets[0].process.cwd == folder


def test_the_mode_on_the_command_line_takes_the_place_of_the_one_in_the_file(file: Path) -> None:
    assert load_setup(file, mode="act").config.mode == "act"
    assert load_setup(file, mode=None).config.mode == "observe"


NOT_A_LIST = ":6: targets[0].process.start: expected a list"
NUL = ":6: targets[0].process.start[0]: an argument cannot hold a NUL"
PROBLEMS = [
    ("", ":1: token_file: needed: a file with the bearer token"),
    ("insecure: false\n", ":1: token_file: needed: a file with the bearer token"),
    ("token_file: t\nmode: maybe\n", ":2: mode: expected"),
    ("token_file: t\nmodus: act\n", ":2: modus: unknown key"),
    ("token_file: ''\n", ":1: token_file: not a path"),
    ('token_file: t\njournal: "a\\0b"\n', ":2: journal: not a path"),
    ("token_file: t\ntargets:\n- {run: demo}\n", ":3: targets[0].worker: required"),
    ("token_file: t\ntargets:\n- {run: demo}\n", ":3: targets[0].process: required"),
    (f"token_file: t\ntargets:\n- {TARGET}\n- {TARGET}\n", ":4: targets[1]: a second target"),
    ("token_file: t\nexporter: {url: 'ftp://x'}\n", ":2: exporter.url: not a URL"),
    ("token_file: t\nexporter: {url: 'http://u:p@x'}\n", ":2: exporter.url: write only"),
    ("token_file: t\nalertmanager: {url: 'http://x?a'}\n", ":2: alertmanager.url: write only"),
    ("token_file: t\nforget_after: -1\n", ":2: forget_after: "),
    ("token_file: t\nplaybooks: {x: {trouble: a}}\n", ":2: playbooks.x.trouble: "),
    ("token_file: t\nplaybooks: {x: {trouble: any, action: y}}\n", ":2: playbooks.x.action: "),
    ("token_file: t\nplaybooks: {'a b': {trouble: any}}\n", ":2: "),
    (
        SMALLEST.replace("rollout-0", "rollout-9"),
        ":4: targets[0].worker: run demo has no worker rollout-9",
    ),
    (
        f"{SMALLEST}    attempts: 6\n",
        ":7: targets[0].attempts: with a cooldown of 120 s so many take",
    ),
    (SMALLEST.replace("rollout-0", "''"), ":4: targets[0].worker: "),
    (SMALLEST.replace("[python, rollout.py]", "[]"), ":6: targets[0].process.start: "),
    (SMALLEST.replace("[python, rollout.py]", "python rollout.py"), NOT_A_LIST),
    (SMALLEST.replace("python", '"a\\0b"'), NUL),
]


@pytest.mark.parametrize(("text", "said"), PROBLEMS)
def test_every_problem_is_told_with_its_line(file: Path, text: str, said: str) -> None:
    found = problems(file, text)
    assert any(line.startswith(said) for line in found), found


def test_a_problem_of_the_exporters_file_is_told_as_one_of_that(file: Path) -> None:
    (file.parent / "exporter.yml").write_text("runs: 5\n")
    with pytest.raises(ConfigError, match=r"exporter\.yml:1: runs: expected a list"):
        load_setup(file)
    (file.parent / "exporter.yml").unlink()
    with pytest.raises(ConfigError, match=r"exporter\.yml: "):
        load_setup(file)


@pytest.mark.parametrize(
    "budget",
    [
        {"attempts": 0},
        {"attempts": 101},
        {"attempts": 1.5},
        {"cooldown": -1},
        {"cooldown": "soon"},
        {"attempts_window": "inf"},
        {"attempts_window": 0},
    ],
)
def test_a_budget_that_bounds_nothing_is_refused(budget: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Config.model_validate({"insecure": True, "targets": [{**TARGET, **budget}]})


def test_nothing_selects_everything() -> None:
    for spoilt in ({"run": ""}, {"worker": ""}, {"run": None}, {"worker": ".*"}, {"worker": "*"}):
        with pytest.raises(ValidationError):
            Config.model_validate({"insecure": True, "targets": [{**TARGET, **spoilt}]})


def test_a_playbook_of_the_file_comes_before_the_shipped_one() -> None:
    own = Playbook.model_validate({"trouble": "any", "action": "hold"})
    config = Config.model_validate({"insecure": True, "playbooks": {"relieve_memory": own}})
    assert config.playbook("relieve_memory") == own
    assert config.playbook("start_missing_worker") == PLAYBOOKS["start_missing_worker"]
    assert config.playbook("") is None
    assert config.playbook("../../etc/passwd") is None


def test_a_setup_finds_targets_by_their_whole_key(file: Path) -> None:
    setup: Setup = load_setup(file)
    assert setup.config.target(WorkerKey("demo", "rollout-0")) is setup.config.targets[0]
    assert setup.config.target(WorkerKey("demo", "rollout")) is None
    assert setup.config.target(WorkerKey("", "")) is None
