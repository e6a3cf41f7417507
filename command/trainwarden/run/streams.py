"""Input and output of the command: a terminal of its own where the user's is one, else pipes."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import termios
import tty
from contextlib import suppress

STDIN, STDOUT, STDERR = 0, 1, 2


class Streams:
    """What the command reads and writes, and where its output goes.

    `sources` maps each descriptor to read from to the user's descriptor that it belongs to;
    `child` are the command's standard input, output and error. `terminal` is the user's, None
    without one; `master` the other side of the command's terminal.
    """

    def __init__(self) -> None:
        self.terminal = next((fd for fd in (STDOUT, STDERR) if _is_terminal(fd)), None)
        self.master: int | None = None
        self.slave: int | None = None
        self.sources: dict[int, int | None] = {}
        self._saved_modes: list[int | list[bytes | int]] | None = None
        ends: dict[int, int] = {}
        if self.terminal is not None:
            self.master, self.slave = pty.openpty()
            self.sources[self.master] = self.terminal
            self.copy_size()
        for fd in (STDOUT, STDERR):
            if _is_terminal(fd) and self.slave is not None:
                ends[fd] = self.slave
            elif fd == STDERR and STDOUT in ends and _same_file(STDOUT, STDERR):
                ends[fd] = ends[STDOUT]
            else:
                reader, ends[fd] = os.pipe()
                self.sources[reader] = fd
        for source in self.sources:
            # what was ready when polled may have been read, or flushed by an interrupt, since
            os.set_blocking(source, False)
        self.passes_input = self.slave is not None and _is_terminal(STDIN)
        if self.slave is not None and self.terminal is not None:
            modes = termios.tcgetattr(self.terminal)
            if not self.passes_input:
                # the user's terminal translates ends of lines; twice would be once too often
                modes[tty.OFLAG] &= ~termios.OPOST
            termios.tcsetattr(self.slave, termios.TCSANOW, modes)
        stdin = self.slave if self.passes_input and self.slave is not None else STDIN
        self.child = (stdin, ends[STDOUT], ends[STDERR])

    def copy_size(self) -> None:
        """Gives the command's terminal the size of the user's; the kernel signals the change."""
        if self.master is not None and self.terminal is not None:
            with suppress(OSError):
                size = fcntl.ioctl(self.terminal, termios.TIOCGWINSZ, bytes(8))
                fcntl.ioctl(self.master, termios.TIOCSWINSZ, size)

    @property
    def is_foreground(self) -> bool:
        """Whether this process may read and set up the user's terminal."""
        try:
            return self.passes_input and os.tcgetpgrp(STDIN) == os.getpgrp()
        except OSError:
            return False

    @property
    def is_watched(self) -> bool:
        """Whether a user has started it in a terminal, and sees there what it prints."""
        return self.is_foreground and any(map(_is_terminal, (STDOUT, STDERR)))

    @property
    def is_raw(self) -> bool:
        """Whether the user's terminal takes what is written as it is: no ends of lines."""
        return self._saved_modes is not None

    def enter_raw(self) -> None:
        """Has each key passed on as it is; the command's terminal interprets it."""
        if self.is_foreground:
            with suppress(termios.error):
                self._saved_modes = self._saved_modes or termios.tcgetattr(STDIN)
                tty.setraw(STDIN, termios.TCSANOW)  # what was typed ahead is kept

    def restore(self) -> None:
        """Undoes `enter_raw`."""
        if self._saved_modes is not None and self.is_foreground:
            with suppress(termios.error):
                termios.tcsetattr(STDIN, termios.TCSADRAIN, self._saved_modes)
        self._saved_modes = None

    def interrupts(self, keys: bytes) -> bool:
        """Whether one of `keys` interrupts the command, as its terminal is set up now."""
        if self.slave is None:
            return False
        try:
            modes = termios.tcgetattr(self.slave)
        except termios.error:
            return False
        ends = (modes[tty.CC][termios.VINTR], modes[tty.CC][termios.VQUIT])
        return bool(modes[tty.LFLAG] & termios.ISIG) and any(key in keys for key in ends)

    def close_child_ends(self) -> None:
        """Closes the ends that only the command and its launcher hold open."""
        for fd in {*self.child} - {STDIN, STDOUT, STDERR, self.slave}:
            os.close(fd)

    def drop_user(self) -> None:
        """Forgets the user's terminal and outputs; the log goes on."""
        self._saved_modes = None
        self.passes_input, self.terminal = False, None
        self.sources = dict.fromkeys(self.sources)


class SavedTerminal:
    """The user's terminal as it was, for the case that nobody else can restore it."""

    def __init__(self) -> None:
        try:
            self._path = os.ttyname(STDIN)
            self._modes = termios.tcgetattr(STDIN)
        except (OSError, termios.error):
            self._path = ""

    def restore(self) -> None:
        if self._path:
            with suppress(OSError, termios.error):
                descriptor = os.open(self._path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
                try:
                    termios.tcsetattr(descriptor, termios.TCSANOW, self._modes)
                finally:
                    os.close(descriptor)


def become_controlling(slave: int) -> None:
    """Makes `slave` the controlling terminal of this session, which has none."""
    fcntl.ioctl(slave, termios.TIOCSCTTY, struct.pack("i", 0))


def _is_terminal(fd: int) -> bool:
    try:
        return os.isatty(fd)
    except OSError:
        return False


def _same_file(one: int, other: int) -> bool:
    try:
        first, second = os.fstat(one), os.fstat(other)
    except OSError:
        return False
    return (first.st_dev, first.st_ino) == (second.st_dev, second.st_ino)
