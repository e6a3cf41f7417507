"""The rules load in Prometheus and behave as the promtool suites say."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from stack import Binaries

SUITES = sorted((Path(__file__).resolve().parents[2] / "rules" / "tests").glob("*.yml"))
Result = subprocess.CompletedProcess[str]


def promtool(binaries: Binaries, *arguments: str | Path) -> Result:
    return subprocess.run(
        # The tests that run beside it measure time.
        ["nice", binaries.promtool, *arguments],
        env={**os.environ, "GOGC": "400"},  # a fifth less of CPU for some more memory
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )


@pytest.fixture(scope="module")
def suites(binaries: Binaries) -> Iterator[dict[Path, Future[Result]]]:
    """The suites, running two at a time."""
    with ThreadPoolExecutor(max_workers=2) as pool:
        yield {path: pool.submit(promtool, binaries, "test", "rules", path) for path in SUITES}


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


def test_promtool_finds_no_fault_in_the_rules(project: Path, binaries: Binaries) -> None:
    files = sorted((project / "rules").glob("alerts/*.yml"))
    files += sorted((project / "rules").glob("recording/*.yml"))
    result = promtool(binaries, "check", "rules", "--lint-fatal", *files)
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_prometheus_configuration_loads_every_file_of_rules(
    project: Path, binaries: Binaries
) -> None:
    rules = project / "rules"
    result = promtool(binaries, "check", "config", rules / "prometheus.yml")
    assert result.returncode == 0, result.stdout + result.stderr
    for file in (*rules.glob("alerts/*.yml"), *rules.glob("recording/*.yml")):
        assert f"Checking {file}" in result.stdout
