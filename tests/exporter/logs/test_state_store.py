from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from trainwarden_exporter.frameworks.base import LinePattern
from trainwarden_exporter.logs.follower import LogFollower
from trainwarden_exporter.logs.specs import LogSpec
from trainwarden_exporter.logs.state import LogState
from trainwarden_exporter.logs.state_store import LogStateStore

PATTERNS = (LinePattern("error", "ERROR", error=True),)


def follow(folder: Path, keeper: LogStateStore) -> LogFollower:
    spec = LogSpec("grpo", "trainer", folder, ("a.log",), PATTERNS)
    follower = LogFollower(spec, keeper.load("grpo", "trainer"))
    follower.poll()
    keeper.set_followers((follower,))
    return follower


def test_a_state_outlives_the_program(tmp_path: Path) -> None:
    keeper = LogStateStore(tmp_path / "state", interval=3600)
    follower = follow(tmp_path, keeper)
    (tmp_path / "a.log").write_text("ERROR\nERROR\n")
    follower._files._listing._due = 0
    follower.poll()
    keeper.save()
    follower.retire()
    keeper.close()

    other = LogStateStore(tmp_path / "state", interval=3600)
    state = other.load("grpo", "trainer")
    assert state == follower.state()
    assert state.counts.matches == {"error": 2}
    again = follow(tmp_path, other)
    assert again.state().counts.matches == {"error": 2}
    again.retire()
    other.close()


def test_a_log_is_not_saved_before_its_first_poll(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("ERROR\n")
    file = tmp_path / "state" / "logs" / "grpo" / "trainer.json"
    first = LogStateStore(tmp_path / "state", interval=3600)
    follow(tmp_path, first).retire()
    first.save()
    first.close()
    before = file.read_bytes()
    second = LogStateStore(tmp_path / "state", interval=3600)
    spec = LogSpec("grpo", "trainer", tmp_path, ("a.log",), PATTERNS)
    follower = LogFollower(spec, second.load("grpo", "trainer"))
    second.set_followers((follower,))
    second.save()
    assert file.read_bytes() == before
    second.close()
    follower.retire()


def test_what_has_not_changed_is_not_written_again(tmp_path: Path) -> None:
    keeper = LogStateStore(tmp_path / "state", interval=3600)
    follower = follow(tmp_path, keeper)
    keeper.save()
    file = tmp_path / "state" / "logs" / "grpo" / "trainer.json"
    inode = file.stat().st_ino
    follower.poll()
    keeper.save()
    assert file.stat().st_ino == inode
    keeper.close()
    follower.retire()


def test_a_spoilt_file_is_as_good_as_none(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "logs" / "grpo" / "trainer.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"bookmarks": 3}))
    assert LogStateStore(tmp_path).load("grpo", "trainer") == LogState()
    assert [record.message for record in caplog.records] == ["state not read"]


def test_without_a_folder_no_file_is_written(tmp_path: Path) -> None:
    keeper = LogStateStore(None)
    follower = follow(tmp_path, keeper)
    keeper.save()
    assert list(tmp_path.iterdir()) == []
    follower.retire()


def test_saving_continues_automatically(tmp_path: Path) -> None:
    keeper = LogStateStore(tmp_path / "state", interval=0.01)
    follower = follow(tmp_path, keeper)
    deadline = time.monotonic() + 60
    file = tmp_path / "state" / "logs" / "grpo" / "trainer.json"
    while not file.exists():
        assert time.monotonic() < deadline
        time.sleep(0.005)
    keeper.close()
    follower.retire()
