"""What the means by which a target is acted upon have in common."""

from __future__ import annotations

import shutil
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator

from trainwarden_exporter.units import Seconds
from trainwarden_exporter.yamlfile import Section


def _argument(text: str) -> str:
    if "\0" in text:
        raise ValueError("an argument cannot hold a NUL character")
    return text


Argument = Annotated[str, AfterValidator(_argument)]
"""One argument of a command line; no shell ever reads it."""


class Means(Section):
    """By what a target is ended and started."""

    grace: Seconds
    """Seconds that what is ended has to put its work away."""

    @property
    @abstractmethod
    def told(self) -> str:
        """What is restarted, in a few words, for the status page."""

    def is_same(self, other: Means) -> bool:
        """Whether both restart the very same thing; then it can be one target's alone."""
        return type(self) is type(other) and self.told == other.told

    def doubts(self) -> Iterable[str]:
        """What will hardly work on this box, each with its field; reads the disk."""
        return ()


def is_socket(path: Path) -> bool:
    """Whether there is a socket, as far as it may be seen."""
    try:
        return path.is_socket()
    except OSError:
        return False


def program_doubts(name: str, command: Sequence[str], cwd: Path) -> Iterator[str]:
    """What stands in the way of the `command` of the field `name`."""
    means, _, _ = name.partition(".")
    if not cwd.is_dir():
        yield f"{means}.cwd: no such folder: {cwd}"
    elif shutil.which(cwd / command[0]) is None and (
        "/" in command[0] or shutil.which(command[0]) is None
    ):
        yield f"{name}: no such program: {command[0]}"
