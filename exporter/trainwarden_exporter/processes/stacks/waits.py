"""Names what a process waits for, from its Python stack and from the kernel. Pure.

The frames are those of CPython 3.9 to 3.14, PyTorch 2.x, DeepSpeed, Ray, requests, httpx and
aiohttp, as their sources name them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import dropwhile
from typing import NamedTuple

from trainwarden_exporter.processes.stacks.model import (
    Activity,
    Frame,
    KernelState,
    Stacks,
    ThreadStack,
)
from trainwarden_exporter.processes.stacks.prompts import is_at_prompt

BACKWARD = "backward"
"""The detail of a backward pass of several ranks, which computes or waits for the gradients."""

RAY = "ray"
"""The detail of a wait for Ray, whose workers are no children of the process that waits."""


FROZEN = "frozen"
"""The detail of a process that is stopped with its cgroup."""

_FREEZER = r"__refrigerator|do_freezer_trap"


class Wait(NamedTuple):
    activity: Activity
    detail: str = ""

    @property
    def is_futex(self) -> bool:
        """Whether only the kernel shows it: a lock, a queue or a thread of C code."""
        return self.activity is Activity.LOCK and self.detail.startswith("futex_")


class _Call(NamedTuple):
    """Calls of a library, by regular expressions of file and function."""

    file: str
    function: str
    activity: Activity

    def is_in(self, frame: Frame) -> bool:
        return bool(
            re.fullmatch(self.file, frame.file) and re.fullmatch(self.function, _name(frame))
        )


_COLLECTIVES = (
    r"(?:all|reduce|broadcast|barrier|monitored_barrier|gather|scatter|i?send|i?recv|batch_isend"
    r"|_all|_reduce|_coalescing|_store_based_barrier|wait_tensor).*"
)
_CALLS = tuple(
    call._replace(file=rf"(?:^|.*/){call.file}")
    for call in (
        _Call(r"torch/distributed/distributed_c10d\.py", _COLLECTIVES, Activity.COLLECTIVE),
        _Call(r"torch/distributed/_functional_collectives\.py", _COLLECTIVES, Activity.COLLECTIVE),
        _Call(r"torch/distributed/rendezvous\.py", r".*", Activity.COLLECTIVE),
        _Call(r"torch/distributed/utils\.py", r"_verify_.*|_sync_.*", Activity.COLLECTIVE),
        _Call(r"deepspeed/comm/\w+\.py", _COLLECTIVES, Activity.COLLECTIVE),
        _Call(
            r"torch/cuda/(?:__init__|streams)\.py",
            r"synchronize|wait_event|wait_stream",
            Activity.GPU,
        ),
        _Call(r"ray/_private/worker\.py", r"get|get_objects|wait", Activity.SERVER),
        _Call(r"torch/utils/data/dataloader\.py", r"_try_get_data|_get_data", Activity.QUEUE),
        # before multiprocessing.connection, by which it waits for their ends
        _Call(r"torch/multiprocessing/spawn\.py", r"join", Activity.CHILD),
        _Call(r"torch/distributed/elastic/.*\.py", r".*", Activity.CHILD),
        _Call(r"queue\.py", r"get|put|join", Activity.QUEUE),
        _Call(r"multiprocessing/queues\.py", r"get|put|_recv|_send", Activity.QUEUE),
        _Call(
            r"multiprocessing/connection\.py",
            r"_recv|_recv_bytes|recv|recv_bytes|poll|_poll|wait|_send|send",
            Activity.QUEUE,
        ),
        _Call(r"shm_broadcast\.py", r"acquire_read|acquire_write|dequeue", Activity.QUEUE),
        _Call(r"(?:http/client|socket|ssl|smtplib)\.py", r".*", Activity.SERVER),
        _Call(
            r"(?:urllib3|requests|httpx|httpcore|grpc|aiohttp)/(?:.*/)?\w+\.py",
            r".*",
            Activity.SERVER,
        ),
        _Call(r"zmq/(?:.*/)?\w+\.py", r"recv\w*|send\w*|poll", Activity.SERVER),
        _Call(r"asyncio/base_events\.py", r"_run_once", Activity.SERVER),
        _Call(r"(?:filelock|portalocker|fasteners)/\w+\.py", r".*", Activity.LOCK),
        _Call(r"subprocess\.py", r"wait|_wait|_try_wait|communicate|_communicate", Activity.CHILD),
        _Call(r"multiprocessing/popen_\w+\.py", r"poll|wait", Activity.CHILD),
        _Call(r"threading\.py", r"wait|acquire|join|_wait_for_tstate_lock", Activity.LOCK),
        _Call(r"concurrent/futures/_base\.py", r"result|wait", Activity.LOCK),
    )
)
"""In this order: the first of them that is in the stack decides.

Compiled when they are first used, not at each start: few programs sample stacks.
"""

_BACKWARD = r"(?:^|.*/)torch/autograd/.*\.py"

_RAY = re.compile(r"(?:^|/)ray/(?:_private|air|data|experimental|serve|train|tune|util)/")
"""Not the home of an account with the name ray, as in Ray's images."""

_INSTALLED_RAY = re.compile(r"-packages/ray/")

_REPORTERS = re.compile(
    r"-packages/(?:tqdm|rich|wandb|tensorboard|tensorboardX|mlflow|comet_ml|neptune|swanlab|clearml"
    r"|aim|codecarbon|opentelemetry|sentry_sdk)/"
    r"|/torch/(?:utils/data/_utils/pin_memory\.py|_inductor/compile_worker/)"
    r"|/multiprocessing/resource_sharer\.py|/trainwarden/heartbeat\.py"
)

_OF_HTTP = re.compile(r"(?:^|/)(?:http/client\.py|(?:urllib3|requests|httpx|httpcore|aiohttp)/)")

_OF_THREADS = ("/threading.py", "/concurrent/futures/thread.py")

_RAY_PROGRAMS = r".*/ray/(?:dashboard|autoscaler|_private/(?:log_monitor\.py|runtime_env/agent/)).*"

_CHANNELS = (
    (r"locks_lock_inode_wait|(?:posix|flock)_lock_inode_wait|fcntl_setlk", Activity.LOCK),
    (r"(?:anon_)?pipe_(?:read|write|wait)|wait_for_partner|fifo_open", Activity.PIPE),
    (r"(?:hr|do_)nanosleep|hrtimer_nanosleep|common_nsleep", Activity.SLEEP),
    (r"fuse_|request_wait_answer|nfs|rpc_|folio_wait|io_schedule|wait_on_page", Activity.DISK),
    (r"tcp_|sk_wait_data|inet_|wait_woken|unix_stream_", Activity.SERVER),
    (r"do_wait(?!_intr)|kernel_wait|(?:rt_)?sigsuspend", Activity.CHILD),
    (r"futex_", Activity.LOCK),
)

_EVENTS = re.compile(r"(?:do_)?(?:sys_)?e?poll|do_select|poll_schedule_timeout")
"""Kernel functions of a wait for any of several files, as in an event loop."""

_PHASES = (
    (
        "saving",
        r"_?(?:maybe_|async_)?save_\w+|_?upload_\w+|push_to_hub",
    ),
    (
        "evaluating",
        r"eval|evaluate|evaluation_loop|_?validate|run_validation|run_evaluation",
    ),
    (
        "updating_weights",
        r"(?:update|sync|broadcast)_weights\w*|_?refit\w*|sync_model_weights",
    ),
    (
        "waiting_for_rollouts",
        r"generate_rollouts?|generate_completions|_?generate_sequences",
    ),
)
"""The label of the phase, and functions that mean nothing else in the frameworks."""

_COMPILERS = ("/torch/_inductor/", "/torch/_dynamo/", "/triton/compiler/")


def find_wait(
    stacks: Stacks, kernel: KernelState, pid: int, *, world: int | None = None
) -> Wait | None:
    """Returns what the main thread waits for if it waits; None if nothing shows that.

    `world` is the number of ranks of its job.
    """
    if re.fullmatch(_FREEZER, kernel.wait_channel):
        return Wait(Activity.STOPPED, FROZEN)  # in the state of a disk wait, or of a sleep
    match kernel.state:
        case "D":
            return Wait(Activity.DISK, kernel.wait_channel)
        case "T" | "t":
            return Wait(Activity.STOPPED)
    main = stacks.main(pid)
    if main is not None and is_at_prompt(main.frames):
        return Wait(Activity.PROMPT)
    trains_with_ray = main is not None and main.is_training_thread
    if main is not None and trains_with_ray and _waits_for_ray(main.frames):
        return Wait(Activity.SERVER, RAY)
    found = None if main is None else _from_frames(main.frames, world)
    by_kernel = _from_channel(kernel.wait_channel)
    # A C function of the standard library has no frame: its caller seems to wait for nothing, or
    # the lock file is polled in a library that is about locks.
    if found is None or (by_kernel is not None and by_kernel.activity is Activity.DISK):
        found = by_kernel
    if (
        found is not None
        and found.is_futex
        and (main is None or trains_with_ray or _is_backward(main.frames))
    ):
        return None  # threads of C code compute meanwhile, or anything
    if found is not None and found.activity in (Activity.LOCK, Activity.QUEUE):
        # The main thread waits for another one: what that waits for decides.
        others = (one for one in stacks.threads if one is not main and not feeds_nobody(one))
        found = _server_of(others, world) or found
    return found


def waits_for_ray_task(stack: ThreadStack | None) -> bool:
    """Whether a worker process of Ray waits for the next task; other threads may train."""
    inner = stack.frames[0] if stack is not None and stack.frames else None
    return (
        inner is not None
        and _name(inner) == "main_loop"
        and inner.file.endswith("ray/_private/worker.py")
    )


def is_in_event_loop(wait: Wait) -> bool:
    """Whether a wait is that of asyncio for the next event or timer."""
    return wait.activity is Activity.SERVER and "_run_once " in wait.detail


def is_in_call_of(thread: ThreadStack, activity: Activity) -> bool:
    """Whether the Python stack of a thread shows such a wait."""
    wait = _from_frames(thread.frames, None)
    return wait is not None and wait.activity is activity


def is_asking(thread: ThreadStack) -> bool:
    """Whether a thread waits for the answer to a request of its own, in a library for HTTP."""
    return any(_OF_HTTP.search(one.file) for one in thread.frames)


def feeds_nobody(thread: ThreadStack) -> bool:
    """Whether a thread certainly does not wake a thread that waits for others.

    Its own function only shows or sends what a program reports, or passes on what other processes
    load, or it is a thread of Ray that runs nobody's code.
    """
    files = [one.file for one in reversed(thread.frames)]
    own = next((one for one in files if not one.endswith(_OF_THREADS)), None)
    if own is None:
        return not files  # of C code: what it gives to Python has a frame
    if _INSTALLED_RAY.search(own):
        return all(_INSTALLED_RAY.search(one) or one.endswith(_OF_THREADS) for one in files)
    return _REPORTERS.search(own) is not None


def _waits_for_ray(frames: Sequence[Frame]) -> bool:
    """Whether a training thread is in a call of Ray, or in Ray before or after its function.

    A future may be of Ray, and has no frame of it.
    """
    called = list(dropwhile(lambda one: _is_start(one.file), reversed(frames)))
    return not called or any(
        _RAY.search(one.file) or one.file.endswith("/concurrent/futures/_base.py")
        for one in called
        if not one.file.endswith("/ray/train/torch/train_loop_utils.py")  # around a DataLoader
    )


def _is_start(file: str) -> bool:
    """Whether a training thread has frames of this file before its function, or after it."""
    return file.endswith(_OF_THREADS) or "/ray/train/v2/_internal/" in file


def waits_for_forks(stack: ThreadStack | None) -> bool:
    """Whether a process is the server of forks of multiprocessing, and waits for the next one."""
    files = [one.file for one in stack.frames[:2]] if stack is not None else []
    return bool(files) and files[-1].endswith("/multiprocessing/forkserver.py")


def is_of_ray(stack: ThreadStack | None) -> bool:
    """Whether a process waits for tasks of Ray, or is a program of Ray that runs nobody's code."""
    if waits_for_ray_task(stack):
        return True
    outer = stack.frames[-1] if stack is not None and stack.frames else None
    return outer is not None and re.fullmatch(_RAY_PROGRAMS, outer.file) is not None


def find_phase(frames: Iterable[Frame]) -> str:
    """Returns the phase in which a stack certainly is, by well-known functions; else empty."""
    for frame in frames:
        if any(part in frame.file for part in _COMPILERS):
            return "compiling"
        if frame.file.endswith("torch/serialization.py") and _name(frame) == "save":
            return "saving"
        for phase, names in _PHASES:
            if re.fullmatch(names, _name(frame)):
                return phase
    return ""


def normalised(stack: ThreadStack | None) -> tuple[tuple[str, str], ...]:
    """Returns a stack by which processes that do the same can be grouped.

    Without lines, and with paths from the last two folders on: ranks of one program may run from
    different copies of it.
    """
    if stack is None:
        return ()
    return tuple((one.function, short_path(one.file)) for one in stack.frames)


def short_path(path: str) -> str:
    """Returns the end of a path: a file and the two folders that it is in."""
    return "/".join(path.rsplit("/", 3)[-3:])


def _name(frame: Frame) -> str:
    """Returns the name of a function without that of its class, which Python knows from 3.11 on."""
    return frame.function.rpartition(".")[2]


def _from_frames(frames: Sequence[Frame], world: int | None) -> Wait | None:
    for call in _CALLS:
        for frame in frames:
            if call.is_in(frame):
                in_ray = _RAY.search(frame.file)
                detail = RAY if in_ray else _detail(frames, call.activity, frame)
                return Wait(call.activity, detail)
    # Gradients are reduced in C++ during the backward pass.
    if (world or 1) > 1 and _is_backward(frames):
        return Wait(Activity.COLLECTIVE, BACKWARD)
    return None


def _is_backward(frames: Sequence[Frame]) -> bool:
    return any(re.fullmatch(_BACKWARD, one.file) for one in frames[:3])


def _detail(frames: Sequence[Frame], activity: Activity, frame: Frame) -> str:
    """Returns the collective by its public name: the outermost call of the library."""
    if activity is not Activity.COLLECTIVE:
        return f"{frame.function} ({short_path(frame.file)})"
    return next(
        _name(one)
        for one in reversed(frames)
        if any(call.activity is activity and call.is_in(one) for call in _CALLS)
    )


def is_of_file_lock(channel: str) -> bool:
    """Whether a thread that waits for a lock waits for one of a file in this kernel function.

    Libraries about such locks try them again and again, and sleep in between.
    """
    wait = _from_channel(channel)
    by_kernel = wait is not None and wait.activity is Activity.LOCK and not wait.is_futex
    return by_kernel or (wait is not None and wait.activity is Activity.SLEEP)


def is_of_socket(channel: str) -> bool:
    """Whether a function of the kernel waits for one connection."""
    wait = _from_channel(channel)
    return wait is not None and wait.activity is Activity.SERVER


def is_of_events(channel: str) -> bool:
    """Whether a function of the kernel waits for any of several files."""
    return _EVENTS.match(channel) is not None


def is_of_pipe(channel: str) -> bool:
    """Whether a function of the kernel waits for a pipe."""
    wait = _from_channel(channel)
    return wait is not None and wait.activity is Activity.PIPE


def _from_channel(channel: str) -> Wait | None:
    for pattern, activity in _CHANNELS:
        if channel and re.match(pattern, channel):
            return Wait(activity, channel)
    return None


def _server_of(threads: Iterable[ThreadStack], world: int | None) -> Wait | None:
    """Returns the wait of one of the threads for a server: for Ray, if one waits for that."""
    waits = [wait for one in threads if (wait := _from_frames(one.frames, world))]
    servers = [one for one in waits if one.activity is Activity.SERVER]
    return next((one for one in servers if one.detail == RAY), next(iter(servers), None))
