"""The command over logs of real runs, where TRACES names their folder (docs/traces.md)."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from traces.logs import FILES, by_reader
from trainwarden import cli

FOLDER = os.environ.get("TRACES")
LOGS = sorted(Path(FOLDER).glob(FILES)) if FOLDER else []

pytestmark = pytest.mark.skipif(
    not LOGS, reason="TRACES names no folder with logs/; docs/traces.md says where they come from"
)


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.name)
def test_steps_and_end_are_as_a_reader_finds_them(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reader = by_reader(path.read_text(errors="replace"))
    finished = reader.end == "finished"
    assert cli.main(["autopsy", "--json", str(path)]) == (0 if finished else 3)
    found = json.loads(capsys.readouterr().out)
    attempt = found["attempts"][-1] if found["attempts"] else {}
    assert (found["last_step"], attempt.get("total")) == (reader.step, reader.total)
    assert found["finished"] is finished
    likely = [cause["name"] for cause in found["causes"] if cause["likely"]]
    match reader.end:
        case "finished":
            assert likely == []
        case "stops":
            assert likely == ["unknown_end"]
        case "time limit" | "preempted" | "cancelled":
            assert likely[0] == "ended_from_outside"
        case _:
            assert likely
    assert found["checkpoint"] is None  # a log alone shows none
    assert cli.main(["autopsy", str(path)]) == (0 if finished else 3)
    report = capsys.readouterr().out
    assert report.startswith(f"# Autopsy of `{path}`\n\n**{found['headline']}**\n")
    assert reader.step is None or f"step {reader.step}" in report
