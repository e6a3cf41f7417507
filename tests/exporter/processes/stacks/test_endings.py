"""Whether the script of a run is over though a process of it lives."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.exporter.processes.stacks.test_diagnosis import member

from trainwarden_exporter.processes.procfs import Identity
from trainwarden_exporter.processes.stacks.endings import EndKind, ScriptEnd, script_end
from trainwarden_exporter.processes.stacks.model import (
    Activity,
    Diagnosis,
    Finding,
    Frame,
    Movement,
    Stacks,
    ThreadStack,
)
from trainwarden_exporter.processes.stacks.py_spy import MAX_FRAMES, find_py_spy, read_stacks

LIB = "/usr/lib/python3.11"
MODULE = Frame("<module>", "/srv/train.py", 60)
SHUTDOWN = Frame("_shutdown", f"{LIB}/threading.py", 1590)
WAIT = Frame("Condition.wait", f"{LIB}/threading.py", 327)
TRACKER = Frame("main", f"{LIB}/multiprocessing/resource_tracker.py", 200)
LOADER = Frame("_worker_loop", "/venv/torch/utils/data/_utils/worker.py", 200)
SELECT = Frame("select", f"{LIB}/selectors.py", 468)
FORKS = Frame("main", f"{LIB}/multiprocessing/forkserver.py", 220)
NOT_PYTHON, UNREADABLE = Stacks(is_python=False), Stacks(problem="not permitted")


def stacks(*main: Frame, other: tuple[Frame, ...] = (), pid: int = 1) -> Stacks:
    threads = (ThreadStack("MainThread", pid, main), ThreadStack("Thread-1", 7, other))
    return Stacks(threads)


def end_of(*shown: Stacks, activity: Activity = Activity.LOCK) -> ScriptEnd | None:
    """The end of a run whose first process makes the steps, and each other is a child of it."""
    findings = tuple(
        Finding(
            member(pid, is_trainer=pid == 1, parent_pid=0 if pid == 1 else 1),
            activity,
            stacks=one,
        )
        for pid, one in enumerate(shown, start=1)
    )
    return script_end(Diagnosis(Movement.UNKNOWN, findings, chain="it waits"))


@pytest.mark.parametrize(
    ("shown", "kind"),
    [
        ([stacks(SHUTDOWN, other=(WAIT,))], EndKind.LEFT),
        ([stacks(WAIT, Frame("<lambda>", "/srv/train.py", 4))], EndKind.LEFT),
        ([stacks(SHUTDOWN, other=(Frame("beat", "/srv/train.py", 5),))], EndKind.LEFT_TO_THREAD),
        ([NOT_PYTHON, NOT_PYTHON], EndKind.GONE),
        # helpers of libraries end with their parent
        ([stacks(SHUTDOWN), stacks(TRACKER, MODULE, pid=2)], EndKind.LEFT),
        ([stacks(SHUTDOWN), stacks(WAIT, LOADER, MODULE, pid=2)], EndKind.LEFT),
        # what runs, cannot be read, or may be a training of its own
        ([stacks(WAIT, MODULE)], None),
        ([stacks(SHUTDOWN), stacks(WAIT, MODULE, pid=2)], None),
        ([stacks(SHUTDOWN), UNREADABLE], None),
        ([NOT_PYTHON, stacks(WAIT, MODULE, pid=2)], None),
        ([UNREADABLE], None),
        # `python -m`, and a process that a server of forks has made
        ([stacks(WAIT, MODULE, Frame("_run_module_as_main", "<frozen runpy>", 198))], None),
        (
            [stacks(SHUTDOWN), stacks(WAIT, Frame("train", "/srv/t.py", 1), FORKS, MODULE, pid=2)],
            None,
        ),
        ([stacks(SHUTDOWN), stacks(SELECT, FORKS, MODULE, pid=2)], EndKind.LEFT),
        ([stacks(WAIT, Frame("run", "/venv/gevent/hub.py", 1))], None),
        ([stacks(*[WAIT] * MAX_FRAMES)], None),
        ([], None),
    ],
)
def test_a_script_is_over_once_no_python_of_it_is_left_in_it(
    shown: list[Stacks], kind: EndKind | None
) -> None:
    assert end_of(*shown) == (None if kind is None else ScriptEnd(kind, "it waits"))


@pytest.mark.parametrize("shown", [stacks(SHUTDOWN), NOT_PYTHON])
def test_a_process_that_runs_may_make_the_next_step(shown: Stacks) -> None:
    assert end_of(shown, activity=Activity.MOVING) is None


SCRIPTS = {
    "thread": "import threading\nthreading.Thread(target=threading.Event().wait).start()\n",
    "atexit": "import atexit, queue\natexit.register(lambda: queue.Queue().get())\n",
    "crash": "import threading, time\n"
    "def beat():\n    while True: time.sleep(0.2)\n"
    "threading.Thread(target=beat).start()\nraise RuntimeError\n",
    "module": "import threading\ndef train(): threading.Event().wait()\ntrain()\n",
    "alive": "import threading\ndef train(): threading.Event().wait()\ntrain()\n",
}


@pytest.mark.skipif(find_py_spy() is None, reason="needs py-spy")
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *(("thread", EndKind.LEFT), ("atexit", EndKind.LEFT)),
        *(("crash", EndKind.LEFT_TO_THREAD), ("alive", None), ("module", None)),
    ],
)
def test_the_end_of_a_real_script(tmp_path: Path, name: str, kind: EndKind | None) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPTS[name])
    arguments = ["-m", "train"] if name == "module" else [str(script)]
    process = subprocess.Popen(
        [sys.executable, *arguments], stderr=subprocess.DEVNULL, cwd=tmp_path
    )
    one = member(process.pid, identity=Identity(process.pid, 1))
    found: ScriptEnd | None = None
    try:
        for _ in range(40):  # until it has begun to wait
            shown = read_stacks(process.pid, 1)
            finding = Finding(one, Activity.LOCK, stacks=shown)
            found = script_end(Diagnosis(Movement.UNKNOWN, (finding,)))
            main = shown.threads[0].frames if shown.threads else ()
            waits = any(frame.function.endswith("wait") for frame in main)
            if found is not None or (kind is None and waits):
                break
            time.sleep(0.25)
    finally:
        process.kill()
        process.wait()
    assert (None if found is None else found.kind) is kind
