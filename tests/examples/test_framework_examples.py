"""For each framework a pair of files to begin with, which both programs accept as they are."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from trainwarden_exporter.__main__ import main as exporter
from trainwarden_exporter.config import load_config
from trainwarden_exporter.frameworks import FRAMEWORKS
from trainwarden_exporter.processes.selector import Selector
from trainwarden_remediator.__main__ import main as remediator
from trainwarden_remediator.config.schema import load_setup
from trainwarden_remediator.config_check.check import cross_check
from trainwarden_remediator.config_check.rule_files import read_rules

PROJECT = Path(__file__).parents[2]
EXAMPLES = PROJECT / "examples"
ALERTMANAGER = PROJECT / "rules" / "alertmanager.yml"
FRAMEWORK_NAMES = [framework.name for framework in FRAMEWORKS if framework.name != "generic"]

COMMANDS: Mapping[str, Mapping[str, str]] = {
    "areal": {
        "trainer": "python3 -m areal.infra.launcher.local gsm8k_grpo.py --config gsm8k_grpo.yaml",
        "inference": "python3 -m areal.infra.launcher.sglang_server --config gsm8k_grpo.yaml",
    },
    "prime_rl": {
        "trainer": "python3 -m prime_rl.trainer.rl.train @ trainer.toml",
        "orchestrator": "/opt/venv/bin/python3 /opt/venv/bin/orchestrator @ orchestrator.toml",
        "inference": "/opt/venv/bin/python3 /opt/venv/bin/inference @ inference.toml",
    },
    "verl": {"trainer": "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo"},
    "openrlhf": {"trainer": "python3 -m openrlhf.cli.train_ppo_ray --ckpt.save_steps 20"},
    "trl": {
        "trainer": "/opt/venv/bin/python /opt/venv/bin/accelerate launch train.py",
        "vllm": "/opt/venv/bin/python /opt/venv/bin/trl vllm-serve --model Qwen/Qwen2.5-7B",
    },
    "slime": {
        "trainer": "python3 train.py --save checkpoints/qwen --load checkpoints/qwen",
        "router": "python3 -m sglang_router.launch_router --port 3333",
    },
    "nemo_rl": {"trainer": "python examples/run_grpo_math.py --config grpo.yaml"},
    "torchtitan": {
        "trainer": "python /opt/venv/bin/torchrun -m torchtitan.train --job.config_file a"
    },
    "lightning": {"trainer": "python3 train.py --devices 4"},
    "optuna": {
        "worker-0": "python3 search.py --worker 0",
        "worker-1": "python3 search.py --worker 1",
    },
    "skyrl": {"trainer": "python -m skyrl.train.entrypoints.main_base trainer.ckpt_path=ckpts"},
    "ray_train": {"trainer": "python3 train.py"},
    "megatron": {
        "trainer": "python3 /opt/venv/bin/torchrun --nproc_per_node 8 pretrain_gpt.py --save ckpt"
    },
    "deepspeed": {"trainer": "python3 /opt/venv/bin/deepspeed --num_gpus 8 train.py --seed 1"},
    "plain": {"trainer": "/opt/venv/bin/python train.py --steps 1000"},
}
"""How the parts of each look when they run."""

WITHOUT_FRAMEWORK = "plain"
each = pytest.mark.parametrize("framework", COMMANDS)


def test_there_is_a_pair_for_each_framework_and_for_no_other() -> None:
    found = {path.parent.name for path in EXAMPLES.glob("*/exporter.yml")}
    assert found - {"demo"} == set(COMMANDS) == {*FRAMEWORK_NAMES, WITHOUT_FRAMEWORK}
    assert all((EXAMPLES / name / "remediator.yml").exists() for name in COMMANDS)


@each
def test_both_programs_accept_their_file(
    framework: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = EXAMPLES / framework
    assert exporter(["check", str(folder / "exporter.yml")]) == 0
    assert remediator(["check", str(folder / "remediator.yml")]) == 0
    assert "ok (mode observe, " in capsys.readouterr().out


@each
def test_the_pair_and_the_shipped_rules_fit_together(framework: str) -> None:
    path = EXAMPLES / framework / "remediator.yml"
    setup = load_setup(path)
    rules = read_rules(sorted((PROJECT / "rules" / "alerts").glob("*.yml")))
    found = cross_check(path, setup, rules, ALERTMANAGER, port=10978)
    assert found.problems == []

    (run,) = setup.exporter_config.runs
    assert run.framework == ("generic" if framework == WITHOUT_FRAMEWORK else framework)
    reached = {step.target.key for step in found.steps if step.target is not None}
    assert reached == {target.key for target in setup.config.targets}
    # A process of somebody else may hold a GPU: the cleanup is the operator's own decision.
    assert setup.config.gpu_cleanup is None
    assert all(step.where == "—" for step in found.steps if step.playbook == "clean_gpu")
    # Whatever makes the steps may be restarted when they do not come.
    assert setup.trainers(run.name)
    # What is watched may also be brought back: nobody has to look for what was left out.
    targets = {key for target in setup.config.targets for key in target.keys}
    assert targets == set(setup.selectors)


@each
def test_each_part_of_a_run_is_found_by_its_own_pattern_alone(framework: str) -> None:
    (run,) = load_config(EXAMPLES / framework / "exporter.yml").runs
    assert {worker.name for worker in run.workers} == set(COMMANDS[framework])
    for name, command in COMMANDS[framework].items():
        assert [worker.name for worker in run.workers if finds(worker.match, command)] == [name]
    for worker in run.workers:
        for other in ("bash train.sh", "vim train.py", "tail -f trainer.log", "python3 retrain.py"):
            assert not finds(worker.match, other)


@pytest.mark.parametrize(
    ("worker", "command"),
    [
        ("inference", "uv run inference @ examples/wordle/rl/infer.toml --log.level DEBUG"),
        ("orchestrator", "uv run orchestrator @ examples/wordle/rl/orch.toml"),
        (
            "trainer",
            "uv run torchrun --nproc-per-node 2 src/prime_rl/trainer/rl/train.py @ train.toml",
        ),
        ("trainer", "/opt/venv/bin/python3 -u src/prime_rl/trainer/rl/train.py @ train.toml"),
        ("", "vim src/prime_rl/trainer/rl/train.py"),
    ],
)
def test_prime_rl_is_found_however_it_is_started(worker: str, command: str) -> None:
    """As in a night when each part was started by hand, without the launcher."""
    (run,) = load_config(EXAMPLES / "prime_rl" / "exporter.yml").runs
    found = [one.name for one in run.workers if finds(one.match, command)]
    assert found == [worker] * bool(worker)


def finds(selector: Selector, command: str) -> bool:
    assert selector.command is not None
    return selector.command.search(command) is not None
