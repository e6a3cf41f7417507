"""Which process runs the stack in a folder: at most one, known by a locked file beside it."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shlex
import signal
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import children
from stack import StackError, private_files, stack_folder
from trainwarden_exporter.processes.procfs import (
    Identity,
    is_alive,
    read_environment,
    read_owner,
    read_process,
    read_uid,
)

POLL_SECONDS = 0.1
MAX_LOCK_CHARACTERS = 100
_STATE_VARIABLES = ("TRAINWARDEN_FOLDER", "XDG_STATE_HOME", "HOME")
"""Decide where runs are announced."""
ELSEWHERE = ".elsewhere-"
"""Begins the name of a file that has the folder of a stack which an operator has named."""

_OTHERS = "the stack of another account is ended by that account, or by root"
_SAFE_FLAGS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""Another account may have put a link or a FIFO there."""


def default_folder(config: Path | None, *, demo: bool = False) -> Path:
    """A folder for the demo, one for announced runs, or one for each folder of configuration.

    All but the demo's keep their history.
    """
    if config is None:
        return stack_folder() / ("demo" if demo else "run-announced")
    digest = hashlib.sha256(os.fsencode(config)).hexdigest()[:6]
    return stack_folder() / f"run-{config.name}-{digest}"


def lock_of(folder: Path) -> Path:
    """The lock file of a folder."""
    return folder.parent / f".{folder.name}.lock"


def all_locks() -> list[Path]:
    """The lock files of all folders that `default_folder` returns, running or not."""
    where = stack_folder()
    return [*where.glob(".demo.lock"), *sorted(where.glob(".run-*.lock"))]


def command_to_end(folder: Path) -> str:
    """What a user types to end the stack of a folder."""
    if lock_of(folder) in all_locks():
        return "trainwarden down"
    return f"trainwarden down --folder {shlex.quote(str(folder))}"


def already_runs(folder: Path) -> StackError:
    """The error that a stack runs in `folder`, with what ends that one."""
    return StackError(f"the stack runs in {folder} already: `{command_to_end(folder)}` ends it")


def running_folders() -> list[Path]:
    """The folders in which stacks of this account run, also folders that an operator has named."""
    folders = [folder for folder in known_folders() if owner(lock_of(folder)) is not None]
    return [*folders, *named_folders()]


def known_folders() -> list[Path]:
    """The folders in which stacks of this account have run."""
    return [
        lock.with_name(lock.name.removeprefix(".").removesuffix(".lock")) for lock in all_locks()
    ]


def named_folders() -> list[Path]:
    """The folders that an operator of this account has named, and in which stacks run."""
    found = []
    for entry in sorted(stack_folder().glob(f"{ELSEWHERE}*")):
        with suppress(OSError, ValueError):  # it ends now
            folder = Path(entry.read_text(encoding="utf-8"))
            if folder.stat().st_uid == os.geteuid():
                found.append(folder)
    return sorted(folder for folder in found if owner(lock_of(folder)) is not None)


def beside(folder: Path) -> list[Path]:
    """The folders of other stacks of this account that watch the same announced runs."""
    found = []
    for other in running_folders():
        running = None if other == folder else owner(lock_of(other))
        environment = (read_environment(running.pid) if running is not None else None) or {}
        same = (environment.get(name) == os.environ.get(name) for name in _STATE_VARIABLES)
        if environment and all(same):
            found.append(other)
    return found


@contextmanager
def _registered(folder: Path) -> Iterator[None]:
    """Meanwhile the commands find the stack in a folder that an operator has named."""
    if lock_of(folder) in all_locks():
        yield
        return
    digest = hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
    entry = stack_folder() / f"{ELSEWHERE}{digest}"
    with suppress(OSError), private_files():  # without it, the commands need `--config.file`
        entry.parent.mkdir(parents=True, exist_ok=True)
        entry.write_text(str(folder), encoding="utf-8")
    try:
        yield
    finally:
        entry.unlink(missing_ok=True)


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Lock `folder`: only this process runs the stack in it. Raises StackError if locked."""
    make_folder(folder)
    with open_private(lock_of(folder)) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise already_runs(folder) from error
        own = read_process(os.getpid())
        file.truncate(0)
        if own is not None:
            file.write(f"{own.pid} {own.identity.start_ticks}\n".encode())
            file.flush()
        with _registered(folder):
            yield


def make_folder(folder: Path) -> None:
    """Creates the folder of a stack for this account only.

    A folder that `default_folder` returns is narrowed if other accounts can write to it, and so is
    `stack_folder`. A folder that an operator has named stays as it is.
    """
    with private_files():
        folder.mkdir(parents=True, exist_ok=True)
    where = stack_folder()
    if folder.parent != where or not (folder.name == "demo" or folder.name.startswith("run-")):
        return
    for one in (folder,) if os.environ.get("TRAINWARDEN_STACK_DIR") else (folder, where):
        status = one.stat()
        if status.st_uid == os.geteuid() and status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            one.chmod(0o700)


def open_private(path: Path) -> BinaryIO:
    """Opens a file to append to it, which only this account can read or write.

    The folder may be one in which other accounts can create files, such as /tmp. Raises StackError.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | _SAFE_FLAGS, 0o600)
    except OSError as error:
        raise StackError(f"cannot open {path}: {error.strerror}") from error
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
        os.close(descriptor)
        raise StackError(f"{path} is not a file of this account: choose another folder")
    os.fchmod(descriptor, 0o600)
    return os.fdopen(descriptor, "a+b")


def owner(lock: Path) -> Identity | None:
    """The process that holds the lock; None if it is free. Raises StackError if it is unknown.

    A file of another account names only processes of that account.
    """
    try:
        descriptor = os.open(lock, os.O_RDONLY | _SAFE_FLAGS)
    except FileNotFoundError:
        return None
    except PermissionError as error:
        raise StackError(f"{lock} cannot be read: {_OTHERS}") from error
    except OSError as error:
        raise StackError(f"cannot open {lock}: {error.strerror}") from error
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise StackError(f"{lock} is not a file: remove it")
    with os.fdopen(descriptor) as file:
        if not _is_held(descriptor):
            return None
        try:
            words = file.read(MAX_LOCK_CHARACTERS).split()
        except (OSError, ValueError):  # it is no text
            words = []
    try:
        pid, start_ticks = map(int, words)
    except ValueError as error:
        raise StackError(f"{lock} does not say which process holds it") from error
    if status.st_uid not in (os.geteuid(), read_uid(pid)):
        raise StackError(f"{lock} names a process that is not of the account that owns the file")
    return Identity(pid, start_ticks)


def _is_held(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return False


def end(running: Identity, *, seconds: float) -> bool:
    """Ask the stack to end, as Ctrl-C does, and wait. Returns whether it has ended.

    Raises StackError if it is another account's.
    """
    try:
        children.send(running, signal.SIGTERM)
    except PermissionError as error:
        whose = f"process {running.pid} belongs to {read_owner(running.pid)}"
        raise StackError(f"{whose}: {_OTHERS}") from error
    deadline = time.monotonic() + seconds
    while is_alive(running):  # for a moment longer than it holds the lock
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True
