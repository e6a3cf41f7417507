"""Stacks of real processes, by the real py-spy; and what stands in its way."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from trainwarden_exporter.processes.stacks.model import Frame, Stacks
from trainwarden_exporter.processes.stacks.py_spy import (
    MAX_NAME,
    MAX_PATH,
    MAX_THREADS,
    find_py_spy,
    parse_dump,
    read_stacks,
)

if TYPE_CHECKING:
    from tests.exporter.conftest import Start

WAITS = """
import threading
def waits():
    print(flush=True)
    threading.Event().wait()
secret_value = "hunter2"
waits()
"""


def test_the_stack_of_a_process_has_its_calls_and_no_values(start: Start) -> None:
    process = start(WAITS)

    stacks = read_stacks(process.pid)

    main = stacks.main(process.pid)
    assert main is not None
    assert [frame.function.rpartition(".")[2] for frame in main.frames][-3:] == [
        "wait",
        "waits",
        "<module>",
    ]
    assert "hunter2" not in repr(stacks)


def test_names_that_a_process_chooses_cannot_move_a_cursor_or_forge_a_line(start: Start) -> None:
    process = start(
        "import threading\n"
        "threading.current_thread().name = 'a\\x1b[2J' + 900 * 't'\n"
        "code = 'def f():\\n print(flush=True); threading.Event().wait()\\nf()'\n"
        "exec(compile(code, 900 * '/a' + '/\\x1b]0;owned\\x07\\nb.py', 'exec'))"
    )

    main = read_stacks(process.pid).main(process.pid)

    assert main is not None
    own = [frame for frame in main.frames if frame.file.endswith("b.py")]
    assert {frame.file.rpartition("/")[2] for frame in own} == {"�]0;owned��b.py"}
    texts = [main.name, *(text for frame in main.frames for text in (frame.function, frame.file))]
    assert all(text.isprintable() for text in texts)
    assert max(map(len, texts)) == MAX_PATH
    data = [{"thread_name": "t" * 900, "os_thread_id": 1, "frames": []}]
    (thread,) = parse_dump(json.dumps(data).encode()).threads
    assert len(thread.name) == MAX_NAME


def test_each_thread_has_a_stack(start: Start) -> None:
    process = start(
        "import threading\n"
        "def helper():\n"
        "    print(flush=True); threading.Event().wait()\n"
        "threading.Thread(target=helper, name='helper').start(); threading.Event().wait()"
    )

    threads = read_stacks(process.pid).threads

    helper = next(one for one in threads if one.name == "helper")
    assert "helper" in [frame.function for frame in helper.frames]
    assert len(threads) == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a namespace of process ids")
def test_the_threads_of_a_container_have_their_ids_of_this_host() -> None:
    program = (
        "import threading; wait = threading.Event().wait\n"
        "threading.Thread(target=wait, name='helper').start(); print(flush=True); wait()"
    )
    command = ["unshare", "--pid", "--fork", "--kill-child", sys.executable, "-S", "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        (pid,) = map(
            int, Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        )
        threads = read_stacks(pid).threads
        tasks = {int(one.name) for one in Path(f"/proc/{pid}/task").iterdir()}
        process.kill()

    assert {one.tid for one in threads} == tasks
    (main,) = (one.tid for one in threads if one.name == "MainThread")
    assert main == pid


def test_a_process_is_not_stopped_meanwhile(start: Start) -> None:
    """Of a stop the kernel tells its parent."""
    process = start(WAITS)

    for _ in range(5):
        assert read_stacks(process.pid).threads
        assert os.waitpid(process.pid, os.WNOHANG | os.WUNTRACED) == (0, 0)
    status = Path(f"/proc/{process.pid}/status").read_text()
    assert "TracerPid:\t0\n" in status


def test_a_process_that_has_ended_gives_a_word(start: Start) -> None:
    process = start("print(flush=True); input()")
    process.kill()
    process.wait()

    stacks = read_stacks(process.pid)

    assert not stacks.threads
    assert stacks.problem


def test_a_process_that_is_no_python_is_recognised() -> None:
    with subprocess.Popen(["sleep", "100"]) as process:
        stacks = read_stacks(process.pid)
        process.kill()

    assert not stacks.is_python


def elf32() -> bytes:
    """A program of 32-bit x86 that calls pause() for ever; see elf(5)."""
    code = b"\xb8\x1d\x00\x00\x00\xcd\x80\xeb\xf7"  # mov eax, 29; int 0x80; jmp to the start
    base, head = 0x8048000, 52 + 32
    size = head + len(code)
    header = struct.pack(
        "<16sHHIIIIIHHHHHH",
        b"\x7fELF\x01\x01\x01",
        2,
        3,
        1,
        base + head,
        52,
        0,
        0,
        52,
        32,
        1,
        0,
        0,
        0,
    )
    return header + struct.pack("<8I", 1, 0, base, base, size, size, 5, 4096) + code


@pytest.mark.parametrize("name", ["python3.11", "pypy3"])
def test_a_program_that_only_has_the_name_of_a_python_gives_a_word(
    tmp_path: Path, name: str
) -> None:
    program = tmp_path / name
    if name == "pypy3":
        shutil.copy(shutil.which("sleep") or "", program)
    else:
        program.write_bytes(elf32())
    program.chmod(0o755)
    try:
        process = subprocess.Popen([program, "1000"])
    except OSError:
        pytest.skip("this kernel runs no 32-bit program")
    with process:
        stacks = read_stacks(process.pid)
        process.kill()

    assert not stacks.threads
    assert stacks.problem


def test_a_process_that_dies_meanwhile_has_its_stack_or_gives_a_word(start: Start) -> None:
    for milliseconds in (0, 5, 20, 50, 100):
        process = start(
            f"print(flush=True)\nimport os, time; time.sleep({milliseconds / 1e3}); os._exit(0)"
        )

        stacks = read_stacks(process.pid)

        assert bool(stacks.threads) != bool(stacks.problem)


def test_that_its_python_was_replaced_on_the_disk_is_the_reason(tmp_path: Path) -> None:
    """As by an upgrade: a process goes on with the files that it has open."""
    with Path("/proc/self/maps").open() as maps:
        found = [line.split()[-1] for line in maps if "libpython" in line]
    binary = Path(sys.executable).resolve()
    shared = bool(found)
    source = Path(found[0]) if shared else binary
    copied = tmp_path / source.name
    shutil.copy(source, copied)
    environment = os.environ | {"PYTHONHOME": sys.base_prefix, "LD_LIBRARY_PATH": str(tmp_path)}
    program: list[str | Path] = [
        binary if shared else copied,
        "-Sc",
        "import time; print(flush=True); time.sleep(1000)",
    ]
    with subprocess.Popen(program, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        process.stdout.readline()
        copied.unlink()
        shutil.copy(source, copied)
        stacks = read_stacks(process.pid)
        process.kill()

    if shared:
        assert stacks == Stacks(problem="its Python was replaced on the disk after its start")
    else:  # py-spy finds what it needs in a program without a library
        assert bool(stacks.threads) != bool(stacks.problem)


def test_a_stopped_process_has_its_stack(start: Start) -> None:
    process = start(WAITS)
    process.send_signal(signal.SIGSTOP)

    assert read_stacks(process.pid).threads


def test_a_process_of_another_user_gives_a_word(start: Start, tmp_path: Path) -> None:
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("only root can take the rights of another user")
    as_nobody = tmp_path / "py-spy"
    as_nobody.write_text(f'#!/bin/sh\nexec setpriv --reuid 65534 {find_py_spy()} "$@"\n')
    as_nobody.chmod(0o755)
    process = start(WAITS)

    stacks = read_stacks(process.pid, program=str(as_nobody))

    assert stacks.problem == "not permitted to read its memory"
    assert stacks.is_python


def test_a_process_with_thousands_of_threads_is_left_alone(start: Start) -> None:
    process = start(WAITS)

    assert read_stacks(process.pid, MAX_THREADS + 1).problem == "501 threads, more than 500"


def test_without_py_spy_it_says_so(start: Start, tmp_path: Path) -> None:
    process = start(WAITS)

    stacks = read_stacks(process.pid, program=str(tmp_path / "py-spy"))

    assert stacks.problem == "py-spy does not start: No such file or directory"


def test_a_py_spy_that_hangs_is_abandoned(start: Start, tmp_path: Path) -> None:
    hangs = tmp_path / "py-spy"
    hangs.write_text("#!/bin/sh\nexec sleep 1000\n")
    hangs.chmod(0o755)
    process = start(WAITS)
    began = time.monotonic()

    stacks = read_stacks(process.pid, program=str(hangs), timeout=0.2)

    assert stacks.problem == "no stack within 0.2 s"
    assert time.monotonic() - began < 60


@pytest.mark.parametrize("output", [b"", b"{}", b"[]", b"[1]", b'[{"frames": null}]', b"\xff"])
def test_any_other_output_gives_a_word(output: bytes) -> None:
    assert parse_dump(output).problem


def test_a_frame_has_function_file_and_line() -> None:
    frame = {"name": "f", "filename": "/a/b.py", "line": 3, "locals": ["never read"]}
    dump = [{"thread_name": None, "os_thread_id": None, "frames": [frame]}]

    (thread,) = parse_dump(json.dumps(dump).encode()).threads

    assert thread.frames == (Frame("f", "/a/b.py", 3),)


def test_py_spy_is_installed_with_this_package() -> None:
    assert find_py_spy()


@pytest.mark.parametrize(
    "program",
    ["while :; do echo 1111111111111111; done", "x=1; while :; do x=$x$x; done; echo $x"],
)
def test_output_and_memory_of_py_spy_are_limited(tmp_path: Path, program: str) -> None:
    """The memory that it reads may say that a list has no end."""
    endless = tmp_path / "py-spy"
    # the limits are set a moment after the start
    endless.write_text(f"#!/bin/sh\nsleep 0.5\n{program}\n")
    endless.chmod(0o755)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    stacks = read_stacks(os.getpid(), program=str(endless), timeout=60)
    assert stacks.problem
    assert stacks.problem != "no stack within 60 s"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10
