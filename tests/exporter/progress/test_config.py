"""What exporter.yml says of progress, and what it comes to with the layout."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainwarden_exporter.config import Config
from trainwarden_exporter.config_file import loader
from trainwarden_exporter.exceptions import ConfigError
from trainwarden_exporter.frameworks import FRAMEWORKS
from trainwarden_exporter.frameworks.base import Framework, Phase
from trainwarden_exporter.run_specs import progress_spec, trainer_names

PATH = Path("/etc/exporter.yml")


def config(text: str) -> Config:
    return loader.parse(text, PATH, Config)


def problems(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        config(text)
    return str(caught.value)


def test_a_run_that_says_nothing_has_the_defaults() -> None:
    (run,) = config("runs: [{name: a}]").runs
    spec = progress_spec(run)
    assert (spec.limits.factor, spec.limits.floor, spec.limits.first_step) == (5, 60, 1800)
    assert (spec.limits.restart_factor, spec.limits.restart_floor) == (25, 1800)
    assert (spec.files, spec.total, spec.framework) == ((), None, "")


def test_all_of_it() -> None:
    (run,) = config("""
    runs:
      - name: a
        path: /data/exp
        framework: trl
        variables: {run: one}
        progress:
          stall_factor: 3
          stall_floor: 2m
          restart_factor: 8
          restart_floor: 10m
          first_step_limit: 1h
          phase_limits: {saving: 10m}
          total_steps: 500
          files:
            - {name: state, file: 'mine.json', kind: json, step: global_step}
            - {name: table, file: '{run}/metrics.csv', kind: csv, step: step, step_offset: 1}
    """).runs
    spec = progress_spec(run)
    assert (spec.limits.factor, spec.limits.floor, spec.limits.first_step) == (3, 120, 3600)
    assert (spec.limits.restart_factor, spec.limits.restart_floor) == (8, 600)
    assert spec.limits.phases[Phase.SAVING] == 600
    assert spec.limits.phases[Phase.EVALUATING] == 3600
    assert (spec.total, spec.framework) == (500, "TRL, Transformers Trainer")
    files = {subject.file.name: subject for subject in spec.files}
    assert {"state", "table", "final_state"} <= files.keys()
    assert files["state"].file.file == "mine.json"
    assert files["table"].file.step_offset == 1
    assert files["table"].location.variables == (("run", "one"),)
    assert len({subject.location.templates for subject in spec.files}) == 1
    assert "mine.json" in files["state"].location.templates


def test_without_a_path_there_are_no_files() -> None:
    (run,) = config("runs: [{name: a, framework: trl}]").runs
    assert progress_spec(run).files == ()


@pytest.mark.parametrize(
    ("progress", "problem"),
    [
        ("{stall_factor: 1}", "runs[0].progress.stall_factor"),
        ("{stall_floor: 0}", "runs[0].progress.stall_floor"),
        ("{restart_factor: 1}", "runs[0].progress.restart_factor"),
        ("{restart_floor: 0}", "runs[0].progress.restart_floor"),
        ("{phase_limits: {training: 5m}}", "phase_limits.training: unknown key"),
        ("{total_steps: 0}", "runs[0].progress.total_steps"),
        ("{files: [{name: a, file: 'a/**/b', kind: json, step: s}]}", "files[0].file"),
        ("{files: [{name: a, file: a, kind: text, step: '('}]}", "not a regular expression"),
        ("{files: [{name: a, file: a, kind: text, step: 'x'}]}", "has no group (?P<step>"),
        (
            "{files: [{name: a, file: a, kind: text, step: '(?P<step>.)', total: 'x'}]}",
            "has no group (?P<total>",
        ),
        (
            "{files: [&file {name: a, file: a, kind: json, step: s}, *file]}",
            "another file is named a",
        ),
    ],
)
def test_what_makes_no_sense_is_reported_with_its_place(progress: str, problem: str) -> None:
    assert problem in problems(f"runs: [{{name: a, progress: {progress}}}]")


@pytest.mark.parametrize(
    ("workers", "expected"),
    [
        ("[{name: a, role: trainer}, {name: trainer}]", ("a",)),
        ("[{name: a, role: trainer}, {name: b, role: trainer}]", ("a", "b")),
        ("[{name: trainer, role: rank}, {name: b}]", ("trainer",)),
        ("[{name: a}]", ("a",)),
        ("[{name: a, role: inference}]", ()),
        ("[{name: a}, {name: b}]", ()),
        ("[]", ()),
    ],
)
def test_who_makes_the_steps(workers: str, expected: tuple[str, ...]) -> None:
    workers = workers.replace("}", ", match: {command: x}}")
    (run,) = config(f"runs: [{{name: run, workers: {workers}}}]").runs
    assert trainer_names(run) == expected


@pytest.mark.parametrize("known", FRAMEWORKS, ids=lambda one: one.name)
def test_a_framework_that_tells_its_evaluations_has_a_line_for_that(known: Framework) -> None:
    (run,) = config(f"runs: [{{name: a, path: /data, framework: {known.name}}}]").runs
    assert progress_spec(run).announces_evaluations == known.announces_evaluations


OWN = "{name: trainer, patterns: [{name: val, regex: validating, phase: evaluating}]}"
DISABLED = ", ".join(
    f"{{name: {log}, disabled_patterns: [evaluating]}}" for log in ("trainer", "infra")
)


@pytest.mark.parametrize(
    ("framework", "logs", "reported"),
    [
        ("torchtitan", "", False),
        ("torchtitan", OWN, True),
        # its line comes only where its user asks for level INFO
        ("trl", "", False),
        ("skyrl", "", True),
        ("skyrl", DISABLED, False),
    ],
)
def test_whether_evaluations_are_reported_is_for_framework_and_user_to_say(
    framework: str, logs: str, reported: bool
) -> None:
    (run,) = config(
        f"runs: [{{name: a, path: /data, framework: {framework}, logs: [{logs}]}}]"
    ).runs
    assert progress_spec(run).announces_evaluations == reported


def test_who_keeps_no_log_tells_nothing() -> None:
    (run,) = config("runs: [{name: a, framework: skyrl}]").runs
    assert not progress_spec(run).announces_evaluations


@pytest.mark.parametrize(
    ("heartbeats", "problem"),
    [
        ("[{name: a, run: nobody}]", "heartbeats[0].run: no run has the name nobody"),
        ("[{name: a}, {name: a}]", "heartbeats[1].name: another heartbeat"),
        ("[{name: 'a b'}]", "heartbeats[0].name"),
        ("[{name: a, interval: 0}]", "heartbeats[0].interval"),
    ],
)
def test_a_heartbeat_that_cannot_be_is_reported_with_its_place(
    heartbeats: str, problem: str
) -> None:
    assert problem in problems(f"heartbeats: {heartbeats}")


def test_one_name_may_be_that_of_heartbeats_of_several_runs() -> None:
    text = "{runs: [{name: a}, {name: b}], heartbeats: [{name: x, run: a}, {name: x, run: b}]}"
    assert len(config(text).heartbeats) == 2


def test_a_limit_of_the_framework_itself_counts_unless_the_run_sets_one() -> None:
    """AReaL gives up a weight update after 120 s."""
    limits = []
    for text in ("", ", progress: {phase_limits: {updating_weights: 5m, saving: 1m}}"):
        (run,) = config(f"runs: [{{name: a, path: /d, framework: areal{text}}}]").runs
        limits.append(progress_spec(run).limits.phases)
    assert [one[Phase.UPDATING_WEIGHTS] for one in limits] == [120, 300]
    assert [one[Phase.SAVING] for one in limits] == [1800, 60]
