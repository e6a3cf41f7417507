from __future__ import annotations

import errno
import logging
import os
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from trainwarden_exporter.frameworks.completeness_rules import (
    CompletenessRule,
    JsonStepRule,
    ListedRule,
    MarkerRule,
    SettledRule,
    TrackerRule,
)
from trainwarden_exporter.step_dirs import listing
from trainwarden_exporter.step_dirs import scanner as room
from trainwarden_exporter.step_dirs.filesystem import FileSystem
from trainwarden_exporter.step_dirs.names import NameParser
from trainwarden_exporter.step_dirs.result import MAX_LISTED, ScanResult
from trainwarden_exporter.step_dirs.scanner import FolderScanner
from trainwarden_exporter.step_dirs.throttle import Throttle

if TYPE_CHECKING:
    from tests.exporter.step_dirs.conftest import MemoryDisk

DONE = MarkerRule(("DONE",))
STEPS = NameParser(r"step_(?P<step>\d+)", r"tmp_step_(?P<step>\d+)")
AT_ONCE = Throttle(sleep=lambda _: None)


def eye(filesystem: MemoryDisk, rule: CompletenessRule = DONE) -> FolderScanner:
    return FolderScanner(
        "run",
        STEPS,
        rule,
        filesystem=filesystem,
        throttle=AT_ONCE,
        now=lambda: filesystem.moment,
        clock=lambda: filesystem.moment,
    )


def save(filesystem: MemoryDisk, step: int, *, seconds: float = 2.0, size: int = 100) -> None:
    filesystem.write(f"run/step_{step}/weights", size)
    filesystem.moment += seconds
    filesystem.write(f"run/step_{step}/DONE")


def steps(result: ScanResult) -> list[int | None]:
    return [entry.name.number for entry in result.complete]


def newest(result: ScanResult) -> int | None:
    return None if result.newest is None else result.newest.name.number


def in_progress(result: ScanResult) -> int | None:
    return None if result.in_progress is None else result.in_progress.name.number


@pytest.mark.parametrize(
    ("written", "size", "others", "cut"),
    [
        (("model.bin",), 50, 3, True),  # its disk was full
        (("model.bin",), 100, 2, True),
        (("model.bin",), 50, 1, True),  # older ones were deleted
        (("model.bin",), 100, 1, False),  # one shows no order
        (("model.bin",), 50, 0, False),
        (("model.bin", "state.json"), 50, 3, True),
        (("model.bin", "state.json"), 50, 1, True),
        (("model.bin", "state.json", "DONE"), 50, 3, False),
        (("model.bin", "state.json", "DONE"), 50, 1, False),
        (("DONE",), 50, 3, False),  # not what the others wrote first
        (("DONE",), 50, 1, False),
        (("model.bin", "rank-0"), 50, 3, False),  # of another kind
    ],
)
def test_an_entry_without_what_all_others_wrote_last_was_cut_short(
    filesystem: MemoryDisk, written: tuple[str, ...], size: int, others: int, *, cut: bool
) -> None:
    for step in range(10, 10 * others + 10, 10):
        for name in ("model.bin", "state.json", "DONE"):
            filesystem.write(f"run/step_{step}/{name}", 100)
            filesystem.moment += 1
    saw = eye(filesystem, SettledRule(("*",)))
    for name in written:
        filesystem.write(f"run/step_100/{name}", size)
        filesystem.moment += 1
    filesystem.moment += 60
    for _ in range(2):
        result = saw.scan()
        assert (100 in steps(result)) != cut
        assert (in_progress(result) == 100) == cut
        assert (result.complete_count, result.incomplete_count) == (others + (not cut), int(cut))
    save_again = ("model.bin", "state.json", "DONE")
    for name in save_again:
        filesystem.write(f"run/step_100/{name}", 100)
        filesystem.moment += 1
    filesystem.moment += 60
    saw.scan()
    filesystem.moment += 60
    assert newest(saw.scan()) == 100


def test_a_run_that_saves_with_fewer_ranks_is_not_cut_short(filesystem: MemoryDisk) -> None:
    for step, ranks in ((10, 8), (20, 8), (30, 8), (40, 4)):
        for rank in range(ranks):
            filesystem.write(f"run/step_{step}/rank_{rank}.ckpt", 100)
            filesystem.moment += 1
    filesystem.moment += 60
    assert newest(eye(filesystem, SettledRule(("*",))).scan()) == 40


def test_the_newest_complete_one_is_reported_and_what_was_begun_since(
    filesystem: MemoryDisk,
) -> None:
    for step in (5, 10):
        save(filesystem, step)
        filesystem.moment += 60
    filesystem.write("run/step_15/weights", 100)
    filesystem.write("run/notes.txt")

    result = eye(filesystem).scan()

    assert steps(result) == [10, 5]
    assert in_progress(result) == 15
    assert (result.complete_count, result.incomplete_count, result.unexamined_count) == (2, 1, 0)


def test_a_run_that_went_back_has_a_lower_step_as_its_newest(filesystem: MemoryDisk) -> None:
    for step in (500, 1000):
        save(filesystem, step)
        filesystem.moment += 3600
    looks = eye(filesystem)
    assert newest(looks.scan()) == 1000
    filesystem.write("run/step_600/weights", 100)
    result = looks.scan()
    assert (newest(result), in_progress(result)) == (1000, 600)
    save(filesystem, 600)
    assert newest(looks.scan()) == 600
    assert newest(eye(filesystem).scan()) == 600


def test_an_abandoned_entry_is_not_reported_once_a_newer_one_is_complete(
    filesystem: MemoryDisk,
) -> None:
    save(filesystem, 5)
    filesystem.moment += 60
    filesystem.write("run/step_10/weights", 100)
    filesystem.write("run/tmp_step_10/weights", 100)
    filesystem.moment += 60
    save(filesystem, 7)
    result = eye(filesystem).scan()
    assert (newest(result), in_progress(result)) == (7, None)
    assert result.incomplete_count == 2


def test_what_is_known_is_not_walked_again(filesystem: MemoryDisk) -> None:
    for step in range(1, 31):
        save(filesystem, step)
        filesystem.moment += 60
    looks = eye(filesystem)
    looks.scan()
    filesystem.asked.clear()
    filesystem.moment += 10
    looks.scan()
    walked = [line for line in filesystem.asked if line.startswith("names run/")]
    assert walked == []
    assert len(filesystem.asked) == 1 + 30 * 3  # itself, and two witnesses


def test_only_the_newest_are_asked_each_round_and_all_others_in_turn(
    filesystem: MemoryDisk,
) -> None:
    for step in range(1, 201):
        save(filesystem, step)
        filesystem.moment += 60
    looks = eye(filesystem)
    looks.scan()
    asked: Counter[str] = Counter()
    rounds = 5
    for _ in range(rounds):
        filesystem.asked.clear()
        filesystem.moment += 10
        looks.scan()
        assert len(filesystem.asked) <= 1 + 3 * (room.MAX_RECENT + room.MAX_IN_ROTATION)
        asked.update(
            line for line in filesystem.asked if "/" not in line.removeprefix("status run/")
        )
    assert asked["status run/step_200"] == rounds
    assert all(asked[f"status run/step_{step}"] >= 1 for step in range(1, 201))


@pytest.mark.parametrize("changed_at", ["weights", "DONE"])
def test_an_old_entry_rewritten_in_place_is_found_in_turn(
    filesystem: MemoryDisk, changed_at: str
) -> None:
    for step in range(1, 101):
        save(filesystem, step)
        filesystem.moment += 60
    looks = eye(filesystem)
    assert looks.scan().complete_count == 100
    filesystem.moment += 10
    filesystem.write(f"run/step_3/{changed_at}", 50)  # the time of its folder stays what it was
    counts = []
    for _ in range(3):
        filesystem.moment += 10
        counts.append(looks.scan().complete_count)
    assert 99 in counts


def test_the_steps_after_the_newest_are_looked_at_first_when_a_run_went_back(
    filesystem: MemoryDisk,
) -> None:
    for step in range(10, 2001, 10):
        save(filesystem, step)
        filesystem.moment += 60
    looks = eye(filesystem)
    looks.scan()
    filesystem.write("run/step_500/weights", 50)
    save(filesystem, 500)
    for _ in range(6):
        filesystem.moment += 30
        result = looks.scan()
    assert newest(result) == 500
    filesystem.write("run/step_510/weights", 50)
    filesystem.moment += 5
    result = looks.scan()
    assert (newest(result), in_progress(result)) == (500, 510)


class TestTenThousand:
    def folder(self, filesystem: MemoryDisk, rule: CompletenessRule = DONE) -> FolderScanner:
        for step in range(1, 10_001):
            filesystem.write(f"run/step_{step}/weights", 100)
            filesystem.write(f"run/step_{step}/DONE", text=f'{{"step": {step}}}')
            filesystem.moment += 60
        return eye(filesystem, rule)

    def test_are_known_after_some_short_rounds(self, filesystem: MemoryDisk) -> None:
        looks = self.folder(filesystem, JsonStepRule("DONE", "step"))
        result = looks.scan()
        assert newest(result) == 10_000
        assert result.complete_count + result.unexamined_count == 10_000
        rounds = 1
        while result.unexamined_count:
            filesystem.asked.clear()
            result = looks.scan()
            assert len(filesystem.asked) < room.MAX_DISK_CALLS + 10
            rounds += 1
        assert result.complete_count == 10_000
        assert rounds < 40
        filesystem.asked.clear()
        looks.scan()
        kinds = Counter(line.split()[0] for line in filesystem.asked)
        assert kinds["names"] == 1
        assert kinds["status"] <= 3 * (room.MAX_RECENT + room.MAX_ABOVE + room.MAX_IN_ROTATION)

    def test_do_not_delay_what_is_new(self, filesystem: MemoryDisk) -> None:
        looks = self.folder(filesystem)
        looks.scan()
        save(filesystem, 42_000)
        assert newest(looks.scan()) == 42_000
        filesystem.moment += 60
        save(filesystem, 17_000)  # a lower one, as after a resume
        assert newest(looks.scan()) == 17_000

    def test_take_a_bounded_time_on_a_slow_disk(self, filesystem: MemoryDisk) -> None:
        looks = self.folder(filesystem)

        def wait() -> None:
            filesystem.moment += 0.05

        filesystem.before_each = wait
        for _ in range(3):
            began_at = filesystem.moment
            result = looks.scan()
            assert filesystem.moment - began_at < room.MAX_SECONDS + 1
        assert newest(result) == 10_000


class TestManyOldOnes:
    """An old entry loses the list of its files, and nothing else."""

    COUNT = 1_500

    def folder(self, filesystem: MemoryDisk) -> FolderScanner:
        for step in range(1, self.COUNT + 1):
            save(filesystem, step)
            filesystem.moment += 60
        looks = eye(filesystem)
        while looks.scan().unexamined_count:
            pass
        return looks

    def test_all_have_their_turn(self, filesystem: MemoryDisk) -> None:
        looks = self.folder(filesystem)
        rounds = self.COUNT // room.MAX_IN_ROTATION + 2
        filesystem.asked.clear()
        for _ in range(rounds):
            filesystem.moment += 10
            looks.scan()
        asked = {line for line in filesystem.asked if "/" not in line.removeprefix("status run/")}
        assert asked >= {f"status run/step_{step}" for step in range(1, self.COUNT + 1)}
        assert len(filesystem.asked) <= rounds * (1 + 3 * (room.MAX_RECENT + room.MAX_IN_ROTATION))

    @pytest.mark.parametrize("changed_at", ["weights", "DONE"])
    def test_an_entry_rewritten_in_place_is_found(
        self, filesystem: MemoryDisk, changed_at: str
    ) -> None:
        looks = self.folder(filesystem)
        filesystem.moment += 10
        filesystem.write(f"run/step_3/{changed_at}", 50)
        counts = set()
        for _ in range(self.COUNT // room.MAX_IN_ROTATION + 2):
            filesystem.moment += 1
            counts.add(looks.scan().complete_count)
        assert counts == {self.COUNT, self.COUNT - 1}

    def test_what_is_added_to_one_takes_nothing_from_it(self, filesystem: MemoryDisk) -> None:
        looks = self.folder(filesystem)
        filesystem.moment += 10
        filesystem.write("run/step_3/results.json", 50)
        for _ in range(self.COUNT // room.MAX_IN_ROTATION + 2):
            filesystem.moment += 10
            result = looks.scan()
            assert (result.complete_count, newest(result)) == (self.COUNT, self.COUNT)

    def test_they_are_the_newest_once_all_newer_ones_are_deleted(
        self, filesystem: MemoryDisk
    ) -> None:
        looks = self.folder(filesystem)
        before = looks.scan().newest
        for step in range(101, self.COUNT + 1):
            filesystem.remove(f"run/step_{step}")
        result = looks.scan()
        assert steps(result) == list(range(100, 100 - MAX_LISTED, -1))
        assert (result.complete_count, result.unexamined_count) == (100, 0)
        fresh = eye(filesystem).scan()
        assert before is not None
        assert result.newest == replace(fresh.complete[0], files=None)
        for step in range(2, 101):
            filesystem.remove(f"run/step_{step}")
        assert steps(looks.scan()) == [1]

    def test_a_run_that_goes_back_far_is_followed_at_once(self, filesystem: MemoryDisk) -> None:
        looks = self.folder(filesystem)
        filesystem.write("run/step_500/weights", 50)
        save(filesystem, 500)
        for _ in range(self.COUNT // room.MAX_IN_ROTATION + 2):
            filesystem.moment += 5
            result = looks.scan()
        assert newest(result) == 500
        for step in (501, 502, 503):
            filesystem.moment += 60
            filesystem.write(f"run/step_{step}/weights", 50)
            filesystem.moment += 5
            assert (newest(looks.scan()), in_progress(looks.scan())) == (step - 1, step)
            save(filesystem, step)
            filesystem.moment += 31
            looks.scan()
            filesystem.moment += 31
            assert newest(looks.scan()) == step

    def test_an_entry_that_never_became_complete_is_counted(self, filesystem: MemoryDisk) -> None:
        filesystem.write("run/step_0/weights")
        looks = self.folder(filesystem)
        result = looks.scan()
        assert (result.complete_count, result.incomplete_count) == (self.COUNT, 1)
        filesystem.write("run/step_0/DONE")
        for _ in range(self.COUNT // room.MAX_IN_ROTATION + 2):
            result = looks.scan()
        assert (result.complete_count, result.incomplete_count) == (self.COUNT + 1, 0)


def test_ten_thousand_take_a_bounded_memory() -> None:
    class Endless(FileSystem):
        """A disk with so many files that look alike."""

        def iter_names(self, folder: str) -> Iterator[str]:
            yield from (f"step_{step}" for step in range(10_000))

        def status(self, path: str) -> os.stat_result:
            number = int(path.removeprefix("run").removeprefix("/step_") or 0)
            status = (0o100644, number, 1, 1, 0, 0, 5 + 5 * number, number, number, number)
            moments = {"st_mtime": number + 0.123, "st_mtime_ns": number * 10**9 + 123_456_789}
            return os.stat_result(status, moments)

    looks = FolderScanner(
        "run",
        STEPS,
        SettledRule(("*",)),
        filesystem=Endless(),
        throttle=AT_ONCE,
        clock=lambda: 0.0,
    )
    tracemalloc.start()
    try:
        for _ in range(7):
            result = looks.scan()
        used, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert result.complete_count == 10_000
    assert used < 12 << 20
    assert peak < 14 << 20


def test_a_complete_one_below_thousands_of_incomplete_ones_is_found_soon(
    filesystem: MemoryDisk,
) -> None:
    save(filesystem, 1)
    for step in range(2, 3_502):
        filesystem.write(f"run/step_{step}/weights")
    looks = eye(filesystem)
    assert newest(looks.scan()) == 1
    filesystem.asked.clear()
    filesystem.write("run/step_9999/weights")
    looks.scan()
    assert len(filesystem.asked) < 2 * room.MAX_DISK_CALLS


def test_a_share_bounds_a_round_more(filesystem: MemoryDisk) -> None:
    for step in range(1, 1_001):
        save(filesystem, step)
    eye(filesystem).scan(share=0.1)
    assert len(filesystem.asked) < 0.1 * room.MAX_DISK_CALLS + 10


def test_a_tracker_completes_what_did_not_change_itself(filesystem: MemoryDisk) -> None:
    looks = eye(filesystem, TrackerRule("latest.txt"))
    filesystem.write("run/step_5/weights", 100)
    filesystem.moment += 5
    assert newest(looks.scan()) is None
    filesystem.moment += 5
    filesystem.write("run/latest.txt", text="5")
    result = looks.scan()
    assert newest(result) == 5
    assert result.newest is not None
    assert result.newest.completed_at == filesystem.moment


def test_a_tracker_that_goes_back_completes_nothing_above_it(filesystem: MemoryDisk) -> None:
    """Where it had named a later step, half of one looked whole."""
    looks = eye(filesystem, TrackerRule("latest.txt"))
    for step in (2, 3, 4):
        filesystem.write(f"run/step_{step}/weights", 50 if step == 3 else 100)
        filesystem.moment += 5
    filesystem.write("run/latest.txt", text="4")
    for _ in range(2):
        assert steps(looks.scan()) == [4, 3, 2]
        filesystem.moment += 60
    filesystem.write("run/step_2/weights", 100)
    filesystem.write("run/latest.txt", text="2")
    assert steps(looks.scan()) == []  # not while it changes
    filesystem.moment += 60
    assert steps(looks.scan()) == [2]
    filesystem.moment += 5
    filesystem.write("run/latest.txt", text="4")
    assert 4 in steps(looks.scan())


def test_thousands_above_a_tracker_that_goes_back_are_not_all_asked(filesystem: MemoryDisk) -> None:
    looks = eye(filesystem, TrackerRule("latest.txt"))
    for step in range(1, 2_001):
        filesystem.write(f"run/step_{step}/weights", 100)
    filesystem.write("run/latest.txt", text="2000")
    for _ in range(4):
        looks.scan()
        filesystem.moment += 60
    filesystem.write("run/latest.txt", text="5")
    filesystem.asked.clear()
    result = looks.scan()
    assert (result.complete_count, result.incomplete_count) == (5, 1_995)
    assert len(filesystem.asked) < 500


@pytest.mark.parametrize("text", ["", "half of a na"])
def test_a_tracker_that_is_being_written_takes_nothing_back(
    filesystem: MemoryDisk, text: str
) -> None:
    looks = eye(filesystem, TrackerRule("latest.txt"))
    filesystem.write("run/step_2/weights", 100)
    filesystem.write("run/latest.txt", text="2")
    for _ in range(2):
        looks.scan()
        filesystem.moment += 60
    filesystem.write("run/latest.txt", text=text)
    assert steps(looks.scan()) == [2]


def test_a_file_around_is_read_again_only_when_it_changed(filesystem: MemoryDisk) -> None:
    filesystem.write("run/latest.txt", text="5")
    filesystem.write("run/step_5/weights")
    looks = eye(filesystem, TrackerRule("latest.txt"))
    for _ in range(3):
        looks.scan()
    assert filesystem.asked.count("text run/latest.txt") == 1
    filesystem.moment += 1
    filesystem.write("run/latest.txt", text="6")
    looks.scan()
    assert filesystem.asked.count("text run/latest.txt") == 2


def test_a_list_proves_the_entries_in_it(filesystem: MemoryDisk) -> None:
    filesystem.write("run/step_5/weights")
    filesystem.write("run/step_6/weights")
    looks = eye(filesystem, ListedRule("snapshot.json"))
    assert looks.scan().complete_count == 0
    filesystem.moment += 1
    filesystem.write("run/snapshot.json", text='["step_5"]')
    assert steps(looks.scan()) == [5]
    filesystem.remove("run/snapshot.json")
    assert looks.scan().incomplete_count >= 1


def test_what_leaves_no_proof_is_complete_once_it_rests(filesystem: MemoryDisk) -> None:
    looks = eye(filesystem, SettledRule(("weights", "tokenizer.json")))
    filesystem.write("run/step_5/weights")
    filesystem.write("run/step_5/tokenizer.json")
    assert newest(looks.scan()) is None
    filesystem.moment += 29
    assert newest(looks.scan()) is None
    filesystem.moment += 1
    assert newest(looks.scan()) == 5


def test_what_is_deleted_is_forgotten(filesystem: MemoryDisk) -> None:
    for step in (5, 10):
        save(filesystem, step)
        filesystem.moment += 60
    looks = eye(filesystem)
    assert newest(looks.scan()) == 10
    filesystem.remove("run/step_10")
    result = looks.scan()
    assert steps(result) == [5]
    assert result.unexamined_count == 0


def test_an_entry_that_vanishes_during_the_check_is_skipped(filesystem: MemoryDisk) -> None:
    save(filesystem, 5)
    looks = eye(filesystem)

    def remove() -> None:
        if filesystem.asked == ["names run"]:
            filesystem.before_each = lambda: None
            filesystem.remove("run/step_5")

    filesystem.before_each = remove
    assert looks.scan().complete_count == 0


def test_one_closed_to_us_is_not_known_and_reported_once(
    filesystem: MemoryDisk, caplog: pytest.LogCaptureFixture
) -> None:
    save(filesystem, 5)
    save(filesystem, 6)
    filesystem.failing["run/step_6"] = PermissionError(errno.EACCES, "denied")
    looks = eye(filesystem)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            result = looks.scan()
    assert steps(result) == [5]
    assert result.unexamined_count == 1
    assert [record.message for record in caplog.records] == ["entries cannot be looked at"]
    del filesystem.failing["run/step_6"]
    assert steps(looks.scan()) == [6, 5]


def test_that_entries_are_left_out_is_logged_once(
    filesystem: MemoryDisk, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (listing, room):
        monkeypatch.setattr(module, "MAX_ENTRIES", 2)
    save(filesystem, 5)
    save(filesystem, 6)
    looks = eye(filesystem)
    with caplog.at_level(logging.WARNING):
        looks.scan()
        assert not caplog.records
        save(filesystem, 4)
        for _ in range(2):
            result = looks.scan()
    assert (steps(result), result.unexamined_count) == ([6, 5], 1)
    (record,) = caplog.records
    assert record.message == "of too many entries those of the highest steps are known"


def test_an_ill_disk_is_not_taken_for_an_empty_one(filesystem: MemoryDisk) -> None:
    save(filesystem, 5)
    looks = eye(filesystem)
    looks.scan()
    filesystem.failing["run/step_5"] = OSError(errno.EIO, "input/output error")
    with pytest.raises(OSError, match="input/output"):
        looks.scan()
    filesystem.failing = {"run": OSError(errno.ENOENT, "gone")}
    with pytest.raises(OSError, match="gone"):
        looks.scan()


def test_names_that_are_not_text_harm_nobody(tmp_path: Path) -> None:
    for name in (b"step_1", b"step_\xff", b"step_2\n"):
        entry = tmp_path / os.fsdecode(name)
        entry.mkdir()
        (entry / "DONE").touch()
    result = FolderScanner(str(tmp_path), STEPS, DONE).scan()
    assert steps(result) == [1]


def test_a_folder_in_a_circle_of_links_ends(tmp_path: Path) -> None:
    entry = tmp_path / "step_1"
    entry.mkdir()
    (entry / "up").symlink_to("..")
    (entry / "DONE").touch()
    (tmp_path / "step_2").symlink_to("step_2")
    (tmp_path / "step_3").symlink_to("step_1")
    result = FolderScanner(str(tmp_path), STEPS, DONE).scan()
    assert sorted(steps(result), key=lambda step: step or 0) == [1, 3]


WHOLE, HALF = "PK\x03\x04" + "x" * 100 + "PK\x05\x06" + "x" * 18, "PK\x03\x04" + "x" * 96


def test_a_half_written_file_of_tensors_never_becomes_complete(filesystem: MemoryDisk) -> None:
    """A save that was killed does not change any more either."""
    folder = eye(filesystem, SettledRule(("model.pt",)))
    filesystem.write("run/step_1/model.pt", len(WHOLE), WHOLE)
    filesystem.moment += 100
    filesystem.write("run/step_2/model.pt", len(HALF), HALF)
    filesystem.moment += 100
    newest = folder.scan().newest
    assert newest is not None
    assert newest.name.number == 1


def test_a_single_file_of_tensors_is_complete_at_once(filesystem: MemoryDisk) -> None:
    """So a run that saves more often than files settle has a complete checkpoint at any time."""
    rule = SettledRule(("",))
    folder = FolderScanner(
        "run",
        NameParser(r"model_(?P<step>\d+)\.pt", ""),
        rule,
        filesystem=filesystem,
        throttle=AT_ONCE,
        now=lambda: filesystem.moment,
        clock=lambda: filesystem.moment,
    )
    for step in range(1, 4):
        filesystem.write(f"run/model_{step}.pt", len(HALF), HALF)
        filesystem.moment += 1
        before = folder.scan().newest
        filesystem.write(f"run/model_{step}.pt", len(WHOLE), WHOLE)
        filesystem.moment += 1
        newest = folder.scan().newest
        assert newest is not None
        assert newest.name.number == step
        assert (before is None) == (step == 1)
        filesystem.moment += 8


def test_a_file_of_tensors_that_is_written_again_is_complete_when_it_is_whole(
    filesystem: MemoryDisk,
) -> None:
    folder = FolderScanner(
        "run",
        NameParser(r"model_(?P<step>\d+)\.pt", ""),
        SettledRule(("",)),
        filesystem=filesystem,
        throttle=AT_ONCE,
        now=lambda: filesystem.moment,
        clock=lambda: filesystem.moment,
    )
    found = []
    for text in (WHOLE, HALF, WHOLE):
        filesystem.write("run/model_1.pt", len(text), text)
        filesystem.moment += 5
        newest = folder.scan().newest
        found.append(None if newest is None else newest.completed_at)
    assert found == [1_000_000.0, None, 1_000_010.0]
