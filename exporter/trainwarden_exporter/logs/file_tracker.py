"""Tracks the files of a log across rotation.

A file is identified by its inode and by fingerprints of the content that was read, not by its name.
Reading continues after a rename. A file that is truncated or replaced is read from its start, and
the unread rest of its previous content is searched in the copies beside it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from threading import Lock

from trainwarden_exporter.logs.file_access import file_key, matches_bookmark, read_status
from trainwarden_exporter.logs.file_listing import FileLocation, LogFileListing, OutputFiles
from trainwarden_exporter.logs.rotation import (
    find_renamed,
    find_rotated_copy,
    find_same_content,
    release_if_resolved,
    suspend_if_copy,
)
from trainwarden_exporter.logs.specs import LogSpec
from trainwarden_exporter.logs.state import Bookmark, FileKey, LogState
from trainwarden_exporter.logs.tailed_file import GoneError, TailedFile

LOOK_BACK_BYTES = 1 << 20
"""Bytes before the end of an existing file that are read to determine the state."""
MAX_LOOKED_BACK = 8
"""Number of existing files read this way, the last written ones."""

MAX_FILES = 512
"""Maximum number of files of one log."""
MAX_OPEN = 64
"""Maximum number of open files; an open file can be read after it was renamed or deleted."""
MAX_LEFT = 256
"""Maximum number of remembered files that are gone."""

QUIET_SECONDS = 30.0
"""Seconds without a write after which a renamed file counts as finished."""
QUIET_DELETED_SECONDS = 5.0

NEW_RUN_SECONDS = 60.0
"""Time after the announcement of a run during which the lines that it has written count. Later
ones that existed before they were read may be of any age."""

OLD_FILE_SECONDS = 3600.0
"""A file older than the last listing by this many seconds is not a new file."""

FoundFiles = Mapping[FileKey, tuple[FileLocation, os.stat_result]]


class FileTracker:
    """Tracks the files of one log.

    Belongs to one thread, except `bookmarks` and `left`, which require `lock`.
    """

    def __init__(
        self,
        spec: LogSpec,
        state: LogState,
        *,
        lock: Lock,
        continues: bool,
        output_files: OutputFiles | None = None,
    ) -> None:
        """Starts at `state`; with `continues`, that state was read just now."""
        self.changes = 0
        """Increases when a file is added or removed."""
        self.skipped: dict[str, str] = {}
        """Paths that are currently not read, and why: `unreadable` or `too_many`."""
        self._listing = (
            LogFileListing(spec, state.listed)
            if output_files is None
            else LogFileListing(spec, state.listed, output_files)
        )
        self._begin = spec.begin
        self._lock = lock
        self._files: dict[FileKey, TailedFile] = {}
        known = (*state.left, *state.bookmarks)
        # Without read content, a file cannot be distinguished from a later one with the same inode.
        self._left = {bookmark.key: bookmark for bookmark in known if bookmark.identifies_file}
        self._bookmarks_to_find = state.bookmarks
        self._is_first_scan = not continues
        self._looked_back: dict[FileKey, Bookmark] = {}
        """The read positions of files whose tail is read again; by these a restart finds them."""

    def __iter__(self) -> Iterator[TailedFile]:
        return iter(tuple(self._files.values()))

    def set_output_files(self, output_files: OutputFiles) -> None:
        """Replaces the source of the workers' output files."""
        self._listing.output_files = output_files

    @property
    def listed(self) -> float:
        """Returns the time of the last listing (Unix seconds); 0 for never."""
        return self._listing.listed

    @property
    def bookmarks(self) -> tuple[Bookmark, ...]:
        files = [file for file in self._files.values() if file.suspended is None]
        return tuple(map(self._position, files))

    @property
    def left(self) -> tuple[Bookmark, ...]:
        """Returns the read positions of files that are gone."""
        return tuple(self._left.values())

    def find(self, now: float, clock: float) -> None:
        """Updates the tracked files at `now` (Unix seconds)."""
        before, self.skipped = self.listed, {}
        self._listing.refresh(now, clock)
        self.changes += self._is_first_scan  # from now on, an additional file is a new one
        found = self._stat_files()
        for key, file in self._files.items():
            file.is_listed = key in found
            if file.is_listed and found[key][0][0] != file.bookmark.path:
                file.bookmark = replace(file.bookmark, path=found[key][0][0])
        self._find_renamed_files(found, clock)
        unknown = [key for key in found if key not in self._files]
        # Known files first: the others may be copies of them.
        unknown.sort(key=lambda key: (key not in self._left, -found[key][1].st_mtime))
        for index, key in enumerate(unknown):
            location, status = found[key]
            with self._skip_unreadable(location[0]):
                if key not in self._files:  # as the successor of another file
                    file = self._start_tracking(
                        key, location, status, clock, before=before, now=now
                    )
                    if self._is_first_scan and index < MAX_LOOKED_BACK:
                        self._reread_tail(file)
        for file in self:
            with self._skip_unreadable(file.bookmark.path):
                self._update_status(file, found, clock)
                if self._is_first_scan and file.status is not None:
                    file.fresh_from = self._first_offset(file.status.st_size, now)
        self._is_first_scan = False

    def reread_from_start(self, file: TailedFile, clock: float) -> tuple[TailedFile, ...]:
        """Restarts a file whose read content is no longer in it; returns the files to read now.

        These are `file` from its start, and the copy with its unread rest.
        """
        if file.is_copy and not file.is_listed:
            self._stop_tracking(file, remember=False)  # the next copy was written over it
            return ()
        old = file.bookmark
        copy = find_rotated_copy(old, self._files, self._left)
        with self._lock:
            self._looked_back.pop(old.key, None)
            file.bookmark = Bookmark(old.key, old.path, old.path, old.place)
            file.fresh_from, file.is_copy, file.checked_state = 0, False, None
            self.changes += 1
            if copy is not None:
                copy.grown_at = clock
                self._files[copy.bookmark.key] = copy
                self._left.pop(copy.bookmark.key, None)
        self._suspend_possible_copy(file, clock)
        return tuple(each for each in (copy, file) if each is not None and each.suspended is None)

    def release_finished(self, clock: float, finish: Callable[[TailedFile], None]) -> None:
        """Stops tracking renamed or deleted files after a quiet time.

        Calls `finish` for each that is still readable.
        """
        for file in self:
            if file.is_listed:
                continue
            with self._skip_unreadable(file.bookmark.path):
                is_deleted = not file.is_open or file.is_deleted
                if file.is_open:
                    if clock - file.grown_at < (
                        QUIET_DELETED_SECONDS if is_deleted else QUIET_SECONDS
                    ):
                        continue
                    if file.suspended is None:
                        finish(file)
                # The inode of a deleted file is soon reused.
                self._stop_tracking(file, remember=not is_deleted and file.suspended is None)
        opened = sorted(
            (file for file in self if file.is_open and file.is_listed), key=lambda o: o.grown_at
        )
        for file in opened[: max(0, len(opened) - MAX_OPEN)]:
            file.close()

    def close(self) -> None:
        for file in self:
            file.close()

    def _stat_files(self) -> FoundFiles:
        """Returns the regular files at the locations, each once."""
        found: dict[FileKey, tuple[FileLocation, os.stat_result]] = {}
        for location in self._listing.locations:
            if len(found) >= MAX_FILES:
                self.skipped[location[0]] = "too_many"
                continue
            with self._skip_unreadable(location[0]):
                status = read_status(location[0])
                if status is not None:
                    found.setdefault(file_key(status), (location, status))
        return found

    def _find_renamed_files(self, found: FoundFiles, clock: float) -> None:
        """Finds files that were tracked before a restart and were renamed since."""
        lost, self._bookmarks_to_find = self._bookmarks_to_find, ()
        for bookmark in lost:
            if bookmark.key not in found and (path := find_renamed(bookmark)) is not None:
                file = TailedFile(replace(bookmark, path=path))
                with self._skip_unreadable(path):
                    file.open()
                    self._track(file, clock)
                    file.is_listed = False

    def _start_tracking(
        self,
        key: FileKey,
        location: FileLocation,
        status: os.stat_result,
        clock: float,
        *,
        before: float,
        now: float,
    ) -> TailedFile:
        """Starts to track a file at `now`; `before` is the time of the previous listing."""
        path, template = location
        bookmark = self._left.get(key) or find_same_content(path, key, self._gone_bookmarks())
        if bookmark is not None:
            file = TailedFile(replace(bookmark, key=key, path=path, place=template))
            fits = matches_bookmark(file.open(), bookmark)
            if fits or bookmark.path == path:
                self._track(file, clock, replaces=bookmark.key)
                if not fits:
                    self.reread_from_start(file, clock)
                return file
            file.close()
            self._forget(bookmark.key)
        file = TailedFile(Bookmark(key, path, path, template))
        if before == 0 or status.st_mtime < before - OLD_FILE_SECONDS:
            file.rewind(self._first_offset(status.st_size, now), 0)
        self._track(file, clock)
        return file

    def _first_offset(self, size: int, now: float) -> int:
        """Returns where the lines that count begin in a file that existed before."""
        if self._begin is None or not 0 <= now - self._begin.timestamp < NEW_RUN_SECONDS:
            return size
        return min(self._begin.offset, size)

    def _reread_tail(self, file: TailedFile) -> None:
        """Reads the last lines of `file` again, for sinks that have just started."""
        if file.suspended is None and file.bookmark.offset > 0:
            before = file.bookmark
            if before.identifies_file:
                self._looked_back[before.key] = before
            file.rewind(before.offset, LOOK_BACK_BYTES)

    def _position(self, file: TailedFile) -> Bookmark:
        """Returns the read position of `file`, or the one from before its tail was read again."""
        before = self._looked_back.get(file.bookmark.key)
        if before is None or file.bookmark.offset >= before.offset:
            return file.bookmark
        return replace(before, path=file.bookmark.path)

    def _gone_bookmarks(self) -> Iterator[Bookmark]:
        """Yields the bookmarks of files that are gone."""
        yield from self._left.values()
        for file in self:
            if not file.is_listed and (not file.is_open or file.is_deleted):
                yield file.bookmark

    def _track(self, file: TailedFile, clock: float, *, replaces: FileKey | None = None) -> None:
        """Tracks `file`, in one step with forgetting the file that it `replaces`.

        A save in between would lose the read position.
        """
        file.grown_at = clock
        with self._lock:
            self.changes += 1
            replaced = None
            if replaces is not None:
                self._left.pop(replaces, None)
                self._looked_back.pop(replaces, None)
                replaced = self._files.pop(replaces, None)
            self._left.pop(file.bookmark.key, None)
            self._files[file.bookmark.key] = file
        if replaced is not None:
            replaced.close()

    def _update_status(self, file: TailedFile, found: FoundFiles, clock: float) -> None:
        if file.is_listed:
            file.update_status(found[file.bookmark.key][1], clock)
        else:
            if not file.is_open and (path := find_renamed(file.bookmark)) is not None:
                file.bookmark = replace(file.bookmark, path=path)
            file.update_status(os.fstat(file.open()), clock)
        self._suspend_possible_copy(file, clock)
        if file.suspended is not None:
            release_if_resolved(file, file.suspended, clock)

    def _suspend_possible_copy(self, file: TailedFile, clock: float) -> None:
        """Suspends a file that may be a copy before its first read."""
        if (
            file.bookmark.identifies_file
            or not file.is_listed
            or file.size == 0
            or file.suspended is not None
        ):
            return
        if file.checked_state != file.state:
            file.checked_state, file.suspended = (
                file.state,
                suspend_if_copy(file.bookmark.path, self, clock),
            )

    def _stop_tracking(self, file: TailedFile, *, remember: bool) -> None:
        """Stops tracking `file`; `remember` keeps its read position."""
        file.close()
        with self._lock:
            self.changes += 1
            del self._files[file.bookmark.key]
            if remember:
                self._left[file.bookmark.key] = self._position(file)
            self._looked_back.pop(file.bookmark.key, None)
            while len(self._left) > MAX_LEFT:
                del self._left[next(iter(self._left))]

    def _forget(self, key: FileKey) -> None:
        """Forgets the file of `key`, whose inode was reused."""
        with self._lock:
            self.changes += 1
            self._left.pop(key, None)
            file = self._files.pop(key, None)
        if file is not None:
            file.close()

    @contextmanager
    def _skip_unreadable(self, path: str) -> Iterator[None]:
        """Skips a file that is unreadable now."""
        try:
            yield
        except GoneError:
            pass  # the next poll finds out
        except OSError:
            self.skipped[path] = "unreadable"
