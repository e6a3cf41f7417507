"""The process that starts the command and waits for it.

It leads the session of the command, so that the end of the wrapper hangs nothing up, and holds the
other ends of its output, so that the command never writes into a closed one.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from trainwarden.run.process_tree import read_start_ticks
from trainwarden.run.run_log import RunLog
from trainwarden.run.streams import STDIN, SavedTerminal, Streams, become_controlling

MAX_WRAPPERS = 10
"""How often a wrapper that was killed is replaced."""
MESSAGE_BYTES = 200
_IGNORED = (
    *(signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGTSTP),
    *(signal.SIGTTIN, signal.SIGTTOU, signal.SIGUSR1, signal.SIGUSR2, signal.SIGPIPE),
)
NOT_FOUND, NOT_EXECUTABLE = 127, 126
"""Exit codes of a shell for a command that cannot be started."""


def why_not_started(program: str, number: int) -> str:
    """Returns the error of a start in words; of a file here that is not in PATH, how it is run."""
    if number != errno.ENOENT or "/" in program or not Path(program).is_file():
        return os.strerror(number)
    if os.access(program, os.X_OK):
        return f"not in PATH; the file here is `./{program}`"
    runs = f": `python {program}` runs it" if program.endswith(".py") else ""
    return f"not in PATH, and the file here is not executable{runs}"


class Command:
    """What to start: the same at every start."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        self.arguments = arguments
        self.environment = environment
        # as the user set them, before this program changes any; Python itself ignores two
        self.ignored = [
            number
            for number in _IGNORED
            if signal.getsignal(number) is signal.SIG_IGN and number != signal.SIGPIPE
        ]

    def execute(self, streams: Streams) -> NoReturn:
        """Becomes the command, in a new process group in the foreground of its terminal."""
        os.setpgid(0, 0)
        if streams.slave is not None:
            os.tcsetpgrp(streams.slave, os.getpid())
        for number in (*_IGNORED, signal.SIGXFSZ, signal.SIGCHLD):
            is_ignored = number in self.ignored
            signal.signal(number, signal.SIG_IGN if is_ignored else signal.SIG_DFL)
        # copies first: one of the descriptors may be another's place
        copies = [os.dup(fd) for fd in streams.child]
        for place, copy in enumerate(copies):
            os.dup2(copy, place)
            os.close(copy)
        os.execvpe(self.arguments[0], list(self.arguments), self.environment)  # noqa: S606 - no shell


class Launcher:
    """Starts the command on request of the wrapper; replaces a wrapper that was killed."""

    def __init__(
        self,
        command: Command,
        streams: Streams,
        log: RunLog,
        replace_wrapper: Callable[[socket.socket, Sequence[str]], None],
    ) -> None:
        """`replace_wrapper` runs a wrapper without a terminal until the end of the run.

        It is given the channel, and the last message about the command.
        """
        self._command = command
        self._streams = streams
        self._log = log
        self._replace_wrapper = replace_wrapper
        self._child = 0
        self._last = ""
        self._wrappers = 0

    def run(self, channel: socket.socket) -> NoReturn:
        """Serves until the wrapper has taken its leave and nobody writes output any more."""
        try:
            saved = SavedTerminal() if self._streams.passes_input else None
            self._prepare()
            while not self._serve(channel):
                channel.close()
                if saved is not None:
                    saved.restore()
                if self._wrappers == MAX_WRAPPERS:
                    break
                channel = self._start_wrapper()
            self._drain()
        finally:
            os._exit(0)

    def _prepare(self) -> None:
        os.setsid()
        for number in _IGNORED:
            signal.signal(number, signal.SIG_IGN)
        if self._streams.slave is not None:
            become_controlling(self._streams.slave)
        null = os.open(os.devnull, os.O_RDWR)
        # a reader of the user's pipes must see their end when the wrapper has ended
        for fd in (1, 2, *(() if STDIN in self._streams.child else (STDIN,))):
            os.dup2(null, fd)
        os.close(null)
        self._wakeup, wakeup = os.pipe()
        for fd in (self._wakeup, wakeup):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def _serve(self, channel: socket.socket) -> bool:
        """Returns True when the wrapper has taken its leave, False when it is gone."""
        poll = select.poll()
        poll.register(channel, select.POLLIN)
        poll.register(self._wakeup, select.POLLIN)
        while True:
            ready = {fd for fd, _ in poll.poll()}
            if self._wakeup in ready:
                with suppress(BlockingIOError):
                    os.read(self._wakeup, 4096)
                self._reap(channel)
            if channel.fileno() in ready:
                message = _receive(channel)
                if message in (b"", b"bye"):
                    return message == b"bye"
                self._start(channel)

    def _start(self, channel: socket.socket) -> None:
        reader, writer = os.pipe()
        self._child = os.fork()
        if not self._child:
            try:
                self._command.execute(self._streams)
            except OSError as error:
                os.write(writer, str(error.errno or errno.EIO).encode())
            finally:
                os._exit(NOT_FOUND)
        os.close(writer)
        failure = os.read(reader, MESSAGE_BYTES)
        os.close(reader)
        if failure:
            self._child = 0
            self._send(channel, f"failed {failure.decode()}")
        else:
            ticks = read_start_ticks(self._child, ended_too=True)
            self._send(channel, f"started {self._child} {ticks}")

    def _reap(self, channel: socket.socket) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            except ChildProcessError:
                return
            if not pid:
                return
            if pid != self._child:
                continue
            if os.WIFSTOPPED(status):
                with suppress(OSError):
                    channel.send(f"stopped {os.WSTOPSIG(status)}".encode())
            else:
                self._send(channel, f"exited {pid} {status}")

    def _send(self, channel: socket.socket, message: str) -> None:
        self._last = message
        with suppress(OSError):  # the next wrapper gets the last message
            channel.send(message.encode())

    def _start_wrapper(self) -> socket.socket:
        self._wrappers += 1
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if not os.fork():
            try:
                ours.close()
                signal.set_wakeup_fd(-1)
                os.setpgid(0, 0)
                self._streams.drop_user()
                self._replace_wrapper(theirs, self._last.split())
            finally:
                os._exit(0)
        theirs.close()
        return ours

    def _drain(self) -> None:
        """Writes the log for processes that outlive the command and still hold its output."""
        for fd in {*self._streams.child} - {0, 1, 2}:
            os.close(fd)
        with suppress(OSError):
            os.close(STDIN)
        sources = set(self._streams.sources)
        poll = select.poll()
        for fd in sources:
            poll.register(fd, select.POLLIN)
        while sources:
            for fd, _ in poll.poll():
                try:
                    data = os.read(fd, 1 << 16)
                except BlockingIOError:
                    continue
                except OSError:  # EIO: nobody holds the terminal
                    data = b""
                if data:
                    self._log.write(data)
                else:
                    poll.unregister(fd)
                    sources.discard(fd)


def _receive(channel: socket.socket) -> bytes:
    """Returns the next message; empty if the wrapper is gone."""
    for _ in range(2):
        try:
            return channel.recv(MESSAGE_BYTES)
        except ConnectionResetError:
            # the wrapper ended without reading our last message; its own can still be read
            continue
        except OSError:
            break
    return b""
