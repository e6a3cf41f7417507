"""The system call of a thread, by a folder in place of /proc."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from trainwarden_exporter.processes.stacks.system_calls import read_call

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers of its calls")


@pytest.mark.parametrize(
    ("text", "is_endless"),
    [
        ("202 0x7f0 0x80 0x0 0x0 0x0 0xffffffff 0x7ff 0x7f0", True),
        ("202 0x7f0 0x80 0x0 0x7fe 0x0 0xffffffff 0x7ff 0x7f0", False),
        ("449 0x7f0 0x1 0x0 0x7fe 0x1 0x0 0x7ff 0x7f0", False),
        ("441 0x3 0x7f0 0x9 0x7fe 0x0 0x8 0x7ff 0x7f0", False),
        ("128 0x7f0 0x7f8 0x7fe 0x8 0x0 0x0 0x7ff 0x7f0", False),
        ("0 0x3 0x7f0 0x9 0x0 0x0 0x0 0x7ff 0x7f0", True),
    ],
    ids=["futex", "timed futex", "futex_waitv", "epoll_pwait2", "sigtimedwait", "read"],
)
def test_a_call_with_a_timeout_is_not_endless(
    tmp_path: Path, text: str, *, is_endless: bool
) -> None:
    (tmp_path / "syscall").write_text(text)
    call = read_call(str(tmp_path))

    assert call is not None
    assert call.is_endless is is_endless


@pytest.mark.parametrize("text", ["running", "-1 0x7ffe 0x7fff", ""])
def test_a_thread_that_runs_is_in_no_call(tmp_path: Path, text: str) -> None:
    (tmp_path / "syscall").write_text(text)

    assert read_call(str(tmp_path)) is None
