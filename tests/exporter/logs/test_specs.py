from __future__ import annotations

from pathlib import Path

import pytest

from trainwarden_exporter.config import Config
from trainwarden_exporter.config_file import loader
from trainwarden_exporter.exceptions import ConfigError
from trainwarden_exporter.frameworks import FRAMEWORKS, get_framework
from trainwarden_exporter.frameworks.base import LinePattern, Phase
from trainwarden_exporter.frameworks.error_lines import COMMON_ERROR_PATTERNS
from trainwarden_exporter.logs.config import LogConfig
from trainwarden_exporter.logs.file_listing import find_log_files
from trainwarden_exporter.logs.pattern_search import compile_patterns
from trainwarden_exporter.logs.re2_patterns import check_regex
from trainwarden_exporter.logs.specs import LogSpec
from trainwarden_exporter.run_config import RunConfig
from trainwarden_exporter.run_specs import line_patterns, log_specs


def run(text: str) -> RunConfig:
    return loader.parse(f"name: grpo\n{text}", Path("/etc/run.yml"), RunConfig, environment={})


def specs(text: str) -> dict[str, LogSpec]:
    return {spec.name: spec for spec in log_specs(run(text))}


def problem(text: str) -> str:
    with pytest.raises(ConfigError) as raised:
        run(text)
    (found,) = raised.value.problems
    return f"{found.line}: {found.where}: {found.message}"


def test_a_run_without_anything_has_no_logs() -> None:
    assert specs("") == {}
    assert specs("framework: areal") == {}  # where would they lie?


def test_a_framework_and_a_path_are_enough() -> None:
    found = specs("framework: areal\npath: /data\nvariables: {trial: trial0}")
    assert set(found) == {log.name for log in get_framework("areal").logs}
    trainer = found["trainer"]
    assert (trainer.run, trainer.path, trainer.role) == ("grpo", Path("/data"), "trainer")
    assert trainer.variables == (("trial", "trial0"),)
    assert trainer.instance_templates == get_framework("areal").templates
    assert {
        pattern.name for pattern in (*COMMON_ERROR_PATTERNS, *get_framework("areal").lines)
    } == {pattern.name for pattern in trainer.patterns}


def test_a_log_of_ones_own_stands_beside_those_of_the_framework() -> None:
    found = specs(
        "framework: areal\npath: /data\n"
        "logs:\n- {name: proxy, files: ['proxy/*.log', /var/log/proxy.log], role: gateway,"
        " silence_limit: 10m, longest_line: 1KiB}"
    )
    assert {"trainer", "proxy"} <= set(found)
    proxy = found["proxy"]
    assert proxy.files == ("proxy/*.log", "/var/log/proxy.log")
    assert (proxy.role, proxy.silence_limit, proxy.longest_line) == ("gateway", 600, 1024)
    assert proxy.instance_templates == ()  # nothing tells its instances apart


def test_configured_patterns_replace_the_frameworks_for_its_log() -> None:
    known = next(log for log in get_framework("areal").logs if log.name == "trainer")
    (before, after) = (
        specs(f"framework: areal\npath: /data\n{more}")["trainer"]
        for more in ("", "logs: [{name: trainer, silence_limit: 1h}]")
    )
    assert before.files == after.files == known.files
    assert (before.silence_limit, after.silence_limit) == (None, 3600)
    moved = specs(
        "framework: areal\npath: /data\n"
        "logs: [{name: trainer, files: [x.log], deduplication_group: w}]"
    )
    assert moved["trainer"].files == ("x.log",)
    assert moved["trainer"].deduplication_group == "w"


def test_patterns_are_added_replaced_and_left_out() -> None:
    config = LogConfig.model_validate(
        {
            "name": "x",
            "files": ["x"],
            "disabled_patterns": ["exception"],
            "patterns": [
                {"name": "gpu_out_of_memory", "regex": "OOM!"},
                {
                    "name": "step",
                    "regex": r"s(?P<step>\d+)",
                    "phase": "training",
                    "step_offset": 1,
                    "resets": "gpu_out_of_memory",
                    "values": ["loss"],
                    "advances": True,
                },
            ],
        }
    )
    found = {pattern.name: pattern for pattern in line_patterns(get_framework("generic"), config)}
    assert "exception" not in found
    assert found["gpu_out_of_memory"] == LinePattern("gpu_out_of_memory", "OOM!")
    assert found["step"] == LinePattern(
        "step",
        r"s(?P<step>\d+)",
        phase=Phase.TRAINING,
        step_offset=1,
        resets="gpu_out_of_memory",
        values=("loss",),
        advances=True,
    )


def test_a_refused_connection_concerns_the_server_of_a_run_that_has_one() -> None:
    log = "path: /data\nlogs: [{name: log, files: [a]}]"
    server = "\ninference: [{name: s, url: 'http://127.0.0.1:8000', engine: vllm}]"
    alone, served = (
        {one.name for one in specs(text)["log"].patterns} for text in (log, log + server)
    )
    assert served - alone == {"connection_refused", "connection_lost"}
    assert alone - served == {"peer_unreachable", "peer_connection_failed"}


@pytest.mark.parametrize("name", ["connection_refused", "peer_unreachable"])
@pytest.mark.parametrize(
    "more", ["", "\ninference: [{name: s, url: 'http://127.0.0.1:8000', engine: vllm}]"]
)
def test_a_pattern_with_another_name_in_a_run_with_a_server_has_both(name: str, more: str) -> None:
    both = {"connection_refused", "peer_unreachable"}

    def found(settings: str) -> dict[str, LinePattern]:
        log = specs(f"path: /data\nlogs: [{{name: log, files: [a], {settings}}}]{more}")["log"]
        return {one.name: one for one in log.patterns}

    assert not both & found(f"disabled_patterns: [{name}]").keys()
    own = found(f"patterns: [{{name: {name}, regex: refused}}]")
    assert both & own.keys() == {name}
    assert own[name].regex == "refused"
    resetting = found(f"patterns: [{{name: connected, regex: up, resets: {name}}}]")
    assert {resetting["connected"].resets} == both & resetting.keys()
    with pytest.raises(ConfigError, match="no pattern has the name"):
        found(
            "disabled_patterns: [connection_refused], "
            f"patterns: [{{name: connected, regex: up, resets: {name}}}]"
        )


def test_a_log_is_of_its_worker_or_of_the_only_one_of_its_role() -> None:
    workers = (
        "path: /data\nworkers:\n"
        "- {name: t0, role: trainer, match: {pid_file: /x}}\n"
        "- {name: r0, role: rollout, match: {pid_file: /y}}\n"
        "- {name: r1, role: rollout, match: {pid_file: /z}}\n"
        "logs:\n"
        "- {name: a, files: [a], role: trainer}\n"
        "- {name: b, files: [b], role: rollout}\n"
        "- {name: c, files: [c], worker: r1}\n"
        "- {name: d, files: [d]}\n"
    )
    found = specs(workers)
    assert [(found[name].role, found[name].worker) for name in "abcd"] == [
        ("trainer", "t0"),
        ("rollout", ""),
        ("rollout", "r1"),
        ("", ""),
    ]


def test_copies_are_other_files_only_where_nothing_else_can_be_meant() -> None:
    found = specs(
        "path: /data\nlogs:\n"
        "- {name: a, files: [a.log], deduplication_group: both}\n"
        "- {name: b, files: [b.log], deduplication_group: both}\n"
        "- {name: c, files: ['c/*.log'], deduplication_group: alone}\n"
        "- {name: d, files: [d.log, e.log], deduplication_group: two}\n"
        "- {name: e, files: ['e*.log']}\n"
    )
    assert [found[name].by_file for name in "abcde"] == [False, False, True, False, False]


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        (
            "path: /d\nlogs:\n- name: x\n  files: [x]\n  patterns:\n  - name: p\n    regex: '(a'",
            "8: logs[0].patterns[0].regex: not a regular expression of RE2: missing ): (a",
        ),
        ("logs: [{name: x, files: [x.log]}]", "relative to the path of the run, which has none"),
        ("path: /d\nlogs: [{name: x}]", "files required: the framework has no log of this name"),
        ("path: /d\nlogs: [{name: x, files: ['**/x']}]", "** would search a whole tree"),
        (
            "path: /d\nlogs: [{name: x, files: [x]}, {name: x, files: [y]}]",
            "another log is named x",
        ),
        (
            "path: /d\nlogs:\n- {name: x, files: [x], patterns: [*a, *a]}".replace(
                "*a", "{name: p, regex: a}"
            ),
            "another pattern is named p",
        ),
        (
            "path: /d\nlogs: [{name: x, files: [x], worker: w}]",
            "no worker of this run has the name w",
        ),
        (
            "path: /d\nlogs: [{name: x, files: [x], disabled_patterns: [q]}]",
            "no pattern has the name q",
        ),
        (
            "path: /d\nlogs: [{name: x, files: [x], patterns: [{name: p, regex: a, resets: q}]}]",
            "no pattern has the name q",
        ),
        ("framework: arael", "unknown framework arael"),
    ],
)
def test_what_cannot_be_followed_is_refused_in_its_place(text: str, reported: str) -> None:
    assert reported in problem(text)


def test_a_brake_that_nothing_resets_is_refused() -> None:
    """Its streak would be unknown, and TrainingBrakeFiring silent at 951 of them."""
    brake = "{name: emergency_brake, regex: brake}"
    trial = "{name: trial, regex: done, resets: emergency_brake}"
    with pytest.raises(ConfigError, match=r"no pattern resets it"):
        run(f"path: /d\nlogs: [{{name: x, files: [x], patterns: [{brake}]}}]")
    run(f"path: /d\nlogs: [{{name: x, files: [x], patterns: [{brake}, {trial}]}}]")


def test_all_that_the_layouts_look_for_can_be_searched_for() -> None:
    for one in FRAMEWORKS:
        patterns = (*COMMON_ERROR_PATTERNS, *one.lines)
        for pattern in patterns:
            check_regex(pattern.regex)
        compile_patterns(patterns)
        names = [pattern.name for pattern in patterns]
        # `resets` names an existing pattern; of two patterns of one name the specific one counts.
        assert {pattern.resets for pattern in patterns} <= {"", *names}


def test_the_log_of_areal_is_found_one_folder_deep_too(tmp_path: Path) -> None:
    """As in a night whose log was outputs/grpo/logs/*/trainer.log."""
    path = tmp_path / "logs" / "attempt-3" / "trainer.log"
    path.parent.mkdir(parents=True)
    path.write_text("")
    (tmp_path / "logs" / "trainer.txt").write_text("")
    (config,) = loader.parse(
        f"runs: [{{name: a, path: {tmp_path}, framework: areal}}]", tmp_path / "e.yml", Config
    ).runs
    found = {spec.name: find_log_files(spec) for spec in log_specs(config)}
    assert [file for file, _ in found["trainer"]] == [str(path)]


def test_a_console_log_may_be_a_text_file(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_text("")
    (config,) = loader.parse(
        f"runs: [{{name: a, path: {tmp_path}, framework: trl}}]", tmp_path / "e.yml", Config
    ).runs
    (spec,) = log_specs(config)
    assert [file for file, _ in find_log_files(spec)] == [str(path)]
