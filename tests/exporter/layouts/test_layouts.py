"""What all layouts promise, whatever their framework."""

from __future__ import annotations

import re

import pytest
import re2  # type: ignore[import-untyped]

from trainwarden_exporter.layouts import LAYOUTS, layout
from trainwarden_exporter.layouts.base import Layout, LinePattern, points
from trainwarden_exporter.layouts.places import Place
from trainwarden_exporter.layouts.troubles import SHARED

each_layout = pytest.mark.parametrize("framework", LAYOUTS, ids=lambda one: one.name)


def test_a_layout_is_found_by_what_the_configuration_calls_it() -> None:
    assert layout("areal").title == "AReaL"
    assert [layout(one.name) for one in LAYOUTS] == list(LAYOUTS)


def test_a_framework_that_is_not_known_is_an_error_that_names_those_that_are() -> None:
    with pytest.raises(ValueError, match=r"no framework alphago is known; .* areal, .* generic"):
        layout("alphago")


@each_layout
def test_names_are_labels_and_told_apart(framework: Layout) -> None:
    groups = (
        [one.name for one in framework.checkpoints],
        [one.name for one in framework.rollouts],
        [one.name for one in framework.logs],
        [one.name for one in (*framework.lines, *SHARED)],
        [one.name for one in framework.progress_files],
    )
    for names in groups:
        assert len(names) == len(set(names))
        assert all(re.fullmatch(r"[a-z][a-z0-9_]*", name) for name in names)


@each_layout
def test_every_template_can_be_read(framework: Layout) -> None:
    assert [Place(template).template for template in framework.templates] == list(
        framework.templates
    )


@each_layout
def test_every_pattern_is_one_that_re2_and_python_read_alike(framework: Layout) -> None:
    for pattern in (*framework.lines, *SHARED):
        assert set(re2.compile(pattern.regex).groupindex) == set(
            re.compile(pattern.regex).groupindex
        )


@each_layout
def test_patterns_are_plain_so_that_logs_can_be_searched_as_bytes(framework: Layout) -> None:
    assert all(pattern.regex.isascii() for pattern in (*framework.lines, *SHARED))


@each_layout
def test_no_pattern_matches_an_empty_line(framework: Layout) -> None:
    for pattern in (*framework.lines, *SHARED):
        assert re2.search(pattern.regex, "") is None, pattern.name


@each_layout
def test_what_a_pattern_counts_to_or_resets_exists(framework: Layout) -> None:
    names = {one.name for one in (*framework.lines, *SHARED)}
    roles = {one.role for one in framework.logs}
    for pattern in framework.lines:
        assert pattern.resets in names | {""}
        assert pattern.role in roles | {""}
        assert pattern.phase is None or pattern.ends is None
        assert not (pattern.trouble and (pattern.phase or pattern.ends))


@each_layout
def test_entries_and_ranks_are_read_by_their_groups(framework: Layout) -> None:
    for checkpoint in framework.checkpoints:
        for regex in (checkpoint.entry, checkpoint.partial):
            assert set(re.compile(regex).groupindex) <= {"step"}
    for rollout in framework.rollouts:
        assert set(re.compile(rollout.entry).groupindex) == {"step"}
        assert set(re.compile(rollout.rank).groupindex) <= {"rank"}
    for source in framework.progress_files:
        if source.kind == "text":
            assert set(re.compile(source.step).groupindex) == {"step"}


@each_layout
def test_logs_that_repeat_each_other_are_of_one_role(framework: Layout) -> None:
    for word in {one.copies for one in framework.logs} - {""}:
        same = [one for one in framework.logs if one.copies == word]
        assert len({one.role for one in same}) == 1


@each_layout
def test_a_role_does_not_match_every_process(framework: Layout) -> None:
    for role in framework.roles:
        pattern = re.compile(role.command)
        for command in ("", "/bin/bash", "python3 -m http.server", "sshd: root@pts/0", "ray::IDLE"):
            assert not pattern.search(command), role.role


@each_layout
def test_a_person_is_told_of_the_traps(framework: Layout) -> None:
    assert framework.notes
    assert all(note.endswith(".") and "\n" not in note for note in framework.notes)


def test_points_are_read_from_a_text_with_dashes() -> None:
    assert points("""
        - One that goes on
          in the next line - with a dash.
        - Two.
    """) == ("One that goes on in the next line - with a dash.", "Two.")
    assert points("") == ()


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
        "trainer": "python3 train_async.py --save /ckpt",
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
def test_a_process_is_known_by_its_command(framework: str, role: str, command: str) -> None:
    roles = [one.role for one in layout(framework).roles if re.search(one.command, command)]
    assert roles == [role]


def test_every_framework_has_commands_here() -> None:
    assert set(COMMANDS) == {one.name for one in LAYOUTS}


def test_a_pattern_says_nothing_until_it_is_told_what() -> None:
    plain = LinePattern("x", "y")
    assert (plain.phase, plain.ends, plain.trouble, plain.advances) == (None, None, False, False)
