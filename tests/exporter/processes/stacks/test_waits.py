"""What a process waits for, by frames as the libraries have them."""

from __future__ import annotations

import pytest

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.processes.procfs import Identity
from trainwarden_exporter.processes.stacks.model import (
    Activity,
    Finding,
    Frame,
    KernelState,
    Member,
    Stacks,
    ThreadStack,
)
from trainwarden_exporter.processes.stacks.waits import (
    FROZEN,
    feeds_nobody,
    find_phase,
    find_wait,
    normalised,
)
from trainwarden_exporter.processes.stacks.words import describe

SITE = "/venv/lib/python3.12/site-packages"
LIB = "/usr/lib/python3.12"
PID = 7
SLEEPS = KernelState("S", 1.0)


def stack(*calls: tuple[str, str], name: str = "MainThread", tid: int = PID) -> ThreadStack:
    return ThreadStack(name, tid, tuple(Frame(function, file, 1) for function, file in calls))


USER = (("train", "/srv/train.py"), ("<module>", "/srv/train.py"))
C10D = f"{SITE}/torch/distributed/distributed_c10d.py"
WRAPPER = ("wrapper", f"{SITE}/torch/distributed/c10d_logger.py")


@pytest.mark.parametrize(
    ("calls", "activity", "detail"),
    [
        ((("all_reduce", C10D), WRAPPER, *USER), Activity.COLLECTIVE, "all_reduce"),
        ((("barrier", C10D), WRAPPER, *USER), Activity.COLLECTIVE, "barrier"),
        (
            (("broadcast", C10D), WRAPPER, ("broadcast_object_list", C10D), *USER),
            Activity.COLLECTIVE,
            "broadcast_object_list",
        ),
        ((("synchronize", f"{SITE}/torch/cuda/__init__.py"), *USER),
         Activity.GPU, "synchronize (torch/cuda/__init__.py)"),
        ((("Condition.wait", f"{LIB}/threading.py"), ("Queue.get", f"{LIB}/queue.py"), *USER),
         Activity.QUEUE, "Queue.get (lib/python3.12/queue.py)"),
        ((("_try_get_data", f"{SITE}/torch/utils/data/dataloader.py"), *USER),
         Activity.QUEUE, "_try_get_data (utils/data/dataloader.py)"),
        ((("readinto", f"{LIB}/socket.py"), ("_read_status", f"{LIB}/http/client.py"), *USER),
         Activity.SERVER, "readinto (lib/python3.12/socket.py)"),
        ((("get", f"{SITE}/ray/_private/worker.py"), *USER), Activity.SERVER, "ray"),
        ((("_acquire", f"{SITE}/filelock/_unix.py"), *USER),
         Activity.LOCK, "_acquire (site-packages/filelock/_unix.py)"),
        ((("_wait", f"{LIB}/subprocess.py"), *USER),
         Activity.CHILD, "_wait (lib/python3.12/subprocess.py)"),
        ((("_invoke_run", f"{SITE}/torch/distributed/elastic/agent/server/api.py"), *USER),
         Activity.CHILD, "_invoke_run (agent/server/api.py)"),
        ((("wait", f"{LIB}/multiprocessing/connection.py"),
          ("ProcessContext.join", f"{SITE}/torch/multiprocessing/spawn.py"), *USER),
         Activity.CHILD, "ProcessContext.join (torch/multiprocessing/spawn.py)"),
    ],
)  # fmt: skip
def test_the_library_that_waits_names_it(
    calls: tuple[tuple[str, str], ...], activity: Activity, detail: str
) -> None:
    assert find_wait(Stacks((stack(*calls),)), SLEEPS, PID) == (activity, detail)


def test_the_backward_pass_of_several_ranks_waits_for_their_gradients() -> None:
    calls = (("_engine_run_backward", f"{SITE}/torch/autograd/graph.py"), *USER)
    stacks = Stacks((stack(*calls),))

    assert find_wait(stacks, SLEEPS, PID, world=4) == (Activity.COLLECTIVE, "backward")
    assert find_wait(stacks, SLEEPS, PID, world=1) is None


@pytest.mark.parametrize(
    ("channel", "activity"),
    [
        ("hrtimer_nanosleep", Activity.SLEEP),
        ("locks_lock_inode_wait", Activity.LOCK),
        ("wait_for_partner", Activity.PIPE),
        ("anon_pipe_read", Activity.PIPE),
        ("pipe_read", Activity.PIPE),
        ("do_wait", Activity.CHILD),
        ("sigsuspend.isra.0", Activity.CHILD),
        ("sk_wait_data", Activity.SERVER),
        ("request_wait_answer", Activity.DISK),
        ("futex_do_wait", Activity.LOCK),
        ("futex_wait_queue_me", Activity.LOCK),
        ("unix_stream_read_generic", Activity.SERVER),
    ],
)
def test_without_a_known_frame_the_kernel_names_it(channel: str, activity: Activity) -> None:
    found = find_wait(Stacks((stack(*USER),)), KernelState("S", 1.0, wait_channel=channel), PID)

    assert found == (activity, channel)


@pytest.mark.parametrize("channel", ["", "ep_poll", "poll_schedule_timeout"])
def test_what_may_be_anything_is_not_named(channel: str) -> None:
    kernel = KernelState("S", 1.0, wait_channel=channel)

    assert find_wait(Stacks((stack(*USER),)), kernel, PID) is None


def test_a_futex_of_no_python_or_of_a_backward_pass_may_be_anything() -> None:
    kernel = KernelState("S", 1.0, wait_channel="futex_do_wait")
    backward = stack(("_engine_run_backward", f"{SITE}/torch/autograd/graph.py"), *USER)

    assert find_wait(Stacks(), kernel, PID) is None
    assert find_wait(Stacks((backward,)), kernel, PID, world=1) is None


@pytest.mark.parametrize(
    ("state", "activity"),
    [("D", Activity.DISK), ("T", Activity.STOPPED), ("t", Activity.STOPPED)],
)
def test_the_state_of_the_process_comes_before_its_stack(state: str, activity: Activity) -> None:
    stacks = Stacks((stack(("all_reduce", C10D), *USER),))

    found = find_wait(stacks, KernelState(state, 1.0), PID)

    assert found is not None
    assert found.activity is activity


@pytest.mark.parametrize(("state", "channel"), [("D", "__refrigerator"), ("S", "do_freezer_trap")])
def test_a_process_of_a_frozen_cgroup_is_stopped(state: str, channel: str) -> None:
    kernel = KernelState(state, 0, wait_channel=channel)
    wait = find_wait(Stacks((stack(("get", "queue.py")),)), kernel, PID)
    assert wait == (Activity.STOPPED, FROZEN)
    member = Member(WorkerKey("night", "trainer"), "trainer", Identity(PID, 1), 1)
    assert describe(Finding(member, *wait)) == f"process {PID} of trainer is frozen with its cgroup"


def test_a_main_thread_that_waits_for_a_thread_waits_for_its_server() -> None:
    main = stack(("Condition.wait", f"{LIB}/threading.py"), *USER)
    helper = stack(("recv_into", f"{LIB}/socket.py"), name="helper", tid=8)

    found = find_wait(Stacks((main, helper)), SLEEPS, PID)

    assert found is not None
    assert found.activity is Activity.SERVER


GET = (("Condition.wait", f"{LIB}/threading.py"), ("Queue.get", f"{LIB}/queue.py"))
START = (
    ("train_func", f"{SITE}/ray/train/v2/_internal/util.py"),
    ("_run_target", f"{SITE}/ray/train/v2/_internal/execution/worker_group/thread_runner.py"),
    ("Thread.run", f"{LIB}/threading.py"),
    ("Thread._bootstrap", f"{LIB}/threading.py"),
)
FUTURES = f"{LIB}/concurrent/futures/_base.py"
CONTEXT = f"{SITE}/ray/train/v2/_internal/execution/context.py"


@pytest.mark.parametrize(
    ("calls", "detail"),
    [
        (GET + USER, "Queue.get (lib/python3.12/queue.py)"),
        (
            (*GET, ("__iter__", f"{SITE}/ray/train/torch/train_loop_utils.py"), *USER),
            "Queue.get (lib/python3.12/queue.py)",
        ),
        ((*GET, ("loop", "/home/ray/train.py")), "Queue.get (lib/python3.12/queue.py)"),
        ((*GET, ("TrainContext._wait_then_report", CONTEXT), *USER), "ray"),
        ((*GET, ("_next_batch", f"{SITE}/ray/data/iterator.py"), *USER), "ray"),
        ((*GET, ("Queue.get", f"{SITE}/ray/util/queue.py"), *USER), "ray"),
        ((("Event.wait", f"{LIB}/threading.py"), ("result", FUTURES), *USER), "ray"),
        (
            (
                ("join", f"{LIB}/threading.py"),
                ("shutdown", f"{LIB}/concurrent/futures/thread.py"),
                ("train_fn_with_final_checkpoint_flush", CONTEXT),
            ),
            "ray",
        ),
        (GET[:1], "ray"),  # after the function: no frame of it is left
        ((("flush", CONTEXT),), "ray"),
    ],
)
def test_a_training_thread_in_a_call_of_ray_waits_for_ray(
    calls: tuple[tuple[str, str], ...], detail: str
) -> None:
    main = stack(("main_loop", f"{SITE}/ray/_private/worker.py"))
    trains = stack(*calls, *START, name="TrainingThread(loop)", tid=8)

    found = find_wait(Stacks((main, trains)), SLEEPS, PID)

    assert found is not None
    assert found.detail == detail
    assert (found.activity is Activity.SERVER) is (detail == "ray")


def test_c_code_in_a_training_thread_may_wait_for_other_ranks() -> None:
    kernel = KernelState("S", 1.0, wait_channel="futex_do_wait", is_endless=True)
    trains = stack(*USER, *START, name="TrainingThread(loop)", tid=8)

    assert find_wait(Stacks((trains,)), kernel, PID) is None


@pytest.mark.parametrize(
    ("files", "feeds"),
    [
        (("threading.py", "srv/feed.py", "threading.py"), True),
        (("threading.py", "concurrent/futures/thread.py"), True),
        (("srv/feed.py", "{site}/ray/train/v2/_internal/thread_runner.py"), True),
        (("srv/load.py", "{site}/torch/utils/data/_utils/fetch.py", "srv/feed.py"), True),
        (("srv/poll.py", "{site}/tqdm/std.py", "srv/feed.py", "threading.py"), True),
        (("home/rich/ray/data/feed.py", "threading.py"), True),
        (("threading.py", "{site}/tqdm/_monitor.py", "threading.py"), False),
        (("queue.py", "{site}/wandb/sdk/lib/service.py", "threading.py"), False),
        (("queue.py", "{site}/torch/utils/data/_utils/pin_memory.py", "threading.py"), False),
        (("{site}/ray/_private/worker.py", "{site}/ray/_private/workers/main.py"), False),
        (("queue.py", "{site}/ray/train/v2/_internal/thread_runner.py", "threading.py"), True),
        (("{site}/ray/train/v2/_internal/thread_runner.py", "threading.py"), False),
        (("socket.py", "lib/multiprocessing/resource_sharer.py", "threading.py"), False),
        (("threading.py", "srv/trainwarden/heartbeat.py", "threading.py"), False),
        ((), False),
    ],
)
def test_a_thread_that_only_reports_or_is_of_ray_feeds_nobody(
    files: tuple[str, ...], *, feeds: bool
) -> None:
    calls = (("f", "/" + file.format(site="venv/site-packages")) for file in files)
    assert feeds_nobody(stack(*calls)) is not feeds


def test_a_thread_of_a_reporter_is_not_what_the_main_thread_waits_for() -> None:
    main = stack(*GET, *USER)
    loop = ("BaseEventLoop._run_once", f"{LIB}/asyncio/base_events.py")
    wandb = stack(loop, ("_main", f"{SITE}/wandb/sdk/lib/asyncio_manager.py"), name="w", tid=8)
    found = find_wait(Stacks((main, wandb)), SLEEPS, PID)

    assert found is not None
    assert found.activity is Activity.QUEUE


def test_a_thread_with_the_name_of_a_training_thread_is_of_ray_only_in_ray() -> None:
    other = stack(*GET, *USER, name="TrainingThread(loop)", tid=8)

    assert Stacks((stack(*USER), other)).main(PID) == stack(*USER)


def test_of_two_threads_that_wait_for_servers_the_wait_for_ray_decides() -> None:
    main = stack(("Condition.wait", f"{LIB}/threading.py"), *USER)
    http = stack(("recv_into", f"{LIB}/socket.py"), name="http", tid=8)
    ray = stack(("get", f"{SITE}/ray/_private/worker.py"), *USER, name="ray", tid=9)

    assert find_wait(Stacks((main, http, ray)), SLEEPS, PID) == (Activity.SERVER, "ray")


@pytest.mark.parametrize(
    ("call", "phase"),
    [
        (("Trainer.evaluate", "/x/trainer.py"), "evaluating"),
        (("save", f"{SITE}/torch/serialization.py"), "saving"),
        (("Engine.save_checkpoint", "/x/engine.py"), "saving"),
        (("compile_fx", f"{SITE}/torch/_inductor/compile_fx.py"), "compiling"),
        (("update_weights_from_disk", "/x/actor.py"), "updating_weights"),
        (("train", "/x/train.py"), ""),
        (("save", "/x/plot.py"), ""),
    ],
)
def test_well_known_functions_name_the_phase(call: tuple[str, str], phase: str) -> None:
    assert find_phase(stack(call, *USER).frames) == phase


def test_copies_of_one_program_have_the_same_stack() -> None:
    here = ThreadStack("MainThread", 1, (Frame("f", "/a/x/lib/m.py", 1),))
    there = ThreadStack("MainThread", 2, (Frame("f", "/b/x/lib/m.py", 9),))

    assert normalised(here) == normalised(there) == (("f", "x/lib/m.py"),)
