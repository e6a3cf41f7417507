"""Reads Python stacks with py-spy, which reads the memory of a process and does not pause it."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sysconfig
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

from trainwarden_exporter.processes.stacks.model import Frame, Stacks, ThreadStack
from trainwarden_exporter.runtime.formatting import on_one_line

TIMEOUT_SECONDS = 5.0
"""Timeout of one call; a stack takes a tenth of a second."""

MAX_THREADS = 500
"""Threads of a process up to which its stacks are read."""

MAX_FRAMES = 100
MAX_NAME = 200
"""Characters of the name of a function or thread that are kept, the first ones;"""

MAX_PATH = 500
"""and of the path of a file, the last ones."""

_NICE = 10
_CPU_SECONDS = 10
_REAP_SECONDS = 1.0
_MEMORY_BYTES = 512 << 20
_MAX_BYTES = 8 << 20
_NOT_INSTALLED = "py-spy is not installed"
_REPLACED = "its Python was replaced on the disk after its start"
_NOT_PYTHON = ("Failed to find python version", "Failed to find a python interpreter")
_DENIED = ("Permission Denied", "Permission denied", "Operation not permitted", "EPERM")


@cache
def find_py_spy() -> str | None:
    """Returns the path of py-spy: beside this Python, else in PATH."""
    beside = Path(sysconfig.get_path("scripts")) / "py-spy"
    return str(beside) if os.access(beside, os.X_OK) else shutil.which("py-spy")


def read_stacks(
    pid: int, threads: int = 1, *, program: str | None = None, timeout: float = TIMEOUT_SECONDS
) -> Stacks:
    """Returns the stacks of the process `pid`, which has so many threads; never raises.

    Neither values of variables nor native frames are read.
    """
    if threads > MAX_THREADS:
        return Stacks(problem=f"{threads} threads, more than {MAX_THREADS}")
    program = program or find_py_spy()
    if program is None:
        return Stacks(problem=_NOT_INSTALLED)
    command = [program, "dump", "--nonblocking", "--json", "--pid", str(pid)]
    with _memory_file("stacks") as output, _memory_file("errors") as errors:
        try:
            process = subprocess.Popen(  # noqa: S603 - a fixed list with a number
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                env={"PATH": os.defpath, "RUST_BACKTRACE": "0"},
                start_new_session=True,
            )
        except OSError as error:
            return Stacks(problem=f"py-spy does not start: {error.strerror}")
        _limit(process.pid)
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            _abandon(process)
            return Stacks(problem=f"no stack within {timeout:g} s")
        if os.fstat(output.fileno()).st_size >= _MAX_BYTES:
            return Stacks(problem="the stacks are too large")
        if process.returncode:
            return _failure(_content(errors).decode("utf-8", "replace"), pid)
        return _with_threads_of_this_host(parse_dump(_content(output)), pid)


def parse_dump(output: bytes) -> Stacks:
    """Parses the output of `py-spy dump --json` (StackTrace in its stack_trace.rs)."""
    try:
        threads = tuple(_thread(one) for one in json.loads(output))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        return Stacks(problem=f"py-spy printed no stacks: {type(error).__name__}")
    return Stacks(threads) if threads else Stacks(problem="py-spy printed no threads")


def _thread(one: dict[str, Any]) -> ThreadStack:
    # The process that was read chooses these texts, and terminals and pages show them.
    frames = tuple(
        Frame(_name(frame["name"]), _path(frame["filename"]), int(frame["line"]))
        for frame in one["frames"][:MAX_FRAMES]
    )
    return ThreadStack(_name(one["thread_name"] or ""), int(one["os_thread_id"] or 0), frames)


def _name(value: object) -> str:
    return on_one_line(str(value)[:MAX_NAME])


def _path(value: object) -> str:
    return on_one_line(str(value)[-MAX_PATH:])


def _with_threads_of_this_host(stacks: Stacks, pid: int) -> Stacks:
    """Returns stacks with thread ids as in /proc: a container has ids of its own; 0 if unknown."""
    if len(_namespace_ids(Path(f"/proc/{pid}"))) < 2:  # noqa: PLR2004 - it and one more
        return stacks
    ids: dict[int, int] = {}
    with suppress(OSError):  # it may have ended
        for task in Path(f"/proc/{pid}/task").iterdir():
            for own in _namespace_ids(task)[-1:]:
                ids[own] = int(task.name)
    return replace(
        stacks, threads=tuple(replace(one, tid=ids.get(one.tid, 0)) for one in stacks.threads)
    )


def _namespace_ids(folder: Path) -> list[int]:
    """Returns the ids of a process or thread, from this namespace to its own; see proc(5)."""
    try:
        lines = (folder / "status").read_text().splitlines()
    except OSError:
        return []
    return next(([int(id_) for id_ in one.split()[1:]] for one in lines if "NSpid:" in one), [])


def _failure(errors: str, pid: int) -> Stacks:
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    if _is_replaced(pid):
        return Stacks(problem=_REPLACED)
    if any(text in errors for text in _DENIED):
        return Stacks(problem="not permitted to read its memory")
    shown = on_one_line(lines[0].removeprefix("Error: ")[:200]) if lines else "py-spy failed"
    return Stacks(problem=shown, is_python=not any(text in errors for text in _NOT_PYTHON))


def _is_replaced(pid: int) -> bool:
    """Whether the file of its Python is gone, in which py-spy looks up where the stacks begin."""
    try:
        with Path(f"/proc/{pid}/maps").open("rb") as file:
            lines = file.read(_MAX_BYTES).splitlines()
    except OSError:
        return False
    return any(b"python" in line and line.endswith(b" (deleted)") for line in lines)


def _memory_file(name: str) -> BinaryIO:
    """A file for the output: unlike a pipe, it has a limit that the kernel enforces."""
    return os.fdopen(os.memfd_create(name), "w+b")


def _content(file: BinaryIO) -> bytes:
    file.seek(0)
    return file.read(_MAX_BYTES)


def _limit(pid: int) -> None:
    """Limits priority, CPU time, memory and output of a new py-spy; it may have ended already.

    The process that it reads may be hostile: what its memory says is a list may have no end.
    """
    limits = {
        resource.RLIMIT_CPU: _CPU_SECONDS,
        resource.RLIMIT_AS: _MEMORY_BYTES,
        resource.RLIMIT_FSIZE: _MAX_BYTES,
    }
    try:
        os.setpriority(os.PRIO_PROCESS, pid, _NICE)
        for number, limit in limits.items():
            resource.prlimit(pid, number, (limit, limit))
    except OSError:
        pass


def _abandon(process: subprocess.Popen[bytes]) -> None:
    """Kills a py-spy, and does not wait long: the kernel may hold it."""
    process.kill()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_REAP_SECONDS)
