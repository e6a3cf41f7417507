"""Whatever is done to a log, each line counts once; against a model that knows what was written."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from pathlib import Path
from typing import BinaryIO

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trainwarden_exporter.frameworks.base import LinePattern
from trainwarden_exporter.logs.follower import LogFollower
from trainwarden_exporter.logs.specs import LogSpec
from trainwarden_exporter.logs.state import LogState

PATTERNS = (LinePattern("hit", r"hit (?P<number>\d+);"),)
ONE = ("a.log",)


class World:
    """A writer, the rotation of its log, and a follower that polls it now and then.

    A line may be lost where nobody could have read it: it was cut away before, or went with a file
    that was not followed yet.
    """

    def __init__(self, folder: Path, files: tuple[str, ...], *, appends: bool) -> None:
        self.path = folder / "a.log"
        self.written = 0
        self.lost = 0
        self._spec = LogSpec("run", "log", folder, files, PATTERNS)
        self._clock = 0.0
        self._appends = appends
        self._follower: LogFollower | None = None
        self._saved = LogState()
        self._unread: Counter[int] = Counter()  # by inode
        self._opened: set[int] = set()
        self._half = False  # whether a line was begun
        self._lines = 0  # written to the file as it is now
        self._cut = False  # whether something was cut away since the last look
        self._moved = False
        self.poll()
        self.save(0)
        self._writer = self._open()

    @property
    def counted(self) -> int:
        return self._state().counts.matches.get("hit", 0)

    def close(self) -> None:
        self._writer.close()
        if self._follower is not None:
            self._follower.retire()

    # what may happen

    def poll(self, times: int = 1) -> None:
        for _ in range(times):
            self._look(5)

    def wait(self, _: int = 0) -> None:
        self._look(40)

    def save(self, _: int) -> None:
        self._saved = self._state()

    def crash(self, _: int) -> None:
        """The follower ends, and resumes from its last saved state."""
        self._end()
        self._look(5)

    def stop(self, _: int) -> None:
        """The follower ends, and does not look for a while."""
        self.save(0)
        self._end()

    def write(self, lines: int) -> None:
        for _ in range(lines):
            self._write_line(self._inode)

    def begin_line(self, _: int) -> None:
        if not self._half:
            self._writer.write(b"hit ")
            self._half = True

    def noise(self, lines: int) -> None:
        if not self._half:
            end = b"\r" if lines % 2 else b"\n"
            line = b"\x1b[32mnothing \0 of\x1b[0m note %.3f" % self._clock
            self._writer.write((line + end) * lines * 20)

    def rename(self, late: int) -> None:
        """Rotate by renaming; the writer goes on for a while in the file that it has open."""
        inode = self._inode
        if self._cut:
            self.poll()
        if self._spec.files == ONE and not self._knows(inode):
            self._settle()
        followed = self._spec.files != ONE or self._knows(inode)
        if not followed:
            self.lost += self._unread.pop(inode, 0)
        self.path.rename(self._make_room())
        self._moved = True
        for _ in range(late % 3):
            self._write_line(inode)
            if not followed:
                self.lost += self._unread.pop(inode)
        self._writer.close()
        self._writer = self._open()

    def copy_and_truncate(self, number: int, *, over: bool = False) -> None:
        if self._cut or self._moved:
            self.poll()
        inode = self._inode
        read = any(mark.key.inode == inode and mark.offset for mark in self._state().bookmarks)
        # Where a writer that does not append began again, only NULs are before its first line.
        reported = self._appends or self._lines > self._unread[inode]
        if self._spec.files == ONE and not (read and reported):
            self.lost += self._unread[inode]
        backup = self.path.with_name("a.log.bak")
        shutil.copy(self.path, backup if over else self._make_room())
        self._truncate()

    def back_up_and_truncate(self, number: int) -> None:
        """The same, with each copy written over the one before."""
        self.copy_and_truncate(number, over=True)

    def truncate(self, _: int) -> None:
        if self._cut or self._moved:
            self.poll()
        self.lost += self._unread[self._inode]
        self._truncate()

    def delete(self, _: int) -> None:
        if self._cut or self._moved:
            self.poll()
        inode = self._inode
        if inode not in self._opened:
            self.lost += self._unread[inode]
        self.path.unlink()
        self._writer.close()
        self._writer = self._open()
        self._after_cut()

    # how it happens

    @property
    def _inode(self) -> int:
        return self.path.stat().st_ino

    def _open(self) -> BinaryIO:
        self._half, self._lines = False, 0
        return self.path.open("ab" if self._appends else "wb", buffering=0)

    def _write_line(self, inode: int) -> None:
        self._writer.write(b"%s%d;\n" % (b"" if self._half else b"hit ", self.written))
        self._half = False
        self.written += 1
        self._lines += 1
        self._unread[inode] += 1

    def _truncate(self) -> None:
        with self.path.open("r+b") as file:
            file.truncate(0)
        self._lines = 0
        if self._half:  # its rest will not do
            self._writer.write(b"(%.3f\n" % self._clock)
            self._half = False
        self._after_cut()

    def _make_room(self) -> Path:
        """Renumber the rotated files, and return the path of the first one."""
        older = sorted(
            self.path.parent.glob("a.log.[0-9]*"), key=lambda path: -int(path.suffix[1:])
        )
        for path in older:
            path.rename(self.path.with_name(f"a.log.{int(path.suffix[1:]) + 1}"))
        return self.path.with_name("a.log.1")

    def _after_cut(self) -> None:
        self._cut = True
        if self._follower is not None:
            self._settle()

    def _settle(self) -> None:
        """Look and save: an older state would not be right any more after what comes."""
        self.poll()
        self.save(0)

    def _look(self, seconds: float) -> None:
        if self._follower is None:
            self._follower = LogFollower(self._spec, self._saved, clock=lambda: self._clock)
        self._clock += seconds
        self._follower.poll()
        self._opened |= {path.stat().st_ino for path in self.path.parent.iterdir()}
        self._unread.clear()
        if self._cut:
            self.save(0)
        self._cut = self._moved = False

    def _knows(self, inode: int) -> bool:
        """Whether the file would be found by its inode alone."""
        return all(
            any(mark.key.inode == inode for mark in state.bookmarks)
            for state in (self._saved, self._state())
        )

    def _state(self) -> LogState:
        return self._saved if self._follower is None else self._follower.state()

    def _end(self) -> None:
        if self._follower is not None:
            self._follower.retire()
        self._follower = None
        self._opened.clear()


OPERATIONS = (
    World.poll,
    World.wait,
    World.save,
    World.crash,
    World.stop,
    World.write,
    World.begin_line,
    World.noise,
    World.rename,
    World.copy_and_truncate,
    World.back_up_and_truncate,
    World.truncate,
    World.delete,
)


@pytest.mark.parametrize("appends", [True, False])
@pytest.mark.parametrize("files", [ONE, ("a.log", "a.log.*"), ("*.log*",)])
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.sampled_from(OPERATIONS), st.integers(1, 5)), max_size=25))
def test_every_line_counts_once(
    files: tuple[str, ...],
    appends: bool,
    operations: list[tuple[object, int]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder), files, appends=appends)
        for operation, number in operations:
            operation(world, number)  # type: ignore[operator]
        for _ in range(4):
            world.wait()
        world.close()
        assert world.written - world.lost <= world.counted <= world.written
