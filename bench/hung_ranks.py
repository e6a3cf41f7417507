"""What the ranks of bench/hangs.py do: steps, and then the fault or the silence of their kind."""

from __future__ import annotations

import fcntl
import itertools
import multiprocessing
import os
import queue
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

HANGS = {
    "sleep": "a rank sleeps",
    "http": "a rank waits for a server that accepts and never answers",
    "stopped": "a rank waits for an inference server that is stopped",
    "update": "rank 0 waits in a weight update, the others in a barrier",
    "lock": "a rank waits for a file lock that another process holds",
    "pipe": "a rank reads a pipe that nobody writes",
    "queue": "a rank puts into a full queue",
    "loader": "a rank waits for a data loader that reads a pipe",
    "torch loader": "a rank waits for a DataLoader of PyTorch, whose worker reads a pipe",
    "collective": "a rank of three or more is in another collective than the rest",
    "plain lock": "a rank waits for a lock of its own, in C code",
    "child": "a rank waits for a child process that reads a pipe",
}
HEALTHY = {
    "evaluation": "rank 0 evaluates, the others wait in a barrier",
    "served": "rank 0 waits for a server that works, the others in a barrier",
    "compile": "rank 0 waits for a compiler, the others in a barrier",
    "save": "rank 0 writes a checkpoint, the others wait in a barrier",
    "slow disk": "rank 0 writes little by little",
    "reload": "rank 0 looks every 8 s whether its data is there",
    "first step": "all ranks compute",
    "prefetch": "rank 0 waits for a thread of its own that looks every 8 s for data",
    "trickle": "rank 0 reads a few bytes every 4 s from a child process that is mostly idle",
    "feeder": "rank 0 waits for a data loader whose process looks every 8 s for data",
    "pool": "rank 0 evaluates in a pool of processes that sleep for 8 s at a time",
    "event": "rank 0 waits 8 s at a time for an event, and looks for data in between",
    "async wait": "rank 0 waits in C code for a barrier, rank 1 evaluates",
    "night": "rank 0 sleeps for 40 minutes",
    "program": "rank 0 evaluates in a pool whose programs ask a server outside of the run",
    "local server": "rank 0 waits for a program that asks a local socket outside of the run",
    "datagram": "rank 0 waits for a thread that waits for a datagram",
    "events": "rank 0 waits for a thread that waits for a server in select",
    "lock beside": "rank 0 waits for a thread that waits for a file lock of a healthy program",
    "gate": "rank 0 waits until somebody opens a FIFO",
}
FAR_END = {
    "http": "127.0.0.1:",
    "stopped": "127.0.0.1:",
    "update": "127.0.0.1:",
    "lock": "which holds the file lock",
    "loader": "waits for a pipe",
    "torch loader": "waits for a pipe",
    "plain lock": "waits for a lock or another thread in _lock_twice",
    "child": "waits for a pipe",
}
"""What the chain must contain."""
STEPS = 8
FOR_EVER = 10**6
ROWS_TO_LOAD = 9
"""Then each worker of a DataLoader has sent some."""


def rank(kind: str, number: int, count: int, odd: int, folder: str) -> None:
    """A rank; `odd` is the one with the fault. Never returns by its own will."""
    torch.set_num_threads(1)
    at = Path(folder)
    store = f"file://{folder}/store"
    dist.init_process_group("gloo", init_method=store, rank=number, world_size=count)
    tensor = torch.ones(8)
    odd = 0 if kind in HEALTHY else odd
    for _ in range(STEPS):
        dist.all_reduce(tensor)
        time.sleep(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # when a trial ends, each rank loses its peers
    if number == odd:
        (at / "struck").touch()
        _ODD[kind](at)
    elif kind == "first step" or (kind == "async wait" and number == 1):
        _compute(at)
    if kind == "update" or kind in HEALTHY:
        dist.barrier()
    while True:
        dist.all_reduce(tensor)


def start_helper(context: ForkServerContext, kind: str, folder: Path) -> tuple[BaseProcess, ...]:
    """Starts the process beside the ranks that a kind needs."""
    target = {"http": _deaf, "update": _deaf, "stopped": _deaf, "served": _busy, "lock": _hold}
    target |= dict.fromkeys(_OUTSIDE, _beside)
    if kind not in target:
        return ()
    process = context.Process(target=target[kind], args=(str(folder),))
    process.start()
    ready = folder / "ready"
    while not ready.exists():
        time.sleep(0.05)
    if kind == "stopped":
        os.kill(process.pid or 0, signal.SIGSTOP)
    return (process,)


def end(pid: int) -> None:
    """Ends a child of a rank, which may have ended."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _deaf(folder: str) -> None:
    server = socket.create_server(("127.0.0.1", 0))
    _ready(folder, str(server.getsockname()[1]))
    while True:
        time.sleep(FOR_EVER)


def _busy(folder: str) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            _compute(Path(folder))

    server = HTTPServer(("127.0.0.1", 0), Handler)
    _ready(folder, str(server.server_port))
    server.serve_forever()


def _beside(folder: str) -> None:
    """A healthy program that will answer, at last, whatever it is asked."""
    server, local = socket.create_server(("127.0.0.1", 0)), socket.socket(socket.AF_UNIX)
    local.bind(f"{folder}/local")
    local.listen()
    with (Path(folder) / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        _ready(folder, str(server.getsockname()[1]))
        taken = []
        while True:
            taken += [one.accept() for one in select.select([server, local], [], [], 8)[0]]


def _hold(folder: str) -> None:
    with (Path(folder) / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        _ready(folder, "")
        time.sleep(FOR_EVER)


def _ready(folder: str, text: str) -> None:
    part = Path(folder) / "part"
    part.write_text(text)
    part.rename(Path(folder) / "ready")


def _ask(folder: Path) -> None:
    port = (folder / "ready").read_text()
    urllib.request.urlopen(f"http://127.0.0.1:{port}/").read()


def update_weights(folder: Path) -> None:
    _ask(folder)


def _lock(folder: Path) -> None:
    with (folder / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)


def _read_pipe() -> None:
    reader, _writer = os.pipe()
    os.read(reader, 1)


def _pipe(_: Path) -> None:
    _read_pipe()


def _fill(_: Path) -> None:
    full: queue.Queue[int] = queue.Queue(1)
    while True:
        full.put(1)


def _load(_: Path) -> None:
    context = multiprocessing.get_context("fork")
    results: multiprocessing.Queue[int] = context.Queue()
    context.Process(target=_read_pipe, daemon=True).start()
    results.get()


class _Rows:
    """A data set of PyTorch that waits for ever at one row."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __len__(self) -> int:
        return FOR_EVER

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == ROWS_TO_LOAD:
            _read_pipe()
        return torch.ones(8)


def _load_with_torch(folder: Path) -> None:
    for _ in DataLoader(_Rows(folder), num_workers=2, multiprocessing_context="fork"):
        pass


def _other_collective(_: Path) -> None:
    dist.barrier()


def _compute(_: Path) -> None:
    os.nice(19)  # so that trials beside this one keep their pace
    tensor = torch.ones(64, 64)
    for at in itertools.count():
        tensor = tensor @ tensor
        if at % 2:
            tensor = _scaled(tensor)


def _scaled(tensor: torch.Tensor) -> torch.Tensor:
    return tensor / tensor.norm()


def _compile(_: Path) -> None:
    subprocess.run(["nice", "-n", "19", sys.executable, "-c", "while True: pass"], check=False)


def _save(folder: Path) -> None:
    with (folder / "checkpoint").open("wb") as file:
        for _ in range(FOR_EVER):
            file.write(bytes(4 << 20))
            file.flush()
            os.fsync(file.fileno())
            file.seek(0)
            time.sleep(0.5)


def _slow_save(folder: Path) -> None:
    with (folder / "checkpoint").open("wb") as file:
        for _ in range(FOR_EVER):
            file.write(bytes(2 << 20))
            file.flush()
            file.seek(0)
            time.sleep(3)


def _reload(folder: Path) -> None:
    while not (folder / "data").exists():
        time.sleep(8)


def _prefetch(folder: Path) -> None:
    items: queue.SimpleQueue[int] = queue.SimpleQueue()
    threading.Thread(target=_reload, args=(folder,), daemon=True).start()
    items.get()


def _feeder(folder: Path) -> None:
    context = multiprocessing.get_context("fork")
    results: multiprocessing.Queue[int] = context.Queue()
    context.Process(target=_reload, args=(folder,), daemon=True).start()
    results.get()


def _pool(_: Path) -> None:
    with ProcessPoolExecutor(2, multiprocessing.get_context("fork")) as pool:
        list(pool.map(time.sleep, itertools.repeat(8, 10**4)))


def _event(folder: Path) -> None:
    ready = threading.Event()
    while not (folder / "data").exists():
        ready.wait(8)


def _trickle(_: Path) -> None:
    program = "import time\nwhile True: print(1, flush=True); time.sleep(4)"
    child = subprocess.Popen([sys.executable, "-S", "-c", program], stdout=subprocess.PIPE)
    while child.stdout is not None:
        child.stdout.readline()


def _async_wait(_: Path) -> None:
    work = dist.barrier(async_op=True)
    if work is not None:
        work.wait()


def _lock_twice(_: Path) -> None:
    lock = threading.Lock()
    with lock, lock:
        pass


def _child(_: Path) -> None:
    reader, _writer = os.pipe()
    subprocess.run(["cat"], stdin=reader, check=False)


def _ask_by_program(port: str) -> None:
    asks = f"exec 3<>/dev/tcp/127.0.0.1/{port}; read line <&3"
    subprocess.run(["bash", "-c", asks], check=False)


def _program(folder: Path) -> None:
    with multiprocessing.get_context("fork").Pool(2) as pool:
        pool.map(_ask_by_program, [(folder / "ready").read_text()] * 2)


def _local_server(folder: Path) -> None:
    asks = f"import socket as s; c = s.socket(s.AF_UNIX); c.connect({str(folder / 'local')!r})"
    subprocess.run([sys.executable, "-S", "-c", f"{asks}; c.recv(1)"], check=False)


def _wait_for_thread(wait: Callable[[], object]) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(wait).result()


def _datagram(_: Path) -> None:
    receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    receiver.bind(("127.0.0.1", 0))
    _wait_for_thread(lambda: receiver.recv(1))


def _events(folder: Path) -> None:
    client = socket.create_connection(("127.0.0.1", int((folder / "ready").read_text())))
    _wait_for_thread(lambda: select.select([client], [], []))


def _gate(folder: Path) -> None:
    os.mkfifo(folder / "gate")
    (folder / "gate").read_text()


_OUTSIDE = ("program", "local server", "events", "lock beside")

_ODD = {
    "night": lambda _: time.sleep(2400),
    "program": _program,
    "local server": _local_server,
    "datagram": _datagram,
    "events": _events,
    "lock beside": lambda folder: _wait_for_thread(lambda: _lock(folder)),
    "gate": _gate,
    "sleep": lambda _: time.sleep(FOR_EVER),
    "http": _ask,
    "stopped": _ask,
    "update": update_weights,
    "lock": _lock,
    "pipe": _pipe,
    "queue": _fill,
    "loader": _load,
    "torch loader": _load_with_torch,
    "collective": _other_collective,
    "evaluation": _compute,
    "served": _ask,
    "compile": _compile,
    "save": _save,
    "slow disk": _slow_save,
    "reload": _reload,
    "first step": _compute,
    "plain lock": _lock_twice,
    "child": _child,
    "prefetch": _prefetch,
    "trickle": _trickle,
    "event": _event,
    "feeder": _feeder,
    "pool": _pool,
    "async wait": _async_wait,
}
