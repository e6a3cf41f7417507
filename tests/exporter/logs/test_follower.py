from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from trainwarden_exporter.frameworks import get_framework
from trainwarden_exporter.frameworks.base import LinePattern
from trainwarden_exporter.logs.deduplication import LineDeduplicator
from trainwarden_exporter.logs.events import LineEvent
from trainwarden_exporter.logs.file_access import matches_bookmark
from trainwarden_exporter.logs.file_tracker import (
    LOOK_BACK_BYTES,
    MAX_FILES,
    MAX_OPEN,
    FileTracker,
)
from trainwarden_exporter.logs.follower import LogFollower, LogSnapshot
from trainwarden_exporter.logs.specs import LogSpec
from trainwarden_exporter.logs.state import LogState

PATTERNS = (
    LinePattern("error", "ERROR", error=True),
    LinePattern("step", r"step (?P<step>\d+) loss (?P<loss>\S+)"),
    LinePattern("exception", r"Traceback \(most recent call last\):", error=True),
)


class Log:
    """A log in a folder of its own, and what follows it, in however many lives."""

    def __init__(self, folder: Path, *files: str) -> None:
        self.folder = folder
        self.files = files or ("a.log",)
        self.path = folder / "a.log"
        self.clock = 0.0
        self.events: list[LineEvent] = []
        self.options: dict[str, Any] = {}
        self.followers: list[LogFollower] = []
        self.begin()

    def begin(self, state: LogState | None = None, **spec: Any) -> LogFollower:
        spec = {"name": "log", "role": "trainer", **spec}
        self.follower = LogFollower(
            LogSpec("run", path=self.folder, files=self.files, patterns=PATTERNS, **spec),
            state or LogState(),
            sinks=[self.events.append],
            clock=lambda: self.clock,
            **self.options,
        )
        self.followers.append(self.follower)
        return self.follower

    def restart(self) -> None:
        self.begin(self.follower.retire())

    def poll(self, seconds: float = 5) -> LogSnapshot:
        self.clock += seconds
        return self.follower.poll()

    def errors(self, seconds: float = 5) -> int:
        return self.poll(seconds).counts.matches.get("error", 0)

    def write(self, text: str | bytes, path: Path | None = None, mode: str = "ab") -> None:
        with (path or self.path).open(mode) as file:
            file.write(text.encode() if isinstance(text, str) else text)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    one = Log(tmp_path)
    one.poll()
    yield one
    for follower in one.followers:
        follower.retire()


def test_lines_are_counted_as_they_are_completed(log: Log) -> None:
    log.write("ERROR one\nfine\nERR")
    assert log.errors() == 1
    log.write("OR two")
    assert log.errors() == 1
    log.write("\nERROR three\n")
    assert log.errors() == 3


def test_what_is_new_is_reported(log: Log) -> None:
    log.write("")
    before = log.path.stat().st_mtime  # the clock of the file system is a tick behind
    log.write("step 5 loss nan\n")
    seen = log.poll()
    (event,) = log.events
    assert (event.run, event.log, event.role, event.pattern) == ("run", "log", "trainer", "step")
    assert event.groups == {"step": "5", "loss": "nan"}
    assert event.fresh
    assert before <= event.timestamp <= time.time()
    assert math.isnan(seen.values["loss"].number)
    assert "step" not in seen.values


def test_a_look_tells_what_there_is(log: Log) -> None:
    log.write("ERROR\nrest")
    seen = log.poll()
    assert (seen.files, seen.size, seen.read_bytes) == (1, 10, 6)
    assert seen.last_write == pytest.approx(log.path.stat().st_mtime)
    assert seen.counts.troubles == 1
    assert [line.line for line in seen.error_lines] == ["ERROR"]
    assert dict(seen.skipped) == {}


# rotation


def test_a_renamed_file_is_read_to_its_end(log: Log) -> None:
    log.write("ERROR 1\n")
    writer = log.path.open("ab", buffering=0)
    assert log.errors() == 1
    writer.write(b"ERROR 2\nERROR 3, which is writ")
    log.path.rename(log.folder / "old")
    log.write("ERROR 4\n")
    assert log.errors() == 3
    writer.write(b"ten to the old file\n")
    assert log.errors() == 4
    writer.close()


def test_the_last_line_of_a_rotated_file_counts_without_an_end(log: Log) -> None:
    log.write("fine\nERROR without end")
    assert log.errors() == 0
    log.path.rename(log.folder / "old")
    assert log.errors() == 0
    assert log.errors(31) == 1
    assert log.errors(31) == 1


def test_a_file_that_was_never_read_is_found_again_by_its_inode(log: Log) -> None:
    log.write("")
    log.poll()
    log.follower._files.close()
    log.write("ERROR\n")
    log.path.rename(log.folder / "a.log.1")
    assert log.errors() == 1


def test_a_rotated_file_that_is_one_of_the_logs_counts_once(tmp_path: Path) -> None:
    log = Log(tmp_path, "*.log*")
    log.poll()
    for number in range(4):
        log.write(f"ERROR {number}\n")
        log.poll(1)
        for older in range(number, 0, -1):
            (tmp_path / f"a.log.{older}").rename(tmp_path / f"a.log.{older + 1}")
        log.path.rename(tmp_path / "a.log.1")
        assert log.errors() == number + 1
    assert log.poll().files == 4
    log.follower.retire()


def test_a_truncated_file_is_read_from_the_start(log: Log) -> None:
    log.write("ERROR 1\nERROR 2\n")
    assert log.errors() == 2
    log.write("ERROR 3\n", mode="wb")
    assert log.errors() == 3


def test_a_truncated_file_that_has_outgrown_itself_is_read_from_the_start(log: Log) -> None:
    log.write("ERROR 1\n")
    assert log.errors() == 1
    log.write("ERROR 2\n" * 100, mode="wb")
    assert log.errors() == 101


@pytest.mark.parametrize("files", [("a.log",), ("a.log*",)])
@pytest.mark.parametrize("copy_is_seen_first", [True, False])
def test_what_was_cut_before_it_was_read_is_read_in_the_copy(
    tmp_path: Path, files: tuple[str, ...], copy_is_seen_first: bool
) -> None:
    log = Log(tmp_path, *files)
    log.poll()
    log.write("start\nERROR 1\n")
    assert log.errors() == 1
    log.write("ERROR 2\nERROR 3")
    log.write(log.path.read_bytes(), tmp_path / "a.log.1")
    if copy_is_seen_first:
        assert log.errors(2) == 2
    log.write("", mode="wb")
    log.errors()
    log.write("ERROR 4\n")
    complete = files == ("a.log",)  # a copy that stays might get longer
    log.errors()
    assert log.errors(61) == (4 if complete else 3)
    log.follower.retire()


def test_a_copy_that_stays_beside_its_original_counts_not(tmp_path: Path) -> None:
    log = Log(tmp_path, "*.log")
    log.poll()
    log.write("ERROR 1\n")
    assert log.errors() == 1
    log.write(log.path.read_bytes(), tmp_path / "a-backup.log")
    for _ in range(20):
        assert log.errors() == 1
    log.write("ERROR 2\n", tmp_path / "a-backup.log")
    assert log.errors() == 2
    log.follower.retire()


def test_a_file_that_only_seems_to_be_a_copy_is_read_from_its_start(tmp_path: Path) -> None:
    log = Log(tmp_path, "*.log")
    log.poll()
    log.write("banner\n" * 50 + "ERROR 1\n")
    assert log.errors() == 1
    log.write("banner\n" * 50 + "ERROR 2\n", tmp_path / "a-eval.log")
    assert log.errors() == 1
    assert log.errors(60) == 2
    log.write("quite different\nERROR 3\n", tmp_path / "a-other.log")
    log.errors()
    assert log.errors() == 3
    log.follower.retire()


def test_a_writer_that_goes_on_where_it_was_leaves_a_hole(log: Log) -> None:
    with log.path.open("wb", buffering=0) as writer:
        writer.write(b"x" * 3_000_000 + b"\nERROR 1\n")
        assert log.errors() == 1
        before = log.poll().read_bytes
        os.truncate(log.path, 0)
        writer.write(b"ERROR 2\n")
        assert log.errors() == 2
        assert log.poll().read_bytes - before < 10_000


def test_a_replaced_file_is_read_from_the_start(log: Log) -> None:
    log.write("ERROR 1\n")
    assert log.errors() == 1
    log.write("ERROR 2\nERROR 3\n", log.folder / "new")
    (log.folder / "new").rename(log.path)
    assert log.errors() == 3


def test_a_replaced_file_that_says_the_same_and_more_is_read_on(log: Log) -> None:
    content = "".join(f"ERROR {number}\n" for number in range(1000))
    log.write(content)
    assert log.errors() == 1000
    log.write(content + "ERROR more\n", log.folder / "new")
    (log.folder / "new").rename(log.path)
    assert log.errors() == 1001


def test_a_run_that_fails_at_once_counts_each_time(log: Log) -> None:
    for times in range(1, 4):
        log.write("starting\nERROR always the same\n")
        assert log.errors() == times
        log.path.unlink()


def test_a_deleted_file_is_read_to_its_end(log: Log) -> None:
    log.write("ERROR 1\n")
    assert log.errors() == 1
    writer = log.path.open("ab", buffering=0)
    writer.write(b"ERROR 2\n")
    log.path.unlink()
    writer.write(b"ERROR 3\nERROR 4")
    assert log.errors() == 3
    assert log.poll().files == 0
    assert log.errors(10) == 4
    writer.close()
    assert not list(log.follower._files)


def test_a_file_with_two_names_counts_once(tmp_path: Path) -> None:
    log = Log(tmp_path, "latest/*.log", "attempt_*/*.log")
    log.poll()
    (tmp_path / "attempt_1").mkdir()
    (tmp_path / "latest").symlink_to("attempt_1")
    log.write("ERROR\n", tmp_path / "attempt_1" / "x.log")
    (tmp_path / "attempt_1" / "y.log").hardlink_to(tmp_path / "attempt_1" / "x.log")
    assert log.errors() == 1
    log.follower.retire()


def test_what_a_link_points_to_next_is_new(tmp_path: Path) -> None:
    log = Log(tmp_path, "latest/x.log")
    log.poll()
    for number in (1, 2):
        (tmp_path / f"attempt_{number}").mkdir()
        log.write(f"ERROR {number}\n", tmp_path / f"attempt_{number}" / "x.log")
        (tmp_path / "latest").unlink(missing_ok=True)
        (tmp_path / "latest").symlink_to(f"attempt_{number}")
        assert log.errors() == number
    log.write("ERROR too late for a rename\n", tmp_path / "attempt_1" / "x.log")
    assert log.errors() == 3
    log.follower.retire()


# another life


def test_a_new_life_goes_on_where_the_last_one_ended(log: Log) -> None:
    log.write("ERROR 1\nhalf an ERR")
    assert log.errors() == 1
    log.restart()
    log.write("OR 2\nERROR 3\n")
    assert log.errors() == 3


def test_no_line_counts_twice_after_two_quick_restarts(log: Log) -> None:
    """A save between the first listing of a new life and its first read."""
    log.write("ERROR\n" * 1000)
    assert log.errors() == 1000
    for _ in range(3):
        log.restart()
        log.follower._files.find(time.time(), log.clock)
        (bookmark,) = log.follower.state().bookmarks
        assert bookmark.identifies_file
    log.restart()
    assert log.errors() == 1000
    log.write("ERROR\n")
    assert log.errors() == 1001


def test_a_position_is_never_missing_while_its_file_is_opened(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.write("ERROR\n")
    assert log.errors() == 1
    log.restart()
    states = []

    def recorded(*values: Any) -> bool:
        states.append(log.follower.state())
        return matches_bookmark(*values)

    monkeypatch.setattr(f"{FileTracker.__module__}.matches_bookmark", recorded)
    assert log.errors() == 1
    assert [len(state.bookmarks) + len(state.left) for state in states] == [1]


def test_what_was_written_meanwhile_counts_and_is_not_fresh(log: Log) -> None:
    log.write("ERROR 1\n")
    log.poll()
    log.restart()
    log.write("ERROR 2\n")
    log.events.clear()
    assert log.errors() == 2
    log.write("ERROR 3\n")
    assert log.errors() == 3
    assert [(event.pattern, event.fresh) for event in log.events] == [
        ("error", False),  # once more, for those who have just begun to listen
        ("error", False),
        ("error", True),
    ]


def test_after_a_reload_no_line_is_reported_again(log: Log) -> None:
    log.write("ERROR 1\n")
    log.poll()
    state = log.follower.retire()
    log.options = {"continues": True}
    log.begin(state)
    log.events.clear()
    log.write("ERROR 2\n")
    assert log.errors() == 2
    assert [event.fresh for event in log.events] == [True]


@pytest.mark.parametrize("name", ["a.log.1", "elsewhere"])
def test_a_file_that_was_renamed_meanwhile_is_read_to_its_end(log: Log, name: str) -> None:
    log.write("ERROR 1\n")
    log.poll()
    state = log.follower.retire()
    log.write("ERROR 2\n")
    log.path.rename(log.folder / name)
    log.write("ERROR 3\n")
    log.begin(state)
    assert log.errors() == 3


def test_a_file_that_was_copied_and_truncated_meanwhile_loses_nothing(log: Log) -> None:
    log.write("ERROR 1\n")
    log.poll()
    state = log.follower.retire()
    log.write("ERROR 2\n")
    log.write(log.path.read_bytes(), log.folder / "a.log.1")
    log.write("ERROR 3\n", mode="wb")
    log.begin(state)
    assert log.errors() == 3


def test_a_file_that_came_meanwhile_counts_in_full(log: Log) -> None:
    log.poll()
    state = log.follower.retire()
    log.write("ERROR 1\nERROR 2\n")
    log.begin(state)
    assert log.errors() == 2


def test_an_old_file_that_was_moved_here_is_history(log: Log) -> None:
    log.write("ERROR of last week\n", log.folder / "moved")
    os.utime(log.folder / "moved", (time.time() - 7 * 86400,) * 2)
    (log.folder / "moved").rename(log.path)
    assert log.errors() == 0
    log.write("ERROR of today\n")
    assert log.errors() == 1


def test_the_disk_may_have_another_number_after_a_reboot(log: Log) -> None:
    log.write("ERROR 1\n")
    log.poll()
    state = log.follower.retire()
    (mark,) = state.bookmarks
    moved = mark.key._replace(device=mark.key.device + 1)
    log.write("ERROR 2\n")
    log.begin(
        LogState(bookmarks=(replace(mark, key=moved),), counts=state.counts, listed=state.listed)
    )
    assert log.errors() == 2


# what was there before


def test_history_is_reported_but_not_counted(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("ERROR 1\nstep 7 loss 0.5\nERROR with")
    log = Log(tmp_path)
    seen = log.poll()
    assert seen.counts.matches == {}
    assert seen.values["loss"].number == 0.5
    assert seen.values["loss"].timestamp <= log.path.stat().st_mtime
    assert [(event.pattern, event.fresh) for event in log.events] == [
        ("error", False),
        ("step", False),
    ]
    log.write("out end\nERROR 2\n")
    assert log.errors() == 1
    log.follower.retire()


def test_only_the_end_of_a_long_history_is_read(tmp_path: Path) -> None:
    with (tmp_path / "a.log").open("wb") as file:
        file.write(b"step 1 loss 1\n" + b"x" * 99 + b"\n")
        file.truncate(1 << 30)
        file.seek(0, os.SEEK_END)
        file.write(b"\nstep 2 loss 1\n")
    log = Log(tmp_path)
    seen = log.poll()
    assert [event.groups["step"] for event in log.events] == ["2"]
    assert seen.read_bytes <= LOOK_BACK_BYTES
    log.write("ERROR\n")
    assert log.errors() == 1
    log.follower.retire()


def test_lines_of_trouble_in_history_are_shown_by_their_own_time(tmp_path: Path) -> None:
    then = int(time.time()) - 300
    reported = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(then))
    (tmp_path / "a.log").write_text(f"ERROR at some time\n{reported} ERROR then\n")
    log = Log(tmp_path)
    seen = log.poll()
    assert [line.line for line in seen.error_lines] == [f"{reported} ERROR then"]
    assert seen.counts.last_matches["error"] == then
    assert seen.counts.troubles == 0
    log.follower.retire()


# what else may lie there


def test_garbage_hinders_nothing(log: Log) -> None:
    garbage = bytes(range(256)) * 2000
    log.write(b"ERROR 1\n" + garbage + b"\nERROR 2\n\xff\xfeERROR 3\n" + os.urandom(300_000))
    log.write(b"\nERROR 4\n")
    assert log.errors() == 4


def test_a_line_without_end_is_cut_and_counted(log: Log) -> None:
    log.write(b"ERROR 1 " + b"x" * 1_000_000)
    seen = log.poll()
    assert seen.counts.matches == {"error": 1}
    assert seen.dropped == {"long_line": 1}
    log.write(b"ERROR in the same line" * 10_000)
    assert log.errors() == 1
    log.write(b"\nERROR 2\n")
    assert log.errors() == 2
    assert log.poll().dropped == {"long_line": 1}


def test_the_limit_of_lines_is_what_is_configured(log: Log) -> None:
    state = log.follower.retire()
    log.begin(state, longest_line=300)
    log.write("x" * 290 + "ERROR is within\n" + "x" * 296 + "ERROR is not\n")
    seen = log.poll()
    assert seen.counts.matches == {"error": 1}
    assert seen.dropped == {"long_line": 2}


def test_a_progress_bar_is_read_as_it_is_drawn(log: Log) -> None:
    log.write("".join(f"\r{n}%|###| step {n} loss 0.{n}" for n in range(1, 5)))
    log.poll()
    assert [event.groups["step"] for event in log.events] == ["1", "2", "3"]


def test_a_pipe_where_a_log_should_be_is_left_alone(log: Log) -> None:
    os.mkfifo(log.path)
    seen = log.poll()
    assert seen.files == 0
    log.path.unlink()
    log.write("ERROR\n")
    assert log.errors() == 1


def test_a_compressed_file_is_no_log(tmp_path: Path) -> None:
    log = Log(tmp_path, "a.log*")
    log.poll()
    log.write("ERROR\n", tmp_path / "a.log.1.gz")
    assert log.poll().files == 0
    log.follower.retire()


def test_a_file_that_may_not_be_read_is_reported_and_the_others_are_read(
    tmp_path: Path, as_nobody: Callable[[], AbstractContextManager[None]]
) -> None:
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    log = Log(tmp_path, "*.log")
    log.poll()
    for name in ("a.log", "b.log"):
        log.write("ERROR\n", tmp_path / name)
    (tmp_path / "a.log").chmod(0o600)
    (tmp_path / "b.log").chmod(0o644)  # whatever the umask
    with as_nobody():
        seen = log.poll()
        assert dict(seen.skipped) == {"unreadable": 1}
        assert seen.counts.matches == {"error": 1}
    (tmp_path / "a.log").chmod(0o644)
    with as_nobody():
        assert log.errors() == 2
    log.follower.retire()


def test_a_disk_that_fails_is_reported_and_read_again(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.write("ERROR 1\n")
    with monkeypatch.context() as broken:
        broken.setattr(os, "pread", _fail)
        assert dict(log.poll().skipped) == {"unreadable": 1}
    assert log.errors() == 1
    assert dict(log.poll().skipped) == {}


def _fail(*_: object) -> bytes:
    raise OSError(5, "Input/output error")


def test_a_folder_that_cannot_be_read_is_reported_once(
    log: Log, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("INFO")
    log.write("ERROR 1\n")
    assert log.errors() == 1
    log.write("ERROR 2\n")
    with monkeypatch.context() as broken:
        broken.setattr("trainwarden_exporter.logs.file_listing.resolve", _fail)
        for _ in range(3):
            assert log.errors() == 2
    log.write("ERROR 3\n")
    assert log.errors() == 3
    assert [record.message for record in caplog.records] == [
        "folders of a log not read",
        "folders of a log read again",
    ]


# much of it


def test_many_files_are_followed_with_few_open(tmp_path: Path) -> None:
    log = Log(tmp_path, "*.log")
    log.poll()
    files = MAX_FILES + 5
    for number in range(files):
        log.write(f"ERROR {number}\n", tmp_path / f"x{number}.log")
    seen = log.poll()
    assert (seen.files, dict(seen.skipped)) == (MAX_FILES, {"too_many": 5})
    assert seen.counts.matches == {"error": MAX_FILES}
    assert sum(one.is_open for one in log.follower._files) == MAX_OPEN
    for one in log.follower._files:
        log.write("ERROR once more\n", Path(one.bookmark.path))
    assert log.errors() == 2 * MAX_FILES
    log.follower.retire()


def test_a_look_ends_after_a_while_and_the_next_one_goes_on(log: Log) -> None:
    log.write(b"ERROR\n" + b"x" * 99 + b"\n")
    log.write((b"y" * 99 + b"\n") * 10_000)
    ticks = iter(range(10_000))
    state = log.follower.retire()
    log.begin(state)
    log.follower._clock = lambda: float(next(ticks))
    first = log.follower.poll()
    assert 0 < first.read_bytes < 1_000_000
    for _ in range(7):  # one block each
        last = log.follower.poll()
    assert last.read_bytes == log.path.stat().st_size


def test_all_logs_together_search_one_at_a_time(log: Log) -> None:
    log.write("ERROR\n")
    searching = log.follower._search_lock
    with searching:
        looking = Thread(target=log.poll)
        looking.start()
        looking.join(0.05)
        assert looking.is_alive()
        assert log.follower.state().read_bytes == 0
    looking.join(60)
    assert log.follower.state().read_bytes == 6


# several threads


def test_what_hangs_keeps_nobody_from_its_state(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    log.write("ERROR 1\n")
    assert log.errors() == 1
    log.write("ERROR 2\n")
    hangs, go_on = Event(), Event()
    read = os.pread

    def hang(*arguments: Any) -> bytes:
        hangs.set()
        assert go_on.wait(5)
        return read(*arguments)

    monkeypatch.setattr(os, "pread", hang)
    looking = Thread(target=log.poll)
    looking.start()
    assert hangs.wait(5)
    old = log.follower
    state = old.retire()
    assert state.counts.matches == {"error": 1}
    go_on.set()
    looking.join(60)
    monkeypatch.undo()
    assert old.state() == state, "what is read after the end counts not"
    log.begin(state)
    assert log.errors() == 2


def test_logs_that_repeat_each_other_count_once(tmp_path: Path) -> None:
    copies = LineDeduplicator()
    refused = "ERROR ConnectionRefusedError(111, \"Connect call failed ('172.17.0.2', 13231)\")\n"
    logs = []
    for name in ("trainer", "wandb"):
        (tmp_path / name).mkdir()
        log = Log(tmp_path / name)
        log.options = {"deduplicator": copies}
        log.begin(name=name, deduplication_group="trainer")
        log.poll()
        log.write(refused * 64)
        logs.append(log)
    assert sum(log.errors() for log in logs) == 64
    assert sum(log.poll().counts.troubles for log in logs) == 64
    assert sum(len(log.events) for log in logs) == 64
    for log in logs:
        log.follower.retire()


def test_files_of_one_log_that_repeat_each_other_count_once(tmp_path: Path) -> None:
    log = Log(tmp_path, "*.log")
    log.options = {"deduplicator": LineDeduplicator()}
    log.begin(deduplication_group="word", by_file=True)
    log.poll()
    log.write("ERROR\n" * 64)
    log.write("ERROR\n" * 64, tmp_path / "b.log")
    assert log.errors() == 64
    log.follower.retire()


BAR = b"\r 50%%|##### | %d/100 [00:29<00:29,  1.0it/s]"


STEP_BAR = LinePattern("bar", r"%\|.*\| (?P<step>\d+)/(?P<total>\d+) \[", redrawn=True)


def bar_log(folder: Path, patterns: tuple[LinePattern, ...] = (STEP_BAR,)) -> Log:
    log = Log(folder)
    log.follower.retire()
    log.follower = LogFollower(
        LogSpec("run", "log", folder, log.files, patterns),
        sinks=[log.events.append],
        clock=lambda: log.clock,
    )
    log.poll()
    return log


def test_the_current_state_of_a_progress_bar_is_passed_before_its_line_ends(
    tmp_path: Path,
) -> None:
    """Tqdm writes a carriage return before each state, so that the last one has no line end."""
    log = bar_log(tmp_path)
    log.write(BAR % 7 + BAR % 8)
    assert log.poll().counts.matches == {"bar": 1}
    assert [event.groups["step"] for event in log.events] == ["7", "8"]
    log.write(BAR % 9)
    assert log.poll().counts.matches == {"bar": 2}
    assert [event.groups["step"] for event in log.events] == ["7", "8", "8", "9"]
    log.follower.retire()


@pytest.mark.parametrize(
    ("bar", "nan"),
    [
        (b"\rEpoch 0: 55%%|###  | 11/20 [00:01<00:04, 2.3it/s, v_num=0, train_loss=%s]", b"nan.0"),
        ("\r\x1b[2KEpoch 0/1 ━━━━━━━━━ 11/20 0:00:02 v_num: 0.000 train_loss: %s".encode(), b"nan"),
    ],
)
def test_a_loss_that_is_nan_is_read_in_the_bar_of_lightning_and_counted_once(
    bar: bytes, nan: bytes, tmp_path: Path
) -> None:
    log = bar_log(tmp_path, get_framework("lightning").lines)
    log.write(bar % b"0.51")
    assert log.poll().values["loss"].number == 0.51
    log.write(bar % nan)
    found = log.poll()
    assert not found.values["loss"].finite
    assert found.counts.matches["loss"] == 1
    log.write(b"\n")
    found = log.poll()
    assert not found.values["loss"].finite
    assert found.counts.matches["loss"] == 2
    log.follower.retire()


def test_a_plain_line_waits_for_its_end(tmp_path: Path) -> None:
    log = bar_log(tmp_path)
    log.write(b" 50%|##### | 7/100 [00:29<00:29,  1.0it/s]")
    log.poll()
    assert log.events == []
    log.follower.retire()


def test_a_line_without_a_time_was_written_when_its_file_was(tmp_path: Path) -> None:
    """The time of reading is up to a poll later: steps of 1.3 s would seem to take 1 s or 2 s."""
    log = Log(tmp_path)
    log.poll()
    for age in (0.9, 0.3):
        log.write(b"step 1 loss 1\n")
        written = time.time() - age
        os.utime(log.path, (written, written))
        log.poll()
        assert log.events[-1].timestamp == pytest.approx(written, abs=1e-3)
    log.write(b"step 2 loss 1\n")
    os.utime(log.path, (1.0, 1.0))  # a file system that reports times late
    before = time.time()
    log.poll()
    assert log.events[-1].timestamp >= before
    log.follower.retire()


def test_without_a_file_the_output_of_the_workers_is_read(tmp_path: Path) -> None:
    """A log may have any name, and be anywhere."""
    output = tmp_path / "elsewhere" / "mine"
    output.parent.mkdir()
    output.write_text("")
    log = Log(tmp_path)
    log.follower.retire()
    outputs = {"trainer": (str(output),)}
    log.options["output_files"] = lambda worker: outputs.get(worker, ())
    log.begin(writers=("trainer",))
    log.poll()
    log.write("ERROR one\n", output)
    assert log.errors() == 1
    outputs.clear()  # the worker has ended
    log.write("ERROR two\n", output)
    assert (log.errors(), log.poll().files) == (2, 1)
    log.write("fine\n")
    assert (log.poll().files, log.errors()) == (1, 2)
    log.follower.retire()


def test_a_log_in_blocks_is_reported(log: Log) -> None:
    for _ in range(6):
        log.write((b"x" * 63 + b"\n") * 128)
        found = log.poll(60)
    assert found.block_buffered


def test_a_traceback_that_is_read_in_two_parts_is_shown_by_its_exception(log: Log) -> None:
    log.write('step 1 loss 2\nTraceback (most recent call last):\n  File "t.py", line 7\n')
    assert [line.line for line in log.poll().error_lines] == ["Traceback (most recent call last):"]
    log.write("    load()\nValueError: no such dataset\nstep 2 loss 1\n")
    assert [line.line for line in log.poll().error_lines] == ["ValueError: no such dataset"]
    log.write("Traceback (most recent call last):\n  File\nKeyError: 7\nERROR after it\n")
    assert [line.line for line in log.poll().error_lines] == [
        "ValueError: no such dataset",
        "KeyError: 7",
        "ERROR after it",
    ]
