"""Prints what the exporter's sampler says of processes that wait for a GPU, or seem to.

PYTHONPATH=exporter python bench/nccl_hang.py [--kinds kernel,loader] [--seconds 80]

Needs PyTorch with CUDA, one GPU and py-spy on PATH. All kinds run at once. NCCL refuses two ranks
on one GPU ("Duplicate GPU detected"), so the ranks of several processes meet in gloo, and the one
of NCCL is alone in its group; its Flight Recorder is asked for a dump through its pipe. Without
CUDA a function that computes for ever stands for the GPU.
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

from hangs import members
from hung_ranks import end
from trainwarden_exporter.processes.ancestry import descendants
from trainwarden_exporter.processes.procfs import read_processes
from trainwarden_exporter.processes.stacks.model import Diagnosis, Movement
from trainwarden_exporter.processes.stacks.sampler import LOOK_SECONDS, RunSampler
from trainwarden_exporter.processes.stacks.text import render

FOR_EVER = 10**15
"""Clock cycles of a kernel that never ends: days."""

TEN_SECONDS = 17 * 10**9
START_SECONDS = 120.0


def _launch(cycles: int) -> None:
    """Starts a kernel that takes so long."""
    if torch.cuda.is_available():
        torch.cuda._sleep(cycles)  # noqa: SLF001 - PyTorch's own tests use it


def _synchronize(cycles: int = FOR_EVER) -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    else:
        hashlib.pbkdf2_hmac("sha256", b"", b"", min(cycles // 10**4, 2**31 - 1))


def kernel(_: Path, __: int) -> None:
    """A kernel that never ends; the rank waits in torch.cuda.synchronize."""
    _launch(FOR_EVER)
    _synchronize()


def stream(_: Path, __: int) -> None:
    """A kernel that never ends; the rank waits in Stream.synchronize."""
    if not torch.cuda.is_available():
        return _synchronize()
    own = torch.cuda.Stream()
    with torch.cuda.stream(own):
        _launch(FOR_EVER)
    own.synchronize()
    return None


def item(_: Path, __: int) -> None:
    """A kernel that never ends; the rank waits in .item(), which has no frame."""
    if not torch.cuda.is_available():
        return _synchronize()
    loss = torch.ones(1, device="cuda")
    _launch(FOR_EVER)
    loss.item()
    return None


def nccl(folder: Path, _: int) -> None:
    """An all_reduce of NCCL behind a kernel that never ends."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29517"}
    if not (torch.cuda.is_available() and dist.is_nccl_available()):
        return _synchronize()
    store = f"file://{folder}/store"
    dist.init_process_group("nccl", init_method=store, rank=0, world_size=1)
    tensor = torch.ones(8, device="cuda")
    for _step in range(3):
        dist.all_reduce(tensor)
    _launch(FOR_EVER)
    dist.all_reduce(tensor)
    torch.cuda.synchronize()
    return None


def gloo(folder: Path, rank: int) -> None:
    """Rank 1 waits for a kernel that never ends, rank 0 for rank 1 in an all_reduce of gloo."""
    store = f"file://{folder}/store"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
    dist.all_reduce(torch.ones(8))
    if rank == 1:
        kernel(folder, rank)
    dist.all_reduce(torch.ones(8))


def fifo(folder: Path, rank: int) -> None:
    """Rank 1 reads a FIFO that nobody writes, rank 0 has GPU work and waits in gloo."""
    store = f"file://{folder}/store"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
    dist.all_reduce(torch.ones(8))
    if rank == 1:
        os.mkfifo(folder / "fifo")
        (folder / "fifo").read_text()
    _launch(TEN_SECONDS)
    dist.all_reduce(torch.ones(8))


class _Fifo:
    """Items; the third waits for a FIFO."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __len__(self) -> int:
        return 100

    def __getitem__(self, at: int) -> int:
        if at > 1:
            self.path.read_text()
        return at


def loader(folder: Path, _: int) -> None:
    """A data loader with pinned memory whose worker waits for a FIFO."""
    os.mkfifo(folder / "fifo")
    pinned = torch.cuda.is_available()
    for batch in DataLoader(_Fifo(folder / "fifo"), num_workers=1, pin_memory=pinned):
        batch + 1


def memory(_: Path, __: int) -> None:
    """Healthy or not, it moves: out of memory, caught, and tried again for ever."""
    if torch.cuda.is_available():
        torch.cuda.set_per_process_memory_fraction(0.01)
    kept: list[torch.Tensor] = []
    while True:
        try:
            if not torch.cuda.is_available():
                raise torch.OutOfMemoryError  # noqa: TRY301 - what the GPU would raise
            kept.append(torch.ones(1 << 26, device="cuda"))
        except torch.OutOfMemoryError:
            kept.clear()
            time.sleep(1)


def steps(_: Path, __: int) -> None:
    """Healthy: a kernel of ten seconds, again and again, each waited for."""
    while True:
        _launch(TEN_SECONDS)
        _synchronize(TEN_SECONDS)


def products(_: Path, __: int) -> None:
    """Healthy: products of matrices, and a loss that is read."""
    one = torch.ones(512, 512, device="cuda" if torch.cuda.is_available() else "cpu")
    while True:
        one = one @ one
        one = one / one.norm()
        float(one.sum().item())


@dataclass(frozen=True)
class Kind:
    act: Callable[[Path, int], None]
    ranks: int = 1
    healthy: bool = False


KINDS = {
    kind.act.__name__: kind
    for kind in (
        Kind(kernel),
        Kind(stream),
        Kind(item),
        Kind(nccl),
        Kind(gloo, ranks=2),
        Kind(fifo, ranks=2),
        Kind(loader),
        Kind(memory, healthy=True),
        Kind(steps, healthy=True),
        Kind(products, healthy=True),
    )
}


def run(name: str, rank: int, folder: Path) -> None:
    """A rank of a kind, in a process of its own."""
    os.environ |= {
        "TORCH_FR_DUMP_TEMP_FILE": f"{folder}/recorder_",
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": f"{folder}/recorder_",
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": f"{folder}/pipe_",
        "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000",
    }
    torch.set_num_threads(1)
    if torch.cuda.is_available():
        torch.ones(8, device="cuda").sum().item()
    (folder / f"begun{rank}").touch()
    KINDS[name].act(folder, rank)


def watch(name: str, seconds: float) -> str:
    """Runs a kind, and returns what the sampler found, look by look."""
    kind = KINDS[name]
    lines: list[str] = []
    with tempfile.TemporaryDirectory() as folder_name:
        folder = Path(folder_name)
        recorder = folder / "recorder_"
        context = multiprocessing.get_context("spawn")
        ranks: list[BaseProcess] = [
            context.Process(target=run, args=(name, rank, folder)) for rank in range(kind.ranks)
        ]
        try:
            for process in ranks:
                process.start()
            _wait(lambda: all((folder / f"begun{rank}").exists() for rank in range(kind.ranks)))
            time.sleep(10)
            lines += _looks(ranks, recorder, seconds)
            dumps = [path for path in folder.iterdir() if path.name.startswith("recorder")]
            lines += [f"dump {path.name}: {path.stat().st_size} bytes" for path in dumps]
            _keep(name, dumps)
        finally:
            _end(ranks)
    text = " ".join((kind.act.__doc__ or "").split())
    return "\n".join((f"=== {name}: {text}", *lines, ""))


def _looks(ranks: list[BaseProcess], recorder: Path, seconds: float) -> Iterator[str]:
    sampler, began = RunSampler(), time.time()
    dumps, pipe = str(recorder), str(recorder.with_name("pipe_"))
    shown, diagnosis = "", Diagnosis(Movement.UNKNOWN)
    while time.time() < began + seconds:
        at = time.time()
        seen = [replace(one, recorder=dumps, recorder_pipe=pipe) for one in members(ranks)]
        diagnosis = sampler.look(began, seen)
        what = ", ".join(f"{one.activity} {one.detail}".strip() for one in diagnosis.findings)
        suspects = [
            f"rank {one.rank}" if one.rank is not None else "a process"
            for one in diagnosis.suspects
        ]
        confirmed = " (confirmed)" if diagnosis.confirmed else ""
        text = f"{diagnosis.movement}{confirmed}; {what}; guilty: {suspects or 'unknown'}"
        if text != shown:
            yield f"{at - began:5.0f} s  {text}\n         {diagnosis.chain}"
        shown = text
        time.sleep(max(0.0, at + LOOK_SECONDS - time.time()))
    yield ""
    yield from render(diagnosis)


def _wait(true: Callable[[], bool]) -> None:
    until = time.monotonic() + START_SECONDS
    while not true():
        if time.monotonic() > until:
            raise TimeoutError
        time.sleep(0.2)


def _keep(name: str, dumps: list[Path]) -> None:
    """Copies dumps to the folder $OUT, if there is one."""
    if out := os.environ.get("OUT"):
        for path in dumps:
            shutil.copy(path, Path(out) / f"{name}-{path.name}")


def _end(ranks: list[BaseProcess]) -> None:
    started = [one for one in ranks if one.pid is not None]
    below = descendants(read_processes(), [one.pid for one in started if one.pid is not None])
    for process in started:
        process.kill()
    for pid in below:
        end(pid)
    for process in started:
        process.join(30)


def main() -> int:
    """Prints what is found for each kind; 1 if a healthy one would be restarted."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--seconds", type=float, default=80)
    options = parser.parse_args()
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    print(f"torch {torch.__version__}, {gpu}, py-spy at {shutil.which('py-spy')}", flush=True)
    names = options.kinds.split(",")
    wrong = []
    with ThreadPoolExecutor(len(names)) as pool:
        for name, text in zip(
            names, pool.map(partial(_printed, seconds=options.seconds), names), strict=True
        ):
            print(text, flush=True)
            wrong += [name] if KINDS[name].healthy and "(confirmed)" in text else []
    print(f"healthy, and found stuck twice: {wrong or 'none'}")
    return int(bool(wrong))


def _printed(name: str, seconds: float) -> str:
    try:
        return watch(name, seconds)
    except TimeoutError:
        return f"=== {name}: never began\n"


if __name__ == "__main__":
    sys.exit(main())
