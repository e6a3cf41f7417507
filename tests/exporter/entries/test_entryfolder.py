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

from trainwarden_exporter.entries import folder as room
from trainwarden_exporter.entries.disk import Disk
from trainwarden_exporter.entries.folder import EntryFolder
from trainwarden_exporter.entries.naming import Naming
from trainwarden_exporter.entries.pace import Pace
from trainwarden_exporter.entries.reading import KEPT, Reading
from trainwarden_exporter.layouts.proofs import JsonStep, Listed, Marker, Proof, Settled, Tracker

if TYPE_CHECKING:
    from tests.exporter.entries.conftest import MemoryDisk

DONE = Marker(("DONE",))
STEPS = Naming(r"step_(?P<step>\d+)", r"tmp_step_(?P<step>\d+)")
AT_ONCE = Pace(sleep=lambda _: None)


def eye(disk: MemoryDisk, proof: Proof = DONE) -> EntryFolder:
    return EntryFolder(
        "run",
        STEPS,
        proof,
        disk=disk,
        pace=AT_ONCE,
        now=lambda: disk.moment,
        clock=lambda: disk.moment,
    )


def save(disk: MemoryDisk, step: int, *, seconds: float = 2.0, size: int = 100) -> None:
    disk.write(f"run/step_{step}/weights", size)
    disk.moment += seconds
    disk.write(f"run/step_{step}/DONE")


def steps(reading: Reading) -> list[int | None]:
    return [entry.name.number for entry in reading.complete]


def newest(reading: Reading) -> int | None:
    return None if reading.newest is None else reading.newest.name.number


def begun(reading: Reading) -> int | None:
    return None if reading.begun is None else reading.begun.name.number


def test_the_newest_complete_one_is_told_and_what_was_begun_since(disk: MemoryDisk) -> None:
    for step in (5, 10):
        save(disk, step)
        disk.moment += 60
    disk.write("run/step_15/weights", 100)
    disk.write("run/notes.txt")

    reading = eye(disk).look()

    assert steps(reading) == [10, 5]
    assert begun(reading) == 15
    assert (reading.complete_count, reading.incomplete_count, reading.unexamined_count) == (2, 1, 0)


def test_a_run_that_went_back_has_a_lower_step_as_its_newest(disk: MemoryDisk) -> None:
    for step in (500, 1000):
        save(disk, step)
        disk.moment += 3600
    looks = eye(disk)
    assert newest(looks.look()) == 1000
    disk.write("run/step_600/weights", 100)
    reading = looks.look()
    assert (newest(reading), begun(reading)) == (1000, 600)
    save(disk, 600)
    assert newest(looks.look()) == 600
    assert newest(eye(disk).look()) == 600


def test_one_that_was_given_up_is_not_told_once_a_newer_one_is_complete(disk: MemoryDisk) -> None:
    save(disk, 5)
    disk.moment += 60
    disk.write("run/step_10/weights", 100)
    disk.write("run/tmp_step_10/weights", 100)
    disk.moment += 60
    save(disk, 7)
    reading = eye(disk).look()
    assert (newest(reading), begun(reading)) == (7, None)
    assert reading.incomplete_count == 2


def test_what_is_known_is_not_walked_again(disk: MemoryDisk) -> None:
    for step in range(1, 31):
        save(disk, step)
        disk.moment += 60
    looks = eye(disk)
    looks.look()
    disk.asked.clear()
    disk.moment += 10
    looks.look()
    walked = [line for line in disk.asked if line.startswith("names run/")]
    assert walked == []
    assert len(disk.asked) == 1 + 30 * 3  # itself, and two witnesses


def test_only_the_newest_are_asked_each_round_and_all_others_in_turn(disk: MemoryDisk) -> None:
    for step in range(1, 201):
        save(disk, step)
        disk.moment += 60
    looks = eye(disk)
    looks.look()
    asked: Counter[str] = Counter()
    rounds = 5
    for _ in range(rounds):
        disk.asked.clear()
        disk.moment += 10
        looks.look()
        assert len(disk.asked) <= 1 + 3 * (room.RECENT + room.IN_TURN)
        asked.update(line for line in disk.asked if "/" not in line.removeprefix("status run/"))
    assert asked["status run/step_200"] == rounds
    assert all(asked[f"status run/step_{step}"] >= 1 for step in range(1, 201))


@pytest.mark.parametrize("changed", ["weights", "DONE"])
def test_an_old_one_that_is_written_in_place_is_found_in_turn(
    disk: MemoryDisk, changed: str
) -> None:
    for step in range(1, 101):
        save(disk, step)
        disk.moment += 60
    looks = eye(disk)
    assert looks.look().complete_count == 100
    disk.moment += 10
    disk.write(f"run/step_3/{changed}", 50)  # the time of its folder stays what it was
    counts = []
    for _ in range(3):
        disk.moment += 10
        counts.append(looks.look().complete_count)
    assert 99 in counts


def test_the_steps_after_the_newest_are_looked_at_first_when_a_run_went_back(
    disk: MemoryDisk,
) -> None:
    for step in range(10, 2001, 10):
        save(disk, step)
        disk.moment += 60
    looks = eye(disk)
    looks.look()
    disk.write("run/step_500/weights", 50)
    save(disk, 500)
    for _ in range(6):
        disk.moment += 30
        reading = looks.look()
    assert newest(reading) == 500
    disk.write("run/step_510/weights", 50)
    disk.moment += 5
    reading = looks.look()
    assert (newest(reading), begun(reading)) == (500, 510)


class TestTenThousand:
    def folder(self, disk: MemoryDisk, proof: Proof = DONE) -> EntryFolder:
        for step in range(1, 10_001):
            disk.write(f"run/step_{step}/weights", 100)
            disk.write(f"run/step_{step}/DONE", text=f'{{"step": {step}}}')
            disk.moment += 60
        return eye(disk, proof)

    def test_are_known_after_some_rounds_none_of_which_asks_much(self, disk: MemoryDisk) -> None:
        looks = self.folder(disk, JsonStep("DONE", "step"))
        reading = looks.look()
        assert newest(reading) == 10_000
        assert reading.complete_count + reading.unexamined_count == 10_000
        rounds = 1
        while reading.unexamined_count:
            disk.asked.clear()
            reading = looks.look()
            assert len(disk.asked) < room.MOST_QUESTIONS + 10
            rounds += 1
        assert reading.complete_count == 10_000
        assert rounds < 40
        disk.asked.clear()
        looks.look()
        kinds = Counter(line.split()[0] for line in disk.asked)
        assert kinds["names"] == 1
        assert kinds["status"] <= 3 * (room.RECENT + room.ABOVE + room.IN_TURN)

    def test_do_not_delay_what_is_new(self, disk: MemoryDisk) -> None:
        looks = self.folder(disk)
        looks.look()
        save(disk, 42_000)
        assert newest(looks.look()) == 42_000
        disk.moment += 60
        save(disk, 17_000)  # a lower one, as after a resume
        assert newest(looks.look()) == 17_000

    def test_take_a_bounded_time_on_a_slow_disk(self, disk: MemoryDisk) -> None:
        looks = self.folder(disk)

        def wait() -> None:
            disk.moment += 0.05

        disk.before_each = wait
        for _ in range(3):
            began = disk.moment
            reading = looks.look()
            assert disk.moment - began < room.MOST_SECONDS + 1
        assert newest(reading) == 10_000


class TestMoreThanAreKeptInTheOpen:
    """An old entry is packed away, and nothing about it is lost."""

    COUNT = 1_500

    def folder(self, disk: MemoryDisk) -> EntryFolder:
        for step in range(1, self.COUNT + 1):
            save(disk, step)
            disk.moment += 60
        looks = eye(disk)
        while looks.look().unexamined_count:
            pass
        return looks

    def test_all_have_their_turn(self, disk: MemoryDisk) -> None:
        looks = self.folder(disk)
        rounds = self.COUNT // room.IN_TURN + 2
        disk.asked.clear()
        for _ in range(rounds):
            disk.moment += 10
            looks.look()
        asked = {line for line in disk.asked if "/" not in line.removeprefix("status run/")}
        assert asked >= {f"status run/step_{step}" for step in range(1, self.COUNT + 1)}
        assert len(disk.asked) <= rounds * (1 + 3 * (room.RECENT + room.IN_TURN))

    @pytest.mark.parametrize("changed", ["weights", "DONE"])
    def test_one_that_is_written_in_place_is_found(self, disk: MemoryDisk, changed: str) -> None:
        looks = self.folder(disk)
        disk.moment += 10
        disk.write(f"run/step_3/{changed}", 50)
        counts = set()
        for _ in range(self.COUNT // room.IN_TURN + 2):
            disk.moment += 1
            counts.add(looks.look().complete_count)
        assert counts == {self.COUNT, self.COUNT - 1}

    def test_what_is_added_to_one_takes_nothing_from_it(self, disk: MemoryDisk) -> None:
        looks = self.folder(disk)
        disk.moment += 10
        disk.write("run/step_3/results.json", 50)
        for _ in range(self.COUNT // room.IN_TURN + 2):
            disk.moment += 10
            reading = looks.look()
            assert (reading.complete_count, newest(reading)) == (self.COUNT, self.COUNT)

    def test_they_are_the_newest_once_all_newer_ones_are_deleted(self, disk: MemoryDisk) -> None:
        looks = self.folder(disk)
        before = looks.look().newest
        for step in range(101, self.COUNT + 1):
            disk.remove(f"run/step_{step}")
        reading = looks.look()
        assert steps(reading) == list(range(100, 100 - KEPT, -1))
        assert (reading.complete_count, reading.unexamined_count) == (100, 0)
        fresh = eye(disk).look()
        assert before is not None
        assert reading.newest == replace(fresh.complete[0], files=None)
        for step in range(2, 101):
            disk.remove(f"run/step_{step}")
        assert steps(looks.look()) == [1]

    def test_a_run_that_goes_back_far_is_followed_at_once(self, disk: MemoryDisk) -> None:
        looks = self.folder(disk)
        disk.write("run/step_500/weights", 50)
        save(disk, 500)
        for _ in range(self.COUNT // room.IN_TURN + 2):
            disk.moment += 5
            reading = looks.look()
        assert newest(reading) == 500
        for step in (501, 502, 503):
            disk.moment += 60
            disk.write(f"run/step_{step}/weights", 50)
            disk.moment += 5
            assert (newest(looks.look()), begun(looks.look())) == (step - 1, step)
            save(disk, step)
            disk.moment += 31
            looks.look()
            disk.moment += 31
            assert newest(looks.look()) == step

    def test_one_that_never_became_complete_is_counted(self, disk: MemoryDisk) -> None:
        disk.write("run/step_0/weights")
        looks = self.folder(disk)
        reading = looks.look()
        assert (reading.complete_count, reading.incomplete_count) == (self.COUNT, 1)
        disk.write("run/step_0/DONE")
        for _ in range(self.COUNT // room.IN_TURN + 2):
            reading = looks.look()
        assert (reading.complete_count, reading.incomplete_count) == (self.COUNT + 1, 0)


def test_ten_thousand_take_little_memory() -> None:
    class Endless(Disk):
        """A disk with so many files that look alike."""

        def listed(self, folder: str) -> Iterator[str]:
            yield from (f"step_{step}" for step in range(10_000))

        def status(self, path: str) -> os.stat_result:
            number = int(path.removeprefix("run").removeprefix("/step_") or 0)
            status = (0o100644, number, 1, 1, 0, 0, 5 * number, number, number, number)
            moments = {"st_mtime": number + 0.123, "st_mtime_ns": number * 10**9 + 123_456_789}
            return os.stat_result(status, moments)

    looks = EntryFolder("run", STEPS, Settled(("*",)), disk=Endless(), pace=AT_ONCE)
    tracemalloc.start()
    try:
        for _ in range(7):
            reading = looks.look()
        used, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert reading.complete_count == 10_000
    assert used < 3 << 19
    assert peak < 4 << 20


def test_a_share_bounds_a_round_more(disk: MemoryDisk) -> None:
    for step in range(1, 1_001):
        save(disk, step)
    eye(disk).look(share=0.1)
    assert len(disk.asked) < 0.1 * room.MOST_QUESTIONS + 10


def test_a_tracker_completes_what_did_not_change_itself(disk: MemoryDisk) -> None:
    looks = eye(disk, Tracker("latest.txt"))
    disk.write("run/step_5/weights", 100)
    disk.moment += 5
    assert newest(looks.look()) is None
    disk.moment += 5
    disk.write("run/latest.txt", text="5")
    reading = looks.look()
    assert newest(reading) == 5
    assert reading.newest is not None
    assert reading.newest.completed == disk.moment


def test_a_file_around_is_read_again_only_when_it_changed(disk: MemoryDisk) -> None:
    disk.write("run/latest.txt", text="5")
    disk.write("run/step_5/weights")
    looks = eye(disk, Tracker("latest.txt"))
    for _ in range(3):
        looks.look()
    assert disk.asked.count("text run/latest.txt") == 1
    disk.moment += 1
    disk.write("run/latest.txt", text="6")
    looks.look()
    assert disk.asked.count("text run/latest.txt") == 2


def test_a_list_proves_those_that_stand_in_it(disk: MemoryDisk) -> None:
    disk.write("run/step_5/weights")
    disk.write("run/step_6/weights")
    looks = eye(disk, Listed("snapshot.json"))
    assert looks.look().complete_count == 0
    disk.moment += 1
    disk.write("run/snapshot.json", text='["step_5"]')
    assert steps(looks.look()) == [5]
    disk.remove("run/snapshot.json")
    assert looks.look().incomplete_count >= 1


def test_what_leaves_no_proof_is_complete_once_it_rests(disk: MemoryDisk) -> None:
    looks = eye(disk, Settled(("weights", "tokenizer.json")))
    disk.write("run/step_5/weights")
    disk.write("run/step_5/tokenizer.json")
    assert newest(looks.look()) is None
    disk.moment += 29
    assert newest(looks.look()) is None
    disk.moment += 1
    assert newest(looks.look()) == 5


def test_what_is_deleted_is_forgotten(disk: MemoryDisk) -> None:
    for step in (5, 10):
        save(disk, step)
        disk.moment += 60
    looks = eye(disk)
    assert newest(looks.look()) == 10
    disk.remove("run/step_10")
    reading = looks.look()
    assert steps(reading) == [5]
    assert reading.unexamined_count == 0


def test_one_that_goes_between_two_questions_is_passed_over(disk: MemoryDisk) -> None:
    save(disk, 5)
    looks = eye(disk)

    def remove() -> None:
        if disk.asked == ["names run"]:
            disk.before_each = lambda: None
            disk.remove("run/step_5")

    disk.before_each = remove
    assert looks.look().complete_count == 0


def test_one_closed_to_us_is_not_known_and_said_once(
    disk: MemoryDisk, caplog: pytest.LogCaptureFixture
) -> None:
    save(disk, 5)
    save(disk, 6)
    disk.failing["run/step_6"] = PermissionError(errno.EACCES, "denied")
    looks = eye(disk)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            reading = looks.look()
    assert steps(reading) == [5]
    assert reading.unexamined_count == 1
    assert [record.message for record in caplog.records] == ["entries cannot be looked at"]
    del disk.failing["run/step_6"]
    assert steps(looks.look()) == [6, 5]


def test_an_ill_disk_is_not_taken_for_an_empty_one(disk: MemoryDisk) -> None:
    save(disk, 5)
    looks = eye(disk)
    looks.look()
    disk.failing["run/step_5"] = OSError(errno.EIO, "input/output error")
    with pytest.raises(OSError, match="input/output"):
        looks.look()
    disk.failing = {"run": OSError(errno.ENOENT, "gone")}
    with pytest.raises(OSError, match="gone"):
        looks.look()


def test_names_that_are_not_text_harm_nobody(tmp_path: Path) -> None:
    for name in (b"step_1", b"step_\xff", b"step_2\n"):
        entry = tmp_path / os.fsdecode(name)
        entry.mkdir()
        (entry / "DONE").touch()
    reading = EntryFolder(str(tmp_path), STEPS, DONE).look()
    assert steps(reading) == [1]


def test_a_folder_in_a_circle_of_links_ends(tmp_path: Path) -> None:
    entry = tmp_path / "step_1"
    entry.mkdir()
    (entry / "up").symlink_to("..")
    (entry / "DONE").touch()
    (tmp_path / "step_2").symlink_to("step_2")
    (tmp_path / "step_3").symlink_to("step_1")
    reading = EntryFolder(str(tmp_path), STEPS, DONE).look()
    assert sorted(steps(reading), key=lambda step: step or 0) == [1, 3]
