"""The processes of a run whose stacks are of interest: ranks first, and no more than a limit."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from trainwarden_exporter.processes.config import RunWorkers
from trainwarden_exporter.processes.matching import ProcessTree, WorkerKey
from trainwarden_exporter.processes.procfs import Process, read_environment
from trainwarden_exporter.processes.stacks.model import Member

MAX_PROCESSES = 64
"""Processes of a run that are looked at."""

RECORDER = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
RECORDER_PIPE = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"
"""Variables of PyTorch (FlightRecorder.cpp, ProcessGroupNCCL.hpp)."""

_RAY_TRAIN_WORKER = "ray::RayTrainWorker"[:15]
"""The name that Ray gives the process of a worker of Ray Train, as far as the kernel keeps it."""

_MOST_DIGITS = 7

ReadEnvironment = Callable[[int], Mapping[str, str] | None]


def find_members(
    run: RunWorkers,
    trees: Mapping[WorkerKey, ProcessTree],
    *,
    read_environment: ReadEnvironment = read_environment,
) -> tuple[Member, ...]:
    """Returns the living processes of the workers of `run`; the makers of its steps first.

    Those are the workers of Ray Train; without these, the ranks; without ranks, the root of a
    trainer. A rank has RANK in its environment (torchrun, accelerate and DeepSpeed set it), and its
    parent has not: the workers of its data loader inherit it, as they do the name of a worker of
    Ray Train.
    """
    trainers = {worker.name for worker in run.trainers}
    found: list[Member] = []
    for worker in run.workers:
        key = WorkerKey(run.name, worker.name)
        tree = trees.get(key, ProcessTree())
        alive = [one for one in tree.members if one.alive]
        variables: dict[int, Mapping[str, str]] = {}
        with_ray, makers = set[int](), set[int]()
        if worker.name in trainers:
            with_ray = _tops(alive, {one.pid for one in alive if one.name == _RAY_TRAIN_WORKER})
            if not with_ray:
                variables = {one.pid: read_environment(one.pid) or {} for one in alive}
            makers = with_ray or {root.pid for root in tree.roots}
        ranks = {pid for pid, one in variables.items() if _number(one, "RANK") is not None}
        tops = _tops(alive, ranks)
        makers = tops or makers
        for one in alive:
            own = variables.get(one.pid, {}) if one.pid in tops else {}
            found.append(
                Member(
                    key=key,
                    role=worker.role,
                    identity=one.identity,
                    parent_pid=one.parent_pid,
                    threads=one.threads,
                    rank=_number(own, "RANK"),
                    world=_number(own, "WORLD_SIZE"),
                    local_world=_number(own, "LOCAL_WORLD_SIZE"),
                    is_trainer=one.pid in makers,
                    with_ray=bool(with_ray),
                    recorder=_path(own, *RECORDER),
                    recorder_pipe=_path(own, RECORDER_PIPE),
                )
            )
    found.sort(key=lambda one: (not one.is_trainer, one.rank or 0, one.identity.start_ticks))
    return tuple(found[:MAX_PROCESSES])


def _tops(processes: Iterable[Process], pids: Collection[int]) -> set[int]:
    """Returns which of the processes `pids` have a parent that is none of these."""
    return {one.pid for one in processes if one.pid in pids and one.parent_pid not in pids}


def _number(variables: Mapping[str, str], name: str) -> int | None:
    text = variables.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < _MOST_DIGITS else None


def _path(variables: Mapping[str, str], *names: str) -> str:
    """Returns the first of these paths; empty unless it is absolute."""
    path = next((variables[name] for name in names if variables.get(name)), "")
    return path if path.startswith("/") else ""
