from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

import children
from trainwarden_exporter.processes.procfs import Identity, read_process

DEPLOY = Path(children.__file__).parent
STUBBORN = (
    "import signal, time; signal.signal(15, signal.SIG_IGN); print(flush=True); time.sleep(60)"
)


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


def run(script: str) -> str:
    """What `script` prints, run with the deploy folder on its path."""
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        env={**os.environ, "PYTHONPATH": str(DEPLOY)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def identity(pid: int) -> Identity:
    process = read_process(pid)
    assert process is not None
    return process.identity


def test_a_detached_grandchild_is_adopted_and_ended_with_the_rest() -> None:
    output = run("""
        import os, subprocess, children
        children.adopt_orphans()
        subprocess.run(["sh", "-c", "setsid sleep 60 & exit"])
        subprocess.Popen(["sh", "-c", "sleep 60; true"])
        while len(children.below(os.getpid())) != 3:
            pass
        print(children.end(lambda: children.below(os.getpid()), grace=60))
        print(children.below(os.getpid()))
    """)
    assert output == "()\n[]\n"


def test_what_is_deaf_to_sigterm_is_killed() -> None:
    output = run(f"""
        import os, subprocess, sys, children
        child = subprocess.Popen([sys.executable, "-c", {STUBBORN!r}], stdout=subprocess.PIPE)
        child.stdout.readline()
        print(children.end(lambda: children.below(os.getpid()), grace=0.2))
    """)
    assert output == "()\n"


def test_what_carries_the_mark_is_spared_with_all_below_it() -> None:
    output = run("""
        import os, subprocess, children
        kept = subprocess.Popen(["sh", "-c", "sleep 60; true"], env={**os.environ, "OURS": "1"})
        subprocess.Popen(["sleep", "60"])
        while len(children.below(os.getpid())) != 3:
            pass
        children.end(lambda: children.below(os.getpid(), but_not="OURS"), grace=60)
        print(kept.pid in {each.pid for each in children.below(os.getpid())})
        print(len(children.below(os.getpid())))
        children.end(lambda: children.below(os.getpid()), grace=60)
    """)
    assert output == "True\n2\n"


def test_adopted_dead_are_reaped_and_own_children_keep_their_status() -> None:
    output = run("""
        import subprocess, time, children
        children.adopt_orphans()
        own = subprocess.Popen(["sh", "-c", "exit 7"])
        subprocess.run(["sh", "-c", "setsid true & exit"])
        while own.returncode is None:
            children.reap([own])
            time.sleep(0.01)
        print(own.returncode)
    """)
    assert output == "7\n"


def test_a_process_that_took_over_a_pid_is_not_signalled(
    sleeper: subprocess.Popen[bytes],
) -> None:
    real = identity(sleeper.pid)
    children.send(real._replace(start_ticks=real.start_ticks - 1), signal.SIGKILL)
    with pytest.raises(subprocess.TimeoutExpired):
        sleeper.wait(0.2)
    children.send(real, signal.SIGKILL)
    assert sleeper.wait(60) == -signal.SIGKILL


def test_a_child_ends_when_its_parent_is_killed() -> None:
    script = textwrap.dedent("""
        import os, subprocess, time, children
        child = subprocess.Popen(["sleep", "60"], preexec_fn=children.end_with(os.getpid()))
        print(child.pid, flush=True)
        time.sleep(60)
    """)
    with subprocess.Popen(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(DEPLOY)},
        stdout=subprocess.PIPE,
    ) as parent:
        assert parent.stdout is not None
        child = identity(int(parent.stdout.readline()))
        pidfd = os.pidfd_open(child.pid)
        parent.kill()
    ended, _, _ = select.select([pidfd], [], [], 10)
    os.close(pidfd)
    assert ended
