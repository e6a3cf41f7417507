from __future__ import annotations

import errno
import os
from itertools import islice
from typing import TYPE_CHECKING

import pytest

from trainwarden_exporter.entries import listing
from trainwarden_exporter.entries.listing import Listing
from trainwarden_exporter.entries.naming import EntryName, Naming
from trainwarden_exporter.entries.pace import Pace

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.exporter.entries.conftest import MemoryDisk

STEPS = Naming(r"step_(?P<step>\d+)")
SECONDS = 1.0
"""How long it takes to read a folder here."""


class Reader:
    """Reads a folder that takes long to read, and whose time is that of the disk."""

    def __init__(self, disk: MemoryDisk, *, slow: bool = True) -> None:
        self.disk = disk
        self.known: set[str] = set()
        self.listing = Listing(
            disk, "run", STEPS, pace=Pace(), now=lambda: disk.moment, clock=lambda: disk.moment
        )
        disk.before_each = self._wait if slow else lambda: None

    def _wait(self) -> None:
        self.disk.moment += SECONDS

    def read(self) -> int:
        """How often all names were read for it."""
        self.disk.asked.clear()
        self.listing.read(self.known)
        return self.disk.asked.count("names run")

    def wait(self, seconds: float = 10.0) -> None:
        self.disk.moment += seconds


def numbers(names: Iterable[EntryName]) -> list[int | None]:
    return [name.number for name in names]


def fill(disk: MemoryDisk, count: int) -> None:
    for step in range(count):
        disk.write(f"run/step_{step}")
    disk.write("run/notes.txt")
    disk.moment += 60


def test_those_that_are_not_known_are_told_and_the_new_ones_apart(disk: MemoryDisk) -> None:
    fill(disk, 4)
    reader = Reader(disk, slow=False)
    reader.known = {"step_1"}
    assert reader.read() == 1
    assert reader.listing.names is not None
    assert len(reader.listing.names) == 4
    assert (numbers(reader.listing.fresh), numbers(reader.listing.unknown)) == ([], [3, 2, 0])
    disk.write("run/step_9")
    disk.write("run/step_7")
    assert reader.read() == 1
    assert (numbers(reader.listing.fresh), numbers(reader.listing.unknown)) == ([9, 7], [3, 2, 0])
    assert reader.read() == 1
    assert numbers(reader.listing.unknown) == [9, 7, 3, 2, 0]


def test_of_very_many_the_last_are_told(disk: MemoryDisk) -> None:
    fill(disk, listing.MOST_NEW + 10)
    reader = Reader(disk, slow=False)
    reader.read()
    assert len(reader.listing.unknown) == listing.MOST_NEW
    assert numbers(reader.listing.unknown)[-1] == 10


def test_that_one_has_gone_is_told_once(disk: MemoryDisk) -> None:
    fill(disk, 3)
    reader = Reader(disk, slow=False)
    reader.known = {"step_0", "step_1", "step_2"}
    reader.read()
    assert not reader.listing.has_lost
    disk.remove("run/step_1")
    reader.read()
    assert reader.listing.has_lost


def settled(disk: MemoryDisk) -> Reader:
    """One that has read a folder of three so often that it need not read it again."""
    fill(disk, 3)
    reader = Reader(disk)
    for _ in range(3):
        reader.read()
        reader.wait()
    return reader


class TestAFolderThatTakesLong:
    def test_is_not_read_again_while_it_has_the_same_time(self, disk: MemoryDisk) -> None:
        fill(disk, 3)
        reader = Reader(disk)
        reads = []
        for _ in range(6):
            reads.append(reader.read())
            reader.wait()
        assert reads == [1, 1, 0, 0, 0, 0]  # its time was not yet asked for at the first

    def test_is_read_at_once_when_something_came(self, disk: MemoryDisk) -> None:
        reader = settled(disk)
        disk.write("run/step_3")
        assert reader.read() == 1
        assert numbers(reader.listing.fresh) == [3]

    def test_is_read_again_when_something_may_have_come_in_the_same_moment(
        self, disk: MemoryDisk
    ) -> None:
        fill(disk, 3)
        reader = Reader(disk)
        reader.read()
        disk.write("run/step_3")
        assert [reader.read() for _ in range(3)] == [1, 1, 0]

    def test_is_read_again_where_the_disk_failed_meanwhile(self, disk: MemoryDisk) -> None:
        reader = settled(disk)
        disk.write("run/step_3")
        reader.wait()
        listed = disk.listed

        def fail(folder: str) -> Iterator[str]:
            yield from islice(listed(folder), 2)
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(disk, "listed", fail)
            with pytest.raises(OSError, match="error"):
                reader.read()
        assert reader.read() == 1
        assert numbers(reader.listing.fresh) == [3]

    def test_is_read_after_a_while_at_any_rate(self, disk: MemoryDisk) -> None:
        reader = settled(disk)
        # a file system that does not keep the time of a folder
        before = disk.root.inside["run"].modified if disk.root.inside else 0.0
        disk.write("run/step_3")
        if disk.root.inside:
            disk.root.inside["run"].modified = before
        assert reader.read() == 0
        reader.wait(listing.LONGEST)
        assert reader.read() == 1
        assert numbers(reader.listing.fresh) == [3]

    def test_is_read_again_once_all_that_were_told_are_known(self, disk: MemoryDisk) -> None:
        fill(disk, listing.MOST_NEW + 10)
        reader = Reader(disk)
        for _ in range(2):
            reader.read()
            reader.wait()
        reader.known = {name.text for name in reader.listing.unknown[1:]}
        assert reader.read() == 0
        assert len(reader.listing.unknown) == 1
        reader.known |= {name.text for name in reader.listing.unknown}
        assert reader.read() == 1
        assert numbers(reader.listing.unknown) == list(range(9, -1, -1))
