"""The rules load in Prometheus and behave as the promtool suites say."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

SUITES = sorted((Path(__file__).resolve().parents[2] / "rules" / "tests").glob("*.yml"))
Result = subprocess.CompletedProcess[str]
Promtool = Callable[..., Result]


@pytest.fixture(scope="module")
def suites(promtool: Promtool) -> Iterator[dict[Path, Future[Result]]]:
    """The suites, running two at a time."""
    with ThreadPoolExecutor(max_workers=2) as pool:
        yield {path: pool.submit(promtool, "test", "rules", path) for path in SUITES}


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
