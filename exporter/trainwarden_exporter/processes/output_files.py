"""Finds the files into which a process writes its standard output and its standard error."""

from __future__ import annotations

import os
import stat

from trainwarden_exporter.processes.procfs import PROC

_OUTPUTS = (1, 2)
_DELETED = " (deleted)"


def read_output_files(pid: int) -> tuple[str, ...]:
    """Returns the regular files behind the standard output and error of a process, each once.

    None of a process that has ended or is not readable. A file of another mount namespace, as in a
    container, is returned only if the same file is at the same path here.
    """
    found: dict[str, None] = {}
    for number in _OUTPUTS:
        link = PROC / str(pid) / "fd" / str(number)
        try:
            path = os.readlink(link)  # noqa: PTH115 - the text of the link, of a path elsewhere
            theirs, ours = link.stat(), os.stat(path)  # noqa: PTH116
        except OSError:
            continue
        same = (theirs.st_dev, theirs.st_ino) == (ours.st_dev, ours.st_ino)
        if stat.S_ISREG(theirs.st_mode) and same and not path.endswith(_DELETED):
            found[path] = None
    return tuple(found)
