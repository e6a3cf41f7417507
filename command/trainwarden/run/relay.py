"""Passes input and output between the user's terminal and the command."""

from __future__ import annotations

import os
import select
import stat

from trainwarden.run.run_log import RunLog
from trainwarden.run.streams import STDERR, STDIN, STDOUT, Streams

CHUNK = 1 << 16
WRITE_BYTES = 4096
"""Bytes that a pipe takes without blocking once it is writable (PIPE_BUF)."""


class Relay:
    """Holds what is on its way. Never blocks: its owner polls what `wanted` names."""

    def __init__(self, streams: Streams, log: RunLog) -> None:
        self._streams = streams
        self._log = log
        self._output: dict[int, bytes] = {}
        self._input = b""

    def wanted(self) -> dict[int, int]:
        """Returns the descriptors to poll, with their events."""
        wanted = dict.fromkeys(self._output, select.POLLOUT)
        for source, user in self._streams.sources.items():
            if user not in self._output:
                wanted[source] = select.POLLIN
        master = self._streams.master
        if self._input and master is not None:
            wanted[master] = wanted.get(master, 0) | select.POLLOUT
        elif self._streams.is_foreground:
            wanted[STDIN] = select.POLLIN
        return wanted

    def serve(self, fd: int, events: int) -> bytes | None:
        """Serves a descriptor; returns keys that were typed, None if the terminal is gone."""
        if fd in self._output:
            self._write_output(fd)
        elif fd == STDIN:
            return self._read_input()
        elif fd in self._streams.sources:
            if events & select.POLLOUT:
                self._write_input()
            if events & ~select.POLLOUT:
                self._read_source(fd)
        return b""

    def say(self, text: str) -> None:
        """Shows a text on standard error after what is on its way there, if anybody reads it."""
        read, terminal = self._streams.sources.values(), self._streams.terminal
        # where both outputs are one file, it is known as standard output
        user = next(
            (fd for fd in (STDERR, terminal, STDOUT) if fd is not None and fd in read), None
        )
        if user is not None:
            if user == terminal and self._streams.is_raw:
                text = text.replace("\n", "\r\n")
            self._output[user] = self._output.get(user, b"") + text.encode()

    def drop_user(self) -> None:
        """Forgets the user's terminal, and what was on its way there."""
        self._output.clear()
        self._input = b""
        self._streams.drop_user()

    def flush(self) -> None:
        """Passes on what the command has written before its end."""
        self.drain()
        while self._output:
            for fd in tuple(self._output):
                poll = select.poll()
                poll.register(fd, select.POLLOUT)
                poll.poll()
                self._write_output(fd)
            self.drain()

    def drain(self) -> None:
        """Reads what the command has written, as far as it fits."""
        for fd in tuple(self._streams.sources):
            poll = select.poll()
            poll.register(fd, select.POLLIN)
            while poll.poll(0) and self._read_source(fd):
                user = self._streams.sources[fd]
                if user is not None and len(self._output.get(user, b"")) > CHUNK:
                    break

    def _read_source(self, fd: int) -> bool:
        """Reads once; returns whether there was something."""
        try:
            data = os.read(fd, CHUNK)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            # the launcher, which holds the other end, was killed
            self._streams.sources.pop(fd, None)
            return False
        self._log.write(data)
        user = self._streams.sources[fd]
        if user is not None:
            self._output[user] = self._output.get(user, b"") + data
        return True

    def _write_output(self, fd: int) -> None:
        data = self._output[fd]
        try:
            is_file = stat.S_ISREG(os.fstat(fd).st_mode)
            written = os.write(fd, data if is_file else data[:WRITE_BYTES])
        except BlockingIOError:
            return
        except OSError:  # the terminal or the reader is gone: the log goes on
            self._drop_output(fd)
            return
        if written == len(data):
            del self._output[fd]
        else:
            self._output[fd] = data[written:]

    def _drop_output(self, fd: int) -> None:
        self._output.pop(fd, None)
        sources = self._streams.sources
        sources.update({source: None for source, user in sources.items() if user == fd})

    def _read_input(self) -> bytes | None:
        try:
            keys = os.read(STDIN, CHUNK)
        except OSError:
            return None
        self._input += keys
        self._write_input()
        return keys or None

    def _write_input(self) -> None:
        if self._streams.master is None:
            return
        try:
            written = os.write(self._streams.master, self._input)
            self._input = self._input[written:]
        except BlockingIOError:
            return
        except OSError:
            self._input = b""
