"""The end of the exporter by SIGTERM."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.request import urlopen

from tests.hostile.programs import EXPORTER, Program
from tests.waiting import until

LINE = "a line\n"


def shown(program: Program) -> float | None:
    """The bytes that the exporter has read of the log; None before its first poll."""
    host, port = program.address
    with urlopen(f"http://{host}:{port}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    found = [line for line in lines if line.startswith("trainwarden_log_read_bytes")]
    return float(found[0].rpartition(" ")[2]) if found else None


def test_the_positions_of_logs_are_saved_at_the_end(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("")
    (tmp_path / "exporter.yml").write_text(
        f"state_folder: {tmp_path / 'state'}\n"
        "runs:\n"
        f"  - {{name: demo, path: {tmp_path}, logs: [{{name: trainer, files: [a.log]}}]}}\n"
    )
    program = Program(EXPORTER, tmp_path)
    try:
        until(lambda: shown(program) == 0)
        log.write_text(LINE)
        until(lambda: shown(program) == len(LINE))
    finally:
        program.process.terminate()
        program.process.wait(60)
    (state,) = (tmp_path / "state").rglob("trainer.json")
    assert json.loads(state.read_text())["read_bytes"] == len(LINE)
