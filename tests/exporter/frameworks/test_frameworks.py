"""What holds for the definitions of all frameworks."""

from __future__ import annotations

import re

import pytest
import re2  # type: ignore[import-untyped]

from trainwarden_exporter.checkpoints.proofs import provable
from trainwarden_exporter.frameworks import FRAMEWORKS, get_framework
from trainwarden_exporter.frameworks.base import Framework, LinePattern, bullet_points
from trainwarden_exporter.frameworks.error_lines import COMMON_ERROR_PATTERNS
from trainwarden_exporter.frameworks.path_resolution import PathTemplate
from trainwarden_exporter.processes.worker_trials import STORED_STUDY, STORED_TRIAL, UNSTORED_STUDY

each_framework = pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda one: one.name)


def test_a_framework_is_found_by_its_name() -> None:
    assert get_framework("areal").title == "AReaL"
    assert [get_framework(one.name) for one in FRAMEWORKS] == list(FRAMEWORKS)


def test_an_unknown_framework_is_an_error_that_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"unknown framework alphago; .* areal, .* generic"):
        get_framework("alphago")


@each_framework
def test_names_are_unique_and_valid_labels(framework: Framework) -> None:
    groups = (
        [one.name for one in framework.checkpoints],
        [one.name for one in framework.rollouts],
        [one.name for one in framework.logs],
        [one.name for one in (*framework.lines, *COMMON_ERROR_PATTERNS)],
        [one.name for one in framework.progress_files],
    )
    for names in groups:
        assert len(names) == len(set(names))
        assert all(re.fullmatch(r"[a-z][a-z0-9_]*", name) for name in names)


def test_every_layout_says_what_is_provable_unless_the_script_chooses_the_files() -> None:
    silent = {
        framework.name
        for framework in FRAMEWORKS
        for layout in framework.checkpoints
        if not layout.provable
    }
    assert silent == {"ray_train"}
    (layout,) = get_framework("deepspeed").checkpoints
    assert provable(layout) == (
        "every checksum of `torch.save`; a file of every rank; `latest` against the entries"
    )


@each_framework
def test_every_template_is_valid(framework: Framework) -> None:
    assert [PathTemplate(template).template for template in framework.templates] == list(
        framework.templates
    )


@each_framework
def test_re2_and_python_read_every_pattern_alike(framework: Framework) -> None:
    for pattern in (*framework.lines, *COMMON_ERROR_PATTERNS):
        assert set(re2.compile(pattern.regex).groupindex) == set(
            re.compile(pattern.regex).groupindex
        )


@each_framework
def test_patterns_are_ascii_so_that_logs_can_be_searched_as_bytes(framework: Framework) -> None:
    assert all(pattern.regex.isascii() for pattern in (*framework.lines, *COMMON_ERROR_PATTERNS))


@each_framework
def test_no_pattern_matches_an_empty_line(framework: Framework) -> None:
    for pattern in (*framework.lines, *COMMON_ERROR_PATTERNS):
        assert re2.search(pattern.regex, "") is None, pattern.name


@each_framework
def test_patterns_refer_to_existing_patterns_and_roles(framework: Framework) -> None:
    names = {one.name for one in (*framework.lines, *COMMON_ERROR_PATTERNS)}
    roles = {one.role for one in framework.logs}
    for pattern in framework.lines:
        assert pattern.resets in names | {""}
        assert pattern.role in roles | {""}
        assert pattern.phase is None or pattern.ends is None
        assert not (pattern.error and (pattern.phase or pattern.ends))


@each_framework
def test_regular_expressions_have_the_expected_groups(framework: Framework) -> None:
    for checkpoint in framework.checkpoints:
        for regex in (checkpoint.entry, checkpoint.partial):
            assert set(re.compile(regex).groupindex) <= {"step"}
    for rollout in framework.rollouts:
        assert set(re.compile(rollout.entry).groupindex) == {"step"}
        assert set(re.compile(rollout.rank).groupindex) <= {"rank"}
    for source in framework.progress_files:
        if source.kind == "text":
            assert set(re.compile(source.step).groupindex) == {"step"}


@each_framework
def test_the_logs_of_a_deduplication_group_have_one_role(framework: Framework) -> None:
    for word in {one.deduplication_group for one in framework.logs} - {""}:
        same = [one for one in framework.logs if one.deduplication_group == word]
        assert len({one.role for one in same}) == 1


@each_framework
def test_a_role_does_not_match_every_process(framework: Framework) -> None:
    for role in framework.roles:
        pattern = re.compile(role.command)
        for command in ("", "/bin/bash", "python3 -m http.server", "sshd: root@pts/0", "ray::IDLE"):
            assert not pattern.search(command), role.role


@each_framework
def test_every_framework_has_notes(framework: Framework) -> None:
    assert framework.notes
    assert all(note.endswith(".") and "\n" not in note for note in framework.notes)


def test_bullet_points_begin_with_dashes() -> None:
    assert bullet_points("""
        - A point that goes on
          in the next line - with a dash.
        - Two.
    """) == ("A point that goes on in the next line - with a dash.", "Two.")
    assert bullet_points("") == ()


COMMANDS = {
    "areal": {
        "launcher": "python3 -m areal.launcher.local examples/math/gsm8k_grpo.py --config x.yaml",
        "trainer": "torchrun --nnodes 1 --nproc-per-node 1 gsm8k_grpo.py --config x.yaml",
        "inference": "python3 -m areal.launcher.sglang_server gsm8k_grpo.py --config x.yaml",
    },
    "prime_rl": {
        "trainer": "PRIME-RL::Trainer",
        "orchestrator": "PRIME-RL::Orchestrator",
        "inference": "uv run inference @ configs/infer.toml",
        "environment": "Verifiers::EnvWorker3",
    },
    "verl": {
        "trainer": "python3 -m verl.trainer.main_ppo data.train_files=x",
        "rollout": "ray::AgentLoopWorker.generate_sequences",
        "inference": "ray::SGLangHttpServer.run",
    },
    "openrlhf": {
        "trainer": "python3 -m openrlhf.cli.train_ppo_ray --ckpt.path x",
        "rollout": "ray::GenerateSamplesActor.fit",
        "inference": "ray::RolloutRayActor.generate",
    },
    "trl": {
        "trainer": "/usr/bin/python /venv/bin/accelerate launch train.py",
        "inference": "python -m vllm.entrypoints.cli.main serve Qwen/Qwen3-0.6B",
    },
    "slime": {
        "trainer": "python3 train_async.py --num-rollout 100 --save /ckpt",
        "rollout": "ray::RolloutManager.generate",
        "inference": "ray::SGLangEngine",
    },
    "nemo_rl": {
        "trainer": "python examples/run_grpo.py --config x.yaml",
        "rollout": "ray::AsyncTrajectoryCollector.start_collection",
        "inference": "ray::VllmGenerationWorker.generate",
    },
    "torchtitan": {"trainer": "torchrun --nproc_per_node=8 -m torchtitan.train --module llama3"},
    "lightning": {"trainer": "torchrun --nproc_per_node=8 train.py"},
    "optuna": {"trainer": "python -m optuna optimize study.py objective"},
    "skyrl": {
        "trainer": "python -m skyrl.train.entrypoints.main_base trainer.epochs=1",
        "inference": "ray::AsyncVLLMInferenceEngine",
    },
    "ray_train": {"controller": "ray::TrainController.run", "trainer": "ray::RayTrainWorker"},
    "megatron": {"trainer": "torchrun --nproc_per_node 8 pretrain_gpt.py --save ckpt"},
    "deepspeed": {"trainer": "python3 /opt/venv/bin/deepspeed --num_gpus 8 train.py --seed 1"},
    "generic": {},
}


@pytest.mark.parametrize(
    ("framework", "role", "command"),
    [
        (name, role, command)
        for name, commands in COMMANDS.items()
        for role, command in commands.items()
    ],
)
def test_a_process_is_recognised_by_its_command(framework: str, role: str, command: str) -> None:
    roles = [one.role for one in get_framework(framework).roles if re.search(one.command, command)]
    assert roles == [role]


@pytest.mark.parametrize(
    "command",
    [
        "/opt/venv/bin/python /opt/venv/bin/llamafactory-cli train qwen_lora.yaml",
        "/opt/venv/bin/python /opt/venv/bin/axolotl train config.yml",
        "python -m axolotl.cli.train config.yml",
        "/opt/venv/bin/python /opt/venv/bin/swift sft --model Qwen/Qwen2.5-7B",
        "/opt/venv/bin/python -u /opt/venv/lib/site-packages/swift/cli/rlhf.py --rlhf_type grpo",
    ],
)
def test_programs_that_train_with_the_trainer_are_recognised(command: str) -> None:
    (role,) = (one for one in get_framework("trl").roles if re.search(one.command, command))
    assert role.role == "trainer"
    assert role.finishes


@pytest.mark.parametrize("command", ["swift build", "llamafactory-cli chat", "axolotl fetch"])
def test_their_other_commands_are_no_trainers(command: str) -> None:
    assert not any(re.search(one.command, command) for one in get_framework("trl").roles)


def test_every_framework_has_example_commands() -> None:
    assert set(COMMANDS) == {one.name for one in FRAMEWORKS}


def test_a_pattern_template_has_no_value_until_it_is_filled() -> None:
    plain = LinePattern("x", "y")
    assert (plain.phase, plain.ends, plain.error, plain.advances) == (None, None, False, False)


def test_the_trials_that_a_search_keeps_are_counted_by_a_pattern_of_that_name() -> None:
    lines = {line.name for line in get_framework("optuna").lines}
    assert lines >= {STORED_TRIAL, STORED_STUDY, UNSTORED_STUDY}
