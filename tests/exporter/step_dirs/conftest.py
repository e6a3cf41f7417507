"""A file system made of a dict, which counts what it is asked."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from trainwarden_exporter.step_dirs.filesystem import FileSystem, FolderItem


@dataclass
class Node:
    inode: int
    modified: float
    size: int = 0
    text: str = ""
    inside: dict[str, Node] | None = None


@dataclass
class MemoryDisk(FileSystem):
    """Paths are relative to nothing: `run/step_1/weights`. Folders come to be as needed."""

    moment: float = 1_000_000.0
    asked: list[str] = field(default_factory=list)
    before_each: Callable[[], None] = lambda: None
    failing: dict[str, OSError] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._inodes = 1
        self.root = Node(1, self.moment, inside={})

    def write(self, path: str, size: int = 1, text: str = "") -> None:
        """Write a file in place, or a new one."""
        folder, name = self._folder_of(path)
        inside = self._inside(folder)
        if name not in inside:
            inside[name] = self._node()
            folder.modified = self.moment
        node = inside[name]
        node.size, node.text, node.modified = size, text, self.moment

    def make(self, path: str) -> None:
        """Make a folder."""
        self._folder_of(f"{path}/x")

    def rename(self, old: str, new: str) -> None:
        source, old_name = self._folder_of(old)
        node = self._inside(source).pop(old_name)
        target, new_name = self._folder_of(new)
        self._inside(target)[new_name] = node
        source.modified = target.modified = self.moment

    def remove(self, path: str) -> None:
        folder, name = self._folder_of(path)
        del self._inside(folder)[name]
        folder.modified = self.moment

    def iter_names(self, folder: str) -> Iterator[str]:
        return iter([named.name for named in self.list_folder(folder)])

    def list_folder(self, folder: str) -> list[FolderItem]:
        self._ask("names", folder)
        inside = self._inside(self._find(folder))
        return [
            FolderItem(name, "file" if n.inside is None else "folder") for name, n in inside.items()
        ]

    def status(self, path: str) -> os.stat_result:
        self._ask("status", path)
        node = self._find(path)
        mode = stat.S_IFREG | 0o644 if node.inside is None else stat.S_IFDIR | 0o755
        moment = int(node.modified)
        return os.stat_result(
            (mode, node.inode, 1, 1, 0, 0, node.size, moment, moment, moment),
            {"st_mtime": node.modified, "st_mtime_ns": int(node.modified * 1e9)},
        )

    def text(self, path: str) -> str:
        self._ask("text", path)
        return self._find(path).text

    def part(self, path: str, start: int, size: int) -> bytes:
        self._ask("part", path)
        return self._find(path).text.encode("latin-1")[start : start + size]

    def _ask(self, what: str, path: str) -> None:
        self.before_each()
        self.asked.append(f"{what} {path}")
        if path in self.failing:
            raise self.failing[path]

    def _find(self, path: str) -> Node:
        node = self.root
        for part in path.strip("/").split("/"):
            if node.inside is None or part not in node.inside:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            node = node.inside[part]
        return node

    def _folder_of(self, path: str) -> tuple[Node, str]:
        *parts, name = path.split("/")
        node = self.root
        for part in parts:
            inside = self._inside(node)
            if part not in inside:
                inside[part] = self._node({})
                node.modified = self.moment
            node = inside[part]
        return node, name

    def _inside(self, node: Node) -> dict[str, Node]:
        if node.inside is None:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        return node.inside

    def _node(self, inside: dict[str, Node] | None = None) -> Node:
        self._inodes += 1
        return Node(self._inodes, self.moment, inside=inside)


@pytest.fixture(scope="session")
def new_disk() -> type[MemoryDisk]:
    return MemoryDisk


@pytest.fixture
def filesystem(new_disk: type[MemoryDisk]) -> MemoryDisk:
    return new_disk()
