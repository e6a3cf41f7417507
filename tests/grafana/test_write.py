"""What is committed is what the boards say."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

import write
from boards.board import encoded


def test_the_committed_files_are_as_they_would_be_written() -> None:
    there = {path.name: path.read_text(encoding="utf-8") for path in write.FOLDER.glob("*.json")}
    wanted = write.files()
    assert there.keys() == wanted.keys()
    for name, text in wanted.items():
        assert there[name] == text, f"{name} is stale: run `python grafana/write.py`"


def test_a_stale_file_is_reported_and_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(write, "FOLDER", tmp_path)
    (tmp_path / "of-yesterday.json").write_text("{}")
    monkeypatch.setattr(sys, "argv", ["write.py", "--check"])
    assert write.main() == 1
    assert "of-yesterday.json: stale" in capsys.readouterr().err
    monkeypatch.setattr(sys, "argv", ["write.py"])
    assert write.main() == 0
    assert {path.name for path in tmp_path.iterdir()} == write.files().keys()
    monkeypatch.setattr(sys, "argv", ["write.py", "--check"])
    assert write.main() == 0


def test_the_files_are_in_the_shape_of_grafanas_schema(
    models: dict[str, dict[str, object]],
) -> None:
    for uid, model in models.items():
        again = json.loads(JSONEncoder().encode(Dashboard.from_json(model)))
        for each in (*again["links"], *again["annotations"]["list"]):
            each.pop("placement")  # see board.py
        assert encoded(again) == encoded(model), uid
