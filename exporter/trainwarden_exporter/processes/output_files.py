"""Finds the files into which a process writes its standard output and its standard error."""

from __future__ import annotations

import os
import re
import stat

from trainwarden_exporter.processes.procfs import PROC

_OUTPUTS = (1, 2)
_DELETED = " (deleted)"
_FLAGS = re.compile(r"^flags:\s*([0-7]+)$", re.MULTILINE)


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
        if not _is_open_for_writing(pid, number):
            continue
        same = (theirs.st_dev, theirs.st_ino) == (ours.st_dev, ours.st_ino)
        if stat.S_ISREG(theirs.st_mode) and same and not path.endswith(_DELETED):
            found[path] = None
    return tuple(found)


def _is_open_for_writing(pid: int, number: int) -> bool:
    """Whether the account of a process was allowed to open what is behind its descriptor.

    O_PATH needs no permission on a file: what is read by such a descriptor may be of root alone.
    """
    try:
        text = (PROC / str(pid) / "fdinfo" / str(number)).read_text(encoding="ascii")
    except (OSError, ValueError):
        return False
    found = _FLAGS.search(text)  # in octal, proc_pid_fdinfo(5)
    flags = int(found[1], 8) if found else os.O_PATH
    return not flags & os.O_PATH and flags & os.O_ACCMODE in (os.O_WRONLY, os.O_RDWR)
