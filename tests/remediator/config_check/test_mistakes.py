"""`check` finds the mistakes of both files in one round."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainwarden import cli
from trainwarden_remediator.config_check.mistakes import find_mistakes

EXPORTER = """\
runs:
  - name: demo
    framwork: trl
    workers:
      - {name: trainer, role: trainer, match: {command: train.py}}
"""
REMEDIATOR = """\
mode: active
exporter: {config: exporter.yml}
insecure: true
targets:
  - {run: demo, worker: trainr, process: {start: [python, train.py]}}
  - {run: dem, worker: trainer, process: {start: [python, train.py], grace: 1x}}
playbooks:
  restart_lekaing_worker: {verify: {timeout: 5s}}
"""


def mistakes(folder: Path, exporter: str = EXPORTER, remediator: str = REMEDIATOR) -> list[str]:
    (folder / "exporter.yml").write_text(exporter)
    (folder / "remediator.yml").write_text(remediator)
    return [str(one).removeprefix(f"{folder}/") for one in find_mistakes(folder / "remediator.yml")]


def test_both_files_and_what_one_names_of_the_other_are_checked_at_once(tmp_path: Path) -> None:
    file = tmp_path / "exporter.yml"
    assert mistakes(tmp_path) == [
        "remediator.yml:1: mode: expected 'observe' or 'act'",
        (
            f"remediator.yml:5: targets[0].worker: run demo has no worker trainr in {file}"
            " (did you mean trainer?)"
        ),
        (
            "remediator.yml:6: targets[1].process.grace: not a duration: write seconds as a "
            "number, or units such as 90s, 5m, 1h30m"
        ),
        (
            f"remediator.yml:6: targets[1].worker: run dem has no worker trainer in {file}"
            " (did you mean run demo?)"
        ),
        (
            "remediator.yml:8: playbooks.restart_lekaing_worker.condition: required key is missing"
            " (did you mean restart_leaking_worker?)"
        ),
        "exporter.yml:3: runs[0].framwork: unknown key (did you mean framework?)",
    ]


def test_a_worker_of_a_list_that_cannot_be_read_is_not_reported_missing(tmp_path: Path) -> None:
    found = mistakes(tmp_path, "runs: [{name: demo, workers: trainer}]")
    assert [one for one in found if "has no worker" in one] == []
    assert "exporter.yml:1: runs[0].workers: expected a list" in found


def test_a_file_that_is_absent_is_a_mistake_beside_the_others(tmp_path: Path) -> None:
    (tmp_path / "remediator.yml").write_text(REMEDIATOR)
    found = [str(one) for one in find_mistakes(tmp_path / "remediator.yml")]
    assert found[0].endswith("mode: expected 'observe' or 'act'")
    absent = f"{tmp_path}/exporter.yml: No such file or directory"
    why = (
        "remediator.yml names it as `exporter: config:` (default exporter.yml), as its targets are"
    )
    assert found[-1].startswith(f"{absent}: {why} workers of it; `trainwarden up --config` starts")


def test_check_of_a_folder_shows_each_mistake_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = mistakes(tmp_path)
    assert cli.main(["check", str(tmp_path)]) == 1
    shown = [line.removeprefix(f"{tmp_path}/") for line in capsys.readouterr().err.splitlines()]
    assert sorted(shown) == sorted(expected)
