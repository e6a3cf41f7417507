from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from trainwarden_exporter.exceptions import ConfigError
from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_remediator.config.playbooks import PLAYBOOKS, Condition, Playbook
from trainwarden_remediator.config.schema import Config, Setup, load_setup
from trainwarden_remediator.config.targets import GpuCleanup

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


def test_the_defaults_are_careful(file: Path) -> None:
    setup = load_setup(file)
    config = setup.config
    assert config.mode == "observe"
    assert not config.insecure
    (target,) = config.targets
    assert (target.cooldown, target.attempts, target.attempts_window) == (120, 3, 3600)
    process = target.process
    assert process is not None
    assert (process.grace, process.user, process.log) == (10, None, None)
    assert config.exporter.url == "http://127.0.0.1:10977"
    assert config.alertmanager.url == "http://127.0.0.1:9093"
    assert set(setup.selectors) == {WorkerKey("demo", "rollout-0"), WorkerKey("demo", "trainer")}


def test_paths_are_relative_to_the_file(file: Path) -> None:
    config = load_setup(file).config
    folder = file.parent
    assert config.token_file == folder / "secrets/token"
    assert (config.journal, config.hold_file) == (folder / "journal.db", folder / "hold")
    process = config.targets[0].process
    assert process is not None
    assert process.cwd == folder


def test_the_mode_on_the_command_line_takes_the_place_of_the_one_in_the_file(file: Path) -> None:
    assert load_setup(file, mode="act").config.mode == "act"
    assert load_setup(file, mode=None).config.mode == "observe"


NOT_A_LIST = ":6: targets[0].process.start: expected a list"
SHELL = ":6: targets[0].process.start: `cd` needs a shell, and none reads this: write [sh, -c, "
NUL = ":6: targets[0].process.start[0]: an argument must not contain a NUL"
PROBLEMS = [
    ("", ":1: token_file: missing: the file with the bearer token"),
    ("insecure: false\n", ":1: token_file: missing: the file with the bearer token"),
    ("token_file: t\nmode: maybe\n", ":2: mode: expected"),
    ("token_file: t\nmodus: act\n", ":2: modus: unknown key"),
    ("token_file: ''\n", ":1: token_file: not a path"),
    ('token_file: t\njournal: "a\\0b"\n', ":2: journal: not a path"),
    ("token_file: t\ntargets:\n- {run: demo}\n", ":3: targets[0].worker: required"),
    (
        "token_file: t\ntargets:\n- {run: demo, worker: w}\n",
        ":3: targets[0]: no restart method; set exactly one of process,",
    ),
    (f"token_file: t\ntargets:\n- {TARGET}\n- {TARGET}\n", ":4: targets[1]: a second target"),
    ("token_file: t\nexporter: {url: 'ftp://x'}\n", ":2: exporter.url: not a URL"),
    ("token_file: t\nexporter: {url: 'http://u:p@x'}\n", ":2: exporter.url: write only"),
    ("token_file: t\nalertmanager: {url: 'http://x?a'}\n", ":2: alertmanager.url: write only"),
    ("token_file: t\nalert_stale_after: -1\n", ":2: alert_stale_after: "),
    ("token_file: t\nplaybooks: {x: {condition: a}}\n", ":2: playbooks.x.condition: "),
    ("token_file: t\nplaybooks: {x: {condition: any, action: y}}\n", ":2: playbooks.x.action: "),
    ("token_file: t\nplaybooks: {'a b': {condition: any}}\n", ":2: "),
    (
        SMALLEST.replace("rollout-0", "rollout-9"),
        ":4: targets[0].worker: run demo has no worker rollout-9",
    ),
    (
        f"{SMALLEST}    attempts: 6\n",
        ":7: targets[0].attempts: with a cooldown of 120 s, ",
    ),
    *(
        (f"{SMALLEST}playbooks:\n  {name}:\n    rungs:\n{rungs}", message)
        for name, rungs, message in (
            ("mine", "    - {}\n", ":8: playbooks.mine.condition: required"),
            (
                "restart_inference",
                "    - {target: orchestrator}\n",
                ":10: playbooks.restart_inference.rungs[0].target: expected",
            ),
            (
                "restart_inference",
                "    - {action: reboot}\n",
                ":10: playbooks.restart_inference.rungs[0].action: expected",
            ),
            (
                "restart_inference",
                "    - {}\n    - {verify: {heals: true}}\n",
                ":11: playbooks.restart_inference.rungs[1].verify.heals: unknown key",
            ),
            (
                "restart_inference",
                "    - {}\n    - {when: sometimes}\n",
                ":11: playbooks.restart_inference.rungs[1].when: expected",
            ),
            (
                "restart_inference",
                "    - {when: no_progress}\n",
                ":10: playbooks.restart_inference.rungs[0]: never reached: there is no rung before",
            ),
            (
                "restart_inference",
                "    - {action: hold}\n    - {}\n",
                ":11: playbooks.restart_inference.rungs[1]: never reached: a hold never ends",
            ),
            (
                "restart_inference",
                "    - {verify: {progress: true}}\n    - {when: no_progress}\n",
                ":11: playbooks.restart_inference.rungs[1]: never reached: every rung before it",
            ),
            (
                "restart_inference",
                "    - {}\n    - {after: 5m}\n",
                ":11: playbooks.restart_inference.rungs[1].after: only allowed with",
            ),
            (
                "restart_inference",
                "    - {}\n    - {tries: 0}\n",
                ":11: playbooks.restart_inference.rungs[1].tries: ",
            ),
            (
                "restart_inference",
                "    - {}\n    - {action: clean, target: gpus}\n",
                ":11: playbooks.restart_inference.rungs[1]: condition `gpu_held`, target `gpus`",
            ),
            (
                "restart_inference",
                "    - {action: clean}\n",
                ":10: playbooks.restart_inference.rungs[0]: action `clean` and target `gpus`",
            ),
            (
                "restart_inference",
                "    - {}\n    - {target: trainer}\n",
                ":11: playbooks.restart_inference.rungs[1].target: no target is a trainer",
            ),
            (
                "clean_gpu",
                "    - {action: clean, target: gpus}\n",
                ":10: playbooks.clean_gpu.rungs[0].target: `gpu_cleanup` does not allow it",
            ),
            (
                "restart_inference",
                "    - {}\n    action: restart\n",
                ":11: playbooks.restart_inference.action: not allowed beside `rungs`",
            ),
        )
    ),
    (
        f"{SMALLEST}playbooks:\n  restart_stalled_run: {{target: trainer}}\n",
        ":8: playbooks.restart_stalled_run.target: no target is a trainer",
    ),
    (SMALLEST.replace("rollout-0", "''"), ":4: targets[0].worker: "),
    (SMALLEST.replace("[python, rollout.py]", "[]"), ":6: targets[0].process.start: "),
    (SMALLEST.replace("[python, rollout.py]", "python rollout.py"), NOT_A_LIST),
    (SMALLEST.replace("python", '"a\\0b"'), NUL),
    (SMALLEST.replace("python", "cd, x, '&&', python"), SHELL),
    (SMALLEST.replace("rollout.py", "rollout.py, '>', log"), SHELL.replace("cd", ">")),
]


@pytest.mark.parametrize(("text", "message"), PROBLEMS)
def test_every_problem_is_reported_with_its_line(file: Path, text: str, message: str) -> None:
    found = problems(file, text)
    assert any(line.startswith(message) for line in found), found


def test_a_problem_of_the_exporters_file_is_reported_as_one_of_that(file: Path) -> None:
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
def test_a_budget_without_effect_is_refused(budget: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Config.model_validate({"insecure": True, "targets": [{**TARGET, **budget}]})


def test_nothing_selects_everything() -> None:
    for spoilt in ({"run": ""}, {"worker": ""}, {"run": None}, {"worker": ".*"}, {"worker": "*"}):
        with pytest.raises(ValidationError):
            Config.model_validate({"insecure": True, "targets": [{**TARGET, **spoilt}]})


def test_a_playbook_of_the_file_comes_before_the_shipped_one() -> None:
    own = Playbook.model_validate({"condition": "any", "action": "hold"})
    config = Config.model_validate({"insecure": True, "playbooks": {"relieve_memory": own}})
    assert config.playbook("relieve_memory") == own
    assert config.playbook("start_missing_worker") == PLAYBOOKS["start_missing_worker"]
    assert config.playbook("") is None
    assert config.playbook("../../etc/passwd") is None


LADDER = """\
playbooks:
  restart_inference:
    rungs:
    - {action: restart, target: worker, verify: {serves: true, timeout: 3m}}
    - {action: restart, target: trainer, when: no_progress, verify: {progress: true, timeout: 20m}}
  start_missing_worker: {verify: {timeout: 5m}}
"""


def test_a_ladder_is_read_from_the_file(file: Path) -> None:
    exporter = yaml.safe_load((file.parent / "exporter.yml").read_text())
    exporter["runs"][0]["workers"][1]["role"] = "trainer"
    (file.parent / "exporter.yml").write_text(yaml.safe_dump(exporter))
    trainer = "  - {run: demo, worker: trainer, process: {start: [python]}}\n"
    file.write_text(SMALLEST + trainer + LADDER)
    setup = load_setup(file)
    ladder = setup.config.playbook("restart_inference")
    assert ladder is not None
    # one of a shipped name need not say again what it is against
    assert ladder.condition is Condition.INFERENCE_DOWN
    assert [(rung.target, rung.when) for rung in ladder.ladder] == [
        ("worker", "not_healed"),
        ("trainer", "no_progress"),
    ]
    assert (ladder.ladder[0].verify.timeout, ladder.ladder[0].verify.serves) == (180, True)
    assert (ladder.ladder[1].verify.timeout, ladder.ladder[1].verify.progress) == (1200, True)
    single = setup.config.playbook("start_missing_worker")
    assert single is not None
    assert single.condition is Condition.MISSING
    (rung,) = single.ladder
    assert (rung.action, rung.target, rung.verify.timeout) == ("restart", "worker", 300)
    assert setup.trainers("demo") == (setup.config.targets[1],)
    assert setup.trainers("other") == ()


def test_the_shipped_playbooks_are_as_sound_as_those_of_a_file() -> None:
    for name, playbook in PLAYBOOKS.items():
        given = playbook.model_dump(exclude_unset=True)
        assert Playbook.model_validate(given) == playbook, name
        assert playbook.ladder


def test_a_leftover_is_given_little_time() -> None:
    assert GpuCleanup().grace == 3
    assert PLAYBOOKS["clean_gpu"].verify.stable_for == 2


def test_a_setup_finds_targets_by_their_whole_key(file: Path) -> None:
    setup: Setup = load_setup(file)
    assert setup.config.target(WorkerKey("demo", "rollout-0")) is setup.config.targets[0]
    assert setup.config.target(WorkerKey("demo", "rollout")) is None
    assert setup.config.target(WorkerKey("", "")) is None
