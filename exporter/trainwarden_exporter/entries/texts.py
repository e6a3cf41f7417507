"""The small files that stand around the entries of a folder."""

from __future__ import annotations

from collections.abc import Iterable

from trainwarden_exporter.entries.disk import Disk, is_gone
from trainwarden_exporter.layouts.proofs import FolderSeen


class Texts:
    """The files around the entries that a proof reads; read again when they have changed."""

    def __init__(self, disk: Disk, folder: str, names: Iterable[str]) -> None:
        self.changed = False
        self._disk = disk
        self._folder = folder
        self._names = tuple(dict.fromkeys(names))
        self._seen: dict[str, tuple[tuple[int, int, int], str]] = {}

    def read(self, now: float) -> FolderSeen:
        before, self._seen = self._seen, {}
        modified = {}
        for name in self._names:
            path = f"{self._folder}/{name}"
            try:
                status = self._disk.status(path)
                mark = (status.st_ino, status.st_size, status.st_mtime_ns)
                known = before.get(name)
                text = known[1] if known and known[0] == mark else self._disk.text(path)
            except OSError as error:
                if not is_gone(error):
                    raise
                continue
            self._seen[name] = (mark, text)
            modified[name] = status.st_mtime
        self.changed = self._seen != before
        return FolderSeen({name: text for name, (_, text) in self._seen.items()}, now, modified)
