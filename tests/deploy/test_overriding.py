from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

import write_rules
from overriding import Overrides, overridden, read_overrides
from ruleset import RULES, Ruleset, read_shipped
from stack import Binaries
from trainwarden_exporter.exceptions import ConfigError

CHANGES = """\
alerts:
  - {alert: TrainingGpuIdle, enabled: false}
  - {alert: TrainingErrorStorm, severity: info, for: 5m}
  - {alert: TrainingWorkerMemoryOverLimit, of: warning, for: 2m}
"""
LIMIT = (
    'trainwarden_worker_memory_limit_bytes{run="r",worker="w",role="worker",instance="i",job="j"}'
)
HELD = 'trainwarden_worker_memory_bytes{run="r",worker="w",role="worker",instance="i",job="j"}'
FIRING = 'count(ALERTS{alertstate="firing",alertname="TrainingWorkerMemoryOverLimit"})'


def written(folder: Path, text: str) -> Path:
    path = folder / "overrides.yml"
    path.write_text(text)
    return path


def named(rules: Ruleset, name: str) -> list[dict[str, Any]]:
    return [
        rule
        for groups in rules.values()
        for group in groups
        for rule in group["rules"]
        if rule.get("alert") == name
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{alert: TrainingNope, enabled: false}", "alert: no shipped alert is called"),
        ("{alert: TrainingOomKill}", "changes nothing"),
        ("{alert: TrainingOomKill, treshold: 3}", "unknown key"),
        ("{alert: TrainingOomKill, severity: none}", "severity: expected 'critical'"),
        ("{alert: TrainingOomKill, for: a while}", "for: not a duration"),
        ("{alert: TrainingOomKill, enabled: false, for: 5m}", "nothing else matters"),
        ("{alert: TrainingOomKill, of: critical, for: 5m}", "none of that severity, only warning"),
        ("{alert: TrainingStepStalled, severity: info}", "another alert of that name has it"),
        ("{alert: TrainingStepStalled, of: warning, severity: critical}", "another alert of that"),
        ("{alert: TrainingWatchdog, enabled: false}", "the remediator listens for this one"),
        ("{alert: TrainingGpuXid, for: 5m}\n  - {alert: TrainingGpuXid, of: warning, for: 5m}", ""),
    ],
)
def test_an_invalid_value_is_reported_with_its_line(
    tmp_path: Path, text: str, message: str
) -> None:
    file = written(tmp_path, f"alerts:\n  - {text}\n")
    with pytest.raises(ConfigError) as caught:
        read_overrides(file)
    (problem,) = caught.value.problems
    assert problem.line == (2 if message else 3)
    assert (message or "is changed above already") in str(problem)


def test_all_that_is_wrong_is_reported_at_once(tmp_path: Path) -> None:
    lines = "".join(f"  - {{alert: Training{name}, enabled: false}}\n" for name in "ABC")
    with pytest.raises(ConfigError) as caught:
        read_overrides(written(tmp_path, f"alerts:\n{lines}"))
    assert [problem.line for problem in caught.value.problems] == [2, 3, 4]


def test_only_what_is_named_changes(tmp_path: Path) -> None:
    shipped = read_shipped()
    rules = overridden(shipped, read_overrides(written(tmp_path, CHANGES)))
    assert named(rules, "TrainingGpuIdle") == []
    (storm,), (shipped_storm,) = (named(r, "TrainingErrorStorm") for r in (rules, shipped))
    assert storm == {**shipped_storm, "for": "300000ms", "labels": {"severity": "info"}}
    waits = {
        r["labels"]["severity"]: r.get("for") for r in named(rules, "TrainingWorkerMemoryOverLimit")
    }
    assert waits == {"critical": None, "warning": "120000ms"}
    touched = ("TrainingGpuIdle", "TrainingErrorStorm", "TrainingWorkerMemoryOverLimit")
    for groups in shipped.values():
        for group in groups:
            for rule in group["rules"]:
                if rule.get("alert") not in touched:
                    assert any(rule in g["rules"] for all_of in rules.values() for g in all_of)


def test_nothing_named_is_nothing_changed() -> None:
    shipped = read_shipped()
    assert overridden(shipped, Overrides()) == shipped


def test_a_critical_one_may_become_the_warning_that_is_off(tmp_path: Path) -> None:
    text = (
        "alerts:\n  - {alert: TrainingDiskInodes, of: warning, enabled: false}\n"
        "  - {alert: TrainingDiskInodes, of: critical, severity: warning}\n"
    )
    rules = overridden(read_shipped(), read_overrides(written(tmp_path, text)))
    assert [r["labels"]["severity"] for r in named(rules, "TrainingDiskInodes")] == ["warning"]


def test_the_written_rules_load_and_wait_as_configured(tmp_path: Path, binaries: Binaries) -> None:
    folder = tmp_path / "rules"
    stale = folder / "alerts" / "gone.yml"
    stale.parent.mkdir(parents=True)
    stale.write_text(write_rules.HEAD + "groups: []\n")
    own = tmp_path / "rules" / "alerts" / "own.yml"
    own.write_text("groups: []\n")
    overrides = str(written(tmp_path, CHANGES))
    assert write_rules.main(["--overrides", overrides, "--output", str(folder)]) == 0
    files = sorted({*folder.glob("*/*.yml")} - {own})
    assert {file.relative_to(folder) for file in files} == {
        file.relative_to(RULES)
        for kind in ("alerts", "recording")
        for file in (RULES / kind).iterdir()
    }
    assert own.exists()
    check: list[str | Path] = [binaries.promtool, "check", "rules", "--lint-fatal", *files]
    result = subprocess.run(check, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr

    def fires(at: str, times: int) -> dict[str, Any]:
        samples = [{"labels": "{}", "value": times}] if times else []
        return {"expr": FIRING, "eval_time": at, "exp_samples": samples}

    # 95 % of the limit from the first sample on: shipped, the warning fires after one minute
    series = [{"series": LIMIT, "values": "100+0x60"}, {"series": HELD, "values": "95+0x60"}]
    suite = {
        "rule_files": [str(folder / "alerts" / "workers.yml")],
        "evaluation_interval": "5s",
        "tests": [
            {
                "interval": "5s",
                "input_series": series,
                "promql_expr_test": [fires("1m55s", 0), fires("2m5s", 1)],
            }
        ],
    }
    path = tmp_path / "overridden_test.yml"
    path.write_text(yaml.safe_dump(suite))
    result = subprocess.run(
        [binaries.promtool, "test", "rules", path], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_a_file_without_a_rule_left_takes_the_place_of_the_shipped_one(
    tmp_path: Path, binaries: Binaries
) -> None:
    folder = tmp_path / "rules"
    shutil.copytree(RULES, folder)
    changes = written(tmp_path, "alerts: [{alert: TrainingHeartbeatMissed, enabled: false}]\n")
    assert write_rules.main(["--overrides", str(changes), "--output", str(folder)]) == 0
    check = (binaries.promtool, "check", "rules", folder / "alerts" / "heartbeats.yml")
    result = subprocess.run(check, capture_output=True, text=True, check=False)
    assert (result.returncode, "0 rules found" in result.stdout) == (0, True), result.stderr


def test_a_wrong_file_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path, "alerts: [{alert: TrainingNope, enabled: false}]\n")
    assert write_rules.main(["--overrides", str(file), "--output", str(tmp_path / "rules")]) == 1
    assert f"{file}:1: alerts[0].alert: no shipped alert" in capsys.readouterr().err
    assert not (tmp_path / "rules").exists()
