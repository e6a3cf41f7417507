"""What processes do together: literals in, a diagnosis out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.processes.procfs import Identity
from trainwarden_exporter.processes.stacks.activity import find_activity, is_busy
from trainwarden_exporter.processes.stacks.diagnosis import diagnose
from trainwarden_exporter.processes.stacks.model import (
    Activity,
    FarEnd,
    Finding,
    Frame,
    KernelState,
    Look,
    Member,
    Movement,
    Stacks,
    ThreadStack,
)

KEY = WorkerKey("night", "trainer")
SERVER = Identity(900, 1)
C10D = "/venv/torch/distributed/distributed_c10d.py"
RUN_TARGET = Frame("_run_target", "/venv/ray/train/v2/_internal/thread_runner.py", 1)


def member(pid: int, rank: int | None = None, world: int | None = None, **more: object) -> Member:
    return Member(
        **{
            "key": KEY,
            "role": "trainer",
            "identity": Identity(pid, 1),
            "parent_pid": 1,
            "rank": rank,
            "world": world,
            "local_world": world,
            "is_trainer": True,
            **more,
        }  # type: ignore[arg-type]
    )


def main(*functions: str, file: str = "/srv/train.py", pid: int = 1) -> Stacks:
    frames = tuple(Frame(one, file, 1) for one in functions)
    return Stacks((ThreadStack("MainThread", pid, frames),))


def finding(one: Member, activity: Activity, detail: str = "", **more: object) -> Finding:
    pid = one.identity.pid
    return Finding(
        one,
        activity,
        detail,
        **{"stacks": main(activity, pid=pid), **more},  # type: ignore[arg-type]
    )


def ranks(*activities: Activity, detail: str = "all_reduce", **more: object) -> list[Finding]:
    return [
        finding(
            member(at + 1, at, len(activities)),
            activity,
            detail if activity is Activity.COLLECTIVE else "",
            **more,
        )
        for at, activity in enumerate(activities)
    ]


def looks(*kernels: KernelState, every: float = 5.0) -> list[Look]:
    return [Look(every * at, kernel) for at, kernel in enumerate(kernels)]


IDLE = KernelState("S", 9.0, switches=4, io_bytes=100, wait_channel="hrtimer_nanosleep")


class TestOneProcess:
    def test_three_equal_stacks_without_work_are_a_wait(self) -> None:
        found = find_activity(member(1), looks(IDLE, IDLE, IDLE), [main("f")] * 3)

        assert found.activity is Activity.SLEEP

    def test_another_stack_is_movement(self) -> None:
        found = find_activity(member(1), looks(IDLE, IDLE, IDLE), [main("f"), main("g"), main("f")])

        assert found.activity is Activity.MOVING

    @pytest.mark.parametrize(
        "last",
        [
            KernelState("S", 10.0, 4, 100, "hrtimer_nanosleep"),
            KernelState("S", 9.0, 4, 2_000_000, "hrtimer_nanosleep"),
        ],
    )
    def test_cpu_time_and_transfers_are_movement(self, last: KernelState) -> None:
        found = find_activity(member(1), looks(IDLE, IDLE, last), [main("f")] * 3)

        assert found.activity is Activity.MOVING

    def test_a_process_that_gets_no_cpu_on_a_host_under_load_moves(self) -> None:
        starved = looks(IDLE, replace(IDLE, state="R"), IDLE)

        assert is_busy(starved)
        assert find_activity(member(1), starved, [main("f")] * 3).activity is Activity.MOVING

    @pytest.mark.parametrize(
        "stacks",
        [
            main("Worker.main_loop", file="/venv/ray/_private/worker.py"),
            main("<module>", file="/venv/ray/dashboard/agent.py"),
            main("<module>", file="/venv/ray/_private/log_monitor.py"),
            Stacks(problem="no Python", is_python=False),
        ],
    )
    def test_what_serves_ray_train_always_has_a_little_to_do(self, stacks: Stacks) -> None:
        """It wakes up all the time, to report that it lives."""
        beside = member(1, is_trainer=False, with_ray=True)
        runs = replace(IDLE, state="R")
        woken = looks(IDLE, replace(runs, cpu_seconds=9.2), IDLE)

        assert find_activity(beside, woken, [stacks] * 3).activity is not Activity.MOVING
        starved = looks(runs, runs, runs)
        works = looks(IDLE, IDLE, replace(IDLE, cpu_seconds=9.6))
        writes = looks(IDLE, IDLE, replace(IDLE, io_bytes=9_000_000))
        for one in (starved, works, writes):
            assert find_activity(beside, one, [stacks] * 3).activity is Activity.MOVING
        for other in (replace(beside, with_ray=False), replace(beside, is_trainer=True)):
            assert find_activity(other, woken, [stacks] * 3).activity is Activity.MOVING

    def test_an_event_loop_of_ray_handles_events_and_does_not_move(self) -> None:
        beside = member(1, is_trainer=False, with_ray=True)
        stacks = [
            main(handler, "<module>", file="/venv/ray/dashboard/agent.py")
            for handler in ("select", "report", "select")
        ]

        assert find_activity(beside, looks(*[IDLE] * 3), stacks).activity is not Activity.MOVING

    def test_a_worker_of_ray_with_a_task_moves_as_any_process(self) -> None:
        loop = Frame("Worker.main_loop", "/venv/ray/_private/worker.py", 1)
        task = (Frame("reward", "/srv/task.py", 1), loop)
        stacks = [Stacks((ThreadStack("MainThread", 1, task),))] * 3
        woken = looks(IDLE, replace(IDLE, state="R"), IDLE)

        beside = member(1, is_trainer=False, with_ray=True)
        assert find_activity(beside, woken, stacks).activity is Activity.MOVING

    @pytest.mark.parametrize("kernel", [IDLE, replace(IDLE, state="")])
    def test_a_training_thread_is_known_by_what_the_kernel_shows_of_it(
        self, kernel: KernelState
    ) -> None:
        get = (Frame("Queue.get", "/usr/lib/queue.py", 1), Frame("loop", "/srv/train.py", 1))
        for tid in (7, 0):
            thread = ThreadStack("TrainingThread(loop)", tid, (*get, RUN_TARGET))
            found = find_activity(member(1), looks(*[kernel] * 3), [Stacks((thread,))] * 3)
            known = tid and kernel.state
            assert found.activity == (Activity.QUEUE if known else Activity.UNKNOWN)

    def test_a_thread_of_the_user_may_feed_a_training_thread(self) -> None:
        get = (Frame("Queue.get", "/usr/lib/queue.py", 1), Frame("loop", "/srv/train.py", 1))
        trains = ThreadStack("TrainingThread(loop)", 7, (*get, RUN_TARGET))
        for file, may_end in (
            ("/srv/feed.py", True),
            ("/venv/site-packages/tqdm/_monitor.py", False),
        ):
            other = ThreadStack("Thread-1", 8, (Frame("run", file, 1),))
            stacks = [Stacks((trains, other))] * 3
            assert find_activity(member(1), looks(*[IDLE] * 3), stacks).may_end is may_end

    def test_a_worker_of_ray_train_without_a_training_thread_waits_for_ray(self) -> None:
        stacks = [main("Worker.main_loop", file="/venv/ray/_private/worker.py")] * 3
        found = find_activity(member(1), looks(*[IDLE] * 3), stacks)

        assert (found.activity, found.detail) == (Activity.SERVER, "ray")

    def test_a_rank_that_spins_in_a_collective_waits(self) -> None:
        spins = [KernelState("R", seconds, 4, 100) for seconds in (0.0, 5.0, 10.0)]
        stacks = [main("all_reduce", file=C10D)] * 3

        found = find_activity(member(1, 0, 2), looks(*spins), stacks)

        assert (found.activity, found.detail) == (Activity.COLLECTIVE, "all_reduce")

    def test_a_rank_that_spins_for_its_gpu_does_not_move(self) -> None:
        spins = [KernelState("R", seconds, 4, 100) for seconds in (0.0, 5.0, 10.0)]
        stacks = [main("synchronize", file="/venv/torch/cuda/__init__.py")] * 3
        found = find_activity(member(1, 0, 2), looks(*spins), stacks)
        assert found.activity is Activity.GPU
        assert movement([found]) == "unknown"

    def test_what_its_flight_recorder_shows_counts_where_the_stack_shows_nothing(self) -> None:
        spins = [KernelState("R", seconds, 4, 100) for seconds in (0.0, 5.0, 10.0)]

        def seen(*stacks: Stacks) -> tuple[str, str]:
            found = find_activity(member(1, 0, 2), looks(*spins), stacks, "all_reduce 8")
            return found.activity, found.detail

        assert seen(*[main("step")] * 3) == ("collective", "all_reduce 8")
        assert seen(main("step"), main("other"), main("step")) == ("moving", "")
        sleeps = replace(spins[2], state="S", wait_channel="pipe_read")
        spins[:] = [sleeps] * 3
        assert seen(*[main("read")] * 3)[0] == "pipe"

    def test_the_only_call_of_a_process_that_spins_is_named(self) -> None:
        def seen(cores: float, *stacks: Stacks) -> str:
            spins = [KernelState("R", 5 * cores * at, 4, 100) for at in range(3)]
            found = find_activity(member(1), looks(*spins), stacks)
            assert found.activity is Activity.MOVING
            return diagnose([found], {}).chain

        assert seen(1.0, *[main("item")] * 3) == (
            "process 1 of trainer computes or spins in item (train.py:1)"
        )
        for text in (
            seen(0.5, *[main("item")] * 3),
            seen(1.0, *[main("item")] * 2),
            seen(1.0, main("f"), main("item"), main("item")),
        ):
            assert text == "process 1 of trainer runs"

    def test_who_is_woken_from_a_call_without_timeout_got_something(self) -> None:
        reads = KernelState("S", 9.0, 4, 100, "pipe_read", is_endless=True)
        woken = replace(reads, switches=5)

        def seen(*kernels: KernelState) -> str:
            return movement([find_activity(member(1), looks(*kernels), [main("f")] * 3)])

        assert seen(reads, reads, reads) == "stuck"
        assert seen(reads, woken, woken) == "unknown"
        # a wait with a timeout is begun again and again
        timed = [replace(one, is_endless=False) for one in (reads, woken, woken)]
        assert seen(*timed) == "stuck"

    @pytest.mark.parametrize("file", ["/srv/train.py", "/usr/lib/python3.12/threading.py"])
    @pytest.mark.parametrize(("endless", "expected"), [(True, "stuck"), (False, "unknown")])
    def test_a_wait_for_a_lock_may_have_a_timeout(
        self, endless: bool, expected: str, file: str
    ) -> None:
        waits = KernelState("S", 9.0, 4, 100, "futex_do_wait", is_endless=endless)
        stacks = [main("wait", file=file)] * 3
        found = find_activity(member(1), looks(waits, waits, waits), stacks)

        assert found.activity is Activity.LOCK
        assert movement([found]) == expected

    def test_a_collective_that_only_its_flight_recorder_shows_is_no_lock(self) -> None:
        waits = [KernelState("S", 9.0, 4, 100, "futex_do_wait", is_endless=True)] * 3
        found = find_activity(member(1, 0, 2), looks(*waits), [main("f")] * 3, "all_reduce 8")

        assert (found.activity, found.detail) == (Activity.COLLECTIVE, "all_reduce 8")

    @pytest.mark.parametrize("count", [0, 1, 2])
    def test_fewer_samples_say_nothing(self, count: int) -> None:
        found = find_activity(member(1), looks(IDLE, IDLE, IDLE), [main("f")] * count)

        assert found.activity is Activity.UNKNOWN

    def test_stacks_that_cannot_be_read_say_nothing(self) -> None:
        denied = [Stacks(problem="not permitted to read its memory")] * 3

        found = find_activity(member(1), looks(IDLE, IDLE, IDLE), denied)

        assert found.activity is Activity.UNKNOWN

    def test_a_program_that_is_no_python_is_judged_by_the_kernel(self) -> None:
        other = [Stacks(problem="no Python", is_python=False)] * 3

        found = find_activity(member(1), looks(IDLE, IDLE, IDLE), other)

        assert found.activity is Activity.SLEEP

    def test_a_stopped_process_is_stopped_whatever_its_stack(self) -> None:
        stopped = KernelState("T", 9.0, 4, 100)

        found = find_activity(member(1), looks(IDLE, IDLE, stopped), [main("f"), main("g")])

        assert found.activity is Activity.STOPPED


def movement(findings: Iterable[Finding], *, server: bool | None = None) -> Movement:
    outside = {} if server is None else {SERVER: server}
    return diagnose(list(findings), outside).movement


class TestMovement:
    def test_ranks_that_wait_for_a_rank_that_waits_are_stuck(self) -> None:
        assert movement(ranks(Activity.COLLECTIVE, Activity.COLLECTIVE, Activity.LOCK)) == "stuck"

    def test_ranks_that_wait_for_a_rank_that_works_are_not(self) -> None:
        assert movement(ranks(Activity.COLLECTIVE, Activity.MOVING)) == "moving"

    @pytest.mark.parametrize(
        "activity",
        [Activity.UNKNOWN, Activity.IDLE, Activity.DISK, Activity.STOPPED, Activity.CHILD],
    )
    def test_a_rank_about_which_too_little_is_known_is_not_stuck(self, activity: Activity) -> None:
        assert movement(ranks(Activity.COLLECTIVE, activity)) == "unknown"

    def test_a_rank_that_saves_is_not_stuck(self) -> None:
        assert movement(ranks(Activity.PIPE, phase="saving")) == "unknown"

    def test_a_sleep_may_end(self) -> None:
        waits, sleeps = ranks(Activity.COLLECTIVE, Activity.SLEEP)
        for seconds in (None, 0.0, 600.0):
            kernel = replace(IDLE, sleeps_for=seconds)
            assert movement([waits, replace(sleeps, kernel=kernel)]) == "unknown"

    def test_a_sleep_of_weeks_does_not(self) -> None:
        waits, sleeps = ranks(Activity.COLLECTIVE, Activity.SLEEP)
        kernel = replace(IDLE, sleeps_for=8 * 86_400.0)
        assert movement([waits, replace(sleeps, kernel=kernel)]) == "stuck"

    def test_a_backward_pass_of_all_ranks_may_compute(self) -> None:
        assert (
            movement(ranks(Activity.COLLECTIVE, Activity.COLLECTIVE, detail="backward"))
            == "unknown"
        )
        one, other = ranks(Activity.COLLECTIVE, Activity.LOCK, detail="backward")
        assert movement([one, other]) == "stuck"

    def test_the_one_in_a_backward_pass_that_the_others_wait_for_may_compute(self) -> None:
        found = ranks(Activity.COLLECTIVE, Activity.COLLECTIVE, Activity.COLLECTIVE)
        behind = replace(found[2], detail="backward")
        assert movement([*found[:2], behind]) == "unknown"
        assert (
            movement([*(replace(one, detail="backward") for one in found[:2]), found[2]]) == "stuck"
        )

    def test_a_collective_of_an_unknown_number_of_ranks_may_wait_for_another_host(self) -> None:
        one = finding(member(1), Activity.COLLECTIVE, "all_reduce")
        assert movement([one]) == "unknown"
        assert movement([finding(member(1), Activity.LOCK)]) == "stuck"

    def test_a_process_beside_the_ranks_that_cannot_be_read_may_do_the_work(self) -> None:
        beside = finding(member(9, is_trainer=False), Activity.UNKNOWN)
        assert movement([*ranks(Activity.QUEUE), beside]) == "unknown"
        server = finding(
            member(9, is_trainer=False, key=WorkerKey("night", "server")), Activity.UNKNOWN
        )
        assert movement([*ranks(Activity.QUEUE), server]) == "unknown"

    def test_processes_that_were_left_out_may_move(self) -> None:
        workers = [finding(member(pid, is_trainer=False), Activity.QUEUE) for pid in range(10, 72)]
        assert movement([*ranks(Activity.LOCK), *workers]) == "stuck"
        assert movement([*ranks(Activity.LOCK, Activity.LOCK), *workers]) == "unknown"

    def test_ranks_on_other_hosts_may_move(self) -> None:
        one = finding(member(1, 0, 16, local_world=8), Activity.COLLECTIVE, "all_reduce")

        assert movement([one]) == "unknown"

    def test_a_server_on_another_host_may_move(self) -> None:
        ends = (FarEnd("10.0.0.9:443"),)

        assert movement(ranks(Activity.SERVER, far_ends=ends)) == "unknown"

    def test_a_server_that_nobody_found_may_move(self) -> None:
        assert movement(ranks(Activity.SERVER)) == "unknown"

    @pytest.mark.parametrize(("moves", "expected"), [(True, "unknown"), (False, "stuck")])
    def test_a_server_of_this_host_decides(self, moves: bool, expected: str) -> None:
        ends = (FarEnd("127.0.0.1:8000", SERVER),)

        assert movement(ranks(Activity.SERVER, far_ends=ends), server=moves) == expected

    def test_a_server_that_was_seen_too_rarely_may_move(self) -> None:
        ends = (FarEnd("127.0.0.1:8000", SERVER),)

        assert movement(ranks(Activity.SERVER, far_ends=ends)) == "unknown"

    def test_an_inference_server_of_the_run_that_works_is_movement_of_the_run(self) -> None:
        engine = member(50, key=WorkerKey("night", "engine"), is_trainer=False)
        trainer = ranks(Activity.SERVER, far_ends=(FarEnd("127.0.0.1:8000", engine.identity),))

        assert movement([*trainer, finding(engine, Activity.IDLE)]) == "stuck"
        assert movement([*trainer, finding(engine, Activity.MOVING)]) == "unknown"

    def test_a_data_loader_that_waits_for_another_host_may_move(self) -> None:
        loader = member(50, is_trainer=False)
        far = finding(loader, Activity.SERVER, far_ends=(FarEnd("10.0.0.9:443"),))

        assert movement([*ranks(Activity.QUEUE), far]) == "unknown"

    @pytest.mark.parametrize(("endless", "expected"), [(True, "stuck"), (False, "unknown")])
    def test_a_child_that_polls_may_give_what_is_waited_for(
        self, endless: bool, expected: str
    ) -> None:
        polls = KernelState("S", 9.0, 4, 100, "do_select", is_endless=endless)
        child = member(50, is_trainer=False, parent_pid=1)

        found = [*ranks(Activity.QUEUE), finding(child, Activity.IDLE, kernel=polls)]
        assert movement(found) == expected

    def test_a_helper_that_is_no_python_does_not_matter(self) -> None:
        other = Stacks(problem="no Python", is_python=False)
        helper = finding(member(50, is_trainer=False), Activity.IDLE, stacks=other)

        assert movement([*ranks(Activity.QUEUE), helper]) == "stuck"

    def test_a_program_may_write_into_a_pipe_that_its_parent_reads(self) -> None:
        other = Stacks(problem="no Python", is_python=False)
        loads = finding(member(50, is_trainer=False), Activity.IDLE, stacks=other)

        assert movement([*ranks(Activity.PIPE), loads]) == "unknown"
        assert movement([*ranks(Activity.PIPE), replace(loads, activity=Activity.PIPE)]) == "stuck"

    def test_a_loader_that_waits_for_a_server_without_a_connection_may_go_on(self) -> None:
        here = FarEnd("10.0.0.1:80", Identity(1, 1))
        loads = finding(member(50, is_trainer=False), Activity.SERVER)

        assert movement([*ranks(Activity.QUEUE), loads]) == "unknown"
        assert movement([*ranks(Activity.QUEUE), replace(loads, far_ends=(here,))]) == "stuck"

    def test_of_a_trainer_that_a_shell_started_its_python_counts(self) -> None:
        other = Stacks(problem="no Python", is_python=False)
        shell = finding(member(1), Activity.CHILD, stacks=other)
        python = finding(member(2, is_trainer=False, parent_pid=1), Activity.LOCK)

        assert movement([shell, python]) == "stuck"

    @pytest.mark.parametrize(
        ("trains", "expected"),
        [(Activity.LOCK, "stuck"), (Activity.SLEEP, "unknown"), (Activity.MOVING, "moving")],
    )
    def test_a_helper_beside_it_that_waits_for_ever_proves_nothing(
        self, trains: Activity, expected: str
    ) -> None:
        """The helper came first, and was taken for the trainer."""
        shell = finding(member(1), Activity.CHILD, stacks=Stacks(is_python=False))
        below = [
            finding(member(pid, parent_pid=1, is_trainer=False), activity)
            for pid, activity in ((2, Activity.LOCK), (3, trains))
        ]

        found = diagnose([shell, *below], {})
        assert found.movement == expected
        assert [one.member.is_trainer for one in found.findings] == [False, True, True]

    def test_a_run_without_a_trainer_is_unknown(self) -> None:
        assert movement([finding(member(1, is_trainer=False), Activity.LOCK)]) == "unknown"
        assert movement([]) == "unknown"


class TestRayTrain:
    """The driver waits through Ray for workers whose training threads make the steps."""

    def run(self, activity: Activity, detail: str = "", **driver: object) -> list[Finding]:
        beside = {"is_trainer": False, "with_ray": True}
        return [
            finding(member(3, with_ray=True), activity, detail),
            finding(member(1, **beside), Activity.SERVER, "ray", **driver),
            finding(member(2, **beside), Activity.IDLE),
        ]

    def test_a_training_thread_that_waits_for_ever_is_stuck(self) -> None:
        assert movement(self.run(Activity.QUEUE)) == "stuck"
        assert movement(self.run(Activity.MOVING)) == "moving"
        assert movement(self.run(Activity.SLEEP)) == "unknown"

    @pytest.mark.parametrize("detail", ["ray", "_run_once (asyncio/base_events.py)"])
    def test_the_connections_of_a_worker_show_nothing(self, detail: str) -> None:
        """All workers have connections to Ray."""
        here = FarEnd("10.0.0.1:6379", Identity(1, 1))
        worker, *others = self.run(Activity.SERVER, detail)

        assert movement([replace(worker, far_ends=(here,)), *others]) == "unknown"
        child = member(6, is_trainer=False, parent_pid=3, with_ray=True)
        loads = finding(child, Activity.SERVER, detail, far_ends=(here,))
        assert movement([*self.run(Activity.QUEUE), loads]) == "unknown"

    def test_a_driver_with_a_connection_to_another_host_may_have_workers_there(self) -> None:
        far = FarEnd("10.0.0.9:41000")

        assert movement(self.run(Activity.QUEUE, far_ends=(far,))) == "unknown"

    def test_a_worker_that_moves_may_be_waited_for(self) -> None:
        other = finding(member(4, with_ray=True), Activity.MOVING)

        assert movement([*self.run(Activity.QUEUE), other]) == "moving"
        busy = finding(member(5, is_trainer=False, with_ray=True), Activity.MOVING)
        assert movement([*self.run(Activity.QUEUE), busy]) == "unknown"

    def test_a_driver_of_anything_else_waits_for_what_nobody_knows(self) -> None:
        worker, driver, other = self.run(Activity.QUEUE)
        driver = replace(driver, member=replace(driver.member, with_ray=False))

        assert movement([worker, driver, other]) == "unknown"


SLEEPS_ON = KernelState("S", 9.0, 4, 100, "hrtimer_nanosleep", sleeps_for=1e6, is_endless=True)


class TestSpawnedRanks:
    """Of `torch.multiprocessing.spawn`: the launcher is the root of the worker."""

    def findings(
        self, *activities: Activity, loaders: Activity | None = None, **more: object
    ) -> list[Finding]:
        """Ranks with these activities, each with a forked child that does `loaders`."""
        launcher = finding(member(1), Activity.CHILD, "ProcessContext.join")
        helper = member(2, parent_pid=1, is_trainer=False)  # multiprocessing's resource tracker
        found = [launcher, finding(helper, Activity.PIPE, kernel=SLEEPS_ON)]
        for pid, activity in enumerate(activities, 3):
            start = Frame("_wrap", "/venv/torch/multiprocessing/spawn.py", 1)
            calls = (Frame("main", "/srv/train.py", 1), start)
            one = member(pid, parent_pid=1, is_trainer=False)
            stacks = Stacks((ThreadStack("MainThread", pid, calls),))
            detail = "all_reduce" if activity is Activity.COLLECTIVE else ""
            found.append(finding(one, activity, detail, stacks=stacks, kernel=SLEEPS_ON, **more))
            if loaders is not None:
                child = member(10 * pid, parent_pid=pid, is_trainer=False)
                found.append(finding(child, loaders, stacks=stacks))
        return found

    def test_a_rank_that_waits_for_ever_blocks_the_collectives_of_the_others(self) -> None:
        found = diagnose(self.findings(Activity.COLLECTIVE, Activity.SLEEP), {})
        assert found.movement == "stuck"
        assert [one.finding and one.finding.member.identity.pid for one in found.suspects] == [4]
        assert found.chain == (
            "process 3 of trainer waits in all_reduce ← process 4 of trainer sleeps at train.py:1"
        )
        three = diagnose(self.findings(*[Activity.COLLECTIVE] * 2, Activity.SLEEP), {})
        assert three.chain.startswith("processes 3\u20134 of trainer wait in all_reduce")

    @pytest.mark.parametrize("loaders", [Activity.QUEUE, Activity.MOVING])
    def test_a_forked_data_loader_is_no_rank(self, loaders: Activity) -> None:
        waiting = [Activity.COLLECTIVE] * 2
        assert movement(self.findings(*waiting, loaders=loaders)) == "unknown"

    def test_in_collectives_alone_they_may_wait_for_another_host(self) -> None:
        assert movement(self.findings(Activity.COLLECTIVE, Activity.COLLECTIVE)) == "unknown"

    def test_a_rank_that_moves_or_whose_wait_may_end_is_not_stuck(self) -> None:
        assert movement(self.findings(Activity.COLLECTIVE, Activity.MOVING)) == "moving"
        assert movement(self.findings(Activity.LOCK, Activity.LOCK, may_end=True)) == "unknown"

    def test_a_wait_at_a_server_that_is_not_known_may_end(self) -> None:
        assert movement(self.findings(Activity.COLLECTIVE, Activity.SERVER)) == "unknown"


class TestSuspects:
    def suspects(self, *findings: Finding) -> list[tuple[int | None, str]]:
        return [(one.rank, one.activity) for one in diagnose(findings, {}).suspects]

    def test_the_rank_that_is_not_in_the_collective(self) -> None:
        found = ranks(Activity.COLLECTIVE, Activity.SLEEP, Activity.COLLECTIVE)

        assert self.suspects(*found) == [(1, "sleep")]

    def test_the_rank_that_does_not_run(self) -> None:
        found = ranks(Activity.COLLECTIVE, Activity.COLLECTIVE, Activity.COLLECTIVE)

        assert self.suspects(found[0], found[2]) == [(1, "gone")]

    def test_the_rank_in_another_collective_than_most(self) -> None:
        found = ranks(*[Activity.COLLECTIVE] * 3)
        odd = finding(member(4, 3, 4), Activity.COLLECTIVE, "barrier")

        assert self.suspects(*(found), odd) == [(3, "collective")]

    def test_two_halves_have_none(self) -> None:
        one, _ = ranks(*[Activity.COLLECTIVE] * 2)
        other = finding(member(2, 1, 2), Activity.COLLECTIVE, "barrier")

        assert self.suspects(one, other) == []

    def test_ranks_that_all_do_the_same_have_none(self) -> None:
        assert self.suspects(*ranks(*[Activity.COLLECTIVE] * 4)) == []

    def test_the_rank_whose_flight_recorder_lacks_the_newest_collective(self) -> None:
        found = diagnose(ranks(*[Activity.COLLECTIVE] * 4), {}, {2: "all_reduce 1234"})
        assert [one.rank for one in found.suspects] == [2]
        assert found.movement == "stuck"
        assert found.chain == (
            "ranks 0–1, 3 wait in all_reduce"  # noqa: RUF001 - a range
            " ← rank 2 waits in all_reduce and has not entered all_reduce 1234"
        )

    def test_the_server_for_which_a_rank_waits(self) -> None:
        engine = member(50, key=WorkerKey("night", "engine"), is_trainer=False)
        ends = (FarEnd("127.0.0.1:8000", engine.identity),)
        waits = finding(member(2, 1, 2), Activity.SERVER, far_ends=ends)
        found = diagnose(
            [ranks(*[Activity.COLLECTIVE] * 2)[0], waits, finding(engine, Activity.SLEEP)], {}
        )

        assert [one.key.worker for one in found.suspects] == ["engine"]
        assert found.chain == (
            "rank 0 waits in all_reduce ← rank 1 waits for server 127.0.0.1:8000"
            " at train.py:1 ← process 50 of engine sleeps at train.py:1"
        )

    def test_the_data_loader_for_which_a_rank_waits(self) -> None:
        loader = member(50, is_trainer=False, parent_pid=1)
        idle = member(51, is_trainer=False, parent_pid=1)
        found = diagnose(
            [*ranks(Activity.QUEUE), finding(loader, Activity.PIPE), finding(idle, Activity.QUEUE)],
            {},
        )

        assert found.chain == (
            "rank 0 waits for a queue at train.py:1"
            " ← process 50 of trainer waits for a pipe at train.py:1"
        )


def test_a_stack_that_was_not_shown_explains_no_wait() -> None:
    """The alert says that the run hangs or waits, and names the chain as the reason."""
    collective, unread = ranks(Activity.COLLECTIVE, Activity.UNKNOWN)
    far = (FarEnd("it", unread.member.identity),)
    waits = finding(member(1, 0, 2), Activity.PIPE, far_ends=far)
    chains = [
        diagnose(found, {}).chain
        for found in ([finding(member(1), Activity.UNKNOWN)], [collective, unread], [waits, unread])
    ]
    assert chains == [
        "",
        "rank 0 waits in all_reduce",
        "rank 0 waits for a pipe of it at train.py:1",
    ]


def test_ranks_are_listed_as_ranges() -> None:
    found = ranks(*[Activity.COLLECTIVE] * 3, Activity.SLEEP, Activity.COLLECTIVE)

    assert diagnose(found, {}).chain == (
        "ranks 0–2, 4 wait in all_reduce ← rank 3 sleeps at train.py:1"  # noqa: RUF001 - a range
    )


@pytest.mark.parametrize(
    ("stacks", "text"),
    [
        (main("get", file="/usr/lib/python3.11/queue.py"), ""),
        (main("get", file="/venv/lib/python3.11/site-packages/loader/a.py"), ""),
        (Stacks(), ""),
        (main("<module>", file="<string>"), " at <string>:1"),
        (
            Stacks(
                (
                    ThreadStack(
                        "MainThread",
                        1,
                        (
                            Frame("Condition.wait", "/usr/lib/python3.11/threading.py", 327),
                            Frame("Queue.get", "/usr/lib/python3.11/queue.py", 171),
                            Frame("next_batch", "/srv/run/data.py", 18),
                            Frame("<module>", "/srv/run/train.py", 40),
                        ),
                    ),
                )
            ),
            " at data.py:18",
        ),
    ],
    ids=["standard library", "package", "no stack", "no file", "below a library"],
)
def test_a_wait_is_placed_in_the_line_of_the_program_and_not_of_a_library(
    stacks: Stacks, text: str
) -> None:
    found = finding(member(1), Activity.QUEUE, stacks=stacks)

    assert diagnose([found], {}).chain == f"process 1 of trainer waits for a queue{text}"
