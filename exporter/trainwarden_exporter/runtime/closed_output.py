"""The output of a command: what becomes of it where nobody reads it, or it cannot be written."""

from __future__ import annotations

import io
import os
import select
import sys
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

CLOSED_OUTPUT = 141
"""Exit status of a program that SIGPIPE ends, as a shell reports it."""
P = ParamSpec("P")


class _UnwrittenOutputError(Exception):
    """The output cannot be written: a full disk, say."""


def quiet_on_closed_output(main: Callable[P, int]) -> Callable[P, int]:
    """Returns `main`, with CLOSED_OUTPUT once nobody reads, and 1 if the output cannot be written.

    `main` lets an error pass that `is_unread`. The default action of SIGPIPE would also end a
    program whose peer closes a connection. An output that is closed from the start (`>&-`) is none,
    and a character that the encoding of the terminal lacks is a question mark.
    """

    @wraps(main)
    def run(*args: P.args, **kwargs: P.kwargs) -> int:
        if sys.stdout is None:
            null = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(null, True)
            sys.stdout = os.fdopen(null, "w")
        elif isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
            sys.stdout.reconfigure(errors="replace")
        try:
            try:
                return main(*args, **kwargs)
            finally:
                _flush_output()  # at the end of the interpreter an error would be shown
        except BrokenPipeError as error:
            if not is_unread(error):
                raise
            status = CLOSED_OUTPUT
        except _UnwrittenOutputError as error:
            sys.stderr.write(f"{error}\n")
            status = 1
        # what is still buffered would fail again at the end of the interpreter
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return status

    return run


def is_unread(error: Exception) -> bool:
    """Whether nobody reads standard output or standard error: else a connection has broken."""
    if not isinstance(error, BrokenPipeError):
        return False
    poll = select.poll()
    for fd in (1, 2):
        poll.register(fd, 0)
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))


def describe_error(error: Exception) -> str:
    """Returns the message of an error; where a file is the cause, its path and what is wrong."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, FileNotFoundError):
        try:
            os.getcwd()  # noqa: PTH109 - for its error, which names no file
        except FileNotFoundError:
            return "the working folder was removed: `cd` into another"
    return str(error)


def _flush_output() -> None:
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise _UnwrittenOutputError(f"cannot write the output: {error}") from error
