"""Keeps together the files of a log, through all that rotation does to them.

What a file is called says little: it is known by its inode, and by fingerprints of what was read of
it. So a file that is renamed is read on; one that is truncated, or replaced, is begun anew, and the
unread rest of what was in it is looked for in the copies beside it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from threading import Lock

from trainwarden_exporter.logs.files import is_read_up_to, key_of, read_status
from trainwarden_exporter.logs.followed import Followed, GoneError
from trainwarden_exporter.logs.listing import Listing, Place
from trainwarden_exporter.logs.rotation import find_heir, find_moved, find_same, judge, why_held
from trainwarden_exporter.logs.specs import LogSpec
from trainwarden_exporter.logs.state import Bookmark, Key, LogState

LOOK_BACK = 1 << 20
"""Bytes before the end of a file that was there already which are read for what they tell."""
MOST_LOOKED_BACK = 8
"""Files in which that is done, those written to last."""

MOST_FILES = 512
"""Files of one log that are followed."""
MOST_OPEN = 64
"""Files that are kept open; a file that is open can be read on when it has lost its name."""
MOST_LEFT = 256
"""Files that are remembered when they are gone."""

QUIET = 30.0
"""Seconds after which nothing more is expected in a file that was moved away."""
QUIET_DELETED = 5.0

OLD = 3600.0
"""Seconds by which a file has to be older than the last look at the folders to be no new one."""

Found = Mapping[Key, tuple[Place, os.stat_result]]


class Files:
    """The files of one log.

    Belongs to one thread, but for `bookmarks` and `left`, which may be asked for by whoever holds
    `lock`.
    """

    def __init__(self, spec: LogSpec, state: LogState, *, lock: Lock, continues: bool) -> None:
        """Begin where `state` ends; with `continues`, what was read there was read just now."""
        self.changes = 0
        """Grows whenever another file is followed, or one is not any more."""
        self.skipped: dict[str, str] = {}
        """Paths that are not read now, and why: `unreadable` or `too_many`."""
        self._listing = Listing(spec, state.listed)
        self._lock = lock
        self._files: dict[Key, Followed] = {}
        known = (*state.left, *state.bookmarks)
        # Where nothing was read, nothing tells a file from a later one of the same inode.
        self._left = {mark.key: mark for mark in known if mark.proves}
        self._lost = state.bookmarks
        self._awakes = not continues

    def __iter__(self) -> Iterator[Followed]:
        return iter(tuple(self._files.values()))

    @property
    def listed(self) -> float:
        """When they were last looked for (unix seconds); 0 for never."""
        return self._listing.listed

    @property
    def bookmarks(self) -> tuple[Bookmark, ...]:
        """How far each is read."""
        return tuple(one.bookmark for one in self._files.values() if one.held is None)

    @property
    def left(self) -> tuple[Bookmark, ...]:
        """How far those were read that are gone."""
        return tuple(self._left.values())

    def find(self, now: float, clock: float) -> None:
        """See what there is, at `now` (unix seconds)."""
        before, self.skipped = self.listed, {}
        self._listing.refresh(now, clock)
        self.changes += self._awakes  # from now on, a file that comes is a new one
        found = self._look()
        for key, one in self._files.items():
            one.listed = key in found
            if one.listed and found[key][0][0] != one.bookmark.path:
                one.bookmark = replace(one.bookmark, path=found[key][0][0])
        self._find_lost(found, clock)
        unknown = [key for key in found if key not in self._files]
        # What is known comes first: the others may be copies of it.
        unknown.sort(key=lambda key: (key not in self._left, -found[key][1].st_mtime))
        for index, key in enumerate(unknown):
            place, status = found[key]
            with self._guard(place[0]):
                if key not in self._files:  # as the heir of another one
                    one = self._meet(key, place, status, clock, before=before)
                    if self._awakes and index < MOST_LOOKED_BACK:
                        self._look_back(one)
        for one in self:
            with self._guard(one.bookmark.path):
                self._notice(one, found, clock)
                if self._awakes and one.status is not None:
                    one.fresh_from = one.status.st_size
        self._awakes = False

    def begin_anew(self, one: Followed, clock: float) -> tuple[Followed, ...]:
        """What was read of `one` is not in it any more. Returns what is to be read now.

        That is `one` from its start, and the copy in which its unread rest stands.
        """
        if one.copy and not one.listed:
            self._drop(one, remember=False)  # the next copy was written over it
            return ()
        old = one.bookmark
        heir = find_heir(old, self._files, self._left)
        with self._lock:
            one.bookmark = Bookmark(old.key, old.path, old.path, old.place)
            one.fresh_from, one.copy, one.judged = 0, False, None
            self.changes += 1
            if heir is not None:
                heir.grown = clock
                self._files[heir.bookmark.key] = heir
                self._left.pop(heir.bookmark.key, None)
        self._suspect(one, clock)
        return tuple(each for each in (heir, one) if each is not None and each.held is None)

    def let_go(self, clock: float, finish: Callable[[Followed], None]) -> None:
        """Let go of what was moved away or deleted, after it was quiet for a while.

        `finish` is called with each that can still be read.
        """
        for one in self:
            if one.listed:
                continue
            with self._guard(one.bookmark.path):
                deleted = not one.opened or one.deleted
                if one.opened:
                    if clock - one.grown < (QUIET_DELETED if deleted else QUIET):
                        continue
                    if one.held is None:
                        finish(one)
                # The inode of one that was deleted is soon that of another file.
                self._drop(one, remember=not deleted and one.held is None)
        opened = sorted((one for one in self if one.opened and one.listed), key=lambda o: o.grown)
        for one in opened[: max(0, len(opened) - MOST_OPEN)]:
            one.close()

    def close(self) -> None:
        for one in self:
            one.close()

    def _look(self) -> Found:
        """The regular files at the places, each once."""
        found: dict[Key, tuple[Place, os.stat_result]] = {}
        for place in self._listing.places:
            if len(found) >= MOST_FILES:
                self.skipped[place[0]] = "too_many"
                continue
            with self._guard(place[0]):
                status = read_status(place[0])
                if status is not None:
                    found.setdefault(key_of(status), (place, status))
        return found

    def _find_lost(self, found: Found, clock: float) -> None:
        """Follow those that were followed in an earlier life, and were moved since."""
        lost, self._lost = self._lost, ()
        for mark in lost:
            if mark.key not in found and (path := find_moved(mark)) is not None:
                one = Followed(replace(mark, path=path))
                with self._guard(path):
                    one.open()
                    self._follow(one, clock)
                    one.listed = False

    def _meet(
        self, key: Key, place: Place, status: os.stat_result, clock: float, *, before: float
    ) -> Followed:
        """Begin to follow a file; the folders were last looked at `before` (unix seconds)."""
        path, template = place
        mark = self._left.get(key) or find_same(path, key, self._gone())
        if mark is not None:
            self._forget(mark.key)
            one = Followed(replace(mark, key=key, path=path, place=template))
            fits = is_read_up_to(one.open(), mark)
            if fits or mark.path == path:
                self._follow(one, clock)
                if not fits:
                    self.begin_anew(one, clock)
                return one
            one.close()  # the inode is another file's now
        one = Followed(Bookmark(key, path, path, template))
        if before == 0 or status.st_mtime < before - OLD:
            one.look_back(status.st_size, 0)
        self._follow(one, clock)
        return one

    def _look_back(self, one: Followed) -> None:
        """Read once more what `one` said last: whoever listens has just begun, too."""
        if one.held is None and one.bookmark.offset > 0:
            one.look_back(one.bookmark.offset, LOOK_BACK)

    def _gone(self) -> Iterator[Bookmark]:
        """The bookmarks of files that were deleted, or that nobody knows what became of."""
        yield from self._left.values()
        for one in self:
            if not one.listed and (not one.opened or one.deleted):
                yield one.bookmark

    def _follow(self, one: Followed, clock: float) -> None:
        one.grown = clock
        with self._lock:
            self.changes += 1
            self._left.pop(one.bookmark.key, None)
            self._files[one.bookmark.key] = one

    def _notice(self, one: Followed, found: Found, clock: float) -> None:
        """See how `one` is now."""
        if one.listed:
            one.notice(found[one.bookmark.key][1], clock)
        else:
            if not one.opened and (path := find_moved(one.bookmark)) is not None:
                one.bookmark = replace(one.bookmark, path=path)
            one.notice(os.fstat(one.open()), clock)
        self._suspect(one, clock)
        if one.held is not None:
            judge(one, one.held, clock)

    def _suspect(self, one: Followed, clock: float) -> None:
        """Before the first is read of a file, hold it where it may be a copy."""
        if one.bookmark.proves or not one.listed or one.size == 0 or one.held is not None:
            return
        if one.judged != one.state:
            one.judged, one.held = one.state, why_held(one.bookmark.path, self, clock)

    def _drop(self, one: Followed, *, remember: bool) -> None:
        """Follow `one` no longer, but `remember` how far it was read."""
        one.close()
        with self._lock:
            self.changes += 1
            del self._files[one.bookmark.key]
            if remember:
                self._left[one.bookmark.key] = one.bookmark
            while len(self._left) > MOST_LEFT:
                del self._left[next(iter(self._left))]

    def _forget(self, key: Key) -> None:
        """Another file takes the place of that of `key`."""
        with self._lock:
            self.changes += 1
            self._left.pop(key, None)
            one = self._files.pop(key, None)
        if one is not None:
            one.close()

    @contextmanager
    def _guard(self, path: str) -> Iterator[None]:
        """What cannot be read is passed over now."""
        try:
            yield
        except GoneError:
            pass  # the next look sees what has become of it
        except OSError:
            self.skipped[path] = "unreadable"
