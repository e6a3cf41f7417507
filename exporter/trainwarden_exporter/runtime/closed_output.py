"""Ends a command quietly whose output nobody reads any more, as in `… | head`."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

CLOSED_OUTPUT = 141
"""Exit status of a program that SIGPIPE ends, as a shell reports it."""
P = ParamSpec("P")


def quiet_on_closed_output(main: Callable[P, int]) -> Callable[P, int]:
    """Returns `main`, which then lets a BrokenPipeError pass, with CLOSED_OUTPUT for such an end.

    The default action of SIGPIPE would also end a program whose peer closes a connection.
    """

    @wraps(main)
    def run(*args: P.args, **kwargs: P.kwargs) -> int:
        try:
            try:
                return main(*args, **kwargs)
            finally:
                if sys.stdout is not None:
                    sys.stdout.flush()  # at the end of the interpreter an error would be shown
        except BrokenPipeError as error:
            if not _reader_has_ended():
                sys.stderr.write(f"{error}\n")
                return 1
            # what is still buffered would fail again at the end of the interpreter
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            return CLOSED_OUTPUT

    return run


def _reader_has_ended() -> bool:
    """Whether nobody reads standard output or standard error: else a connection has broken."""
    poll = select.poll()
    for fd in (1, 2):
        poll.register(fd, 0)
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))
