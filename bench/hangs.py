"""Real processes that hang, or only look so, judged by the exporter's own sampler.

export PATH=$PWD/.venv/bin:$PATH PYTHONPATH=.venv-real/lib/python3.11/site-packages
python bench/hangs.py FILE --minutes 20
python bench/hangs.py FILE... --page    # writes docs/hangs.md from the trials in all files

The second path is that of PyTorch (`make test-real` installs it). The ranks are processes of gloo
on the CPU, with a step a second; a trial ends when the sampler has confirmed its verdict, or after
LONGEST seconds.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import multiprocessing
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path

import hung_ranks
from trainwarden_exporter.processes.ancestry import descendants
from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.processes.procfs import read_processes
from trainwarden_exporter.processes.stacks.model import Diagnosis, Member
from trainwarden_exporter.processes.stacks.sampler import LOOK_SECONDS, RunSampler

PAGE = Path(__file__).resolve().parents[1] / "docs" / "hangs.md"
SUSPICION = 24.0
"""Seconds of silence from which the exporter is suspicious where steps are seconds."""

LONGEST = 150.0
KEY = WorkerKey("hangs", "trainer")
RANKS = {2: 30, 3: 30, 4: 30, 8: 7, 16: 3}
"""Numbers of ranks, and of each 100 trials how many have them."""


@dataclass(frozen=True)
class Outcome:
    kind: str
    ranks: int
    stuck: float | None
    """Seconds from the suspicion to the verdict; None if it never came."""
    confirmed: float | None
    named: bool
    chain: str


def members(ranks: Sequence[BaseProcess]) -> tuple[Member, ...]:
    """The ranks and their children, as the exporter would find them."""
    table = read_processes()
    found = []
    for rank, process in enumerate(ranks):
        pid = process.pid or 0
        below = descendants(table, [pid])
        for one in (pid, *sorted(below)):
            entry = table.get(one)
            if entry is None or not entry.alive:
                continue
            is_rank = one == pid
            found.append(
                Member(
                    KEY, "trainer", entry.identity, entry.parent_pid, entry.threads,
                    rank=rank if is_rank else None, world=len(ranks), local_world=len(ranks),
                    is_trainer=is_rank,
                )
            )  # fmt: skip
    return tuple(found)


@contextmanager
def running(kind: str, count: int, odd: int, folder: Path) -> Iterator[list[BaseProcess]]:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([Path(__file__).stem])
    helper = hung_ranks.start_helper(context, kind, folder)
    ranks: list[BaseProcess] = [
        context.Process(target=hung_ranks.rank, args=(kind, rank, count, odd, str(folder)))
        for rank in range(count)
    ]
    try:
        for process in ranks:
            process.start()
        yield ranks
    finally:
        started = [one for one in (*ranks, *helper) if one.pid is not None]
        below = descendants(read_processes(), [one.pid for one in started if one.pid is not None])
        for process in started:
            process.kill()
        for pid in below:
            hung_ranks.end(pid)
        for process in started:
            process.join()


def trial(kind: str, seed: int) -> Outcome:
    """One trial; raises TimeoutError if its ranks never begin."""
    rng = random.Random(seed)  # noqa: S311 - no secret
    (count,) = rng.choices(tuple(RANKS), tuple(RANKS.values()))
    if kind == "collective":
        count = max(3, count)  # of two, either may be the wrong one
    odd = 0 if kind == "update" else rng.randrange(count)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with running(kind, count, odd, folder) as ranks:
            _wait((folder / "struck").exists, 300)
            struck = (folder / "struck").stat().st_mtime
            time.sleep(max(0.0, struck + SUSPICION + rng.uniform(0, LOOK_SECONDS) - time.time()))
            return _judge(kind, ranks, odd, struck + SUSPICION)


def _judge(kind: str, ranks: Sequence[BaseProcess], odd: int, suspicion: float) -> Outcome:
    sampler, stuck, confirmed = RunSampler(), None, None
    diagnosis: Diagnosis | None = None
    while time.time() < suspicion + LONGEST - SUSPICION and confirmed is None:
        began = time.time()
        diagnosis = sampler.look(suspicion, members(ranks))
        if diagnosis.movement == "stuck":
            stuck = stuck or time.time() - suspicion
            confirmed = time.time() - suspicion if diagnosis.confirmed else None
        time.sleep(max(0.0, began + LOOK_SECONDS - time.time()))
    chain = "" if diagnosis is None else diagnosis.chain
    return Outcome(kind, len(ranks), stuck, confirmed, _is_named(kind, odd, diagnosis), chain)


def _is_named(kind: str, odd: int, diagnosis: Diagnosis | None) -> bool:
    """Whether the guilty rank, or what it waits for, is what the sampler names."""
    if diagnosis is None or not diagnosis.suspects:
        return False
    (suspect, *more) = diagnosis.suspects
    named = suspect.rank == odd or (
        suspect.finding is not None and suspect.rank is None and f"rank {odd} " in diagnosis.chain
    )
    ends = hung_ranks.FAR_END.get(kind, "")
    return named and not more and ends in diagnosis.chain


def _wait(true: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(0.1)


def bounds(hits: int, of: int) -> tuple[float, float]:
    """The exact 95 % interval of a share (Clopper and Pearson, 1934)."""

    def tail(share: float, least: int) -> float:
        return sum(
            math.comb(of, k) * share**k * (1 - share) ** (of - k) for k in range(least, of + 1)
        )

    def solve(least: int, probability: float) -> float:
        low, high = 0.0, 1.0
        for _ in range(50):
            middle = (low + high) / 2
            low, high = (middle, high) if tail(middle, least) < probability else (low, middle)
        return low

    lower = 0.0 if hits == 0 else solve(hits, 0.025)
    return lower, 1.0 if hits == of else solve(hits + 1, 0.975)


def _share(hits: int, of: int) -> str:
    low, high = bounds(hits, of)
    return f"{hits} of {of} ({100 * low:.1f}–{100 * high:.1f} %)"  # noqa: RUF001 - a range


def _most(times: Sequence[float]) -> float:
    """The time within which 95 % of `times`, ascending, lie."""
    return times[math.ceil(0.95 * len(times)) - 1]


def page(outcomes: Sequence[Outcome]) -> str:
    """The page, of trials that have ended."""
    hangs = [one for one in outcomes if one.kind in hung_ranks.HANGS]
    healthy = [one for one in outcomes if one.kind in hung_ranks.HEALTHY]
    lines = [TEXT + "| hang | trials | stuck | guilty process named | median s | most s |"]
    lines.append("|---|--:|--:|--:|--:|--:|")
    for kind, text in (*hung_ranks.HANGS.items(), ("", "**all**")):
        rows = [one for one in hangs if kind in ("", one.kind)]
        times = [one.stuck for one in rows if one.stuck is not None]
        if rows:
            lines.append(
                f"| {text} | {len(rows)} | {_share(len(times), len(rows))} |"
                f" {_share(sum(one.named for one in rows), len(rows))} |"
                + (f" {statistics.median(times):.0f} | {max(times):.0f} |" if times else " – | – |")  # noqa: RUF001
            )
    times = sorted(one.stuck for one in hangs if one.stuck is not None)
    confirmed = sorted(one.confirmed for one in hangs if one.confirmed is not None)
    if times and confirmed:
        first, second = _most(times), _most(confirmed)
        lines += [
            "",
            f"95 % of the verdicts came within {first:.0f} s of the suspicion, which begins",
            f"{SUSPICION:.0f} s after the last step: {first + SUSPICION:.0f} s from the fault.",
            f"The second round confirmed {_share(len(confirmed), len(hangs))},",
            f"95 % of them within {second + SUSPICION:.0f} s of the fault.",
        ]
    lines += ["", "| healthy silence | trials | found stuck | would be restarted |"]
    lines.append("|---|--:|--:|--:|")
    for kind, text in (*hung_ranks.HEALTHY.items(), ("", "**all**")):
        rows = [one for one in healthy if kind in ("", one.kind)]
        if rows:
            stuck = sum(one.stuck is not None for one in rows)
            restarted = sum(one.confirmed is not None for one in rows)
            lines.append(
                f"| {text} | {len(rows)} | {_share(stuck, len(rows))} |"
                f" {_share(restarted, len(rows))} |"
            )
    return "\n".join(lines) + "\n"


TEXT = """# Hangs

Written by `bench/hangs.py`: ranks of PyTorch's gloo on the CPU, 2 to 16 of them, that make a step a
second, until one waits for ever, or all do something that takes long. The exporter's own sampler
looks at them as it does in a silence of a run: from two fifths of the stall limit on (24 s), every
5 s, with rounds of three stacks a minute apart. In parentheses the 95 % interval of the share.

*Stuck* is the verdict after the first round; a restart needs a second round with the same stacks.
*Named* means that the guilty rank, and what it waits for, are the only ones that
`trainwarden_stack_suspect` and the chain name.

All trials in the tables are of one version, on a host of two cores with PyTorch 2.13, 12 at a time,
beside other work that kept the load at 9 to 25. Not measured: several hosts, several ranks of NCCL.
A rank that dies is no hang of gloo: the others fail at once.

Earlier versions had some 2,000 trials; of 525 hangs of one of them 523 were found stuck, and of 206
silences none. Yet real programs showed fourteen kinds of healthy waits that were taken for hangs;
seven of these are among the silences now. The programs themselves were run again under a whole
stack in the mode act, 26 of them with pauses of 330 s or more: none was restarted, while two hangs
beside them were. With 44 trials at a time on two cores some stacks are not read in time, and
a hang stays unproved.

A mount that hangs is never *stuck*, by design: a restart does not help. `tests/hostile/
test_hung_mount.py` has a real FUSE file system that never answers: a rank that opens, looks at or
lists a file of it, also in a thread, is found, and the chain names the file; an exporter whose
disk, logs and checkpoints are on it reports everything else.

A process whose Python was replaced on the disk after its start, as by an upgrade, has no stack:
py-spy looks up in that file where the stacks begin. It is *unknown* with that reason, and a silence
of its run is never *stuck*: a restart waits for the stall limit, as without stacks. A wait in an
event loop (asyncio, poll, ZMQ) without a connection, and an idle Ray worker, have a word in the
chain and prove nothing: a message of any process may end them.

Only a wait that nothing but the run itself can end proves a hang. So a far end outside the run
proves nothing while it may still act: a process beside the run that has the other end of a pipe, as
a feed that the run reads on its standard input, or of a local socket; a server, the other end of a
connection of multiprocessing, or the holder of a file lock, unless each thread of it and of the
processes below it is stopped, or sleeps for a week; a lock whose holder is not known, as of a
library that tries it again and again; a pipe that has a name, which any program may open.

Nor does another thread of Python that may wake the main thread: it waits with a timeout or for a
program, or for a file that is not only of the run. Of poll, select and epoll all files count: a
pipe or a connection within the run may be proved, while a datagram, a connection to a process
outside, inotify or a timer is not. Excepted are threads of a library that only reports (tqdm,
Weights & Biases, TensorBoard), unless they wait for an answer over HTTP, or that pass on what the
workers of a data loader load. A thread of C code counts while it sleeps or waits at a connection to
a process outside. A program below the trainer that is no Python counts as the kernel shows each of
its threads. Before Python 3.11, where py-spy does not know which thread of the kernel has which
stack, any other thread proves nothing.

A process that handles SIGALRM, SIGVTALRM or SIGPROF, or has a timer of timer_create, proves
nothing: its alarm may end any wait, and the kernel does not show whether it is set. So it is of a
grader that limits its time by `signal.alarm` in the process of the trainer. Nor does a wait for a
semaphore that has a name, which any program may post, or a wait of C code while a thread without
Python sleeps.

A process that handles or blocks SIGUSR1, SIGUSR2, SIGIO or a real-time signal proves nothing while
it waits for a queue, a lock or a pipe, or sleeps: a handler, or a thread in `sigwait`, may give it
what it waits for, and any process may send that signal. Nor does a program that only writes its
stacks or saves at such a signal, for the kernel does not show what a handler does; nor one of
Lightning in a job of Slurm, but in a wait for a `DataLoader`, which only its workers end. Python
itself, torchrun, PyTorch, its data loaders, Ray and faulthandler handle none of these signals, as
was seen with PyTorch 2.13 and Ray 2.60.

Ranks that `torch.multiprocessing.spawn` has started are named as processes, since their environment
has no RANK. If all of them are in collectives, that proves no hang: other hosts may have ranks too.

Of Ray Train, the training thread of each worker makes the steps, and is judged as the main thread
of another trainer is. The driver, which waits for its workers through Ray, does not count. A worker
is *stuck* only in a lock, a queue or a pipe, and only if no other thread of the program may wake
it. What it waits for in a call of Ray (a report, a batch of Ray Data, a task, a future) or at a
server is not known, since each worker has connections to Ray; nor are collectives, since the number
of ranks is not in the environment. Nor is a run stuck whose driver has a connection to another
host. Ray's own processes wake up all the time: they move if they use more than a twentieth of a
core, or files.

Not read: the pages of `torch.distributed.debug`. A program must start them by a call, no variable
does; they listen on all interfaces without a password, at a port per rank that only the store of
the job knows. To try each port of a rank could disturb a listener of NCCL or gloo. What they have,
py-spy and the Flight Recorder's pipe have too.

## A GPU

What `bench/nccl_hang.py` found on an H200, with PyTorch 2.11 and CUDA 13:

- A kernel that never ends, and a rank in `torch.cuda.synchronize` or `Stream.synchronize`: unknown,
  *rank 0 waits for its GPU*. A healthy rank with kernels of ten seconds looks the same, so neither
  is *stuck*: a restart waits for the stall limit, as without stacks.
- The same, and a rank in `.item()`: moving. No frame shows the wait, and CUDA uses a core. Since
  then, of a process with a GPU that uses a core in the same line of three samples, the chain says
  *computes or spins in* that line *and may wait for its GPU*.
- An `all_reduce` of NCCL behind such a kernel: unknown, *rank 0 waits for its GPU*. Its Flight
  Recorder wrote a dump when it was asked. Of several ranks, the dumps name the rank that has not
  entered the newest collective.
- Two ranks of gloo, one behind such a kernel: unknown, *rank 0 waits in all_reduce ← rank 1 waits
  for its GPU*.
- Two ranks of gloo with GPU work, one reads a FIFO: stuck, *rank 0 waits in all_reduce ← rank 1
  waits for a pipe*.
- A data loader with pinned memory, whose worker reads a FIFO: stuck, *rank 0 waits for a queue ←
  process 4957 of trainer waits for a pipe*.
- Out of memory, caught and tried again every second: unknown, *rank 0 sleeps*.
- Healthy products of matrices: moving.

## The cost

None in health: no stack is read. `bench/sampling_pause.py` measures the longest gap that 16 ranks
see in their own loop while their stacks are read, and without that. On a host of two cores with a
load of 36, over 40 rounds each: 8.5 ms (median) and 24 ms (99 %) with, 10.5 ms and 47 ms without;
no rank had a tracer. Reading all 16 takes 0.2 s of CPU, three times in a minute.

## The trials

"""


def kinds(first: int) -> Iterator[tuple[str, int]]:
    """Yields kinds and seeds for ever: five hangs, then two healthy silences."""
    hangs, healthy = itertools.cycle(hung_ranks.HANGS), itertools.cycle(hung_ranks.HEALTHY)
    for seed, of in zip(itertools.count(first), itertools.cycle([hangs] * 5 + [healthy] * 2)):
        yield next(of), seed


def run_trials(file: Path, minutes: float, together: int) -> None:
    """Appends trials to `file`, and starts none after so many minutes."""
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)  # of the process that forks the ranks
    end = time.monotonic() + 60 * minutes
    todo = kinds(time.time_ns() // 10**9)
    pending: set[Future[Outcome]] = set()
    with ThreadPoolExecutor(together) as pool, file.open("a") as output:
        while pending or time.monotonic() < end:
            while len(pending) < together and time.monotonic() < end:
                pending.add(pool.submit(trial, *next(todo)))
            done, pending = wait(pending, return_when=FIRST_COMPLETED)
            for one in done:
                try:
                    print(json.dumps(asdict(one.result())), file=output, flush=True)
                except TimeoutError:
                    print("a trial never began", file=sys.stderr)


def main() -> int:
    """Runs trials, or writes the page; 1 if a healthy silence of it would be restarted."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE", help="trials, one a line")
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--together", type=int, default=8)
    parser.add_argument("--page", action="store_true")
    options = parser.parse_args()
    if not options.page:
        run_trials(options.files[0], options.minutes, options.together)
        return 0
    outcomes = [
        Outcome(**json.loads(line))
        for file in options.files
        for line in file.read_text().splitlines()
    ]
    PAGE.write_text(page(outcomes))
    return int(any(one.confirmed for one in outcomes if one.kind in hung_ranks.HEALTHY))


if __name__ == "__main__":
    sys.exit(main())
