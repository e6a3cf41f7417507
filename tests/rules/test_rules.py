"""The rules load in Prometheus and behave as the promtool suites say.

Each test of a suite is judged by the rules alone that can decide it, which takes a quarter of the
time: the shipped files as a whole are what `promtool test rules rules/tests/*.yml` judges.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from verdicts.needed import needed

SUITES = sorted((Path(__file__).resolve().parents[2] / "rules" / "tests").glob("*.yml"))
Result = subprocess.CompletedProcess[str]
Promtool = Callable[..., Result]


def apart(path: Path, folder: Path) -> Iterator[Path]:
    """Each test of a suite as a suite of its own, with the rules that can decide it.

    promtool writes the annotations of what fires at each evaluation: an alert that is not expected
    to fire goes without.
    """
    suite = yaml.load(path.read_text(), Loader=yaml.CSafeLoader)
    groups = [
        group
        for file in suite["rule_files"]
        for group in yaml.load((path.parent / file).read_text(), Loader=yaml.CSafeLoader)["groups"]
    ]
    for number, test in enumerate(suite["tests"]):
        fire = {one["alertname"] for one in test.get("alert_rule_test", ()) if one["exp_alerts"]}
        asked = "\n".join(one["expr"] for one in test.get("promql_expr_test", ()))
        bare = [
            {
                **group,
                "rules": [
                    {
                        key: value
                        for key, value in rule.items()
                        if key != "annotations" or rule["alert"] in fire
                    }
                    for rule in group["rules"]
                ],
            }
            for group in groups
        ]
        series = [one["series"] for one in test.get("input_series", ())]
        rules = folder / f"{path.stem}-{number}-rules.json"
        rules.write_text(json.dumps({"groups": needed(bare, series, asked)}))
        alone = folder / f"{path.stem}-{number}.json"
        alone.write_text(json.dumps({**suite, "rule_files": [str(rules)], "tests": [test]}))
        yield alone


@pytest.fixture(scope="module")
def suites(
    promtool: Promtool, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[Path, Future[Result]]]:
    """The suites, running two at a time."""
    folder = tmp_path_factory.mktemp("suites")
    with ThreadPoolExecutor(max_workers=2) as pool:
        yield {
            path: pool.submit(promtool, "test", "rules", *apart(path, folder)) for path in SUITES
        }


@pytest.mark.parametrize("path", SUITES, ids=lambda path: path.stem)
def test_the_rules_behave_as_their_suite_says(
    path: Path, suites: dict[Path, Future[Result]]
) -> None:
    result = suites[path].result()
    assert result.returncode == 0, result.stdout + result.stderr


def test_every_file_of_rules_is_in_a_suite(project: Path) -> None:
    for folder in ("alerts", "recording"):
        for file in (project / "rules" / folder).glob("*.yml"):
            named = f"- ../{folder}/{file.name}\n"
            assert any(named in suite.read_text() for suite in SUITES), file


def test_promtool_finds_no_fault_in_the_rules(project: Path, promtool: Promtool) -> None:
    files = sorted((project / "rules").glob("alerts/*.yml"))
    files += sorted((project / "rules").glob("recording/*.yml"))
    result = promtool("check", "rules", "--lint-fatal", *files)
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_prometheus_configuration_loads_every_file_of_rules(
    project: Path, promtool: Promtool
) -> None:
    rules = project / "rules"
    result = promtool("check", "config", rules / "prometheus.yml")
    assert result.returncode == 0, result.stdout + result.stderr
    for file in (*rules.glob("alerts/*.yml"), *rules.glob("recording/*.yml")):
        assert f"Checking {file}" in result.stdout
