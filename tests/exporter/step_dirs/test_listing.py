from __future__ import annotations

import errno
import os
from itertools import islice
from typing import TYPE_CHECKING

import pytest

from trainwarden_exporter.step_dirs import listing
from trainwarden_exporter.step_dirs.filesystem import FileSystem
from trainwarden_exporter.step_dirs.listing import FolderListing
from trainwarden_exporter.step_dirs.names import NameParser, StepDirName
from trainwarden_exporter.step_dirs.throttle import Throttle

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.exporter.step_dirs.conftest import MemoryDisk

STEPS = NameParser(r"step_(?P<step>\d+)")
SECONDS = 1.0
"""How long it takes to read a folder here."""


class Reader:
    """Reads a folder that takes long to read, and whose time is that of the disk."""

    def __init__(self, filesystem: MemoryDisk, *, slow: bool = True) -> None:
        self.filesystem = filesystem
        self.known: set[str] = set()
        self.listing = FolderListing(
            filesystem,
            "run",
            STEPS,
            throttle=Throttle(),
            now=lambda: filesystem.moment,
            clock=lambda: filesystem.moment,
        )
        filesystem.before_each = self._wait if slow else lambda: None

    def _wait(self) -> None:
        self.filesystem.moment += SECONDS

    def read(self) -> int:
        """How often all names were read for it."""
        self.filesystem.asked.clear()
        self.listing.read(self.known)
        return self.filesystem.asked.count("names run")

    def wait(self, seconds: float = 10.0) -> None:
        self.filesystem.moment += seconds


def numbers(names: Iterable[StepDirName]) -> list[int | None]:
    return [name.number for name in names]


def fill(filesystem: MemoryDisk, count: int) -> None:
    for step in range(count):
        filesystem.write(f"run/step_{step}")
    filesystem.write("run/notes.txt")
    filesystem.moment += 60


def test_unknown_names_are_reported_and_new_names_apart(filesystem: MemoryDisk) -> None:
    fill(filesystem, 4)
    reader = Reader(filesystem, slow=False)
    reader.known = {"step_1"}
    assert reader.read() == 1
    assert reader.listing.names is not None
    assert len(reader.listing.names) == 4
    assert (numbers(reader.listing.fresh), numbers(reader.listing.unknown)) == ([], [3, 2, 0])
    filesystem.write("run/step_9")
    filesystem.write("run/step_7")
    assert reader.read() == 1
    assert (numbers(reader.listing.fresh), numbers(reader.listing.unknown)) == ([9, 7], [3, 2, 0])
    assert reader.read() == 1
    assert numbers(reader.listing.unknown) == [9, 7, 3, 2, 0]


class Crowded(FileSystem):
    """A folder of `count` entries, whose highest steps are listed last, and as many other files."""

    def __init__(self, count: int) -> None:
        self.count = count

    def iter_names(self, folder: str) -> Iterator[str]:
        for number in range(self.count):
            yield f"sample_{number}.json"
            yield f"step_{number}"

    def status(self, path: str) -> os.stat_result:
        return os.stat_result((0o40755, 1, 1, 1, 0, 0, 0, 0, 0, 0))


@pytest.mark.parametrize("more", [10, listing.MAX_ENTRIES, 3 * listing.MAX_ENTRIES + 10])
def test_of_very_many_entries_those_of_the_highest_steps_are_kept_and_all_are_counted(
    more: int,
) -> None:
    crowded = FolderListing(
        Crowded(listing.MAX_ENTRIES + more),
        "run",
        STEPS,
        throttle=Throttle(sleep=lambda _: None),
        now=lambda: 100.0,
    )
    highest = range(listing.MAX_ENTRIES + more - 1, more - 1, -1)
    assert crowded.read(set()) == {f"step_{number}" for number in highest}
    assert numbers(crowded.unknown) == list(highest)
    assert crowded.count == listing.MAX_ENTRIES + more


def test_that_one_has_gone_is_reported_once(filesystem: MemoryDisk) -> None:
    fill(filesystem, 3)
    reader = Reader(filesystem, slow=False)
    reader.known = {"step_0", "step_1", "step_2"}
    reader.read()
    assert not reader.listing.has_missing
    filesystem.remove("run/step_1")
    reader.read()
    assert reader.listing.has_missing


def settled(filesystem: MemoryDisk) -> Reader:
    """A reader that has read a folder of three so often that it need not read it again."""
    fill(filesystem, 3)
    reader = Reader(filesystem)
    for _ in range(3):
        reader.read()
        reader.wait()
    return reader


class TestAFolderThatTakesLong:
    def test_is_not_read_again_while_it_has_the_same_time(self, filesystem: MemoryDisk) -> None:
        fill(filesystem, 3)
        reader = Reader(filesystem)
        files_to_read = []
        for _ in range(6):
            files_to_read.append(reader.read())
            reader.wait()
        assert files_to_read == [1, 1, 0, 0, 0, 0]  # its time was not yet asked for at the first

    def test_is_read_at_once_when_something_came(self, filesystem: MemoryDisk) -> None:
        reader = settled(filesystem)
        filesystem.write("run/step_3")
        assert reader.read() == 1
        assert numbers(reader.listing.fresh) == [3]

    def test_is_read_again_when_something_may_have_come_in_the_same_moment(
        self, filesystem: MemoryDisk
    ) -> None:
        fill(filesystem, 3)
        reader = Reader(filesystem)
        reader.read()
        filesystem.write("run/step_3")
        assert [reader.read() for _ in range(3)] == [1, 1, 0]

    def test_is_read_again_where_the_disk_failed_meanwhile(self, filesystem: MemoryDisk) -> None:
        reader = settled(filesystem)
        filesystem.write("run/step_3")
        reader.wait()
        iter_names = filesystem.iter_names

        def fail(folder: str) -> Iterator[str]:
            yield from islice(iter_names(folder), 2)
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(filesystem, "iter_names", fail)
            with pytest.raises(OSError, match="error"):
                reader.read()
        assert reader.read() == 1
        assert numbers(reader.listing.fresh) == [3]

    def test_is_read_after_a_while_at_any_rate(self, filesystem: MemoryDisk) -> None:
        reader = settled(filesystem)
        # a file system that does not keep the time of a folder
        before = filesystem.root.inside["run"].modified if filesystem.root.inside else 0.0
        filesystem.write("run/step_3")
        if filesystem.root.inside:
            filesystem.root.inside["run"].modified = before
        assert reader.read() == 0
        reader.wait(listing.MAX_REUSE_SECONDS)
        assert reader.read() == 1
        assert numbers(reader.listing.fresh) == [3]
