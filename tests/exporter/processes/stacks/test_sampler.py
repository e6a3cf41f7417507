"""Real processes that wait, looked at by the sampler; and when it reads stacks."""

from __future__ import annotations

import os
import pickle
import textwrap
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from tests.waiting import until

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.processes.procfs import read_process
from trainwarden_exporter.processes.stacks.activity import SAMPLES
from trainwarden_exporter.processes.stacks.kernel_state import read_kernel_state
from trainwarden_exporter.processes.stacks.model import (
    Activity,
    Diagnosis,
    Frame,
    Member,
    Stacks,
    ThreadStack,
)
from trainwarden_exporter.processes.stacks.py_spy import read_stacks
from trainwarden_exporter.processes.stacks.sampler import MAX_ROUND_SECONDS, RunSampler

if TYPE_CHECKING:
    import subprocess

    from tests.exporter.conftest import Start

KEY = WorkerKey("night", "trainer")
WAITS = "import queue\nprint(flush=True)\nq = queue.Queue()\nq.get()"


def ray_train_worker(folder: Path) -> str:
    """A program whose training thread waits for a queue, while its main thread looks for tasks."""
    runner, worker = (
        folder / "site-packages/ray" / file
        for file in ("train/v2/_internal/run.py", "_private/worker.py")
    )
    for file in (runner, worker):
        file.parent.mkdir(parents=True)
    (folder / "loop.py").write_text("import queue\ndef loop():\n    queue.Queue().get()\n")
    runner.write_text("def run(target):\n    target()\n")
    program = f"""
        import runpy, select, sys, threading
        sys.path.insert(0, {str(folder)!r})
        run, loop = (runpy.run_path(one) for one in ({str(runner)!r}, {str(folder / "loop.py")!r}))
        threading.Thread(
            target=run["run"], args=[loop["loop"]], name="TrainingThread(loop)", daemon=True
        ).start()
        print(flush=True)
        while True:
            select.epoll().poll(0.01)
    """
    worker.write_text(textwrap.dedent(program))
    return f"import os, sys; os.execv(sys.executable, [sys.executable, '-S', {str(worker)!r}])"


def member(process: subprocess.Popen[str], *, waits: bool = True) -> Member:
    """The process as a trainer, once it waits."""
    found = read_process(process.pid)
    assert found is not None
    if waits:
        until(lambda: (state := read_kernel_state(found.identity)) and state.wait_channel)
    return Member(KEY, "trainer", found.identity, found.parent_pid, is_trainer=True)


class Clock:
    """Time that goes on when the test moves it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def looks(sampler: RunSampler, clock: Clock, *members: Member, times: int = SAMPLES) -> Diagnosis:
    """The result of looks five seconds apart, of processes that wait for longer than the test."""
    for _ in range(times):
        diagnosis = sampler.look(1.0, members)
        clock.now += 5
    return diagnosis


def activity(diagnosis: Diagnosis) -> Activity:
    return diagnosis.findings[0].activity


class TestRealWaits:
    def seen(self, *processes: subprocess.Popen[str]) -> Diagnosis:
        clock = Clock()
        return looks(RunSampler(clock=clock), clock, *map(member, processes))

    def test_a_queue(self, start: Start) -> None:
        found = self.seen(start(WAITS))

        assert activity(found) is Activity.QUEUE
        assert found.movement == "stuck"

    def test_a_training_thread_of_ray_whose_main_thread_looks_around(
        self, start: Start, tmp_path: Path
    ) -> None:
        """The kernel shows the wait of the training thread, not that of the main thread."""
        found = self.seen(start(ray_train_worker(tmp_path)))

        assert activity(found) is Activity.QUEUE
        assert found.movement == "stuck"
        kernel = found.findings[0].kernel
        assert kernel is not None
        assert kernel.is_endless

    def test_a_fifo(self, start: Start, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "fifo")
        program = f"print(flush=True); open({str(tmp_path / 'fifo')!r}).read()"

        assert activity(self.seen(start(program))) is Activity.PIPE

    def test_a_file_lock_and_its_holder(self, start: Start, tmp_path: Path) -> None:
        path = str(tmp_path / "lock")
        locks = f"import fcntl, time; f = open({path!r}, 'w'); "
        holder = start(f"{locks}fcntl.flock(f, 2); print(flush=True); time.sleep(1000)")
        found = self.seen(start(f"{locks}print(flush=True); fcntl.flock(f, 2)"))

        (end,) = found.findings[0].far_ends
        assert activity(found) is Activity.LOCK
        assert end.identity is not None
        assert end.identity.pid == holder.pid

    def test_a_server_of_this_host_that_does_not_answer(self, start: Start) -> None:
        server = start(
            "import socket, time; s = socket.create_server(('127.0.0.1', 0))\n"
            "print(s.getsockname()[1], flush=True); time.sleep(1000)"
        )
        port = _listening_port(server.pid)
        found = self.seen(
            start(
                "import urllib.request; print(flush=True)\n"
                f"urllib.request.urlopen('http://127.0.0.1:{port}/').read()"
            )
        )

        (end,) = found.findings[0].far_ends
        assert activity(found) is Activity.SERVER
        assert end.text == f"127.0.0.1:{port}"
        assert end.identity is not None
        assert end.identity.pid == server.pid

    def test_a_server_whose_child_computes_is_no_hang(self, start: Start) -> None:
        server = start(
            "import os, socket, time\n"
            "s = socket.create_server(('127.0.0.1', 0))\n"
            "own = os.getpid()\n"
            "if os.fork() == 0:\n"
            "    while os.getppid() == own: sum(range(1000))\n"
            "    os._exit(0)\n"
            "print(flush=True); time.sleep(1000)"
        )
        port = _listening_port(server.pid)
        client = start(
            "import urllib.request; print(flush=True)\n"
            f"urllib.request.urlopen('http://127.0.0.1:{port}/').read()"
        )
        clock = Clock()
        found = looks(RunSampler(clock=clock), clock, member(client), times=15)

        assert activity(found) is Activity.SERVER
        assert found.movement == "unknown"

    def test_a_sleep_ends_or_lasts_for_weeks(self, start: Start) -> None:
        short = self.seen(start("import time; print(flush=True); time.sleep(86400)"))
        assert (activity(short), short.movement) == (Activity.SLEEP, "unknown")
        long = self.seen(start("import time; print(flush=True); time.sleep(10**6)"))
        assert (activity(long), long.movement) == (Activity.SLEEP, "stuck")

    def test_a_program_that_computes(self, start: Start) -> None:
        process = start("print(flush=True)\nwhile True: sum(range(100))")
        sampler, one = RunSampler(), member(process, waits=False)

        until(lambda: sampler.look(1.0, [one]).movement == "moving")

    def test_a_process_that_ends_between_two_looks(self, start: Start) -> None:
        process = start(WAITS)
        clock, one = Clock(), member(process)
        sampler = RunSampler(clock=clock)
        looks(sampler, clock, one, times=2)
        process.kill()
        process.wait()

        assert looks(sampler, clock, one, times=1).findings == ()

    def test_without_permission_no_run_is_stuck(self, start: Start) -> None:
        clock = Clock()
        denied = Stacks(problem="not permitted to read its memory")
        sampler = RunSampler(read_stacks=lambda _pid, _threads: denied, clock=clock)

        found = looks(sampler, clock, member(start(WAITS)), times=40)

        assert (found.movement, activity(found)) == ("unknown", Activity.UNKNOWN)


def _listening_port(pid: int) -> int:
    from trainwarden_exporter.processes.listening_ports import read_listeners  # noqa: PLC0415

    return read_listeners([pid])[pid][0].port


class TestRounds:
    """By the real reader, of a process that waits, in a time of the test's own."""

    def count(self) -> tuple[Callable[[int, int], Stacks], list[float], Clock]:
        clock, times = Clock(), list[float]()

        def read(pid: int, threads: int) -> Stacks:
            times.append(clock.now - 1000.0)
            return read_stacks(pid, threads)

        return read, times, clock

    def test_a_round_has_three_samples_and_the_next_begins_a_minute_later(
        self, start: Start
    ) -> None:
        read, times, clock = self.count()
        looks(RunSampler(read_stacks=read, clock=clock), clock, member(start(WAITS)), times=15)

        assert times == [0, 5, 10, 60, 65, 70]

    def test_a_new_silence_does_not_shorten_the_minute(self, start: Start) -> None:
        read, times, clock = self.count()
        sampler, one = RunSampler(read_stacks=read, clock=clock), member(start(WAITS))
        for silence in range(13):
            sampler.look(float(silence), [one])
            clock.now += 5

        assert times == [0, 60]

    def test_rounds_become_rare_while_the_run_moves(self, start: Start) -> None:
        _, times, clock = self.count()

        def read(pid: int, threads: int) -> Stacks:
            times.append(clock.now - 1000.0)
            real = read_stacks(pid, threads).threads[0]
            frame = real.frames[0]._replace(line=len(times))
            return Stacks((type(real)(real.name, real.tid, (frame, *real.frames[1:])),))

        looks(RunSampler(read_stacks=read, clock=clock), clock, member(start(WAITS)), times=400)

        begins = times[::3]
        pauses = [after - before for before, after in pairwise(begins)]
        assert pauses == [120, 240, 480, MAX_ROUND_SECONDS, MAX_ROUND_SECONDS]

    def test_only_a_second_round_in_the_same_stacks_confirms(self, start: Start) -> None:
        read, times, clock = self.count()
        sampler, one = RunSampler(read_stacks=read, clock=clock), member(start(WAITS))

        first = [sampler_look(sampler, clock, one) for _ in range(14)]
        second = sampler_look(sampler, clock, one)

        assert len(times) == 6
        assert [found.movement for found in first[2:]] == ["stuck"] * 12
        assert not any(found.confirmed for found in first)
        assert second.confirmed

    def test_a_flight_recorder_is_asked_after_each_round_in_other_stacks(
        self, start: Start, tmp_path: Path
    ) -> None:
        pipe = tmp_path / "pipe_0.pipe"
        os.mkfifo(pipe)
        line = 1

        def read(pid: int, _: int) -> Stacks:
            return Stacks((ThreadStack("MainThread", pid, (Frame("f", "train.py", line),)),))

        clock = Clock()
        sampler, waits = RunSampler(clock=clock, read_stacks=read), member(start(WAITS))
        waits = replace(waits, rank=0, recorder_pipe=f"{tmp_path}/pipe_")
        reader, asked = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK), []
        for at in range(48):  # four minutes
            line = 1 if at < 24 else 2
            sampler.look(1.0, [waits])
            if os.read(reader, 10):
                asked.append(at)
            clock.now += 5
        os.close(reader)
        assert asked == [2, 26]

    def test_a_dump_counts_while_its_ranks_stand_where_they_stood(
        self, start: Start, tmp_path: Path
    ) -> None:
        line = 1

        def read(pid: int, _: int) -> Stacks:
            return Stacks((ThreadStack("MainThread", pid, (Frame("f", "train.py", line),)),))

        clock = Clock()
        sampler = RunSampler(clock=clock, read_stacks=read)
        ranks = [
            replace(
                member(start(WAITS)), rank=at, world=2, local_world=2, recorder=f"{tmp_path}/r_"
            )
            for at in range(2)
        ]
        looks(sampler, clock, *ranks)
        for at in range(2):
            entry = {
                "process_group": ("0", "default_pg"),
                "collective_seq_id": 8 - at,
                "profiling_name": "nccl:all_reduce",
                "state": "completed" if at else "started",
                "is_p2p": False,
            }
            (tmp_path / f"r_{at}").write_bytes(pickle.dumps({"entries": [entry]}))
            os.utime(tmp_path / f"r_{at}", (time.time() + 1,) * 2)
        clock.now += 45
        found = looks(sampler, clock, *ranks)
        assert [one.rank for one in found.suspects] == [1]
        assert "has not entered all_reduce 8" in found.chain
        line = 2
        clock.now += 45
        assert "all_reduce" not in looks(sampler, clock, *ranks).chain

    def test_a_process_replaced_in_between_is_not_confirmed(self, start: Start) -> None:
        read, _, clock = self.count()
        sampler = RunSampler(read_stacks=read, clock=clock)
        looks(sampler, clock, member(start(WAITS)), times=12)

        found = looks(sampler, clock, member(start(WAITS)))

        assert found.movement == "stuck"
        assert not found.confirmed


def sampler_look(sampler: RunSampler, clock: Clock, one: Member) -> Diagnosis:
    return looks(sampler, clock, one, times=1)
