"""Starts a run: claims its name, then its launcher and its wrapper."""

from __future__ import annotations

import gc
import os
import resource
import signal
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trainwarden.run.announcement import claim
from trainwarden.run.folder import FOLDER_VARIABLE, state_folder
from trainwarden.run.launcher import Command, Launcher
from trainwarden.run.process_tree import RUN_ID_VARIABLE
from trainwarden.run.run_log import RunLog
from trainwarden.run.streams import STDERR, Streams
from trainwarden.run.wrapper import Wrapper

MAX_NAME = 100
INTERPRETERS = ("python", "bash", "sh", "node", "uv", "torchrun", "accelerate", "deepspeed")


def check_name(name: str | None) -> None:
    """Raises ValueError if `name` cannot be a label of the metrics."""
    if name is not None and not (
        len(name) <= MAX_NAME
        and name[:1].isalnum()
        and name.isascii()
        and all(one.isalnum() or one in "_.:-" for one in name)
    ):
        raise ValueError(f"{name}: a name has letters, digits and _ . : - and begins with no sign")


def default_name(argv: Sequence[str]) -> str:
    """Returns a name for a run: that of the script, else of the module, else of the program."""
    program = Path(argv[0]).name
    name = program
    if program.rstrip("0123456789.") in INTERPRETERS:
        arguments = list(argv[1:])
        scripts = [one for one in arguments if one.endswith((".py", ".sh", ".js"))]
        if scripts:
            name = Path(scripts[0]).stem
        elif "-m" in arguments[:-1]:
            name = arguments[arguments.index("-m") + 1]
    kept = "".join(
        one if one.isascii() and (one.isalnum() or one in "_.-") else "-" for one in name
    )
    return kept.lstrip("_.-")[:80] or "run"


def start_run(argv: Sequence[str], settings: dict[str, Any]) -> int:
    """Runs `argv` and returns its exit status; ends by the same signal as the command.

    `settings` are those of the announcement; without a name it is derived. Raises OSError and
    ValueError before the start.
    """
    _open_standard_descriptors()
    folder = state_folder()
    named = settings.pop("named")
    settings = {**settings, "run": settings["run"] or default_name(argv)}
    announcement = claim(
        folder,
        {
            **settings,
            "argv": list(argv),
            "cwd": str(Path.cwd()),
            "run_id": os.urandom(16).hex(),
        },
        free_name=not named,
    )
    content = announcement.content
    environment = {
        **os.environ,
        FOLDER_VARIABLE: str(folder),
        "TRAINWARDEN_RUN": content["run"],
        "TRAINWARDEN_WORKER": content["worker"],
        RUN_ID_VARIABLE: content["run_id"],
    }
    streams = Streams()
    command = Command(argv, environment)
    log = RunLog(announcement.files.log)

    def serve_without_terminal(channel: socket.socket, message: Sequence[str]) -> None:
        Wrapper(announcement, streams, log, channel, detached=True).run(message)

    launcher = Launcher(command, streams, log, serve_without_terminal)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    gc.freeze()  # the pages that both processes share stay shared
    if not os.fork():
        ours.close()
        launcher.run(theirs)
    theirs.close()
    streams.close_child_ends()
    return end_like(Wrapper(announcement, streams, log, ours).run())


def _open_standard_descriptors() -> None:
    """Opens those of 0, 1 and 2 that are closed, so that no other file gets their number."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= STDERR:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)


def end_like(status: int) -> int:
    """Returns the exit code of a wait status, or ends this process by the same signal."""
    if not os.WIFSIGNALED(status):
        return os.WEXITSTATUS(status)
    number = os.WTERMSIG(status)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the command has written its own
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    return 128 + number
