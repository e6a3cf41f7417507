"""Holders of GPUs, and orphans among them."""

from __future__ import annotations

import pwd
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from trainwarden_exporter.gpu.holders import (
    Holder,
    HolderSearch,
    Survey,
    is_protected,
    parse_version,
    program_name,
    read_pid_numbering,
)
from trainwarden_exporter.gpu.model import NO_GPU, GpuKey, GpuReading, ListedProcess
from trainwarden_exporter.processes.accounts import RunAccounts
from trainwarden_exporter.processes.matching import Matcher, Selector, WorkerKey
from trainwarden_exporter.processes.procfs import read_owner, read_processes

if TYPE_CHECKING:
    from tests.exporter.conftest import FakeProc

ONE, TWO = GpuKey("0", "GPU-a"), GpuKey("1", "GPU-b")
TRAINER = WorkerKey("demo", "trainer")
TRAIN = ["python", "train.py", "--resume"]
OWN_PID = 900
GIB = 1 << 30


class Box:
    """A simulated host: processes, device files and the driver's process lists."""

    def __init__(self, proc: FakeProc, tmp_path: Path) -> None:
        self.proc = proc
        self.dev = tmp_path / "dev"
        self.dev.mkdir()
        for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
            (self.dev / name).touch()
        self.listed: dict[GpuKey, list[ListedProcess]] = {ONE: [], TWO: []}
        self.workers = {TRAINER: Selector.model_validate({"command": "worker-0"})}
        self.driver_version = "570.124.06"
        self.describe_workers = True
        self.add(1, ["init"], parent=0)
        self.add(2, ["kthreadd"], parent=0, flags=0x00200000)
        self.add(OWN_PID, ["trainwarden-exporter", "run"])
        (proc.root / "self").symlink_to(str(OWN_PID))

    def add(
        self, pid: int, command: Sequence[str], *files: str, parent: int = 1, flags: int = 0
    ) -> None:
        self.proc.add(pid, command, parent=parent, flags=flags)
        self.proc.open(pid, *(self.dev / name for name in files))

    def build(self, *protected: str) -> HolderSearch:
        return HolderSearch(
            device_root=self.dev,
            protected=[re.compile(pattern) for pattern in protected],
            root=self.proc.root,
            describe_workers=self.describe_workers,
            users=[one.user for one in self.workers.values()],
        )

    def find(self, *protected: str, search: HolderSearch | None = None) -> Survey:
        search = search or self.build(*protected)
        processes = read_processes(self.proc.root)
        gpus = [
            GpuReading(key, minor=int(key.gpu), processes=tuple(rows))
            for key, rows in self.listed.items()
        ]
        matcher = Matcher(self.workers, root=self.proc.root)
        trees = matcher.assign(processes)
        return search.find(processes, trees, gpus, driver_version=self.driver_version)

    def orphans(self, *protected: str) -> dict[int, tuple[GpuKey, ...]]:
        """Returns the GPUs of each orphan, by pid."""
        return {one.process.pid: one.gpus for one in self.find(*protected).orphans}


@pytest.fixture
def box(proc: FakeProc, tmp_path: Path) -> Box:
    return Box(proc, tmp_path)


class TestAnOrphan:
    def test_holds_a_gpu_that_the_driver_lists_it_on(self, box: Box) -> None:
        box.add(10, TRAIN)
        box.listed[TWO] = [ListedProcess(10, 3 * GIB)]
        (holder,) = box.find().orphans
        assert (holder.gpus, holder.memory_bytes) == ((TWO,), 3 * GIB)
        assert holder.command == "python train.py --resume"

    def test_holds_a_gpu_by_an_open_file_that_the_driver_does_not_list(self, box: Box) -> None:
        box.add(10, TRAIN, "nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm")
        (holder,) = box.find().orphans
        assert holder.gpus == (ONE, TWO)
        assert holder.listed == {}
        assert holder.memory_bytes is None
        assert not holder.monitor_only

    def test_is_on_the_listed_gpu_whatever_files_it_has_open(self, box: Box) -> None:
        box.add(10, TRAIN, "nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm")
        box.listed[TWO] = [ListedProcess(10, None)]
        assert box.orphans() == {10: (TWO,)}

    def test_may_hold_only_the_driver(self, box: Box) -> None:
        box.add(10, TRAIN, "nvidiactl", "nvidia-uvm")
        assert box.orphans() == {10: (NO_GPU,)}

    def test_is_a_child_left_by_an_ended_worker(self, box: Box) -> None:
        box.add(10, TRAIN, "nvidia0", "nvidia-uvm", parent=9)
        assert box.orphans() == {10: (ONE,)}


class TestNoOrphan:
    def test_is_a_worker_or_a_descendant_of_one(self, box: Box) -> None:
        box.add(10, ["python", "worker-0"], "nvidia0")
        box.add(11, ["python", "loader"], "nvidia0", parent=10)
        box.add(12, ["sh"], "nvidia0", parent=11)
        box.listed[ONE] = [ListedProcess(pid, GIB) for pid in (10, 11, 12)]
        survey = box.find()
        assert survey.orphans == ()
        assert {holder.process.pid: holder.worker for holder in survey.holders} == dict.fromkeys(
            (10, 11, 12), TRAINER
        )

    def test_is_a_notebook_kernel_or_its_child(self, box: Box) -> None:
        box.add(10, ["python", "-m", "ipykernel_launcher", "-f", "x"], "nvidia0", "nvidia-uvm")
        box.add(11, ["python", "cell.py"], "nvidia1", "nvidia-uvm", parent=10)
        box.listed[ONE] = [ListedProcess(10, GIB)]
        survey = box.find()
        assert survey.orphans == ()
        assert {one.process.pid: one.attended for one in survey.in_use} == {
            10: "notebook kernel",
            11: "child of notebook kernel 10",
        }

    def test_is_a_process_without_the_files_of_cuda(self, box: Box) -> None:
        box.add(10, ["monitor"], "nvidia0", "nvidiactl")
        survey = box.find()
        assert survey.orphans == ()
        (holder,) = survey.observers
        assert holder.monitor_only
        assert holder.gpus == (ONE,)

    def test_only_observes_unless_the_driver_lists_it_or_the_host_lacks_cuda(
        self, box: Box
    ) -> None:
        box.add(10, ["monitor"], "nvidia0", "nvidiactl")
        box.listed[ONE] = [ListedProcess(10, GIB)]
        assert box.orphans() == {10: (ONE,)}
        box.listed[ONE] = []
        (box.dev / "nvidia-uvm").unlink()
        assert box.orphans() == {10: (ONE,)}

    def test_is_an_observer_that_is_protected(self, box: Box) -> None:
        box.add(10, ["python", "worker-0"], "nvidia0")
        box.add(11, ["nvidia-smi", "-l"], "nvidiactl")
        assert box.find().observers == ()

    def test_is_this_program_or_an_ancestor_of_it(self, box: Box) -> None:
        box.add(800, ["bash"], "nvidia0")
        box.proc.add(OWN_PID, ["trainwarden-exporter", "run"], parent=800)
        box.proc.open(OWN_PID, box.dev / "nvidiactl", box.dev / "nvidia0")
        box.listed[ONE] = [ListedProcess(OWN_PID, 0)]
        assert box.find().holders == ()

    def test_is_a_process_that_holds_nothing(self, box: Box) -> None:
        box.add(10, ["vim", "python train"])
        assert box.find().holders == ()

    def test_is_a_known_service(self, box: Box) -> None:
        cuda = ("nvidia0", "nvidia-uvm")
        box.add(10, ["/usr/bin/nvidia-persistenced", "--user", "nvidia"], *cuda)
        box.add(11, ["python3", "train.py", "nvidia-persistenced"], *cuda)
        assert box.orphans() == {11: (ONE,)}

    def test_is_a_service_of_the_host_that_was_given_a_device_file(self, box: Box) -> None:
        cuda = ("nvidia0", "nvidia-uvm")
        for pid, unit in ((10, "system.slice/accounts.service"), (11, "user.slice/a.scope")):
            box.add(pid, ["/usr/libexec/accounts"], *cuda)
            (box.proc.root / str(pid) / "cgroup").write_text(f"0::/{unit}\n")
        assert box.orphans() == {11: (ONE,)}

    def test_is_a_process_that_the_configuration_protects(self, box: Box) -> None:
        box.add(10, ["python3", "notebook.py"], "nvidia0", "nvidia-uvm")
        box.add(11, ["python3", "train.py"], "nvidia0", "nvidia-uvm")
        assert box.orphans(r"notebook\.py$", "nothing like it") == {11: (ONE,)}


@pytest.mark.parametrize("named", [True, False])
def test_how_a_worker_was_started_is_reported_where_it_is_wanted(box: Box, *, named: bool) -> None:
    box.add(10, ["python", "worker-0"], "nvidia0")
    box.add(11, TRAIN, "nvidia0")
    box.listed[ONE] = [ListedProcess(10, GIB)]
    box.describe_workers = named
    found = {holder.process.pid: holder for holder in box.find().holders}
    assert found[10].command == ("python worker-0" if named else "")
    assert (found[10].worker, found[10].memory_bytes) == (TRAINER, GIB)
    assert found[11].command == "python train.py --resume"


class TestAPidOfTheDriver:
    def test_without_a_process_here_is_counted(self, box: Box) -> None:
        box.listed[ONE] = [ListedProcess(4711, GIB), ListedProcess(4712, None)]
        survey = box.find()
        assert (survey.holders, survey.unmapped) == ((), {ONE: 2})

    def test_is_a_host_pid_with_an_old_driver(self, box: Box) -> None:
        """In a container such a pid may be that of another process."""
        box.proc.remove(2)  # only the initial pid namespace shows kernel threads
        box.driver_version = "470.256.02"
        box.add(10, ["python", "worker-0"], "nvidia0")
        box.listed[ONE] = [ListedProcess(10, GIB)]
        survey = box.find()
        assert survey.unmapped == {ONE: 1}
        assert not any(holder.listed for holder in survey.holders)

    def test_is_translated_by_a_newer_driver_and_confirmed_by_an_open_file(self, box: Box) -> None:
        box.proc.remove(2)
        (box.proc.root / str(OWN_PID) / "ns").mkdir()
        (box.proc.root / str(OWN_PID) / "ns" / "pid").touch()
        box.add(10, ["python", "worker-0"], "nvidia0")
        box.add(11, TRAIN, "nvidia1")
        box.add(12, TRAIN)
        box.listed[ONE] = [ListedProcess(pid, GIB) for pid in (10, 11, 12)]
        survey = box.find()
        assert survey.unmapped == {ONE: 2}
        assert {h.process.pid: dict(h.listed) for h in survey.holders} == {10: {ONE: GIB}, 11: {}}

    def test_that_was_reused_meanwhile_matches_no_process(self, box: Box) -> None:
        box.proc.add(10, TRAIN, start=100)
        box.listed[ONE] = [ListedProcess(10, GIB)]
        search = HolderSearch(device_root=box.dev, root=box.proc.root)
        processes = read_processes(box.proc.root)
        box.proc.add(10, ["stranger"], start=200)
        gpu = GpuReading(ONE, processes=tuple(box.listed[ONE]))
        assert search.find(processes, {}, [gpu]) == Survey((), {ONE: 1}, 0)


@pytest.mark.parametrize(
    ("kernel_thread", "inode_known", "version", "numbering"),
    [
        (True, False, "", "host"),
        (False, False, "570.1.2", "foreign"),
        (False, True, "570.1.2", "translated"),
        (False, True, "535.113.01", "translated"),
        (False, True, "535.104.12", "foreign"),
        (False, True, "470.1", "foreign"),
        (False, True, "", "foreign"),
    ],
)
def test_numbering(
    proc: FakeProc, kernel_thread: bool, inode_known: bool, version: str, numbering: str
) -> None:
    proc.add(2, flags=0x00200000 if kernel_thread else 0)
    if inode_known:
        (proc.root / "self" / "ns").mkdir(parents=True)
        (proc.root / "self" / "ns" / "pid").touch()
    assert read_pid_numbering(read_processes(proc.root).values(), version, proc.root) == numbering


def test_versions_are_compared_as_numbers() -> None:
    assert parse_version("1000.2") > parse_version("535.113.01") > parse_version("535.98")
    assert parse_version("570.124.06-beta") == (570, 124)
    assert parse_version("") == ()


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["/usr/lib/xorg/Xorg", ":0"], "Xorg"),
        (["python3", "/opt/bin/nvitop", "-m"], "nvitop"),
        (["/usr/bin/python3.11", "-u", "-m", "gpustat.cli"], "gpustat"),
        (["python3", "-c", "import nvitop"], "python3"),
        (["bash", "train.sh"], "train.sh"),
        (["python"], "python"),
        ([], ""),
    ],
)
def test_a_program_is_named_after_the_script_or_module_it_runs(
    command: list[str], name: str
) -> None:
    assert program_name(command) == name


@pytest.mark.parametrize(
    "command",
    [
        ["/usr/lib/xorg/Xorg", "-core"],
        ["gnome-shell"],
        ["kwin_wayland_wrapper"],
        ["Xwayland"],
        ["nvidia-smi", "-l"],
        ["nvidia-persistenced"],
        ["/usr/bin/nv-hostengine", "-n"],
        ["/usr/bin/dcgm-exporter"],
        ["nvidia_gpu_exporter"],
        ["nvidia-cuda-mps-server"],
        ["python3", "/usr/local/bin/nvitop"],
        ["/opt/datadog-agent/bin/agent/agent", "run"],
        ["/venv/bin/python", "/venv/lib/python3.11/site-packages/ray/dashboard/agent.py"],
        ["/venv/bin/python3", "/venv/bin/trainwarden-remediator", "run"],
        ["python", "-m", "trainwarden_exporter", "run"],
    ],
)
def test_displays_services_and_observers_are_protected(command: list[str]) -> None:
    assert is_protected(command)


@pytest.mark.parametrize(
    "command",
    [
        ["python", "train.py", "--display", "Xorg"],
        ["python", "train.py", "nvidia-smi"],
        ["bash", "-c", "nvidia-smi"],
        ["vllm", "serve"],
        ["python", "-c", "import time # dcgm-exporter"],
        ["Xorgy"],
        [],
    ],
)
def test_a_command_that_only_mentions_them_is_not_protected(command: list[str]) -> None:
    assert not is_protected(command)


@pytest.mark.parametrize(
    ("of_worker", "of_holder", "shown"),
    [(1001, 1001, "python train.py --resume"), (1001, 1002, "[x]"), (None, 987654, "[x]")],
)
def test_of_another_account_only_the_program_is_shown(
    box: Box, of_worker: int | None, of_holder: int, shown: str
) -> None:
    for pid, uid, command in ((10, of_holder, TRAIN), (20, of_worker, ["worker-0"])):
        if uid is not None:
            box.proc.add(pid, command, files=as_account(uid))
    box.listed[ONE] = [ListedProcess(10, GIB)]
    box.listed[TWO] = [ListedProcess(20, GIB)] if of_worker else []
    (orphan,) = box.find().orphans
    assert orphan.shown == shown.replace("[x]", f"[{orphan.process.name}]")
    assert orphan.command == "python train.py --resume"  # by which a leftover is recognised


def as_account(uid: int) -> dict[str, str]:
    return {"status": f"Name:\tx\nUid:\t{uid}\t0\t0\t0\n"}


class TestALeftoverOfTheRun:
    """It holds GPU 0, belongs to account 987654, and no worker runs."""

    COMMAND = "python train.py --resume"

    @pytest.fixture(autouse=True)
    def _leftover(self, box: Box) -> None:
        box.proc.add(10, TRAIN, files=as_account(987654))
        box.listed[ONE] = [ListedProcess(10, GIB)]

    @staticmethod
    def shown(box: Box, search: HolderSearch | None = None) -> str:
        (orphan,) = box.find(search=search).orphans
        return orphan.shown

    def test_is_shown_after_its_worker_has_ended(self, box: Box) -> None:
        box.proc.remove(10)
        box.proc.add(20, ["worker-0"], files=as_account(987654))
        box.listed[ONE] = [ListedProcess(20, GIB)]
        search = box.build()
        assert box.find(search=search).orphans == ()
        box.proc.remove(20)
        box.proc.add(10, TRAIN, files=as_account(987654))
        box.listed[ONE] = [ListedProcess(10, GIB)]
        assert self.shown(box, search) == self.COMMAND
        assert self.shown(box) == "[python]"

    def test_is_shown_though_another_run_goes_on(self, box: Box) -> None:
        box.proc.add(20, ["worker-0"], files=as_account(987654))
        search = box.build()
        assert self.shown(box, search) == self.COMMAND
        box.proc.add(20, ["worker-0"], start=200, files=as_account(1001))
        assert self.shown(box, search) == self.COMMAND
        assert self.shown(box) == "[python]"

    def test_is_shown_where_sudo_started_the_worker(self, box: Box) -> None:
        box.proc.add(20, ["sudo", "worker-0"], files=as_account(0))
        box.proc.add(21, ["python", "train"], parent=20, files=as_account(987654))
        assert self.shown(box) == self.COMMAND

    def test_is_shown_if_the_configuration_names_its_account(self, box: Box) -> None:
        box.workers = {TRAINER: Selector.model_validate({"command": "worker-0", "user": "987654"})}
        assert self.shown(box) == self.COMMAND

    def test_is_shown_after_a_reload(self, box: Box) -> None:
        box.proc.add(20, ["worker-0"], files=as_account(987654))
        before, search = box.build(), box.build()
        assert self.shown(box, before) == self.COMMAND
        box.proc.remove(20)
        search.accounts.add(before.accounts)
        assert self.shown(box, search) == self.COMMAND


def test_the_account_of_a_reused_pid_is_none_of_the_runs(proc: FakeProc) -> None:
    proc.add(20, files=as_account(1001))
    worker = read_processes(proc.root)[20]
    proc.add(20, start=200, files=as_account(987654))
    accounts = RunAccounts(root=proc.root)
    accounts.add_workers([worker])
    assert 987654 not in accounts


def test_accounts_are_configured_by_name_or_number(proc: FakeProc) -> None:
    accounts = RunAccounts(["nobody", "987654", "no such account", None], proc.root)
    uids = (pwd.getpwnam("nobody").pw_uid, 987654, 1001, None)
    assert [uid in accounts for uid in uids] == [True, True, False, False]


def test_the_owner_is_named(proc: FakeProc) -> None:
    proc.add(10, files={"status": "Name:\tx\nUid:\t0\t0\t0\t0\n"})
    proc.add(11, files={"status": "Name:\tx\nUid:\t987654\t0\t0\t0\n"})
    proc.add(12)
    assert read_owner(10, proc.root) == pwd.getpwuid(0).pw_name
    assert read_owner(11, proc.root) == "987654"
    assert read_owner(12, proc.root) == pwd.getpwuid((proc.root / "12").stat().st_uid).pw_name
    assert read_owner(13, proc.root) == ""


def test_memory_is_summed_over_gpus(proc: FakeProc) -> None:
    proc.add(10)
    process = read_processes(proc.root)[10]
    assert Holder(process, "", "", {ONE: 1, TWO: 2}).memory_bytes == 3
    assert Holder(process, "", "", {ONE: None, TWO: 2}).memory_bytes == 2
    assert Holder(process, "", "", {ONE: None}).memory_bytes is None
