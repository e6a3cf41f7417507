"""What `trainwarden up` runs: the demo, the runs that are announced, or a configuration."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.command.conftest import runs

import up
from running_runs import Runs
from stack import StackError

__all__ = ["runs"]


def test_the_demo_does_not_start_unasked_beside_a_run_of_the_users(
    runs: Runs,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("TRAINWARDEN_FOLDER", str(runs.folder))
    assert up.wants_demo(None, None)
    assert capsys.readouterr().out == ""
    process = runs.piped("sleep", "1000")
    runs.wait_until(state="running")
    assert not up.wants_demo(None, None)
    assert "The stack watches r; `--demo` runs the demo instead." in capsys.readouterr().out
    assert up.wants_demo(True, None)
    process.terminate()
    process.communicate()
    assert up.wants_demo(None, None)
    assert not up.wants_demo(False, None)


def test_a_configuration_excludes_the_demo(tmp_path: Path) -> None:
    assert not up.wants_demo(None, tmp_path)
    with pytest.raises(StackError, match="without --config"):
        up.wants_demo(True, tmp_path)
