"""Starts a run: claims its name, then its launcher and its wrapper."""

from __future__ import annotations

import gc
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trainwarden.run.announcement import Announcement
from trainwarden.run.claim import claim
from trainwarden.run.folder import FOLDER_VARIABLE, state_folder
from trainwarden.run.launcher import Command, Launcher
from trainwarden.run.process_tree import RUN_ID_VARIABLE
from trainwarden.run.run_log import RunLog
from trainwarden.run.streams import STDERR, STDIN, STDOUT, Streams
from trainwarden.run.wrapper import Wrapper

POLL_SECONDS = 0.02
INTERPRETERS = ("python", "bash", "sh", "node", "uv", "torchrun", "accelerate", "deepspeed")


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


def start_run(argv: Sequence[str], settings: dict[str, Any], *, detach: bool) -> int:
    """Runs `argv` and returns its exit status; ends by the same signal as the command.

    `settings` are those of the announcement; without a name it is derived. With `detach`, the
    command runs without a terminal, and this returns 0 once it is started. Raises OSError and
    ValueError before the start.
    """
    _open_standard_descriptors()
    folder = state_folder()
    named = settings.pop("named")
    settings = {**settings, "run": settings["run"] or default_name(argv)}
    announcement = claim(
        folder,
        {**settings, "argv": list(argv), "cwd": str(Path.cwd()), "run_id": os.urandom(16).hex()},
        free_name=not named,
        say=lambda line: print(f"trainwarden run: {line}", file=sys.stderr),  # noqa: T201
    )
    content = announcement.content
    environment = {
        # nobody sees what stays in a buffer, and progress is read from what is printed
        **({"PYTHONUNBUFFERED": "1"} if detach else {}),
        **os.environ,
        FOLDER_VARIABLE: str(folder),
        "TRAINWARDEN_RUN": content["run"],
        "TRAINWARDEN_WORKER": content["worker"],
        RUN_ID_VARIABLE: content["run_id"],
    }
    if detach:
        if pid := os.fork():
            return _report_start(announcement, pid)
        _leave_terminal()
        announcement.record_wrapper()
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
    status = Wrapper(announcement, streams, log, ours, detached=detach).run()
    return 0 if detach else end_like(status)


def _leave_terminal() -> None:
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (STDIN, STDOUT, STDERR):
        os.dup2(null, descriptor)
    os.close(null)


def _report_start(announcement: Announcement, wrapper: int) -> int:
    """Waits until the command of a detached run is started, and prints how it went."""
    while announcement.content["state"] == "starting" and not os.waitpid(wrapper, os.WNOHANG)[0]:
        time.sleep(POLL_SECONDS)
        announcement.reload()
    announcement.reload()
    content = announcement.content
    if not content["starts"]:
        reason = ", ".join(content["last_lines"]) or "its wrapper has ended"
        print(f"trainwarden run: {content['argv'][0]}: {reason}", file=sys.stderr)  # noqa: T201
        return os.WEXITSTATUS(content["exit_status"] or 1 << 8)
    names = [content["run"], *([] if content["worker"] == "trainer" else [content["worker"]])]
    arguments = " --worker ".join(names)
    print(f"{'/'.join(names)}: process {content['pid']} runs in the background")  # noqa: T201
    print(f"  log     {announcement.files.log}")  # noqa: T201
    print(f"  attach  trainwarden attach {arguments}")  # noqa: T201
    print(f"  stop    trainwarden stop {arguments}")  # noqa: T201
    return 0


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
