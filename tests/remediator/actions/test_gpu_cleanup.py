from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from trainwarden_exporter.config import Config as ExporterConfig
from trainwarden_exporter.exceptions import CollectError
from trainwarden_exporter.gpu.driver import DriverReading as DriverSight
from trainwarden_exporter.gpu.holders import Holder, Survey
from trainwarden_exporter.gpu.model import GpuKey, GpuMemory, GpuReading, ListedProcess
from trainwarden_exporter.gpu.snapshot import GpuSnapshot
from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.processes.procfs import Identity, read_process
from trainwarden_exporter.processes.start_times import start_timestamp
from trainwarden_remediator.actions import gpu_memory, termination
from trainwarden_remediator.actions.base import ActionState
from trainwarden_remediator.actions.gpu_cleanup import GpuCleanupAction
from trainwarden_remediator.actions.gpu_memory import unaccounted_bytes
from trainwarden_remediator.config.targets import GpuCleanup
from trainwarden_remediator.exceptions import ActionDeferredError, ActionError
from trainwarden_remediator.observation.model import ExporterState

GIB = 1 << 30
GPU = GpuKey("0", "GPU-simulated")
SLEEP = "import time; print('up', flush=True); time.sleep(60)"
STUBBORN = f"import signal; signal.signal(15, signal.SIG_IGN); {SLEEP}"
LAUNCHER = f"""
import signal, subprocess, sys, time
signal.signal(15, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", {SLEEP!r}], stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
time.sleep(60)
"""
WATCHED = ExporterConfig.model_validate(
    {
        "runs": [
            {"name": "demo", "workers": [{"name": "w", "match": {"command": "nothing-of-ours"}}]}
        ]
    }
)
LONG_AFTER = time.time() + 3600


class Gpu:
    """A GPU that real processes hold, 10 GiB each; what dead ones held comes back when it may."""

    def __init__(self) -> None:
        self.children: list[subprocess.Popen[str]] = []
        self.pids: list[int] = []
        self.holders: list[Holder] = []
        self.kept_by_the_dead = 0
        self.looks = 0
        self.others = 0
        """Bytes that a healthy worker takes meanwhile, with each look one GiB more."""

    def hold(self, program: str = SLEEP, *, listed: bool = True, **changes: Any) -> Holder:
        child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
        self.children.append(child)
        assert child.stdout is not None
        line = child.stdout.readline()
        self.pids += [int(line)] if line.strip().isdecimal() else []
        process = read_process(child.pid)
        assert process is not None
        facts: dict[str, Any] = {"command": "python train.py", "owner": "root", **changes}
        held = {GPU: 10 * GIB} if listed else {}
        holder = Holder(process, listed=held, opened=frozenset({GPU}), **facts)
        self.holders.append(holder)
        return holder

    def look(self, *_: object) -> GpuSnapshot:
        self.looks += 1
        if self.others:
            self.others += GIB
        alive = tuple(holder for holder in self.holders if is_alive(holder.process.identity))
        rows = [ListedProcess(h.process.pid, 10 * GIB) for h in alive if h.listed]
        if self.others:
            rows.append(ListedProcess(1, self.others))
        used = sum(row.memory_bytes or 0 for row in rows) + GIB // 2
        if len(alive) < len(self.holders) and self.looks < self.kept_by_the_dead:
            used += 10 * GIB
        reading = GpuReading(
            GPU, memory=GpuMemory(80 * GIB, used, 80 * GIB - used), processes=tuple(rows)
        )
        return GpuSnapshot(DriverSight("ok", gpus=(reading,)), Survey(alive), 1)

    def close(self) -> None:
        for child in self.children:
            child.kill()
            child.wait(60)
            assert child.stdout is not None
            child.stdout.close()
        for pid in self.pids:
            with suppress(ProcessLookupError):
                pidfd = os.pidfd_open(pid)
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                os.close(pidfd)


def is_alive(identity: Identity) -> bool:
    process = read_process(identity.pid)
    return process is not None and process.alive and process.identity == identity


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gpu]:
    monkeypatch.setattr(gpu_memory, "POLL_SECONDS", 0.01)
    box = Gpu()
    yield box
    box.close()


def cleaner(gpu: Gpu, *, now: float = LONG_AFTER, **settings: Any) -> GpuCleanupAction:
    cleanup = GpuCleanup.model_validate({"grace": 5, "gpu_memory_release_timeout": 5, **settings})
    return GpuCleanupAction(cleanup, WATCHED, gpu_reader=gpu.look, now=lambda: now)


Steps = list[tuple[str, dict[str, Any]]]


def announcing(steps: Steps) -> Callable[..., None]:
    return lambda step, **facts: steps.append((step, facts))


def exporter(orphans: float | None) -> ExporterState:
    return ExporterState({}, 1, 1, gpu_orphans=orphans)


def test_exactly_the_leftovers_are_ended_listed_or_not(gpu: Gpu) -> None:
    leftovers = [gpu.hold(), gpu.hold(listed=False), gpu.hold(STUBBORN)]
    healthy = gpu.hold(worker=WorkerKey("demo", "w"))
    observer, monitor = gpu.hold(protected=True), gpu.hold(listed=False, monitor_only=True)
    action, steps = cleaner(gpu, grace=1), Steps()
    assert set(action.find_instances()) == {one.process.identity for one in leftovers}
    facts = action.perform("7", announcing(steps))
    assert not any(is_alive(one.process.identity) for one in leftovers)
    assert is_alive(healthy.process.identity)
    assert is_alive(observer.process.identity)
    assert is_alive(monitor.process.identity)
    assert facts["killed"] == [leftovers[2].process.pid]
    ((step, announced),) = steps
    assert step == "end"
    assert [one["pid"] for one in announced["processes"]] == [o.process.pid for o in leftovers]
    assert action.health_problem(exporter(0), 0) == ""


def test_every_holder_is_listed_with_why_it_is_spared(gpu: Gpu) -> None:
    leftover = gpu.hold()
    spared: list[tuple[dict[str, Any], str]] = [
        ({"worker": WorkerKey("demo", "w")}, "it belongs to worker demo/w"),
        ({"protected": True}, "it is a program that may hold a GPU, or gpu.protected names it"),
        ({"listed": False, "monitor_only": True}, "it only observes the GPU"),
        ({"attended": "a notebook"}, "somebody works with it: a notebook"),
        ({"owner": "ann"}, "its account is none of root"),
        ({"command": "python eval.py"}, "its command does not match gpu_cleanup.command"),
    ]
    holders = [gpu.hold(**facts) for facts, _ in spared]
    action = cleaner(gpu, command="train", owners=("root",))
    shown, chosen = action.select()
    assert chosen == (leftover,)
    assert sorted(one.process.pid for one in shown) == sorted(one.process.pid for one in holders)
    assert [action.why_spared(one) for one in holders] == [why for _, why in spared]
    young = cleaner(gpu, now=start_timestamp(leftover.process.identity) + 1, owners=("root",))
    assert leftover in young.select()[0]
    assert young.why_spared(leftover) == "it is younger than 30 s"


def test_an_action_that_is_no_longer_allowed_ends_nothing(gpu: Gpu) -> None:
    holder, steps = gpu.hold(), Steps()

    def confirm() -> None:
        raise ActionDeferredError("silenced at Alertmanager")

    with pytest.raises(ActionDeferredError, match="silenced"):
        cleaner(gpu).perform("7", announcing(steps), confirm=confirm)
    assert steps == []
    assert is_alive(holder.process.identity)


def test_a_silence_while_the_end_is_recorded_is_heeded(gpu: Gpu) -> None:
    holder, steps = gpu.hold(), Steps()

    def confirm() -> None:
        if steps:
            raise ActionDeferredError("silenced at Alertmanager")

    with pytest.raises(ActionDeferredError, match="silenced"):
        cleaner(gpu).perform("7", announcing(steps), confirm=confirm)
    assert [step for step, _ in steps] == ["end"]
    assert is_alive(holder.process.identity)


def test_what_a_leftover_has_started_is_not_ended_with_it(gpu: Gpu) -> None:
    launcher = gpu.hold(LAUNCHER)
    (below,) = gpu.pids
    cleaner(gpu, grace=0.2).perform("7", announcing([]))
    assert not is_alive(launcher.process.identity)
    child = read_process(below)
    assert child is not None
    assert child.alive


@pytest.mark.parametrize(
    "settings",
    [{"owners": ["somebody"]}, {"command": "other\\.py"}],
)
def test_what_the_configuration_spares_is_left_alone(gpu: Gpu, settings: dict[str, Any]) -> None:
    holder = gpu.hold()
    action, steps = cleaner(gpu, **settings), Steps()
    assert action.find_instances() == []
    assert action.perform("7", announcing(steps)) == {"ended": [], "killed": []}
    assert steps == []
    assert is_alive(holder.process.identity)
    # and a clean-up that has done all it may is not called a failure for it
    assert action.health_problem(exporter(1), 0) == ""
    assert action.health_problem(exporter(2), 0) != ""


def test_a_process_that_has_just_started_is_no_leftover(gpu: Gpu) -> None:
    started = start_timestamp(gpu.hold().process.identity)
    early = cleaner(gpu, now=started + 29)
    assert early.find_instances() == []
    early.perform("7", announcing([]))
    assert early.health_problem(exporter(1), 0) != "", "it has to be ended yet"
    assert len(cleaner(gpu, now=started + 31).find_instances()) == 1


def test_the_memory_is_waited_for(gpu: Gpu) -> None:
    gpu.hold()
    gpu.kept_by_the_dead = 8
    cleaner(gpu).perform("7", announcing([]))
    assert gpu.looks >= 8


def test_what_a_healthy_worker_takes_meanwhile_is_not_missed(gpu: Gpu) -> None:
    gpu.hold()
    gpu.others = 20 * GIB
    cleaner(gpu).perform("7", announcing([]))
    assert gpu.looks == 2


def test_memory_that_stays_away_is_reported(gpu: Gpu) -> None:
    gpu.hold()
    gpu.kept_by_the_dead = sys.maxsize
    with pytest.raises(ActionError, match=r"memory is not released: 10.0 GiB on GPU 0"):
        cleaner(gpu, gpu_memory_release_timeout=0.1).perform("7", announcing([]))


def test_what_keeps_the_watch_alive_is_refused(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    holder = gpu.hold()
    monkeypatch.setattr(termination, "PROTECTED", frozenset({holder.process.name}))
    steps = Steps()
    with pytest.raises(ActionError, match="is protected"):
        cleaner(gpu).perform("7", announcing(steps))
    assert steps == []
    assert is_alive(holder.process.identity)


def test_no_process_is_ended_where_all_processes_may_belong_to_workers(gpu: Gpu) -> None:
    gpu.hold()
    action = GpuCleanupAction(GpuCleanup(), ExporterConfig(), gpu_reader=gpu.look)
    with pytest.raises(ActionError, match="no worker is configured"):
        action.find_instances()


def test_what_cannot_be_seen_is_not_cleaned() -> None:
    def blind(*_: object) -> GpuSnapshot:
        raise CollectError("too many open files")

    action = GpuCleanupAction(GpuCleanup(), WATCHED, gpu_reader=blind)
    with pytest.raises(ActionError, match="too many open files"):
        action.perform("7", announcing([]))


def test_a_driver_that_hangs_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()

    def hang(*_: object) -> GpuSnapshot:
        released.wait(60)
        return GpuSnapshot(DriverSight("ok"))

    monkeypatch.setattr(gpu_memory, "DRIVER_TIMEOUT_SECONDS", 0.05)
    action = GpuCleanupAction(GpuCleanup(), WATCHED, gpu_reader=hang)
    with pytest.raises(ActionError, match="no answer within"):
        action.find_instances()
    released.set()


def test_after_a_crash_it_is_identified_by_who_is_left(gpu: Gpu) -> None:
    holder = gpu.hold()
    action, before = cleaner(gpu), [holder.process.identity]
    assert action.inspect("7", before) is ActionState.UNTOUCHED
    gpu.close()
    assert action.inspect("7", before) is ActionState.ENDED
    assert action.finish("7", announcing([])) == {"settled": "ended"}


def test_a_notebook_is_not_ended_beside_a_leftover(gpu: Gpu) -> None:
    notebook, leftover = gpu.hold(attended="notebook kernel"), gpu.hold()
    action = cleaner(gpu)
    assert action.find_instances() == [leftover.process.identity]
    action.perform("7", announcing([]))
    assert is_alive(notebook.process.identity)
    assert not is_alive(leftover.process.identity)


def test_only_what_was_meant_is_ended(gpu: Gpu) -> None:
    intended, newcomer = gpu.hold(), gpu.hold()
    action = cleaner(gpu)
    facts = action.perform("7", announcing([]), intended=[intended.process.identity])
    assert [one["pid"] for one in facts["ended"]] == [intended.process.pid]
    assert is_alive(newcomer.process.identity)


def test_what_a_pid_file_names_is_no_stranger(gpu: Gpu, tmp_path: Path) -> None:
    holder = gpu.hold()
    (tmp_path / "pid").write_text(f"{holder.process.pid}\n")
    worker = {"name": "w", "match": {"pid_file": tmp_path / "pid"}}
    watched = ExporterConfig.model_validate({"runs": [{"name": "demo", "workers": [worker]}]})
    action = GpuCleanupAction(GpuCleanup(), watched, gpu_reader=gpu.look, now=lambda: LONG_AFTER)
    assert action.find_instances() == []


def test_no_process_is_ended_where_a_worker_cannot_be_identified(gpu: Gpu) -> None:
    gpu.hold()

    def look(*_: object) -> GpuSnapshot:
        return replace(gpu.look(), undecided=frozenset({WorkerKey("demo", "w")}))

    action = GpuCleanupAction(GpuCleanup(), WATCHED, gpu_reader=look, now=lambda: LONG_AFTER)
    with pytest.raises(ActionError, match="cannot identify the processes of demo/w"):
        action.find_instances()


def test_the_exporter_has_the_last_word() -> None:
    action = GpuCleanupAction(GpuCleanup(), WATCHED)
    assert "does not show" in action.health_problem(exporter(None), 0)
    assert action.health_problem(exporter(2), 0) == "processes of no worker still hold GPUs (2)"
    assert action.health_problem(exporter(0), 0) == ""


def test_what_is_nobodys_is_what_the_driver_says_of_no_process(gpu: Gpu) -> None:
    gpu.hold()
    gpu.hold(listed=False)
    assert unaccounted_bytes(gpu.look(WATCHED)) == {GPU: GIB // 2}
