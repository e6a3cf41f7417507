"""Sets of names that may be very many."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable

PARTS = 256
"""Parts of a set: a name is put in its place among the few of one part, not among all."""


def key_of(name: str) -> int:
    """What is kept of a name: 64 bits, other ones in each process."""
    return hash(name)


class NameSet:
    """Names, at eight bytes each.

    That two of 200,000 are taken for one happens once in a billion such sets.
    """

    def __init__(self) -> None:
        self._parts = tuple(array("q") for _ in range(PARTS))
        self._count = 0

    def fill(self, names: Iterable[str]) -> None:
        """Put in names all of which are new; quicker than one by one."""
        for name in names:
            key = key_of(name)
            self._parts[key % PARTS].append(key)
            self._count += 1
        self._parts = tuple(array("q", sorted(part)) for part in self._parts)

    def add(self, name: str) -> None:
        part, index, there = self._place(key := key_of(name))
        if not there:
            part.insert(index, key)
            self._count += 1

    def discard(self, name: str) -> None:
        part, index, there = self._place(key_of(name))
        if there:
            del part[index]
            self._count -= 1

    def has(self, key: int) -> bool:
        """Whether the name with this key is among them."""
        return self._place(key)[2]

    def __contains__(self, name: str) -> bool:
        return self.has(key_of(name))

    def __len__(self) -> int:
        return self._count

    def _place(self, key: int) -> tuple[array[int], int, bool]:
        """Where the key is or would be, and whether it is there."""
        part = self._parts[key % PARTS]
        index = bisect_left(part, key)
        return part, index, index < len(part) and part[index] == key
